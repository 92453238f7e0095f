//! A client for the conformance suite of the MCP project: connects to the URL that is its last argument, and does what
//! the scenario in `MCP_CONFORMANCE_SCENARIO` needs.
//!
//! The suite judges by what its server sees. A question of the server is accepted with its defaults, and a login ends
//! without a person (`login`).
#![expect(clippy::print_stderr, reason = "the suite shows the error output of a client that fails")]

mod login;

use std::{process::ExitCode, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    elicitation::{Elicitation, ElicitationAnswer},
    fault::{Fault, Kind, Operation},
    limits::Limits,
    tool::{Outcome, Todo},
};
use budao_mcp::{McpServerConfig, ProcessVariables, ServerEnvironment, ServerHandle};
use budao_tools::{CallContext, Memory, Toolbox, isolation};
use futures::future::join_all;
use serde_json::{Value, json};

/// The longest wait for the server.
const START: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> ExitCode {
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or_default();
    let context: Value = serde_json::from_str(&context).unwrap_or_default();
    let url = std::env::args().next_back().unwrap_or_default();
    match run(&scenario, &context, url).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{scenario}: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(scenario: &str, context: &Value, url: String) -> Result<(), String> {
    let mut config = McpServerConfig::http("conformance", url);
    (config.timeouts.start, config.reconnect.tries) = (START, 1);
    let (world, limits) = (isolation::context().world, Arc::new(Limits::default()));
    if scenario.starts_with("auth/") {
        login::configure(&mut config, context);
        let environment = ServerEnvironment::new(&ProcessVariables::default(), &world, &limits);
        return login::run(scenario, context, config, environment).await;
    }
    let server = ServerHandle::connect(config, &ProcessVariables::default(), &world, &limits)
        .await
        .map_err(|fault| fault.to_string())?;
    let calls = calls(scenario, context, &server);
    let failed = match scenario {
        // The suite checks that the state of one call does not reach another.
        "sep-2322-client-request-state" => {
            let all = calls.iter().map(|(tool, arguments)| call(&server, tool, arguments));
            join_all(all).await.into_iter().flatten().collect::<Vec<_>>()
        }
        _ => {
            let mut failed = Vec::new();
            for (tool, arguments) in &calls {
                failed.extend(call(&server, tool, arguments).await);
            }
            failed
        }
    };
    if scenario == "http-standard-headers" {
        read_all(&server).await;
    }
    server.shutdown().await;
    // Tools of some scenarios fail on purpose; the suite sees what it wants to see.
    failed.iter().for_each(|fault| eprintln!("{fault}"));
    Ok(())
}

/// The calls of a scenario: those that its context names, or one of each tool.
fn calls(scenario: &str, context: &Value, server: &ServerHandle) -> Vec<(String, Value)> {
    if let Some(wanted) = context["toolCalls"].as_array() {
        let call = |it: &Value| {
            let mut arguments = it["arguments"].clone();
            // The check of arguments lets no null through where the schema has none.
            arguments.as_object_mut()?.retain(|_, value| !value.is_null());
            Some((it["name"].as_str()?.to_owned(), arguments))
        };
        return wanted.iter().filter_map(call).collect();
    }
    let tools = server.named_tools();
    if scenario == "json-schema-2020-12-preservation" {
        let focal = tools.iter().find(|(name, _)| name == "json_schema_2020_12_tool");
        let schema = focal.map(|(_, tool)| Value::clone(&tool.spec().schema));
        let echo = tools.iter().find(|(name, _)| name != "json_schema_2020_12_tool");
        return echo
            .map(|(name, _)| (name.clone(), json!({ "schema": schema })))
            .into_iter()
            .collect();
    }
    tools.iter().map(|(name, tool)| (name.clone(), sample(&tool.spec().schema))).collect()
}

/// Arguments that fit a simple schema.
fn sample(schema: &Value) -> Value {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let value = |name: &str| match schema["properties"][name]["type"].as_str() {
        Some("number" | "integer") => json!(2),
        Some("boolean") => json!(true),
        Some("object") => json!({}),
        Some("array") => json!([]),
        _ => json!("value"),
    };
    let named = required.iter().filter_map(Value::as_str);
    named.map(|name| (name.to_owned(), value(name))).collect()
}

/// Calls a tool the way a session does. Returns the fault of a call that failed.
async fn call(server: &ServerHandle, tool: &str, arguments: &Value) -> Option<Fault> {
    let toolbox = Toolbox::builder().build().with_all(server.tools()).ok()?;
    let name = budao_mcp::tool_name(server.name(), tool);
    let context = CallContext {
        memory: Arc::new(Acceptance),
        idempotency_key: tool.into(),
        ..isolation::context()
    };
    let checked = match toolbox.check_value(&name, arguments.clone(), &context.limits) {
        Ok(checked) => checked,
        Err(refused) => {
            eprintln!("{refused:?}");
            return Some(Fault::new(Kind::InvalidArguments, Operation::ToolCall));
        }
    };
    match checked.run(context).await {
        Outcome::Done(_) => None,
        Outcome::Failed(failure) => Some(failure.fault),
    }
}

async fn read_all(server: &ServerHandle) {
    let Ok(page) = server.resources(None, START).await else { return };
    for resource in &page.resources {
        if let Some(uri) = resource["uri"].as_str() {
            drop(server.read_resource(uri, START).await);
        }
    }
}

/// A person who accepts every question with its defaults.
#[derive(Debug)]
struct Acceptance;

#[async_trait]
impl Memory for Acceptance {
    fn todos(&self) -> Vec<Todo> {
        Vec::new()
    }

    fn seen_digest(&self, _path: &str) -> Option<Option<String>> {
        None
    }

    async fn ask_person(&self, asked: &Elicitation, _place: &str) -> ElicitationAnswer {
        let values = asked.fields.iter().filter(|field| field.default.is_none());
        let values = values.map(|field| (field.name.clone(), sample_value(field)));
        let values: Value = values.collect();
        asked
            .complete(Some(&values))
            .map_or(ElicitationAnswer::Declined, ElicitationAnswer::Accepted)
    }
}

fn sample_value(field: &budao_core::elicitation::FormField) -> Value {
    use budao_core::elicitation::FieldKind;
    match &field.kind {
        FieldKind::Text { .. } => json!("value"),
        FieldKind::Number { minimum, .. } => json!(minimum.unwrap_or(1.0)),
        FieldKind::Boolean => json!(true),
        FieldKind::Choice { options } => json!(options.first().map(|it| it.value.clone())),
        FieldKind::Choices { .. } => json!([]),
    }
}
