//! The configuration of an MCP server.
//!
//! Values of `env` and `headers` are secrets: they cannot be serialised, and debug output omits them. A URL is shown
//! without its user and query, because those may contain keys.

use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::millis,
    retry::RetryPolicy,
};
use budao_scrub::Scrubber;
use budao_tools::ReconcileRule;
use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer};

use crate::{name, sampling::SamplingMode};

/// The settings of one MCP server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpServerConfig {
    /// The prefix of its tools' names: 1 to 32 letters, digits, `-` and `_`; no `__`, and no `_` at either end.
    pub name: String,
    /// The transport and its address or program.
    pub transport: Transport,
    /// False excludes the server without removing its settings.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Tools to offer; empty for all. An entry may end in `*`.
    #[serde(default)]
    pub include: Vec<String>,
    /// Tools to leave out, even if included. An entry may end in `*`.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Tools whose every call a person must confirm, whatever the session's permissions. An entry may end in `*`.
    #[serde(default)]
    pub ask: Vec<String>,
    /// Whether to trust the server's hints about its tools. If false, every tool counts as one that executes something
    /// and must not be repeated.
    #[serde(default = "yes")]
    pub trust_hints: bool,
    /// Directories that the client reports to the server as its roots.
    #[serde(default)]
    pub roots: Vec<PathBuf>,
    /// Time limits for starting, listing and calling.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// The restart policy. `tries` counts consecutive failures; by default the client never stops trying.
    #[serde(default = "patient")]
    pub reconnect: RetryPolicy,
    /// The largest number of concurrent calls. A cancelled call counts until the server is notified.
    #[serde(default = "calls")]
    pub calls: usize,
    /// Whether the server may ask for texts of the session's model; off by default.
    #[serde(default)]
    pub sampling: SamplingMode,
    /// How to find out what became of an interrupted call, by the server's own name of its tool.
    #[serde(default)]
    pub reconcile: BTreeMap<String, ReconcileRule>,
    /// Whether calls return the server's result unchanged, for a gateway that forwards it. If false, they return its
    /// data.
    #[serde(skip)]
    pub whole_results: bool,
    /// Whether a start waits longer for this server, because it was asked for by name.
    #[serde(default)]
    pub required: bool,
    /// How to log in to an HTTP server.
    #[serde(default)]
    pub oauth: OauthConfig,
    /// The paths that the program of a stdio server may read and write; all that the user may if absent.
    #[serde(default)]
    pub confine: Option<ConfineConfig>,
    /// Values of variables that were filled into other settings than `env` and `headers`.
    #[serde(skip)]
    pub found_secrets: Vec<SecretString>,
}

/// How to log in to an HTTP server. Everything is optional: the server's metadata says what is needed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OauthConfig {
    /// The id under which the authorization server knows this client; registered at the login if absent.
    pub client_id: Option<String>,
    /// The secret that belongs to `client_id`.
    #[serde(deserialize_with = "secret")]
    pub client_secret: Option<SecretString>,
    /// The URL of a client-id metadata document, which is the client's id where the authorization server reads such
    /// documents.
    pub client_metadata_url: Option<String>,
    /// Scopes to ask for, in place of those that the server names.
    pub scopes: Vec<String>,
    /// The port of the address on this machine to which the browser returns; any free port if 0.
    pub redirect_port: u16,
}

/// The paths that the program of a stdio server may use. The kernel refuses all others.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfineConfig {
    /// Directories and files that may be read and executed; missing ones are ignored.
    pub read: Vec<PathBuf>,
    /// Directories and files that may also be changed; each must exist.
    pub write: Vec<PathBuf>,
}

impl Default for ConfineConfig {
    /// Allows reading everywhere and writing nowhere.
    fn default() -> Self {
        Self { read: vec!["/".into()], write: Vec::new() }
    }
}

/// The transport of a server.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Transport {
    /// A program that the client starts and reaches over standard input and output.
    Stdio(Stdio),
    /// A URL with the streamable HTTP transport.
    Http(Address),
    /// A URL with the older HTTP+SSE transport: an event stream for answers, POST for requests.
    Sse(Address),
}

/// The program of a stdio server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stdio {
    /// A path, or a name that is looked up in `PATH`.
    pub command: String,
    /// Arguments, passed without a shell.
    #[serde(default)]
    pub args: Vec<String>,
    /// Variables in addition to the standard few (`PATH`, `HOME` …). The values are secrets.
    #[serde(default, deserialize_with = "secrets")]
    pub env: BTreeMap<String, SecretString>,
    /// Names of our own variables to pass on. An entry may end in `*`.
    #[serde(default)]
    pub inherit: Vec<String>,
    /// The working directory; ours if absent.
    #[serde(default)]
    pub cwd: Option<PathBuf>,
}

/// The address of an HTTP server.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Address {
    /// An `http` or `https` URL with a host.
    pub url: String,
    /// Headers of every request. The values are secrets; headers that the protocol sets are refused.
    #[serde(default, deserialize_with = "secrets")]
    pub headers: BTreeMap<String, SecretString>,
}

/// Time limits of a server, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// For each step of a start: connecting, the handshake, the first list of tools. 60 s by default.
    #[serde(with = "millis")]
    pub start: Duration,
    /// For each later list of tools; 30 s by default.
    #[serde(with = "millis")]
    pub list: Duration,
    /// Interval at which the client lists the tools of an HTTP server again; 60 s by default, 0 for never.
    #[serde(deserialize_with = "maybe_millis")]
    pub refresh: Option<Duration>,
    /// For one call; 0 or absent for the tool deadline of the limits.
    #[serde(deserialize_with = "maybe_millis")]
    pub call: Option<Duration>,
    /// For a call that the server finishes later, as a task; 2 h by default.
    #[serde(with = "millis")]
    pub task: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(60),
            list: Duration::from_secs(30),
            refresh: Some(Duration::from_secs(60)),
            call: None,
            task: Duration::from_secs(2 * 3_600),
        }
    }
}

impl McpServerConfig {
    /// A stdio server with default settings.
    #[must_use]
    pub fn stdio(
        name: impl Into<String>,
        command: impl Into<String>,
        args: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self::of(
            name,
            Transport::Stdio(Stdio {
                command: command.into(),
                args: args.into_iter().map(Into::into).collect(),
                env: BTreeMap::new(),
                inherit: Vec::new(),
                cwd: None,
            }),
        )
    }

    /// A streamable HTTP server with default settings.
    #[must_use]
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::of(name, Transport::Http(Address { url: url.into(), headers: BTreeMap::new() }))
    }

    /// An HTTP+SSE server with default settings.
    #[must_use]
    pub fn sse(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::of(name, Transport::Sse(Address { url: url.into(), headers: BTreeMap::new() }))
    }

    /// A server with default settings.
    #[must_use]
    pub fn of(name: impl Into<String>, transport: Transport) -> Self {
        Self {
            name: name.into(),
            transport,
            enabled: true,
            include: Vec::new(),
            exclude: Vec::new(),
            ask: Vec::new(),
            trust_hints: true,
            roots: Vec::new(),
            timeouts: Timeouts::default(),
            reconnect: patient(),
            calls: calls(),
            sampling: SamplingMode::Off,
            reconcile: BTreeMap::new(),
            whole_results: false,
            required: false,
            oauth: OauthConfig::default(),
            confine: None,
            found_secrets: Vec::new(),
        }
    }

    /// Validates the settings without contacting the server.
    ///
    /// # Errors
    /// `configuration_wrong`, with the setting as a fact.
    pub fn check(&self) -> Result<(), Fault> {
        if let Some(expected) = name::server_problem(&self.name) {
            return Err(wrong("name", expected).with(Fact::Received, self.name.clone()));
        }
        if self.calls == 0 {
            return Err(wrong("calls", "at least 1").with(Fact::McpServer, self.name.clone()));
        }
        for (tool, rule) in &self.reconcile {
            if let Some((setting, expected)) = rule.problem() {
                let key = format!("mcp.reconcile.{tool}.{setting}");
                return Err(wrong("", expected)
                    .with(Fact::ConfigKey, key)
                    .with(Fact::McpServer, self.name.clone()));
            }
        }
        let is_program = matches!(self.transport, Transport::Stdio(_));
        if self.confine.is_some() && !is_program {
            return Err(wrong("confine", "a stdio server: no other runs on this machine")
                .with(Fact::McpServer, self.name.clone()));
        }
        let checked = match &self.transport {
            Transport::Stdio(stdio) if stdio.command.trim().is_empty() => {
                Err(wrong("transport.command", "a program"))
            }
            Transport::Stdio(_) => Ok(()),
            Transport::Http(address) | Transport::Sse(address) => {
                address.parsed().map(drop).and(address.header_map().map(drop))
            }
        };
        checked.map_err(|fault| fault.with(Fact::McpServer, self.name.clone()))
    }

    /// Whether `include` and `exclude` admit this tool.
    #[must_use]
    pub fn takes(&self, tool: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|pattern| matches(pattern, tool));
        (self.include.is_empty() || named(&self.include)) && !named(&self.exclude)
    }

    /// The command line, or the URL without its user and query. Secrets of the configuration are removed.
    #[must_use]
    pub fn target(&self) -> String {
        match &self.transport {
            Transport::Stdio(stdio) => {
                let words = std::iter::once(&stdio.command).chain(&stdio.args).map(String::as_str);
                let line = words.collect::<Vec<_>>().join(" ");
                crate::error::bounded(&self.scrubber().scrub(&line))
            }
            Transport::Http(address) | Transport::Sse(address) => shown_url(&address.url),
        }
    }

    /// Whether a person must confirm every call of this tool.
    #[must_use]
    pub fn asks(&self, tool: &str) -> bool {
        self.ask.iter().any(|pattern| matches(pattern, tool))
    }

    /// The URL of an HTTP server that takes a login: one without an `authorization` header of its own.
    #[must_use]
    pub fn login_url(&self) -> Option<&str> {
        let (Transport::Http(address) | Transport::Sse(address)) = &self.transport else {
            return None;
        };
        let is_set = |name: &String| name.eq_ignore_ascii_case("authorization");
        (!address.headers.keys().any(is_set)).then_some(address.url.as_str())
    }

    /// The variables or headers with their secret values, to configure another client of the server.
    #[must_use]
    pub fn exposed_values(&self) -> Vec<(String, String)> {
        let pairs = match &self.transport {
            Transport::Stdio(stdio) => &stdio.env,
            Transport::Http(address) | Transport::Sse(address) => &address.headers,
        };
        let expose = |(name, value): (&String, &SecretString)| {
            (name.clone(), value.expose_secret().to_owned())
        };
        pairs.iter().map(expose).collect()
    }

    /// The secret values of 8 bytes or more, for a scrubber.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let (env, headers) = match &self.transport {
            Transport::Stdio(stdio) => (Some(&stdio.env), None),
            Transport::Http(address) | Transport::Sse(address) => (None, Some(&address.headers)),
        };
        let all = env.into_iter().chain(headers).flat_map(BTreeMap::values);
        let all = all.chain(&self.found_secrets).chain(&self.oauth.client_secret);
        // Shorter values are usually switches; scrubbing them would damage ordinary text.
        all.map(ExposeSecret::expose_secret).filter(|secret| secret.len() >= SECRET_BYTES_MIN)
    }

    pub(crate) fn scrubber(&self) -> Scrubber {
        Scrubber::with_secrets(self.secrets())
    }
}

const SECRET_BYTES_MIN: usize = 8;

/// Headers that the protocol sets itself.
const RESERVED: &[&str] = &[
    "accept",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
];

impl Address {
    pub(crate) fn parsed(&self) -> Result<Url, Fault> {
        let expected = "an http or https URL with a host";
        let url = Url::parse(&self.url)
            .map_err(|error| wrong("transport.url", expected).with_cause(error.to_string()))?;
        let fits = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
        if fits { Ok(url) } else { Err(wrong("transport.url", expected)) }
    }

    pub(crate) fn header_map(&self) -> Result<HeaderMap, Fault> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let refused = || {
                let key = format!("transport.headers.{name}");
                wrong("", "a header of visible characters that the protocol does not set")
                    .with(Fact::ConfigKey, key)
            };
            let name = HeaderName::try_from(name).map_err(|_| refused())?;
            if RESERVED.contains(&name.as_str()) {
                return Err(refused());
            }
            let mut value = HeaderValue::try_from(value.expose_secret()).map_err(|_| refused())?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address")
            .field("url", &shown_url(&self.url))
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .finish()
    }
}

/// The URL without its user and query, which may be secret.
pub(crate) fn shown_url(url: &str) -> String {
    match Url::parse(url) {
        Ok(url) => format!("{}{}", url.origin().ascii_serialization(), url.path()),
        Err(_) => "(not a URL)".into(),
    }
}

pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

fn wrong(key: &'static str, expected: &'static str) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, format!("mcp.{key}"))
        .with(Fact::Expected, expected)
}

fn yes() -> bool {
    true
}

fn calls() -> usize {
    256
}

fn patient() -> RetryPolicy {
    RetryPolicy { tries: u32::MAX, ..RetryPolicy::default() }
}

fn secrets<'de, D>(deserializer: D) -> Result<BTreeMap<String, SecretString>, D::Error>
where
    D: Deserializer<'de>,
{
    let plain = BTreeMap::<String, String>::deserialize(deserializer)?;
    Ok(plain.into_iter().map(|(key, value)| (key, value.into())).collect())
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(SecretString::from))
}

/// Reads milliseconds; 0 becomes `None`.
fn maybe_millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let millis = Option::<u64>::deserialize(deserializer)?;
    Ok(millis.filter(|millis| *millis > 0).map(Duration::from_millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<McpServerConfig, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn a_server_takes_two_lines() {
        let config = read(
            "name = 'files'\n[transport]\ntype = 'stdio'\ncommand = 'server'\nargs = ['--all']",
        );
        let config = config.unwrap();
        assert!(config.enabled && config.trust_hints);
        assert_eq!(config.timeouts, Timeouts::default());
        config.check().unwrap();
    }

    #[test]
    fn an_unknown_setting_is_refused_wherever_it_stands() {
        for text in [
            "name = 'a'\nnmae = 'b'\n[transport]\ntype = 'stdio'\ncommand = 'x'",
            "name = 'a'\n[transport]\ntype = 'stdio'\ncommand = 'x'\nurl = 'y'",
            "name = 'a'\n[transport]\ntype = 'telnet'\nurl = 'y'",
            "name = 'a'\n[transport]\ntype = 'sse'\nurl = 'y'\n[timeouts]\nstrat = 3",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn secrets_are_never_shown() {
        let http = "name = 'a'\n[transport]\ntype = 'http'\n\
                    url = 'https://user:hunter22@example.com/mcp?key=hunter22'\n\
                    [transport.headers]\nauthorization = 'hunter22'";
        let stdio =
            "name = 'a'\n[transport]\ntype = 'stdio'\ncommand = 'x'\nenv = { KEY = 'hunter22' }";
        for text in [http, stdio] {
            let config = read(text).unwrap();
            let shown = format!("{config:?} {config:#?}");
            assert!(!shown.contains("hunter22"), "{shown}");
            assert_eq!(config.secrets().collect::<Vec<_>>(), ["hunter22"]);
            assert!(!config.scrubber().scrub_exact("it is hunter22").contains("hunter22"));
        }
    }

    #[test]
    fn an_invalid_configuration_is_refused_before_a_connection() {
        let refused = |config: McpServerConfig| config.check().unwrap_err();
        for config in [
            McpServerConfig::stdio("", "x", [""; 0]),
            McpServerConfig::stdio("a__b", "x", [""; 0]),
            McpServerConfig::stdio("a", " ", [""; 0]),
            McpServerConfig::http("a", "ftp://example.com"),
            McpServerConfig::sse("a", "no address"),
        ] {
            assert_eq!(refused(config).kind(), Kind::ConfigurationWrong);
        }
        let mut config = McpServerConfig::http("a", "http://localhost/mcp");
        if let Transport::Http(address) = &mut config.transport {
            address.headers.insert("x".into(), "line\nbreak".to_owned().into());
        }
        assert_eq!(refused(config).kind(), Kind::ConfigurationWrong);
    }

    #[test]
    fn exclude_wins_over_include() {
        let mut config = McpServerConfig::stdio("a", "x", [""; 0]);
        assert!(config.takes("anything"));
        config.include = vec!["read_*".into(), "list".into()];
        config.exclude = vec!["read_secret*".into()];
        let taken: Vec<&str> = ["read_file", "list", "list_all", "read_secrets", "write"]
            .into_iter()
            .filter(|tool| config.takes(tool))
            .collect();
        assert_eq!(taken, ["read_file", "list"]);
    }
}
