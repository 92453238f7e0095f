//! What the CLI reports about itself: its commands, its models, its context size, and its failed MCP servers.

use budao_core::{
    event::{Event, Scope},
    fault::{Fact, Fault, Kind, Operation},
};
use serde_json::{Value, json};

use super::Stepper;
use crate::wire::{ControlResponse, Init, McpServerStatus, TurnReport};

/// Upper bounds of the recorded commands, models and servers, and of the characters of each of their texts.
const COMMANDS: usize = 128;
const MODELS: usize = 64;
const SERVERS: usize = 64;
const TEXT_CHARS: usize = 200;

/// The topic of the control request that asks for the state of the MCP servers.
pub(super) const SERVER_STATUS: &str = "tool servers";

impl Stepper<'_> {
    /// Records what the CLI offers, once per start.
    pub(super) fn take_initialization(&mut self, response: &Value) {
        if let Some(mode) = response["current_permission_mode"].as_str() {
            self.mode_reported(mode);
        }
        for (topic, key, list) in [
            ("claude.commands", "commands", commands(response)),
            ("claude.models", "models", models(response)),
        ] {
            if !list.is_empty() {
                let data = json!({ key: list });
                self.emit(Event::Annotated { topic: topic.to_owned(), data });
            }
        }
    }

    /// Records the context size of the session's model when it is first reported, and when it changes.
    pub(super) fn context_reported(&mut self, result: &TurnReport) {
        let Some(process) = &mut self.m.process else { return };
        let reported = process.model.as_ref().and_then(|model| result.model_usage.get(model));
        let Some(tokens) = reported.map(|usage| usage.context_window).filter(|size| *size > 0)
        else {
            return;
        };
        if process.context_tokens.replace(tokens) != Some(tokens) {
            let data = json!({"tokens": tokens});
            self.emit(Event::Annotated { topic: "claude.context".to_owned(), data });
        }
    }

    /// Asks the CLI why MCP servers failed, if there are any that are not reported yet.
    pub(super) fn servers_reported(&mut self, init: &Init) {
        let Some(process) = &self.m.process else { return };
        let is_new = |server: &McpServerStatus| {
            server.has_failed() && !process.failed_servers.contains(&server.name)
        };
        if init.mcp_servers.iter().any(is_new) {
            self.request(SERVER_STATUS, &json!({"subtype": "mcp_status"}));
        }
    }

    /// Records a fault for each MCP server that failed, once per start of the CLI.
    pub(super) fn server_status_answered(&mut self, answered: &ControlResponse) {
        let list = answered.response["mcpServers"].as_array().into_iter().flatten();
        for server in list.take(SERVERS) {
            let Ok(status) = serde_json::from_value::<McpServerStatus>(server.clone()) else {
                continue;
            };
            let Some(process) = &mut self.m.process else { return };
            if !status.has_failed() || !process.failed_servers.insert(status.name.clone()) {
                continue;
            }
            let reason = match &status.error {
                Some(error) => error.chars().take(TEXT_CHARS).collect(),
                None => status.status.clone(),
            };
            let fault = Fault::new(Kind::McpServerFailed, Operation::StartMcpServer)
                .with(Fact::McpServer, status.name)
                .with(Fact::Reason, reason);
            self.emit(Event::FaultRaised { fault, scope: Scope::default() });
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().chars().take(TEXT_CHARS).collect()
}

/// Lists the commands that the CLI offers, shortened, for gateways to show.
fn commands(response: &Value) -> Vec<Value> {
    let list = response["commands"].as_array().into_iter().flatten().take(COMMANDS);
    list.map(|command| {
        json!({
            "name": text(&command["name"]),
            "about": text(&command["description"]),
            "hint": text(&command["argumentHint"]),
        })
    })
    .collect()
}

/// Lists the models that the CLI offers. `thinking_off` is false for a model that always thinks.
fn models(response: &Value) -> Vec<Value> {
    let list = response["models"].as_array().into_iter().flatten();
    list.filter(|model| model["value"].as_str().is_some_and(|id| !id.is_empty()))
        .take(MODELS)
        .map(|model| {
            json!({
                "id": text(&model["value"]),
                "name": text(&model["displayName"]),
                "about": text(&model["description"]),
                "thinking_off": model["supportsThinkingOff"].as_bool().unwrap_or(true),
            })
        })
        .collect()
}
