//! `${input:id}` becomes a value: from the environment, from whoever is asked, or from its default.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use async_trait::async_trait;
use budao_core::fault::{Fact, Fault, Kind, Operation};
use budao_mcp::{Address, Config, Stdio, Transport};
use secrecy::SecretString;
use serde_json::Value;

use super::settings::{Input, McpServer, Settings, Sort, named, variable};

/// Where values come from. The library reads no environment and asks nobody by itself.
#[async_trait]
pub trait Values: Send + Sync + fmt::Debug {
    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<String>;

    /// Asks for an input: a person, or the program of a command input.
    async fn ask(&self, input: &Input) -> Option<String>;
}

/// How to start a server, and what of that must never be told.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) config: Config,
    pub(super) secrets: Vec<String>,
}

/// How to start a server, with everything filled in.
///
/// # Errors
/// If a value cannot be had, or what comes out cannot work.
pub(super) async fn resolve(
    settings: &Settings,
    server: &McpServer,
    values: &dyn Values,
) -> Result<Resolved, Fault> {
    let mut parameters = server.described.server_parameters.clone();
    let mut known = BTreeMap::new();
    let mut secrets = Vec::new();
    for id in named(&parameters) {
        let value = value(settings, server, &id, values).await?;
        let input = settings.inputs.iter().find(|input| input.id == id);
        if input.is_none_or(|input| input.sort.is_secret()) {
            secrets.push(value.clone());
        }
        known.insert(id, value);
    }
    fill(&mut parameters, &known);
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
            Transport::Stdio(Stdio {
                command: text("command").unwrap_or_default(),
                args: args.filter_map(|arg| arg.as_str().map(str::to_owned)).collect(),
                env: hidden("env"),
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
    let config = Config { transport, ..Config::stdio(name, "", [""; 0]) };
    config.check()?;
    Ok(Resolved { config, secrets })
}

/// What the server is called inside: its id where that is allowed.
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
    values: &dyn Values,
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
    let asked = values.ask(input).await;
    let default = match &input.sort {
        Sort::PromptString { default, .. } | Sort::PickString { default, .. } => default.clone(),
        Sort::Command { .. } => None,
    };
    asked.or(default).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug)]
    struct Known(&'static [(&'static str, &'static str)]);

    #[async_trait]
    impl Values for Known {
        fn variable(&self, name: &str) -> Option<String> {
            self.0.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        }

        async fn ask(&self, input: &Input) -> Option<String> {
            (input.id == "asked").then(|| "answer".to_owned())
        }
    }

    async fn arguments(args: Value, values: &Known) -> Result<Vec<String>, Fault> {
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
    async fn a_value_comes_from_the_environment_then_from_people_then_from_its_default() {
        let all = json!(["-${input:asked}-${input:default}", "plain"]);
        let nothing = Known(&[]);
        assert_eq!(arguments(all.clone(), &nothing).await.unwrap(), ["-answer-d", "plain"]);
        let wide = Known(&[("A2C_SMCP_asked", "env")]);
        assert_eq!(arguments(all.clone(), &wide).await.unwrap()[0], "-env-d");
        let narrow = Known(&[("A2C_SMCP_asked", "env"), ("A2C_SMCP_asked_s", "own")]);
        assert_eq!(arguments(all, &narrow).await.unwrap()[0], "-own-d");
        for missing in ["nothing", "unknown"] {
            let fault =
                arguments(json!([format!("${{input:{missing}}}")]), &nothing).await.unwrap_err();
            let place = fault.detail().text(Fact::ConfigKey).unwrap().to_owned();
            assert_eq!(place, format!("inputs.{missing}"));
        }
    }
}
