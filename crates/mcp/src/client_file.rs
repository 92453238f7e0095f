//! Reads the JSON in which desktop programs and editors keep their MCP servers, as it is.
//!
//! The servers stand under `mcpServers` (Claude, Cursor, Windsurf and others), `servers` or `mcp.servers` (VS Code).
//! Comments and trailing commas are accepted, and settings that this program does not know are skipped: the file belongs
//! to another program. Values that come from variables are secrets.

mod expand;

use std::{collections::BTreeMap, path::Path};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::{Map, Value};

use self::expand::Expansion;
use crate::{
    config::{Address, McpServerConfig, Stdio, Transport},
    name::{SERVER_BYTES_MAX, server_problem},
    process::ProcessVariables,
};

/// The longest file that is read, in bytes.
const FILE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The most servers of one file.
const SERVERS_MAX: usize = 200;

/// One server, with the settings of all known programs.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Entry {
    #[serde(rename = "type", alias = "transport")]
    kind: Option<String>,
    command: Option<String>,
    args: Vec<String>,
    env: Map<String, Value>,
    env_file: Option<String>,
    cwd: Option<String>,
    #[serde(alias = "serverUrl", alias = "httpUrl")]
    url: Option<String>,
    headers: BTreeMap<String, String>,
    disabled: bool,
    enabled: Option<bool>,
    #[serde(alias = "includeTools")]
    enabled_tools: Vec<String>,
    #[serde(alias = "excludeTools")]
    disabled_tools: Vec<String>,
}

/// Reads the servers of a file's text. `variables` fill `${NAME}`; `folder` is the workspace of `${workspaceFolder}`.
///
/// # Errors
/// `configuration_wrong` with the place in the file: no servers in it, an entry that cannot work, a variable that is not
/// set, or two names that become one.
pub fn read_client_file(
    text: &str,
    variables: &ProcessVariables,
    folder: &Path,
) -> Result<Vec<McpServerConfig>, Fault> {
    if text.len() > FILE_BYTES_MAX {
        return Err(wrong("mcpServers", "a file of at most 4 MiB"));
    }
    let root: Value = serde_json::from_str(&without_comments(text))
        .map_err(|error| wrong("mcpServers", "a JSON object").caused_by(&error))?;
    let places = ["/mcpServers", "/servers", "/mcp/servers"];
    let Some(servers) = places.iter().find_map(|place| root.pointer(place)?.as_object()) else {
        return Err(wrong("mcpServers", "an object with the key `mcpServers` or `servers`"));
    };
    if servers.len() > SERVERS_MAX {
        return Err(wrong("mcpServers", "at most 200 servers"));
    }
    let mut configs: Vec<McpServerConfig> = Vec::new();
    for (name, entry) in servers {
        let entry = Entry::deserialize(entry).map_err(|error| {
            wrong(&format!("mcpServers.{name}"), "the settings of a server").caused_by(&error)
        })?;
        let config = config(name, entry, &Expansion { variables, folder })?;
        if configs.iter().any(|other| other.name == config.name) {
            return Err(wrong(&format!("mcpServers.{name}"), "a name no other server has"));
        }
        configs.push(config);
    }
    Ok(configs)
}

fn config(name: &str, entry: Entry, expansion: &Expansion<'_>) -> Result<McpServerConfig, Fault> {
    let place = format!("mcpServers.{name}");
    let mut found = Vec::new();
    let mut expand = |field: &str, text: &str| {
        expansion.apply(text, &mut found).map_err(|problem| {
            wrong(&format!("{place}.{field}"), problem.expected)
                .with(Fact::Received, problem.reference)
        })
    };
    let kind = entry.kind.as_deref().unwrap_or(if entry.url.is_some() { "http" } else { "stdio" });
    let transport = match (kind, &entry.command, &entry.url) {
        ("stdio" | "local", Some(command), _) => {
            let mut env = BTreeMap::new();
            if let Some(file) = &entry.env_file {
                let file = expand("envFile", file)?;
                env.extend(env_file(&file, expansion.folder).map_err(|error| {
                    wrong(&format!("{place}.envFile"), "a file that can be read").caused_by(&error)
                })?);
            }
            for (variable, value) in &entry.env {
                let value = match value {
                    Value::String(text) => expand(&format!("env.{variable}"), text)?,
                    Value::Null => continue,
                    other => other.to_string(),
                };
                env.insert(variable.clone(), SecretString::from(value));
            }
            let args = entry.args.iter().map(|text| expand("args", text));
            Transport::Stdio(Stdio {
                args: args.collect::<Result<_, Fault>>()?,
                command: expand("command", command)?,
                env,
                inherit: Vec::new(),
                cwd: entry
                    .cwd
                    .as_ref()
                    .map(|text| expand("cwd", text))
                    .transpose()?
                    .map(Into::into),
            })
        }
        (
            "http" | "streamable-http" | "streamableHttp" | "streamable_http" | "remote" | "sse",
            _,
            Some(url),
        ) => {
            let mut headers = BTreeMap::new();
            for (header, value) in &entry.headers {
                headers.insert(header.clone(), expand(&format!("headers.{header}"), value)?.into());
            }
            let address = Address { url: expand("url", url)?, headers };
            if kind == "sse" { Transport::Sse(address) } else { Transport::Http(address) }
        }
        _ => {
            return Err(wrong(&place, "a `command`, or a `url` of type http or sse")
                .with(Fact::Received, kind.to_owned()));
        }
    };
    let mut config = McpServerConfig::of(plain_name(name), transport);
    config.enabled = !entry.disabled && entry.enabled.unwrap_or(true);
    config.include = entry.enabled_tools;
    config.exclude = entry.disabled_tools;
    config.found_secrets = found;
    config.check()?;
    Ok(config)
}

/// The name as tools can have it: other characters become `-`.
fn plain_name(name: &str) -> String {
    if server_problem(name).is_none() {
        return name.to_owned();
    }
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
    let plain: String = name.chars().take(SERVER_BYTES_MAX).map(plain).collect();
    if plain.is_empty() { "server".to_owned() } else { plain }
}

/// The variables of a file with lines `NAME=VALUE`.
fn env_file(path: &str, folder: &Path) -> std::io::Result<Vec<(String, SecretString)>> {
    let text = std::fs::read_to_string(folder.join(path))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.trim_start_matches("export ").split_once('='));
    let value = |value: &str| {
        let value = value.trim();
        let quoted = ['"', '\''].iter().find_map(|quote| {
            value.strip_prefix(*quote).and_then(|rest| rest.strip_suffix(*quote))
        });
        SecretString::from(quoted.unwrap_or(value).to_owned())
    };
    Ok(pairs.map(|(name, text)| (name.trim().to_owned(), value(text))).collect())
}

/// The text without comments and trailing commas. Strings stay as they are.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.trim_start_matches('\u{feff}').chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                out.push(letter);
                while let Some(inner) = letters.next() {
                    out.push(inner);
                    match inner {
                        '\\' => out.extend(letters.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            '/' if letters.peek() == Some(&'/') => {
                while letters.peek().is_some_and(|next| *next != '\n') {
                    letters.next();
                }
            }
            '/' if letters.peek() == Some(&'*') => {
                letters.next();
                let mut before = ' ';
                for inner in letters.by_ref() {
                    if before == '*' && inner == '/' {
                        break;
                    }
                    before = inner;
                }
            }
            '}' | ']' => {
                let end = out.trim_end().len();
                if out[..end].ends_with(',') {
                    out.truncate(end - 1);
                }
                out.push(letter);
            }
            other => out.push(other),
        }
    }
    out
}

fn wrong(place: &str, expected: &'static str) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, place.to_owned())
        .with(Fact::Expected, expected)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn read(text: &str) -> Result<Vec<McpServerConfig>, Fault> {
        let variables =
            [("TOKEN", "s3cret-of-mine"), ("HOME", "/home/me"), ("INPUT_API_KEY", "k-from-input")];
        let variables =
            variables.map(|(name, value)| (name.into(), value.into())).into_iter().collect();
        read_client_file(text, &variables, Path::new("/home/me/project"))
    }

    fn stdio(config: &McpServerConfig) -> &Stdio {
        match &config.transport {
            Transport::Stdio(stdio) => stdio,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_file_of_claude_desktop_is_read_as_it_is() {
        let configs = read(
            r#"{"globalShortcut": "x", "mcpServers": {
                "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/tmp"]},
                "My Server": {"command": "uvx", "args": ["x"], "env": {"KEY": "abc", "N": 3}, "disabled": true}
            }}"#,
        )
        .unwrap();
        assert_eq!(configs[0].name, "filesystem");
        assert_eq!(stdio(&configs[0]).args[1], "@modelcontextprotocol/server-filesystem");
        assert_eq!((configs[1].name.as_str(), configs[1].enabled), ("My-Server", false));
        assert_eq!(stdio(&configs[1]).env["N"].expose_secret(), "3");
    }

    #[test]
    fn the_file_of_cursor_and_claude_code_is_read_as_it_is() {
        let configs = read(
            r#"{"mcpServers": {
                "remote": {"url": "https://x.example/${PART:-mcp}", "headers": {"Authorization": "Bearer ${TOKEN}"}},
                "old": {"type": "sse", "url": "https://x.example/sse"},
                "surf": {"serverUrl": "https://y.example/mcp"},
                "local": {"type": "stdio", "command": "${userHome}/bin/tool", "args": ["--in", "${workspaceFolder}", "${env:TOKEN}"]}
            }}"#,
        )
        .unwrap();
        let Transport::Http(remote) = &configs[0].transport else { panic!() };
        assert_eq!(remote.url, "https://x.example/mcp");
        assert_eq!(remote.headers["Authorization"].expose_secret(), "Bearer s3cret-of-mine");
        assert!(matches!(&configs[1].transport, Transport::Sse(_)));
        assert!(matches!(&configs[2].transport, Transport::Http(_)));
        let local = stdio(&configs[3]);
        assert_eq!(local.command, "/home/me/bin/tool");
        assert_eq!(local.args, ["--in", "/home/me/project", "s3cret-of-mine"]);
        let scrubbed = configs[3].scrubber().scrub_exact("ran with s3cret-of-mine");
        assert!(!scrubbed.contains("s3cret"), "{scrubbed}");
    }

    #[test]
    fn the_file_of_vs_code_is_read_with_its_comments_and_inputs() {
        let configs = read(
            r#"{
                // the servers of this project
                "inputs": [{"type": "promptString", "id": "api-key", "password": true}],
                "servers": {
                    "a": {"type": "stdio", "command": "a // b", "env": {"KEY": "${input:api-key}"},}, /* the last */
                    "b": {"type": "http", "url": "http://127.0.0.1:1/mcp",},
                },
            }"#,
        )
        .unwrap();
        assert_eq!(stdio(&configs[0]).command, "a // b");
        assert_eq!(stdio(&configs[0]).env["KEY"].expose_secret(), "k-from-input");
        assert_eq!(configs[1].name, "b");
    }

    #[test]
    fn an_invalid_configuration_is_reported_with_its_place_and_without_values() {
        let cases = [
            ("[]", "mcpServers"),
            ("{", "mcpServers"),
            (r#"{"mcpServers": {"a": {"args": []}}}"#, "mcpServers.a"),
            (r#"{"mcpServers": {"a": {"type": "ws", "url": "ws://x"}}}"#, "mcpServers.a"),
            (r#"{"mcpServers": {"a": {"command": "x", "args": 3}}}"#, "mcpServers.a"),
            (
                r#"{"mcpServers": {"a": {"command": "x", "env": {"K": "${NOT_SET}"}}}}"#,
                "mcpServers.a.env.K",
            ),
            (r#"{"mcpServers": {"a": {"command": "${command:pick}"}}}"#, "mcpServers.a.command"),
            (
                r#"{"mcpServers": {"a b": {"command": "x"}, "a c/d": {"command": "x"}, "a-b": {"command": "x"}}}"#,
                "mcpServers.a-b",
            ),
        ];
        for (text, place) in cases {
            let fault = read(text).unwrap_err();
            assert_eq!(fault.kind(), Kind::ConfigurationWrong);
            assert_eq!(fault.detail().text(Fact::ConfigKey), Some(place), "{text}: {fault}");
        }
    }

    #[test]
    fn a_value_from_a_variable_is_never_shown() {
        let configs =
            read(r#"{"mcpServers": {"a": {"command": "x", "args": ["${TOKEN}"]}}}"#).unwrap();
        let shown = format!("{:?}", configs[0]);
        let shown = configs[0].scrubber().scrub(&shown).into_owned();
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}
