//! The address of a journal: `postgres://USER@HOST,HOST/DATABASE?NAME=VALUE`.
//!
//! Parsed here and not by the driver, so that a wrong part is named and no fault or log line holds a password.

use std::{net::IpAddr, path::PathBuf, str::FromStr as _, time::Duration};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use percent_encoding::percent_decode_str;
use tokio_postgres::config::{Config, Host, SslMode, TargetSessionAttrs};

use crate::{
    backend::Credentials,
    password::{self, LoginTarget},
};

/// The schema of the tables unless the address names another.
const SCHEMA: &str = "budao";
/// The longest name that PostgreSQL keeps whole, less the room that partition names need.
const SCHEMA_LENGTH: usize = 48;
const PORT: u16 = 5432;
/// The parameters of an address.
const PARAMETERS: [&str; 11] = [
    "application_name",
    "connect_timeout",
    "dbname",
    "failover",
    "host",
    "passfile",
    "port",
    "schema",
    "sslmode",
    "sslrootcert",
    "user",
];

/// Whether connections are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TlsMode {
    /// Plain connections: on this machine, or by `sslmode=disable`.
    Disabled,
    /// Encrypted, with a certificate that fits the host name. `None` trusts the authorities of the system.
    Verified(Option<PathBuf>),
}

/// A parsed address.
#[derive(Clone)]
pub(crate) struct Address {
    pub(crate) config: Config,
    pub(crate) tls: TlsMode,
    pub(crate) schema: String,
    /// The address for people: without the password and the parameters.
    pub(crate) label: String,
    pub(crate) user: String,
    /// Only a standby that has every confirmed commit is promoted, by the word of the operator.
    pub(crate) is_failover_lossless: bool,
}

/// The parts of an address before they are put together.
#[derive(Default)]
struct AddressParts {
    user: Option<String>,
    password: Option<String>,
    hosts: Vec<(String, u16)>,
    /// The port of all hosts.
    port: Option<u16>,
    database: Option<String>,
    schema: Option<String>,
    ssl_mode: Option<String>,
    root_certificate: Option<PathBuf>,
    passfile: Option<PathBuf>,
    application_name: Option<String>,
    connect_timeout: Option<Duration>,
    is_failover_lossless: bool,
}

/// The address without its scheme; `None` for another scheme.
pub(crate) fn without_scheme(url: &str) -> Option<&str> {
    url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"))
}

/// Parses an address and finds its password.
///
/// # Errors
/// `configuration_wrong`, which names the part and never holds a password.
pub(crate) fn parse(url: &str, credentials: &Credentials) -> Result<Address, Fault> {
    let rest = without_scheme(url).ok_or_else(|| wrong("postgres://USER@HOST/DATABASE", ""))?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let mut parts = AddressParts::default();
    let (login, hosts) = authority.rsplit_once('@').map_or(("", authority), |parts| parts);
    let (user, password) = login.split_once(':').map_or((login, None), |(u, p)| (u, Some(p)));
    parts.user = non_empty(decode(user, "a role name")?);
    parts.password = password.map(|password| decode(password, "a password")).transpose()?;
    parts.database = non_empty(decode(database, "a database name")?);
    for host in hosts.split(',').filter(|host| !host.is_empty()) {
        parts.hosts.push(host_and_port(host)?);
    }
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        parts.set(name, decode(value, "text")?)?;
    }
    parts.finish(credentials)
}

fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn wrong(expected: impl Into<String>, received: &str) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::OpenJournal)
        .with(Fact::ConfigKey, "--journal")
        .with(Fact::Expected, expected.into())
        .with(Fact::Received, received.chars().take(80).collect::<String>())
}

fn decode(text: &str, part: &str) -> Result<String, Fault> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded = decoded.map_err(|_| wrong(format!("{part} in UTF-8"), ""))?;
    if decoded.contains('\0') {
        return Err(wrong(format!("{part} without a zero byte"), ""));
    }
    Ok(decoded.into_owned())
}

fn host_and_port(text: &str) -> Result<(String, u16), Fault> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let host = decode(host, "a host name")?;
    Ok((host, port.map_or(Ok(PORT), port_number)?))
}

fn port_number(text: &str) -> Result<u16, Fault> {
    u16::from_str(text).ok().filter(|port| *port > 0).ok_or_else(|| wrong("a port number", text))
}

impl AddressParts {
    fn set(&mut self, name: &str, value: String) -> Result<(), Fault> {
        match name {
            "host" => self.hosts.push((value, PORT)),
            "port" => self.port = Some(port_number(&value)?),
            "user" => self.user = Some(value),
            "dbname" => self.database = Some(value),
            "schema" => self.schema = Some(value),
            "failover" if value == "lossless" => self.is_failover_lossless = true,
            "failover" => return Err(wrong("failover=lossless or none", &value)),
            "sslmode" => self.ssl_mode = Some(value),
            "sslrootcert" => self.root_certificate = Some(value.into()),
            "passfile" => self.passfile = Some(value.into()),
            "application_name" => self.application_name = Some(value),
            "connect_timeout" => {
                let seconds = u64::from_str(&value).ok().filter(|seconds| *seconds > 0);
                let seconds = seconds.ok_or_else(|| wrong("connect_timeout in seconds", &value))?;
                self.connect_timeout = Some(Duration::from_secs(seconds));
            }
            _ => return Err(unknown_parameter(name)),
        }
        Ok(())
    }

    fn finish(mut self, credentials: &Credentials) -> Result<Address, Fault> {
        if let Some(port) = self.port {
            self.hosts.iter_mut().for_each(|host| host.1 = port);
        }
        let user = self.user.clone().or_else(|| credentials.user.clone());
        let user = user.ok_or_else(|| wrong("postgres://USER@HOST/DATABASE with a role", ""))?;
        let database = self.database.clone().unwrap_or_else(|| user.clone());
        if self.hosts.is_empty() {
            return Err(wrong("postgres://USER@HOST/DATABASE with a host", ""));
        }
        let schema = self.schema.clone().unwrap_or_else(|| SCHEMA.into());
        if !is_schema(&schema) {
            let rule = "schema=NAME of small letters, digits and _, not starting with pg_";
            return Err(wrong(rule, &schema));
        }
        let names: Vec<String> = self.hosts.iter().map(shown_host).collect();
        let label = format!("postgres://{user}@{}/{database}", names.join(","));
        let tls = self.tls_mode()?;
        let mut config = Config::new();
        config.user(&user).dbname(&database);
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.application_name(self.application_name.as_deref().unwrap_or("budao"));
        config.ssl_mode(if tls == TlsMode::Disabled { SslMode::Disable } else { SslMode::Require });
        config.connect_timeout(self.connect_timeout.unwrap_or(Duration::from_secs(5)));
        config.keepalives_idle(Duration::from_secs(10));
        config.keepalives_interval(Duration::from_secs(5)).keepalives_retries(3);
        config.tcp_user_timeout(Duration::from_secs(20));
        for (host, port) in &self.hosts {
            config.host(host).port(*port);
        }
        let target = LoginTarget { hosts: &self.hosts, database: &database, user: &user };
        let password = match self.password {
            Some(password) => Some(password),
            None => password::find(credentials, self.passfile.as_deref(), &target)?,
        };
        if let Some(password) = password {
            config.password(password);
        }
        let is_failover_lossless = self.is_failover_lossless;
        Ok(Address { config, tls, schema, label, user, is_failover_lossless })
    }

    /// `require` verifies the certificate too: encryption to an unknown server protects nothing.
    fn tls_mode(&self) -> Result<TlsMode, Fault> {
        let verified = || TlsMode::Verified(self.root_certificate.clone());
        match self.ssl_mode.as_deref() {
            Some("disable") => Ok(TlsMode::Disabled),
            Some("require" | "verify-full") => Ok(verified()),
            Some(other) => Err(wrong("sslmode=verify-full or sslmode=disable", other)),
            None if self.root_certificate.is_some() => Ok(verified()),
            None if self.hosts.iter().all(|(host, _)| is_local(host)) => Ok(TlsMode::Disabled),
            None => Ok(verified()),
        }
    }
}

/// A host as it is written in an address; its port only if it is not the usual one.
fn shown_host((host, port): &(String, u16)) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    if *port == PORT { host } else { format!("{host}:{port}") }
}

fn unknown_parameter(name: &str) -> Fault {
    let known = PARAMETERS.iter().map(|known| (strsim::jaro_winkler(name, known), *known));
    let nearest = known.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(near, _)| *near > 0.7);
    let short: String = name.chars().take(40).collect();
    match nearest {
        Some((_, nearest)) => {
            let expected = format!("an address without `{short}`; perhaps `{nearest}` was meant");
            wrong(expected, name).with(Fact::Nearest, vec![nearest.to_owned()])
        }
        None => {
            let known = PARAMETERS.join(", ");
            wrong(format!("an address without `{short}`; known are {known}"), name)
        }
    }
}

fn is_schema(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !name.is_empty()
        && name.len() <= SCHEMA_LENGTH
        && name.chars().all(is_word)
        && !name.starts_with("pg_")
}

fn is_local(host: &str) -> bool {
    let is_loopback = |ip: IpAddr| ip.is_loopback();
    host.starts_with('/') || host == "localhost" || host.parse().is_ok_and(is_loopback)
}

impl Address {
    /// The hosts for people.
    pub(crate) fn hosts(&self) -> String {
        let names = self.config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        });
        names.collect::<Vec<_>>().join(",")
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Address").field("label", &self.label).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> Result<Address, Fault> {
        parse(url, &Credentials::default())
    }

    #[test]
    fn an_address_names_hosts_ports_database_and_schema() {
        let address =
            parsed("postgresql://me@a:1,[::1]:2,b/db?schema=other&connect_timeout=3").unwrap();
        let host = |name: &str| Host::Tcp(name.into());
        assert_eq!(address.config.get_hosts(), [host("a"), host("::1"), host("b")]);
        assert_eq!(address.config.get_ports(), [1, 2, PORT]);
        assert_eq!(address.config.get_dbname(), Some("db"));
        assert_eq!(address.schema, "other");
        assert_eq!(address.label, "postgres://me@a:1,[::1]:2,b/db");
        let socket = parsed("postgres://me@/db?port=99&host=/run/postgresql").unwrap();
        assert_eq!(
            (socket.hosts().as_str(), socket.config.get_ports()),
            ("/run/postgresql", &[99][..])
        );
    }

    #[test]
    fn off_this_machine_the_certificate_is_verified_unless_the_address_says_otherwise() {
        for (url, tls) in [
            ("postgres://me@localhost/db", TlsMode::Disabled),
            ("postgres://me@127.0.0.1,[::1]/db", TlsMode::Disabled),
            ("postgres://me@localhost,db.example/db", TlsMode::Verified(None)),
            ("postgres://me@db.example/db", TlsMode::Verified(None)),
            ("postgres://me@db.example/db?sslmode=require", TlsMode::Verified(None)),
            ("postgres://me@db.example/db?sslmode=disable", TlsMode::Disabled),
            ("postgres://me@localhost/db?sslrootcert=/ca", TlsMode::Verified(Some("/ca".into()))),
        ] {
            assert_eq!(parsed(url).unwrap().tls, tls, "{url}");
        }
    }

    #[test]
    fn a_mistake_in_an_address_is_named_without_the_password() {
        for (url, named) in [
            ("postgres://me:secret@host:x/db", "x"),
            ("postgres://me:secret@host/db?sslmod=disable", "sslmod"),
            ("postgres://me:secret@host/db?sslmode=prefer", "prefer"),
            ("postgres://me:secret@host/db?schema=Big", "Big"),
            ("postgres://me:secret@host/db?failover=fast", "fast"),
            ("postgres://me:secret@host/db?schema=pg_catalog", "pg_catalog"),
            ("postgres://me:secret@/db", ""),
            ("postgres://host/db", ""),
            ("postgres://me:%ff@host/db", ""),
        ] {
            let fault = parsed(url).unwrap_err();
            assert_eq!(fault.kind(), Kind::ConfigurationWrong, "{url}");
            assert_eq!(fault.detail().text(Fact::Received), Some(named), "{url}");
            assert!(!format!("{fault:?}").contains("secret"), "{url}");
        }
        let fault = parsed("postgres://me@host/db?sslmod=disable").unwrap_err();
        assert!(format!("{fault:?}").contains("sslmode"), "the nearest name is given");
        let address = parsed("postgres://me:secret@host/db").unwrap();
        assert!(!format!("{address:?}").contains("secret"));
    }
}
