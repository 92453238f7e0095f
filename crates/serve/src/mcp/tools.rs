//! The three tools and their arguments.

use std::time::Duration;

use budao_core::Fault;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::front_end::{check_id, constraint_fault};

/// How long `ask` waits for the answer unless told; below the usual limit of proxies and clients.
const DEFAULT_WAIT: Duration = Duration::from_secs(50);
/// The longest wait that a client can ask for.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// The arguments of `ask`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AskArguments {
    /// The task or question for the agent.
    pub(super) message: String,
    /// The session to continue; a new one if absent.
    #[serde(default)]
    pub(super) session: Option<String>,
    /// The client's own id of the question. A repetition with the same id asks nothing twice.
    #[serde(default)]
    pub(super) id: Option<String>,
    #[serde(default)]
    wait_seconds: Option<u64>,
}

impl AskArguments {
    /// How long the call waits for the answer.
    pub(super) fn wait(&self) -> Duration {
        self.wait_seconds.map_or(DEFAULT_WAIT, Duration::from_secs).min(WAIT_MAX)
    }
}

/// The arguments of `status` and `cancel`: a run, or the latest of a session.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RunArguments {
    pub(super) run: String,
}

/// A call of a tool.
#[derive(Debug)]
pub(super) enum ToolCall {
    Ask(AskArguments),
    Status(RunArguments),
    Cancel(RunArguments),
}

impl ToolCall {
    /// Reads a call; `None` for a tool that does not exist.
    pub(super) fn read(name: &str, arguments: Option<&Value>) -> Option<Result<Self, Fault>> {
        let empty = Value::Object(Map::new());
        let arguments = arguments.unwrap_or(&empty);
        let wrong = |error: serde_json::Error| {
            constraint_fault(
                "arguments",
                "the arguments that the schema of the tool names",
                &error.to_string(),
            )
        };
        let run = || RunArguments::deserialize(arguments).map_err(wrong);
        Some(match name {
            "ask" => AskArguments::deserialize(arguments).map_err(wrong).and_then(|ask| {
                if ask.message.trim().is_empty() {
                    return Err(constraint_fault("message", "not empty", ""));
                }
                for (field, id) in [("id", &ask.id), ("session", &ask.session)] {
                    id.as_ref().map_or(Ok(()), |id| check_id(field, id))?;
                }
                Ok(Self::Ask(ask))
            }),
            "status" => run().map(Self::Status),
            "cancel" => run().map(Self::Cancel),
            _ => return None,
        })
    }
}

/// The tools as `tools/list` shows them.
pub(super) fn list() -> Value {
    let run = json!({
        "type": "object",
        "properties": { "run": { "type": "string", "description": "The run, as `ask` returned it" } },
        "required": ["run"],
        "additionalProperties": false,
    });
    let ask = json!({
        "type": "object",
        "properties": {
            "message": { "type": "string", "description": "What the agent is asked to do" },
            "session": { "type": "string", "description": "The session to continue; a new one if absent" },
            "id": {
                "type": "string",
                "description": "Your own id of this question. If the answer is lost, ask again with the same id: the work is not done twice",
            },
            "wait_seconds": {
                "type": "integer", "minimum": 0, "maximum": WAIT_MAX.as_secs(),
                "description": "How long to wait for the answer, 50 if absent; after that, `status` has it",
            },
        },
        "required": ["message"],
        "additionalProperties": false,
    });
    json!([
        {
            "name": "ask", "title": "Ask the agent",
            "description": "Asks a durable agent and returns its answer. A long task returns its run with the state `working`: call `status` for the answer. The work survives lost connections and restarts.",
            "inputSchema": ask,
            "annotations": { "readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": true },
        },
        {
            "name": "status", "title": "State of a run",
            "description": "The state of a run and its answer, if there is one.",
            "inputSchema": run,
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        },
        {
            "name": "cancel", "title": "Cancel a run",
            "description": "Cancels a run that is waiting or at work. A run that is over stays as it is.",
            "inputSchema": run,
            "annotations": { "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": false },
        },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_do_not_fit_are_refused_with_their_field() {
        for arguments in [
            json!({}),
            json!({ "message": " " }),
            json!({ "message": 7 }),
            json!({ "message": "a", "sesion": "b" }),
            json!({ "message": "a", "id": "" }),
            json!({ "message": "a", "id": "x".repeat(300) }),
            json!({ "message": "a", "wait_seconds": -1 }),
            json!([]),
        ] {
            assert!(ToolCall::read("ask", Some(&arguments)).unwrap().is_err(), "{arguments}");
        }
        assert!(ToolCall::read("status", None).unwrap().is_err());
        assert!(ToolCall::read("shell", None).is_none());
        let long = json!({ "message": "a", "wait_seconds": u64::MAX });
        let Some(Ok(ToolCall::Ask(ask))) = ToolCall::read("ask", Some(&long)) else { panic!() };
        assert_eq!(ask.wait(), WAIT_MAX);
    }
}
