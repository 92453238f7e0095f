//! The settings of a computer: its MCP servers, as the protocol describes them, and their inputs.
//!
//! The original JSON is kept, because that is what an agent may see. The parsed form stands beside it.

mod input;

use std::{collections::BTreeMap, time::Duration};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub use input::{Input, InputKind, PickOption, variable};

use crate::wire::identity::{ServerIdentity, bundle_id, bundle_id_problem};
pub(super) use input::named;
use input::{check_variables, read_input};

/// The settings of a computer.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The MCP servers, in the file's order, with unique ids.
    pub servers: Vec<McpServer>,
    /// The inputs that `${input:id}` may refer to.
    pub inputs: Vec<Input>,
    raw_inputs: Vec<Value>,
    /// Warnings for the operator, for example about settings that have no effect.
    pub remarks: Vec<String>,
}

/// An MCP server in the settings.
#[derive(Clone, Debug)]
pub struct McpServer {
    /// The server's id on the wire, unique in the settings.
    pub bundle_id: String,
    /// The parsed fields.
    pub described: ServerFields,
    raw: Map<String, Value>,
}

/// The fields of an MCP server in the settings.
#[derive(Clone, Debug, Deserialize)]
pub struct ServerFields {
    /// A name for people; any text.
    pub name: String,
    /// An explicit id; `None` derives it from the name.
    #[serde(default)]
    pub bundle_id: Option<String>,
    /// Whether the server is not started.
    #[serde(default)]
    pub disabled: bool,
    /// Tools that are not offered, by their own or their exposed name.
    #[serde(default)]
    pub forbidden_tools: Vec<String>,
    /// Settings of single tools, by the tool's own name.
    #[serde(default)]
    pub tool_meta: BTreeMap<String, ToolMeta>,
    /// Settings for tools without their own; an alias here has no effect.
    #[serde(default)]
    pub default_tool_meta: Option<ToolMeta>,
    /// A transformation of results. It is kept for agents to see, but not applied.
    #[serde(default)]
    pub vrl: Option<String>,
    /// A file of environment variables for a stdio server, one `NAME=value` per line. May contain `${input:id}`.
    #[serde(default, rename = "envFile", alias = "env_file")]
    pub env_file: Option<String>,
    /// The transport: `stdio`, `streamable` or `sse`.
    #[serde(rename = "type")]
    pub transport: String,
    /// The command or the URL, with its parameters. May contain `${input:id}`.
    pub server_parameters: Value,
}

/// The settings of a tool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, serde::Serialize)]
pub struct ToolMeta {
    /// Whether the tool runs without confirmation. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_apply: Option<bool>,
    /// A name to offer the tool under instead of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// Labels that agents may use to group tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// A mapping that agents may use to display results; not applied here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ret_object_mapper: Option<Value>,
}

/// Longest parser message that becomes the cause of a fault, in bytes.
const CAUSE_MAX: usize = 1_024;

fn wrong(key: &str, expected: &str) -> Fault {
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, key.to_owned())
        .with(Fact::Expected, expected.to_owned())
}

/// Adds the parser's message as the cause, unless it quotes a long value.
fn because(fault: Fault, error: &serde_json::Error) -> Fault {
    if error.to_string().len() > CAUSE_MAX { fault } else { fault.caused_by(error) }
}

impl Settings {
    /// Parses the settings: `{"servers": [...], "inputs": [...]}`. Servers may also be a map by name.
    ///
    /// # Errors
    /// If the settings are invalid, with the key of the invalid value.
    pub fn read(text: &str) -> Result<Self, Fault> {
        let whole: Value = serde_json::from_str(text).map_err(|error| {
            wrong("the file", "JSON").with(Fact::Line, error.line()).caused_by(&error)
        })?;
        let mut settings = Self::default();
        let inputs = whole.get("inputs").cloned().unwrap_or_else(|| json!([]));
        settings.raw_inputs = match inputs {
            Value::Array(inputs) => inputs,
            _ => return Err(wrong("inputs", "a list")),
        };
        for (index, raw) in settings.raw_inputs.iter().enumerate() {
            settings.inputs.push(read_input(&format!("inputs.{index}"), raw)?);
        }
        for (key, raw) in listed(&whole)? {
            let server = McpServer::read(&key, raw)?;
            let id = &server.bundle_id;
            settings.remarks.extend(server.remarks());
            if settings.server(id).is_some() {
                settings.remarks.push(format!("{id}: a second server of this id is left out"));
                continue;
            }
            settings.servers.push(server);
        }
        check_variables(&settings.inputs, &settings.servers)?;
        Ok(settings)
    }

    /// Finds a server by its id.
    #[must_use]
    pub fn server(&self, bundle_id: &str) -> Option<&McpServer> {
        self.servers.iter().find(|server| server.bundle_id == bundle_id)
    }

    /// Adds a server, or replaces the one with the same id. Returns its id.
    ///
    /// # Errors
    /// If the server is invalid. The settings stay unchanged then.
    pub fn put(&mut self, raw: &Value) -> Result<String, Fault> {
        let Value::Object(raw) = raw else { return Err(wrong("the server", "an object")) };
        let server = McpServer::read("the server", raw.clone())?;
        let id = server.bundle_id.clone();
        let mut servers = self.servers.clone();
        match servers.iter_mut().find(|it| it.bundle_id == id) {
            Some(old) => *old = server,
            None => servers.push(server),
        }
        check_variables(&self.inputs, &servers)?;
        self.servers = servers;
        Ok(id)
    }

    /// The settings as an agent may see them: as written, with ids added and literal secrets removed.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let servers = self.servers.iter().map(|server| {
            let mut raw = server.raw.clone();
            raw.insert("bundle_id".into(), server.bundle_id.clone().into());
            if let Some(parameters) = raw.get_mut("server_parameters") {
                for field in ["env", "headers"] {
                    let values = parameters.get_mut(field).and_then(Value::as_object_mut);
                    for value in values.into_iter().flat_map(Map::values_mut) {
                        let is_named = value.as_str().is_some_and(|text| text.contains("${input:"));
                        if !is_named {
                            *value = "[redacted]".into();
                        }
                    }
                }
            }
            (server.bundle_id.clone(), Value::Object(raw))
        });
        let servers: Map<String, Value> = servers.collect();
        json!({ "servers": servers, "inputs": self.raw_inputs })
    }
}

impl McpServer {
    /// Parses a server; `key` is its place in the file, for error messages.
    ///
    /// # Errors
    /// If the server is invalid, with the key of the invalid value.
    pub fn read(key: &str, raw: Map<String, Value>) -> Result<Self, Fault> {
        let described: ServerFields = serde_json::from_value(Value::Object(raw.clone()))
            .map_err(|error| because(wrong(key, "a server"), &error))?;
        // Computed in any case, because it also validates the parameters.
        let derived = described.derived_id(key)?;
        let bundle_id = match &described.bundle_id {
            Some(id) => match bundle_id_problem(id) {
                Some(problem) => return Err(wrong(&format!("{key}.bundle_id"), problem)),
                None => id.clone(),
            },
            None => derived,
        };
        Ok(Self { bundle_id, described, raw })
    }

    /// Warnings for the operator about settings that have no effect.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let id = &self.bundle_id;
        let mut remarks = Vec::new();
        if self.described.vrl.is_some() {
            remarks.push(format!("{id}: `vrl` is kept but results are not transformed"));
        }
        if self.described.env_file.is_some() && self.described.transport != "stdio" {
            remarks.push(format!("{id}: `envFile` is for programs and is not read"));
        }
        for (field, usual, why) in UNUSED {
            let given = self.described.server_parameters.get(field).filter(|it| !it.is_null());
            let given = given.map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned));
            if given.is_some_and(|given| given != usual) {
                remarks.push(format!("{id}: `{field}` is kept but not used: {why}"));
            }
        }
        remarks
    }
}

/// Parameters that other computers support and this one ignores: the name, the usual value, and the reason.
const UNUSED: [(&str, &str, &str); 4] = [
    ("sse_read_timeout", "", "a call's own deadline counts"),
    ("terminate_on_close", "true", "a session is always ended"),
    ("encoding", "utf-8", "the protocol is UTF-8"),
    ("encoding_error_handler", "strict", "what is not UTF-8 is no message"),
];

/// The original JSON of a server, with its key in the file.
type RawServer = (String, Map<String, Value>);

/// The servers of a file, from a list or a map.
fn listed(whole: &Value) -> Result<Vec<RawServer>, Fault> {
    let object = |key: String, value: &Value| match value {
        Value::Object(map) => Ok((key, map.clone())),
        _ => Err(wrong(&key, "an object")),
    };
    match whole.get("servers") {
        Some(Value::Array(list)) => {
            let list = list.iter().enumerate();
            list.map(|(index, value)| object(format!("servers.{index}"), value)).collect()
        }
        Some(Value::Object(map)) => map
            .iter()
            .map(|(name, value)| {
                let (key, mut server) = object(format!("servers.{name}"), value)?;
                server.entry("name").or_insert_with(|| name.clone().into());
                Ok((key, server))
            })
            .collect(),
        _ => Err(wrong("servers", "a list, or a map by name")),
    }
}

impl ServerFields {
    fn derived_id(&self, key: &str) -> Result<String, Fault> {
        let parameters = &self.server_parameters;
        let text = |field: &str| parameters.get(field).and_then(Value::as_str);
        let map = |field: &str| -> BTreeMap<String, String> {
            let map = parameters.get(field).and_then(Value::as_object).into_iter().flatten();
            map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
        };
        let missing = |field: &str| wrong(&format!("{key}.server_parameters.{field}"), "text");
        self.timeout()
            .map_err(|expected| wrong(&format!("{key}.server_parameters.timeout"), expected))?;
        match self.transport.as_str() {
            "stdio" => {
                let command = text("command").ok_or_else(|| missing("command"))?;
                let args = parameters.get("args").and_then(Value::as_array).into_iter().flatten();
                let args: Vec<String> =
                    args.filter_map(|arg| arg.as_str().map(str::to_owned)).collect();
                let env = map("env");
                Ok(bundle_id(
                    &self.name,
                    &ServerIdentity::Stdio { command, args: &args, env: &env },
                ))
            }
            "streamable" | "sse" => {
                let url = text("url").ok_or_else(|| missing("url"))?;
                let headers = map("headers");
                let transport = &self.transport;
                Ok(bundle_id(
                    &self.name,
                    &ServerIdentity::Net { transport, url, headers: &headers },
                ))
            }
            _ => Err(wrong(&format!("{key}.type"), "`stdio`, `streamable` or `sse`")),
        }
    }

    /// Time limit for connecting to a network server and listing its tools; `None` if not set or for stdio.
    ///
    /// # Errors
    /// A description of valid values.
    pub(super) fn timeout(&self) -> Result<Option<Duration>, &'static str> {
        const EXPECTED: &str = "seconds, or a duration like `PT30S`, up to an hour";
        let given = self.server_parameters.get("timeout").filter(|it| !it.is_null());
        let Some(given) = given.filter(|_| self.transport != "stdio") else { return Ok(None) };
        let duration = match given {
            Value::Number(seconds) => {
                seconds.as_f64().and_then(|it| Duration::try_from_secs_f64(it).ok())
            }
            Value::String(text) => {
                let read = text.parse::<jiff::SignedDuration>().ok();
                read.and_then(|it| Duration::try_from(it).ok())
            }
            _ => None,
        };
        let fits = |it: &Duration| !it.is_zero() && *it <= Duration::from_hours(1);
        duration.filter(fits).map(Some).ok_or(EXPECTED)
    }

    /// All fields that may contain `${input:id}`.
    pub(super) fn open(&self) -> Value {
        json!({ "server_parameters": self.server_parameters, "envFile": self.env_file })
    }

    /// The settings of a tool: its own fields first, then the defaults.
    #[must_use]
    pub fn meta_of(&self, tool: &str) -> ToolMeta {
        let own = self.tool_meta.get(tool).cloned().unwrap_or_default();
        let default = self.default_tool_meta.clone().unwrap_or_default();
        ToolMeta {
            auto_apply: own.auto_apply.or(default.auto_apply),
            // A default alias would give every tool the same name.
            alias: own.alias,
            tags: own.tags.or(default.tags),
            ret_object_mapper: own.ret_object_mapper.or(default.ret_object_mapper),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &Value) -> Result<Settings, Fault> {
        Settings::read(&value.to_string())
    }

    fn server(name: &str) -> Value {
        json!({ "name": name, "type": "stdio", "server_parameters": {
            "command": "x", "env": { "A": "literal", "B": "${input:b}" } } })
    }

    #[test]
    fn a_refusal_quotes_no_long_value() {
        let long = "x".repeat(20_000);
        let disabled = json!({"name": "a", "type": "stdio", "disabled": long});
        for wrong in
            [json!({"inputs": [{"type": long, "id": "b"}]}), json!({"servers": [disabled]})]
        {
            let message = read(&wrong).unwrap_err().to_string();
            assert!(message.len() < 2_000, "{} bytes", message.len());
        }
    }

    #[test]
    fn a_file_is_read_and_shown_without_its_secrets() {
        let settings = read(&json!({
            "inputs": [{ "type": "promptString", "id": "b", "password": true }],
            "servers": [server("My Server!")],
        }))
        .unwrap();
        assert_eq!(settings.servers[0].bundle_id, "My_Server");
        let rendered = settings.to_json();
        let env = &rendered["servers"]["My_Server"]["server_parameters"]["env"];
        assert_eq!(env, &json!({ "A": "[redacted]", "B": "${input:b}" }));
        assert_eq!(rendered["inputs"][0]["id"], "b");
    }

    #[test]
    fn the_first_of_two_servers_with_one_id_is_kept() {
        let settings = read(&json!({ "servers": [server("a.b"), server("a b")] })).unwrap();
        assert_eq!((settings.servers.len(), settings.remarks.len()), (1, 1));
        let by_name = read(
            &json!({ "servers": { "git": { "type": "sse", "server_parameters": { "url": "u" } } } }),
        );
        assert_eq!(by_name.unwrap().servers[0].bundle_id, "git");
    }

    #[test]
    fn an_invalid_configuration_is_named() {
        let config_key = |value: Value| {
            let fault = read(&value).unwrap_err();
            fault.detail().text(Fact::ConfigKey).unwrap().to_owned()
        };
        assert_eq!(config_key(json!([])), "servers");
        assert_eq!(config_key(json!({ "servers": [5] })), "servers.0");
        let strange = json!({ "name": "a", "type": "carrier-pigeon", "server_parameters": {} });
        assert_eq!(config_key(json!({ "servers": [strange] })), "servers.0.type");
        let mut explicit = server("a");
        explicit["bundle_id"] = "a__b".into();
        assert_eq!(config_key(json!({ "servers": [explicit] })), "servers.0.bundle_id");
        let inputs = |inputs: Value| json!({ "servers": [], "inputs": inputs });
        let twice = inputs(
            json!([{ "type": "promptString", "id": "a-b" }, { "type": "promptString", "id": "a.b" }]),
        );
        assert_eq!(config_key(twice), "inputs");
        // Input `b` for server `c` and input `b_c` for all servers would share one variable.
        let mut narrow = server("c");
        narrow["server_parameters"]["env"] = json!({ "B": "${input:b}" });
        let both =
            json!([{ "type": "promptString", "id": "b" }, { "type": "promptString", "id": "b_c" }]);
        assert_eq!(config_key(json!({ "servers": [narrow], "inputs": both })), "inputs");
        let plain = inputs(json!([{ "type": "pickString", "id": "a", "options": ["x"] }]));
        assert_eq!(config_key(plain), "inputs.0");
        let option = json!({ "label": "X", "value": "x" });
        let off = json!([{ "type": "pickString", "id": "a", "options": [option], "default": "y" }]);
        assert_eq!(config_key(inputs(off)), "inputs.0.default");
    }

    #[test]
    fn unused_settings_are_remarked_and_usual_values_are_not() {
        let net = |parameters: Value| {
            let mut parameters = parameters;
            parameters["url"] = "http://x/".into();
            json!({ "servers": [{ "name": "a", "type": "streamable", "envFile": null, "server_parameters": parameters }] })
        };
        let remarks = |file: &Value| read(file).unwrap().remarks;
        let usual = net(json!({ "timeout": "PT30S", "terminate_on_close": true, "headers": null }));
        assert_eq!(remarks(&usual), [""; 0]);
        let mut odd = net(json!({ "sse_read_timeout": "PT5M", "terminate_on_close": false }));
        odd["servers"][0]["envFile"] = ".env".into();
        odd["servers"][0]["vrl"] = ".".into();
        insta::assert_snapshot!(remarks(&odd).join("\n"));
        let mut program = server("a");
        program["envFile"] = ".env".into();
        program["server_parameters"]["encoding"] = "utf-8".into();
        assert_eq!(remarks(&json!({ "servers": [program] })), [""; 0]);
    }

    #[test]
    fn how_long_a_server_may_take_is_read_as_both_transports_write_it() {
        let timeout = |kind: &str, timeout: Value| {
            let parameters = json!({ "url": "http://x/", "timeout": timeout });
            let raw = json!({ "name": "a", "type": kind, "server_parameters": parameters });
            let settings = read(&json!({ "servers": [raw] }))?;
            Ok::<_, Fault>(settings.servers[0].described.timeout().unwrap())
        };
        for (kind, written, seconds) in [
            ("sse", json!(1.5), 1.5),
            ("sse", json!(5), 5.0),
            ("streamable", json!("PT30S"), 30.0),
            ("streamable", json!("PT1M30S"), 90.0),
        ] {
            let expected = Duration::from_secs_f64(seconds);
            assert_eq!(timeout(kind, written).unwrap(), Some(expected));
        }
        assert_eq!(timeout("sse", Value::Null).unwrap(), None);
        for bad in [json!(0), json!(-1), json!(1e9), json!("soon"), json!([]), json!("-PT5S")] {
            let fault = timeout("streamable", bad.clone()).unwrap_err();
            let config_key = fault.detail().text(Fact::ConfigKey);
            assert_eq!(config_key, Some("servers.0.server_parameters.timeout"), "{bad}");
        }
    }

    #[test]
    fn a_tools_own_fields_win_and_a_default_gives_no_alias() {
        let mut raw = server("a");
        raw["tool_meta"] = json!({ "t": { "alias": "u", "tags": null } });
        raw["default_tool_meta"] = json!({ "auto_apply": true, "alias": "no", "tags": ["x"] });
        let settings = read(&json!({ "servers": [raw] })).unwrap();
        let meta = settings.servers[0].described.meta_of("t");
        assert_eq!((meta.alias.as_deref(), meta.auto_apply), (Some("u"), Some(true)));
        assert_eq!(meta.tags, Some(vec!["x".to_owned()]));
        assert_eq!(settings.servers[0].described.meta_of("other").alias, None);
    }

    #[test]
    fn variables_have_the_protocols_names() {
        assert_eq!(variable("api.key", None), "A2C_SMCP_api_key");
        assert_eq!(variable("api-key", Some("my-server")), "A2C_SMCP_api_key_my_server");
    }
}
