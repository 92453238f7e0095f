//! The environment of commands, without variables that look like secrets.

use std::ffi::{OsStr, OsString};

/// Suffixes of variable names that hold secrets.
const SECRET_ENDINGS: [&str; 6] = ["_KEY", "_KEYS", "_PAT", "_PWD", "_PASS", "_DSN"];
/// Substrings of variable names that hold secrets.
const SECRET_PARTS: [&str; 9] = [
    "SECRET",
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "APIKEY",
    "PRIVATE",
    "AUTH",
];

/// The environment variables that commands get.
#[derive(Clone, Debug)]
pub struct Environment(Vec<(OsString, OsString)>);

impl Default for Environment {
    /// A minimal environment: `PATH` and `LANG`.
    fn default() -> Self {
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        Self(vec![("PATH".into(), path.into()), ("LANG".into(), "C.UTF-8".into())])
    }
}

impl Environment {
    /// Keeps the variables that do not look like secrets by name or value, and those named in `allow`.
    pub fn filtered<I>(variables: I, allow: &[String]) -> Self
    where
        I: IntoIterator<Item = (OsString, OsString)>,
    {
        let harmless = |(name, value): &(OsString, OsString)| {
            let allowed = allow.iter().any(|allowed| OsStr::new(allowed) == name);
            allowed || !(is_secret_name(name) || holds_password(value))
        };
        Self(variables.into_iter().filter(harmless).collect())
    }

    /// Adds or replaces one variable.
    #[must_use]
    pub fn with(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        let name = name.into();
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, value.into()));
        self
    }

    /// The variables as pairs of name and value.
    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

fn is_secret_name(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_uppercase();
    SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending))
        || SECRET_PARTS.iter().any(|part| name.contains(part))
        || name == "KEY"
}

/// True for a URL with a password in it, such as `postgres://user:password@host`.
fn holds_password(value: &OsStr) -> bool {
    let value = value.to_string_lossy();
    let Some((_, rest)) = value.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_out_and_the_rest_stays_in() {
        let given = [
            ("PATH", "/bin"),
            ("HOME", "/home/me"),
            ("OLDPWD", "/"),
            ("MONKEY", "see"),
            ("ANTHROPIC_API_KEY", "x"),
            ("aws_secret_access_key", "x"),
            ("GITHUB_TOKEN", "x"),
            ("PGPASSWORD", "x"),
            ("SSH_AUTH_SOCK", "/run/agent"),
            ("DATABASE_URL", "postgres://me:hush@db/app"),
            ("HOMEPAGE", "https://example.org/@me:you"),
            ("MY_TOKEN", "allowed"),
        ];
        let given = given.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let kept = Environment::filtered(given, &["MY_TOKEN".to_owned()]);
        let names: Vec<_> = kept.variables().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(names, ["PATH", "HOME", "OLDPWD", "MONKEY", "HOMEPAGE", "MY_TOKEN"]);
    }
}
