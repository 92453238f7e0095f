//! The configuration file, in TOML. Precedence: flags, then environment, then file.
//!
//! A file key that has a flag sets that flag's default value, so that `--help` and clap's parsing apply to it
//! unchanged. The file contains no secrets, only references to them.

mod command;
mod layers;
#[cfg(feature = "serve")]
mod serve;
#[cfg(not(feature = "serve"))]
#[path = "missing/config_serve.rs"]
mod serve;

use std::path::{Path, PathBuf};

use budao_core::{
    Fault, Kind,
    fallback::FallbackConfig,
    fault::{Fact, Operation},
    gate::GateConfig,
    limits::Limits,
    spending::SpendingConfig,
};
use budao_mcp::{ConfineConfig, McpServerConfig as McpConfig, Transport};
use budao_relay::RelayConfig;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

pub(crate) use self::command::{Args, run};
use self::serve::{AlertsConfig, ServeConfig};
use crate::{log::Log, smcp::RoomConfig};

/// Options for the configuration file and MCP servers.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ConfigArgs {
    /// Path of the configuration file (TOML) [default: budao/config.toml in the user's configuration directory, if it
    /// exists]
    #[arg(long, value_name = "FILE", env = "BUDAO_CONFIG")]
    config: Option<PathBuf>,

    /// Offer the tools of this MCP server: NAME=COMMAND or NAME=URL; can be repeated
    #[arg(long = "mcp", value_name = "NAME=SERVER")]
    mcp: Vec<String>,

    /// Offer the tools of the MCP servers in this JSON file, as Claude Desktop, Cursor, VS Code and others write it; can
    /// be repeated
    #[arg(long = "mcp-config", value_name = "FILE")]
    mcp_config: Vec<PathBuf>,

    /// Let the programs of MCP servers change files only in this directory; can be repeated. A server's own `confine`
    /// takes precedence
    #[arg(long = "mcp-confine", value_name = "DIRECTORY")]
    mcp_confine: Vec<PathBuf>,

    /// Path of the file with the logins to MCP servers, which several servers can share [default: mcp-logins.json in the
    /// state directory]
    #[arg(long = "mcp-logins", value_name = "FILE")]
    mcp_logins: Option<PathBuf>,
}

/// The contents of the configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// The five keys up to `permission` are also flags and are read through [`FLAGS`]; here they are only accepted.
    #[serde(rename = "lang")]
    _lang: Option<String>,
    #[serde(rename = "model")]
    _model: Option<OneOrMany>,
    #[serde(rename = "journal")]
    _journal: Option<String>,
    #[serde(rename = "workspace")]
    _workspace: Option<PathBuf>,
    #[serde(rename = "permission")]
    _permission: Option<String>,
    /// Limits that differ from the defaults.
    pub(crate) limits: Limits,
    /// Admission to model services; becomes `limits.gate`.
    pub(crate) models: ModelsConfig,
    /// MCP servers whose tools are offered.
    pub(crate) mcp: Vec<McpConfig>,
    /// The file with the logins to MCP servers, in place of the one in the state directory.
    pub(crate) mcp_logins: Option<PathBuf>,
    /// SMCP rooms whose computers' tools are offered.
    pub(crate) smcp: Vec<RoomConfig>,
    /// Engines that are other programs.
    pub(crate) engines: EnginesConfig,
    /// The `[serve]` table, for `budao serve`.
    pub(crate) serve: ServeConfig,
    /// Level, format and destination of log lines.
    pub(crate) log: Log,
    /// Alerts about critical, unrecoverable or frequent faults.
    pub(crate) alerts: AlertsConfig,
    /// The places whose files this process has; set by `--place`.
    #[serde(skip)]
    pub(crate) places: Vec<String>,
    /// The port of `budao serve`, which tells the servers of one machine apart.
    #[serde(skip)]
    pub(crate) port: Option<u16>,
    /// The trace collector, and the viewer of traces.
    pub(crate) traces: TracesConfig,
}

/// The `[engines]` table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct EnginesConfig {
    /// The AG-UI agent that `--engine agui` relays to.
    pub(crate) agui: RelayConfig,
}

/// A text, or a list of texts.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a text or a list of texts")]
#[expect(dead_code, reason = "the flag reads the value; here it is only accepted")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// The `[models]` table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ModelsConfig {
    /// The gates to model services, and how long turns wait at them.
    pub(crate) gate: GateConfig,
    /// When a session asks the next model of its list.
    pub(crate) fallback: FallbackConfig,
    /// Prices of models, and caps on what turns and sessions cost.
    pub(crate) spending: SpendingConfig,
    /// Models that take no images; a text takes the place of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) text_only: Vec<String>,
}

/// The `[traces]` table.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TracesConfig {
    /// Base URL of an OTLP collector that accepts HTTP. Only accepted here; [`traces`] reads it, because it is needed
    /// before the configuration is loaded.
    #[serde(rename = "endpoint")]
    _endpoint: Option<String>,
    /// The web address of a trace in a trace viewer, with `{trace}` in place of its id.
    pub(crate) viewer: Option<String>,
}

/// File keys that set a flag's default: the key, and the id of the flag.
const FLAGS: [(&str, &str); 15] = [
    ("lang", "lang"),
    ("model", "model"),
    ("journal", "journal"),
    ("workspace", "workspace"),
    ("permission", "permission"),
    ("serve.listen", "listen"),
    ("serve.token_file", "token_file"),
    ("serve.jwt_secret", "jwt_secret"),
    ("serve.jwt_key", "jwt_key"),
    ("serve.jwt_audience", "jwt_audience"),
    ("serve.origin", "origins"),
    ("serve.host", "hosts"),
    ("serve.state_key", "state_keys"),
    ("serve.allow_model", "models"),
    ("serve.on_disconnect", "on_disconnect"),
];

impl ConfigArgs {
    /// Reads the file, if there is one, applies the environment, and adds the servers of `--mcp`.
    pub(crate) fn load(&self) -> Result<Config, Fault> {
        let mut config = load(layers::file(self.config.as_deref()).as_deref())?;
        for path in &self.mcp_config {
            config.mcp.extend(servers_of(path)?);
        }
        for text in &self.mcp {
            config.mcp.push(server(text)?);
        }
        if let Some(file) = &self.mcp_logins {
            config.mcp_logins = Some(file.clone());
        }
        if !self.mcp_confine.is_empty() {
            confine(&mut config.mcp, &self.mcp_confine)?;
        }
        Ok(config)
    }
}

/// Sets the file's values as default values of the flags. An invalid file is ignored here; [`ConfigArgs::load`]
/// reports it.
pub(crate) fn with_defaults(command: clap::Command, arguments: &[String]) -> clap::Command {
    let Some(path) = used_file(arguments) else { return command };
    let Ok(table) = read(&path).and_then(|text| layers::table(&text, &path)) else {
        return command;
    };
    let command = default_of(command, "", &table);
    let names: Vec<String> =
        command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect();
    names.iter().fold(command, |command, name| {
        command.mut_subcommand(name, |inner| default_of(inner, name, &table))
    })
}

/// Sets the default values of one command's flags.
fn default_of(mut command: clap::Command, name: &str, table: &Table) -> clap::Command {
    for (key, flag) in FLAGS {
        let place = key.rsplit_once('.').map_or("", |(place, _)| place);
        let is_here = place.is_empty() || place == name;
        let has_flag = command.get_arguments().any(|known| known.get_id() == flag);
        let Some(value) = find(table, key).filter(|_| is_here && has_flag) else { continue };
        let texts = match value {
            Value::String(text) => vec![text.clone()],
            Value::Array(items) => {
                let texts = items.iter().filter_map(Value::as_str).map(str::to_owned);
                let texts: Vec<String> = texts.collect();
                // A list of models is one value, as on the command line.
                if key == "model" { vec![texts.join(",")] } else { texts }
            }
            _ => continue,
        };
        // clap needs `'static` texts. They are few, and this runs once per process.
        let texts = texts.into_iter().map(|text| &*Box::leak(text.into_boxed_str()));
        command = command.mut_arg(flag, |known| known.default_values(texts));
    }
    command
}

fn find<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    match key.split_once('.') {
        Some((first, rest)) => find(table.get(first)?.as_table()?, rest),
        None => table.get(key),
    }
}

/// The value of `--config FILE` or `--config=FILE`, found before clap parses the arguments.
fn named_file(arguments: &[String]) -> Option<PathBuf> {
    let mut arguments = arguments.iter().take_while(|argument| *argument != "--");
    while let Some(argument) = arguments.next() {
        if argument == "--config" {
            return arguments.next().map(PathBuf::from);
        }
        if let Some(path) = argument.strip_prefix("--config=") {
            return Some(path.into());
        }
    }
    None
}

/// The trace endpoint from the environment or the file. An invalid file is ignored here; [`ConfigArgs::load`] reports
/// it.
pub(crate) fn traces() -> Option<String> {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let mut table = Value::Table(merged(used_file(&arguments).as_deref()).ok()?);
    layers::resolve(&mut table, "").ok()?;
    find(table.as_table()?, "traces.endpoint")?.as_str().map(str::to_owned)
}

/// The file to read: from `--config`, else `BUDAO_CONFIG`, else the default path if it exists.
fn used_file(arguments: &[String]) -> Option<PathBuf> {
    let named = named_file(arguments).or_else(|| std::env::var_os("BUDAO_CONFIG").map(Into::into));
    layers::file(named.as_deref())
}

fn load(path: Option<&Path>) -> Result<Config, Fault> {
    let table = merged(path)?;
    let mut value = Value::Table(table);
    layers::resolve(&mut value, "")?;
    let mut config: Config = value.try_into().map_err(|error: toml::de::Error| {
        layers::invalid_at("the environment", error.message(), "BUDAO__…")
    })?;
    RoomConfig::check(&config.smcp)?;
    config.models.gate.check()?;
    config.limits.gate = config.models.gate.clone();
    config.limits.fallback = config.models.fallback.clone();
    config.engines.agui.check()?;
    config.models.spending.check()?;
    config.limits.spending = config.models.spending.clone();
    Ok(config)
}

/// The file overlaid with the environment; references to secrets are not resolved yet.
fn merged(path: Option<&Path>) -> Result<Table, Fault> {
    let mut table = match path {
        Some(path) => {
            let text = read(path)?;
            parse(&text, path)?
        }
        None => Table::new(),
    };
    let variables: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    layers::overlay(&mut table, &variables)?;
    Ok(table)
}

fn read(path: &Path) -> Result<String, Fault> {
    std::fs::read_to_string(path).map_err(|error| {
        wrong("--config", "a file that can be read", &path.display().to_string()).caused_by(&error)
    })
}

/// Parses a file's text and checks every key and value.
fn parse(text: &str, path: &Path) -> Result<Table, Fault> {
    let table = layers::table(text, path)?;
    toml::from_str::<Config>(text).map_err(|error| layers::at(text, path, &error))?;
    Ok(table)
}

/// The servers in the file of a desktop program or editor. `${workspaceFolder}` is the current directory.
fn servers_of(path: &Path) -> Result<Vec<McpConfig>, Fault> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        wrong("--mcp-config", "a file that can be read", &shown).caused_by(&error)
    })?;
    let folder = std::env::current_dir().unwrap_or_default();
    let variables = std::env::vars_os().collect();
    budao_mcp::read_client_file(&text, &variables, &folder).map_err(|fault| {
        let place = fault.detail().text(Fact::ConfigKey).unwrap_or_default().to_owned();
        fault.with(Fact::ConfigKey, format!("{shown}: {place}"))
    })
}

/// Confines the programs of all servers that have no setting of their own.
fn confine(servers: &mut [McpConfig], directories: &[PathBuf]) -> Result<(), Fault> {
    let mut write = Vec::new();
    for directory in directories {
        let found = directory.canonicalize().ok().filter(|found| found.is_dir());
        let shown = directory.display().to_string();
        write.push(found.ok_or_else(|| wrong("--mcp-confine", "a directory that exists", &shown))?);
    }
    for server in servers {
        if matches!(server.transport, Transport::Stdio(_)) && server.confine.is_none() {
            let write = write.clone();
            server.confine = Some(ConfineConfig { write, ..ConfineConfig::default() });
        }
    }
    Ok(())
}

/// Parses `NAME=COMMAND ARG…` or `NAME=http://…`. A server on the command line is waited for.
fn server(text: &str) -> Result<McpConfig, Fault> {
    let expected = "NAME=COMMAND or NAME=URL";
    let (name, place) = text.split_once('=').ok_or_else(|| wrong("--mcp", expected, text))?;
    if place.starts_with("http://") || place.starts_with("https://") {
        return Ok(McpConfig { required: true, ..McpConfig::http(name, place) });
    }
    let words = shell_words::split(place).map_err(|_| wrong("--mcp", expected, text))?;
    let (command, args) = words.split_first().ok_or_else(|| wrong("--mcp", expected, text))?;
    Ok(McpConfig { required: true, ..McpConfig::stdio(name, command, args) })
}

fn wrong(key: &str, expected: &str, received: &str) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, key.to_owned())
        .with(Fact::Expected, expected.to_owned())
        .with(Fact::Received, received.chars().take(80).collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use budao_core::{Lang, fault::text};

    use super::*;

    fn refused(file: &str) -> (String, String) {
        let fault = parse(file, Path::new("budao.toml")).unwrap_err();
        assert_eq!(fault.kind(), Kind::ConfigurationWrong);
        let place = fault.detail().text(Fact::ConfigKey).unwrap().to_owned();
        let advice = text::recommendations(&fault, Lang::En).join(" ");
        (place, format!("{} {advice}", text::user_text(&fault, Lang::En)))
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line_and_the_nearest_name() {
        let (place, message) = refused("[limits]\nsteps = 5\nstpes = 6\n");
        assert_eq!(place, "budao.toml:3 `stpes`");
        assert!(message.contains("is wrong: it must be one of `"), "{message}");
        assert!(message.contains("Did you mean `steps`?"), "{message}");
        let (place, message) =
            refused("[serve]\nlisten = \"127.0.0.1:1\"\n\n[serve.limits]\nobservrs = 1\n");
        assert_eq!(place, "budao.toml:5 `observrs`");
        assert!(message.contains("Did you mean `observers`?"), "{message}");
    }

    #[test]
    fn a_value_of_the_wrong_sort_is_refused_with_its_line() {
        let (place, message) = refused("[limits]\nsteps = \"many\"\n");
        assert_eq!(place, "budao.toml:2 `steps`");
        assert!(message.contains("`steps` is wrong: it must be a whole number"), "{message}");
    }

    #[test]
    fn a_secret_in_the_file_is_refused_and_not_repeated() {
        let file =
            "[[smcp]]\nurl = \"http://127.0.0.1:1\"\nroom = \"a\"\ntoken = \"hunter2hunter2\"\n";
        let (place, message) = refused(file);
        assert_eq!(place, "budao.toml:4");
        assert!(message.contains("${env:NAME}"), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
        assert!(parse(&file.replace("hunter2hunter2", "${env:ROOM}"), Path::new("x")).is_ok());
    }

    #[test]
    fn the_environment_is_stronger_than_the_file() {
        let mut table = parse("[limits]\nsteps = 5\n", Path::new("x")).unwrap();
        let variables = [
            ("BUDAO__LIMITS__STEPS", "7"),
            ("BUDAO__SERVE__LIMITS__OBSERVERS", "3"),
            ("BUDAO_LISTEN", "127.0.0.1:9"),
            ("OTHER", "x"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        layers::overlay(&mut table, &variables).unwrap();
        let config: Config = Value::Table(table.clone()).try_into().unwrap();
        assert_eq!((config.limits.steps, config.serve.limits.observers), (7, 3));
        assert_eq!(find(&table, "serve.listen").unwrap().as_str(), Some("127.0.0.1:9"));
    }

    #[test]
    fn the_numbers_of_the_gates_are_read_and_a_wrong_one_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        std::fs::write(&path, "[models.gate]\nwaiting = 7\npatience_watched = 1000\n").unwrap();
        let gate = load(Some(&path)).unwrap().limits.gate;
        assert_eq!((gate.waiting, gate.patience_watched), (7, Duration::from_secs(1)));
        let prices = "[models.spending.prices.\"openai:m\"]\ninput = 1.25\noutput = 10\n";
        std::fs::write(&path, format!("[models.spending]\nturn = 0.5\n{prices}")).unwrap();
        let spending = load(Some(&path)).unwrap().limits.spending;
        assert_eq!(spending.price("openai:m").unwrap().output, 10.0);
        std::fs::write(&path, "[models.spending]\nsession = \"5 EUR\"\n").unwrap();
        let fault = load(Some(&path)).unwrap_err();
        let key = fault.detail().text(Fact::ConfigKey);
        assert_eq!(key, Some("models.spending.session"), "{fault}");
        std::fs::write(&path, "[models.gate]\nin_flight_start = 0\n").unwrap();
        let fault = load(Some(&path)).unwrap_err();
        let key = fault.detail().text(Fact::ConfigKey);
        assert_eq!(key, Some("models.gate.in_flight_start"), "{fault}");
    }

    #[test]
    fn the_agent_of_the_relay_is_read_and_a_wrong_bound_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        let agent = "[engines.agui]\nurl = \"http://a/b\"\nresubmit = true\n";
        std::fs::write(&path, agent).unwrap();
        let agui = load(Some(&path)).unwrap().engines.agui;
        assert_eq!((agui.url.as_deref(), agui.resubmit), (Some("http://a/b"), true));
        std::fs::write(&path, "[engines.agui.limits]\nturn_bytes = 0\n").unwrap();
        let fault = load(Some(&path)).unwrap_err();
        let key = fault.detail().text(Fact::ConfigKey);
        assert_eq!(key, Some("engines.agui.limits.turn_bytes"), "{fault}");
        let (place, message) = refused("[engines.agui]\ntoken = \"hunter2hunter2\"\n");
        assert_eq!(place, "budao.toml:2");
        assert!(message.contains("${env:NAME}") && !message.contains("hunter2"), "{message}");
    }

    #[test]
    fn limits_and_servers_are_read() {
        let text = "[limits]\nsteps = 5\n[[mcp]]\nname = \"files\"\n\
                    transport = { type = \"stdio\", command = \"files-server\" }\n";
        let table = parse(text, Path::new("budao.toml")).unwrap();
        let config: Config = Value::Table(table).try_into().unwrap();
        assert_eq!(config.limits.steps, 5);
        assert_eq!(config.mcp[0].name, "files");
    }

    #[test]
    fn a_server_on_the_command_line_is_a_command_or_an_address() {
        assert!(server("a=npx server --flag 'two words'").is_ok());
        assert!(server("a=http://127.0.0.1:1/mcp").is_ok());
        for bad in ["", "name", "a=", "a='unclosed"] {
            assert!(server(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_file_is_found_on_the_command_line_before_it_is_read() {
        let named =
            |line: &str| named_file(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(named("serve --config a.toml"), Some("a.toml".into()));
        assert_eq!(named("serve --config=b.toml"), Some("b.toml".into()));
        assert_eq!(named("run -- --config c.toml"), None);
    }

    /// Goal: any input is either read or refused with a fault, without a panic. Method: the corpus and mutations of
    /// it; `cargo xtask fuzz config` runs the same for longer.
    #[test]
    fn any_configuration_is_read_or_refused_with_a_reason() {
        fn run(bytes: &[u8]) {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            let Ok(mut table) = parse(text, Path::new("budao.toml")) else { return };
            let variables = [("BUDAO__LIMITS__STEPS".to_owned(), text.to_owned())];
            drop(layers::overlay(&mut table, &variables));
            let mut value = Value::Table(table);
            drop(layers::resolve(&mut value, ""));
            drop(value.try_into::<Config>());
        }
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let seed = number("BUDAO_SEED").unwrap_or(1);
        let target = budao_hostile::Target { name: "config", about: "", share: 2_000, run };
        let until = number("BUDAO_FUZZ_SECONDS")
            .map(|seconds| std::time::Instant::now() + std::time::Duration::from_secs(seconds));
        let count = until.map_or(target.share, |_| u64::MAX);
        let played = budao_hostile::play(
            &target,
            &budao_hostile::corpus(&target),
            seed,
            count,
            until,
            |_| {},
        );
        let tried = played.unwrap_or_else(|broken| {
            panic!("seed {seed}: {}\n{}", broken.message, broken.input.escape_ascii())
        });
        eprintln!("config: {tried} inputs, seed {seed}");
    }
}
