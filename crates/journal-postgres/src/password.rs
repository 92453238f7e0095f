//! Finds the password of a role: the variable's value, else a password file in the format of `.pgpass`.

use std::path::Path;

use budao_core::fault::{Fact, Fault, Kind, Operation};

use crate::backend::Credentials;

/// The largest password file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a line of a password file is compared with.
pub(crate) struct LoginTarget<'a> {
    pub(crate) hosts: &'a [(String, u16)],
    pub(crate) database: &'a str,
    pub(crate) user: &'a str,
}

/// The password for a login; `None` if there is none, as for a server that trusts the role.
///
/// # Errors
/// `configuration_wrong` if a file that the address names cannot be read. A default file may be absent.
pub(crate) fn find(
    credentials: &Credentials,
    named: Option<&Path>,
    target: &LoginTarget<'_>,
) -> Result<Option<String>, Fault> {
    if named.is_none()
        && let Some(password) = &credentials.password
    {
        return Ok(Some(password.clone()));
    }
    let Some(file) = named.or(credentials.passfile.as_deref()) else { return Ok(None) };
    match read(file) {
        Ok(text) => Ok(lookup(&text, target)),
        Err(_) if named.is_none() => Ok(None),
        Err(error) => Err(Fault::new(Kind::ConfigurationWrong, Operation::OpenJournal)
            .with(Fact::ConfigKey, "--journal")
            .with(Fact::Expected, "passfile=FILE that can be read and that only its owner may read")
            .with(Fact::Path, file.display().to_string())
            .caused_by(&error)),
    }
}

fn read(file: &Path) -> std::io::Result<String> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(file)?;
    // As libpq does: a file that others can read is not used.
    let is_open_to_others = metadata.mode() & 0o077 != 0;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX || is_open_to_others {
        return Err(std::io::ErrorKind::PermissionDenied.into());
    }
    std::fs::read_to_string(file)
}

/// The password of the first line that fits. A socket's directory counts as `localhost`.
fn lookup(text: &str, target: &LoginTarget<'_>) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = split(line);
        let password = if fields.len() == 5 { fields.pop() } else { None }?;
        let fits = |field: &str, value: &str| field == "*" || field == value;
        let is_host = target.hosts.iter().any(|(host, port)| {
            let host = if host.starts_with('/') { "localhost" } else { host };
            fits(&fields[0], host) && fits(&fields[1], &port.to_string())
        });
        (is_host && fits(&fields[2], target.database) && fits(&fields[3], target.user))
            .then_some(password)
    })
}

/// Splits a line at colons; a backslash takes the next character as it is. The last field may hold colons.
fn split(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut().expect("never empty").extend(characters.next()),
            other => fields.last_mut().expect("never empty").push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_gives_the_password() {
        let hosts = [("db".to_owned(), 5432), ("/run".to_owned(), 5432)];
        let target = LoginTarget { hosts: &hosts, database: "budao", user: "me" };
        for (text, password) in [
            ("", None),
            ("db:5432:budao:me:secret", Some("secret")),
            ("# a comment\n*:*:*:*:any", Some("any")),
            ("other:*:*:*:no\nlocalhost:*:*:me:yes", Some("yes")),
            ("db:5433:budao:me:no", None),
            ("db:5432:budao:me:with\\:colon", Some("with:colon")),
            ("db:5432:budao:me", None),
        ] {
            assert_eq!(lookup(text, &target).as_deref(), password, "{text}");
        }
    }

    #[test]
    fn a_password_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pass");
        std::fs::write(&file, "*:*:*:*:secret").unwrap();
        let hosts = [("db".to_owned(), 5432)];
        let target = LoginTarget { hosts: &hosts, database: "budao", user: "me" };
        let find = || super::find(&Credentials::default(), Some(&file), &target);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let fault = find().unwrap_err();
        assert_eq!(fault.kind(), Kind::ConfigurationWrong);
        assert!(!format!("{fault:?}").contains("secret"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(find().unwrap().as_deref(), Some("secret"));
    }
}
