//! Resolves `${input:id}`: from the environment, from a person or a program, or from the default.

use std::{collections::BTreeMap, fmt, io::Read as _, path::PathBuf};

use async_trait::async_trait;
use budao_core::fault::{Fact, Fault, Kind, Operation};
use budao_mcp::{Address, McpServerConfig, Stdio, Transport};
use secrecy::SecretString;
use serde_json::Value;

use super::settings::{Input, InputKind, McpServer, Settings, named, variable};

/// The source of values. The library itself reads no environment and asks no one; the program implements this.
#[async_trait]
pub trait ValueSource: Send + Sync + fmt::Debug {
    /// The value of an environment variable; `None` if it is not set.
    fn variable(&self, name: &str) -> Option<String>;

    /// Asks a person for an input, or runs the program of a command input. `None` if there is no value.
    async fn ask(&self, input: &Input) -> Option<String>;
}

/// Longest file of variables, in bytes.
const ENV_FILE_MAX: u64 = 1 << 20;

/// Values shorter than this are not treated as secrets: scrubbing them would damage ordinary text.
const SECRET_MIN: usize = 8;

/// The resolved configuration of a server, and its secrets for the scrubber.
#[derive(Debug)]
pub(super) struct ResolvedServer {
    pub(super) config: McpServerConfig,
    pub(super) secrets: Vec<String>,
}

/// Resolves all inputs of a server's configuration.
///
/// # Errors
/// If an input has no value, or the resulting configuration is invalid.
pub(super) async fn resolve(
    settings: &Settings,
    server: &McpServer,
    values: &dyn ValueSource,
) -> Result<ResolvedServer, Fault> {
    let mut open = server.described.open();
    let mut known = BTreeMap::new();
    let mut secrets = Vec::new();
    for id in named(&open) {
        let value = value(settings, server, &id, values).await?;
        let input = settings.inputs.iter().find(|input| input.id == id);
        if input.is_none_or(|input| input.sort.is_secret()) {
            secrets.push(value.clone());
        }
        known.insert(id, value);
    }
    fill(&mut open, &known);
    let parameters = open["server_parameters"].take();
    let name = mcp_name(&server.bundle_id);
    let text = |field: &str| parameters.get(field).and_then(Value::as_str).map(str::to_owned);
    let hidden = |field: &str| -> BTreeMap<String, SecretString> {
        let map = parameters.get(field).and_then(Value::as_object).into_iter().flatten();
        map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned().into())))
            .collect()
    };
    let transport = match server.described.transport.as_str() {
        "stdio" => {
            let args = parameters.get("args").and_then(Value::as_array).into_iter().flatten();
            let mut env = BTreeMap::new();
            if let Some(path) = open["envFile"].as_str() {
                let variables = variables(path.to_owned()).await?;
                let values = variables.values().filter(|value| value.len() >= SECRET_MIN);
                secrets.extend(values.cloned());
                env.extend(variables.into_iter().map(|(name, value)| (name, value.into())));
            }
            // Variables in the settings override those of the file.
            env.extend(hidden("env"));
            Transport::Stdio(Stdio {
                command: text("command").unwrap_or_default(),
                args: args.filter_map(|arg| arg.as_str().map(str::to_owned)).collect(),
                env,
                inherit: Vec::new(),
                cwd: text("cwd").map(PathBuf::from),
            })
        }
        kind => {
            let address =
                Address { url: text("url").unwrap_or_default(), headers: hidden("headers") };
            if kind == "sse" { Transport::Sse(address) } else { Transport::Http(address) }
        }
    };
    let mut config = McpServerConfig { transport, ..McpServerConfig::stdio(name, "", [""; 0]) };
    config.whole_results = true;
    if let Ok(Some(limit)) = server.described.timeout() {
        (config.timeouts.start, config.timeouts.list) = (limit, limit);
    }
    config.check()?;
    Ok(ResolvedServer { config, secrets })
}

/// Reads the variables of a file.
///
/// # Errors
/// If the file cannot be read. Starting without it would fail later with a less clear error.
async fn variables(path: String) -> Result<BTreeMap<String, String>, Fault> {
    let wrong = |expected: &'static str| {
        Fault::new(Kind::ConfigurationWrong, Operation::StartMcpServer)
            .with(Fact::ConfigKey, "envFile")
            .with(Fact::Path, path.clone())
            .with(Fact::Expected, expected)
    };
    let file = path.clone();
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        // Reading a pipe or a device could block forever.
        if !std::fs::metadata(&file)?.is_file() {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        std::fs::File::open(&file)?.take(ENV_FILE_MAX + 1).read_to_string(&mut text)?;
        Ok::<_, std::io::Error>(text)
    });
    let text = match read.await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return Err(wrong("a file that can be read").caused_by(&error)),
        Err(error) => return Err(wrong("a file that can be read").caused_by(&error)),
    };
    if text.len() as u64 > ENV_FILE_MAX {
        return Err(wrong("a file of at most 1 MiB"));
    }
    Ok(text.lines().filter_map(assignment).collect())
}

/// Parses a line `NAME=value`, with optional `export` and quotes. Values are not expanded.
fn assignment(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let bare = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    let value = bare('"').or_else(|| bare('\'')).unwrap_or(value);
    let is_variable = !name.is_empty() && !name.starts_with('#') && !value.contains('\0');
    is_variable.then(|| (name.to_owned(), value.to_owned()))
}

/// The server's name inside the MCP client: its id if that is a valid name.
fn mcp_name(bundle_id: &str) -> String {
    let fits = bundle_id.len() <= 32 && !bundle_id.starts_with('_') && !bundle_id.ends_with('_');
    if fits {
        bundle_id.to_owned()
    } else {
        format!("m-{}", &budao_tools::contract::content_hash(bundle_id.as_bytes())[..12])
    }
}

fn fill(value: &mut Value, known: &BTreeMap<String, String>) {
    match value {
        Value::String(text) => {
            for (id, value) in known {
                *text = text.replace(&format!("${{input:{id}}}"), value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, known)),
        Value::Object(map) => map.values_mut().for_each(|item| fill(item, known)),
        _ => {}
    }
}

async fn value(
    settings: &Settings,
    server: &McpServer,
    id: &str,
    values: &dyn ValueSource,
) -> Result<String, Fault> {
    let narrow = variable(id, Some(&server.bundle_id));
    let wide = variable(id, None);
    if let Some(value) = values.variable(&narrow).or_else(|| values.variable(&wide)) {
        return Ok(value);
    }
    let missing = || {
        Fault::new(Kind::ConfigurationWrong, Operation::StartMcpServer)
            .with(Fact::ConfigKey, format!("inputs.{id}"))
            .with(Fact::Expected, format!("a value, for example in `{wide}`"))
            .with(Fact::Received, "nothing")
    };
    let input = settings.inputs.iter().find(|input| input.id == id).ok_or_else(missing)?;
    let answer = values.ask(input).await;
    let default = match &input.sort {
        InputKind::PromptString { default, .. } | InputKind::PickString { default, .. } => {
            default.clone()
        }
        InputKind::Command { .. } => None,
    };
    answer.or(default).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;
    use serde_json::json;

    use super::*;

    #[derive(Debug)]
    struct FixedValues(&'static [(&'static str, &'static str)]);

    #[async_trait]
    impl ValueSource for FixedValues {
        fn variable(&self, name: &str) -> Option<String> {
            self.0.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        }

        async fn ask(&self, input: &Input) -> Option<String> {
            (input.id == "asked").then(|| "answer".to_owned())
        }
    }

    async fn arguments(args: Value, values: &FixedValues) -> Result<Vec<String>, Fault> {
        let file = json!({
            "inputs": [
                { "type": "promptString", "id": "asked" },
                { "type": "promptString", "id": "default", "default": "d" },
                { "type": "promptString", "id": "nothing" },
            ],
            "servers": [{ "name": "s", "type": "stdio", "server_parameters": { "command": "x", "args": args } }],
        });
        let settings = Settings::read(&file.to_string()).unwrap();
        match resolve(&settings, &settings.servers[0], values).await?.config.transport {
            Transport::Stdio(stdio) => Ok(stdio.args),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_file_of_variables_is_read_and_the_settings_win_over_it() {
        let folder = tempfile::tempdir().unwrap();
        let text = "# a comment\n\nexport A='one two'\nB = \"${input:asked}\"\nC=c=d\nno assignment\n\
                    KEY=from-the-file-12345\n=x\n";
        std::fs::write(folder.path().join("answer.env"), text).unwrap();
        let resolved = |path: &str| {
            let path = folder.path().join(path);
            let file = json!({
                "inputs": [{ "type": "promptString", "id": "asked" }],
                "servers": [{ "name": "s", "type": "stdio", "envFile": path,
                    "server_parameters": { "command": "x", "env": { "C": "mine" } } }],
            });
            async move {
                let settings = Settings::read(&file.to_string()).unwrap();
                resolve(&settings, &settings.servers[0], &FixedValues(&[])).await
            }
        };
        // The path may contain an input; the file's content is not expanded.
        let ResolvedServer { config, secrets } = resolved("${input:asked}.env").await.unwrap();
        let Transport::Stdio(stdio) = config.transport else { panic!("it is a program") };
        let env: Vec<(&str, &str)> =
            stdio.env.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
        let (key, answer) = (("KEY", "from-the-file-12345"), ("B", "${input:asked}"));
        assert_eq!(env, [("A", "one two"), answer, ("C", "mine"), key]);
        assert_eq!(secrets, ["${input:asked}", "from-the-file-12345"]);
        for missing in ["none.env", "."] {
            let fault = resolved(missing).await.unwrap_err();
            assert_eq!(fault.detail().text(Fact::ConfigKey), Some("envFile"), "{fault}");
        }
    }

    #[tokio::test]
    async fn a_value_comes_from_the_environment_then_from_people_then_from_its_default() {
        let all = json!(["-${input:asked}-${input:default}", "plain"]);
        let nothing = FixedValues(&[]);
        assert_eq!(arguments(all.clone(), &nothing).await.unwrap(), ["-answer-d", "plain"]);
        let wide = FixedValues(&[("A2C_SMCP_asked", "env")]);
        assert_eq!(arguments(all.clone(), &wide).await.unwrap()[0], "-env-d");
        let narrow = FixedValues(&[("A2C_SMCP_asked", "env"), ("A2C_SMCP_asked_s", "own")]);
        assert_eq!(arguments(all, &narrow).await.unwrap()[0], "-own-d");
        for missing in ["nothing", "unknown"] {
            let fault =
                arguments(json!([format!("${{input:{missing}}}")]), &nothing).await.unwrap_err();
            let config_key = fault.detail().text(Fact::ConfigKey).unwrap().to_owned();
            assert_eq!(config_key, format!("inputs.{missing}"));
        }
    }
}
