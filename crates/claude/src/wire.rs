//! Parses the CLI's lines, tolerantly.
//!
//! Every set is open: an unknown line becomes [`CliLine::Other`], and an unknown value or field is skipped.
//! Neither ends a turn. Lines to the CLI are in [`crate::outgoing`].

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// One line of the CLI's output.
#[derive(Clone, Debug, PartialEq)]
pub enum CliLine {
    /// A turn starts in the CLI; with version and capabilities.
    Init(Init),
    /// The CLI reports the permission mode that is in force from now on.
    Mode {
        /// The CLI's name of the mode, such as `acceptEdits`.
        mode: String,
    },
    /// The CLI retries a model request by itself, after a delay.
    Retry(Retry),
    /// The CLI denied a call by its own rules.
    Denied {
        /// The CLI's id of the call.
        tool_use_id: String,
    },
    /// The state of a prompt changed.
    Lifecycle {
        /// The prompt's id, as sent to the CLI.
        prompt: String,
        /// For example `started`, `completed`, `cancelled`, `discarded` or `refused`.
        state: String,
    },
    /// An event of the model's stream.
    Stream(StreamLine),
    /// Complete blocks of an answer.
    Assistant(Assistant),
    /// Tool results, echoes of prompts, or outputs of CLI commands.
    User(User),
    /// A turn ended in the CLI.
    Result(Box<TurnReport>),
    /// The CLI asks whether a tool may be used.
    CanUseTool(CanUseTool),
    /// Any other control request of the CLI; it is refused.
    Request {
        /// Id of the request, needed for the answer.
        id: String,
        /// Name of the request.
        subtype: String,
    },
    /// The CLI withdraws a control request.
    Withdrawn {
        /// Id of the request.
        id: String,
    },
    /// The CLI's answer to a control request.
    ControlResponse(ControlResponse),
    /// A line that is unknown or needs no action.
    Other {
        /// Its `type`, with `subtype` if it has one.
        kind: String,
    },
    /// A line that is not valid JSON, or is too long.
    Unreadable {
        /// The parser's message, or the length of the line.
        reason: String,
    },
}

/// A `system/init` line.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Init {
    /// Ids of the turn's prompts; empty if the CLI started the turn by itself or does not stamp.
    #[serde(deserialize_with = "lenient")]
    pub user_message_uuids: Vec<String>,
    /// Optional protocol features, such as `msg_lifecycle_v1`.
    #[serde(deserialize_with = "lenient")]
    pub capabilities: Vec<String>,
    /// Version of the CLI.
    #[serde(deserialize_with = "lenient")]
    pub claude_code_version: Option<String>,
    /// Name of the CLI's model.
    #[serde(deserialize_with = "lenient")]
    pub model: Option<String>,
    /// The permission mode in force.
    #[serde(rename = "permissionMode", deserialize_with = "lenient")]
    pub permission_mode: Option<String>,
    /// The MCP servers and their states.
    #[serde(deserialize_with = "lenient")]
    pub mcp_servers: Vec<McpServerStatus>,
}

/// The state of one MCP server of the CLI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct McpServerStatus {
    /// Name of the server.
    #[serde(deserialize_with = "lenient")]
    pub name: String,
    /// For example `connected`, `pending`, `failed` or `needs-auth`.
    #[serde(deserialize_with = "lenient")]
    pub status: String,
    /// The error message of a failed server; only in the answer to `mcp_status`.
    #[serde(deserialize_with = "lenient")]
    pub error: Option<String>,
}

impl McpServerStatus {
    /// Can the server not be used?
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.status.as_str(), "failed" | "needs-auth")
    }
}

/// A `system/api_retry` line.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Retry {
    /// Number of the failed attempt.
    #[serde(deserialize_with = "lenient")]
    pub attempt: u32,
    /// Upper bound of retries.
    #[serde(deserialize_with = "lenient")]
    pub max_retries: u32,
    /// Delay before the next attempt, in milliseconds.
    #[serde(deserialize_with = "lenient")]
    pub retry_delay_ms: f64,
    /// HTTP status; absent if the connection broke.
    #[serde(deserialize_with = "lenient")]
    pub error_status: Option<u16>,
    /// The CLI's error name, such as `rate_limit`.
    #[serde(deserialize_with = "lenient")]
    pub error: Option<String>,
}

/// A `stream_event` line.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct StreamLine {
    /// The provider's stream event.
    pub event: StreamEvent,
    /// The CLI's id of the call that started the sub-agent; absent for the main agent.
    #[serde(default)]
    pub parent_tool_use_id: Option<String>,
    /// Present at the end of a stream that the CLI abandoned.
    #[serde(default, deserialize_with = "lenient")]
    pub abandoned_blocks: Option<AbandonedBlocks>,
    /// Ids of the turn's prompts; only on the first line of a turn.
    #[serde(default, deserialize_with = "lenient")]
    pub user_message_uuids: Vec<String>,
}

/// The blocks of an answer that are void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct AbandonedBlocks {
    /// Index of the first void block; all later ones are void, too.
    #[serde(default)]
    pub from_block_index: usize,
}

/// An event of the model's stream.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StreamEvent {
    /// An answer starts.
    MessageStart {
        /// Id and model of the answer; its content is still empty.
        message: MessageHead,
    },
    /// A piece of a block arrived.
    ContentBlockDelta {
        /// Index of the block within the answer.
        #[serde(default)]
        index: usize,
        /// The added text; other kinds of pieces are ignored.
        delta: Delta,
    },
    /// The provider reports stop reason and usage.
    MessageDelta {
        /// The stop reason; empty until the answer stops.
        #[serde(default, deserialize_with = "lenient")]
        delta: StopDelta,
        /// Tokens so far.
        #[serde(default, deserialize_with = "lenient")]
        usage: Usage,
    },
    /// The stream of an answer ends.
    MessageStop,
    /// Any other event; ignored.
    #[serde(other)]
    Other,
}

/// An answer, or the known part of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MessageHead {
    /// The provider's message id.
    #[serde(deserialize_with = "lenient")]
    pub id: Option<String>,
    /// Name of the model that answers.
    #[serde(deserialize_with = "lenient")]
    pub model: Option<String>,
    /// The blocks as the provider's JSON.
    #[serde(deserialize_with = "lenient")]
    pub content: Vec<Value>,
    /// The provider's stop reason, such as `end_turn`; absent until the answer stops.
    #[serde(deserialize_with = "lenient")]
    pub stop_reason: Option<String>,
    /// Tokens so far.
    #[serde(deserialize_with = "lenient")]
    pub usage: Usage,
}

/// A piece of a block.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Delta {
    /// A piece of the answer's text.
    TextDelta {
        /// The added text only.
        text: String,
    },
    /// A piece of the model's thinking.
    ThinkingDelta {
        /// The added text only.
        thinking: String,
    },
    /// Any other piece, such as arguments or a signature; ignored.
    #[serde(other)]
    Other,
}

/// The stop reason inside a `message_delta`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StopDelta {
    /// The provider's stop reason, such as `end_turn` or `max_tokens`.
    #[serde(deserialize_with = "lenient")]
    pub stop_reason: Option<String>,
}

/// Token counts as the provider reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Input tokens, without those read from or written to the cache.
    #[serde(deserialize_with = "lenient")]
    pub input_tokens: u64,
    /// Tokens written by the model.
    #[serde(deserialize_with = "lenient")]
    pub output_tokens: u64,
    /// Input tokens read from the cache.
    #[serde(deserialize_with = "lenient")]
    pub cache_read_input_tokens: u64,
    /// Input tokens written to the cache.
    #[serde(deserialize_with = "lenient")]
    pub cache_creation_input_tokens: u64,
}

/// An `assistant` line: one or more complete blocks of an answer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Assistant {
    /// The answer with the complete blocks.
    pub message: MessageHead,
    /// The CLI's id of the call that started the sub-agent; absent for the main agent.
    #[serde(deserialize_with = "lenient")]
    pub parent_tool_use_id: Option<String>,
    /// The CLI's error name; present if the line reports a failure in place of an answer.
    #[serde(deserialize_with = "lenient")]
    pub error: Option<String>,
    /// Ids of the turn's prompts; only on the first line of a turn.
    #[serde(deserialize_with = "lenient")]
    pub user_message_uuids: Vec<String>,
}

/// A `user` line: content that entered the conversation and is not from the model.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct User {
    /// The content of the line.
    pub message: UserMessage,
    /// The CLI's id of the call that started the sub-agent; absent for the main agent.
    #[serde(deserialize_with = "lenient")]
    pub parent_tool_use_id: Option<String>,
    /// Id of the message; for an echo, the prompt's id.
    #[serde(deserialize_with = "lenient")]
    pub uuid: Option<String>,
    /// True for the echo of a prompt.
    #[serde(rename = "isReplay", deserialize_with = "lenient")]
    pub is_replay: bool,
}

/// The `message` of a `user` line.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct UserMessage {
    /// A text, or a list of blocks.
    pub content: Value,
}

/// A `result` line: the end of a turn in the CLI.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TurnReport {
    /// For example `success`, `error_max_turns` or `error_during_execution`.
    #[serde(deserialize_with = "lenient")]
    pub subtype: String,
    /// True if the turn failed. An API failure sets it although `subtype` is `success`.
    #[serde(deserialize_with = "lenient")]
    pub is_error: bool,
    /// The final text of the turn; for an API failure, its message.
    #[serde(deserialize_with = "lenient")]
    pub result: Option<String>,
    /// The CLI's error messages.
    #[serde(deserialize_with = "lenient")]
    pub errors: Vec<Value>,
    /// The provider's stop reason of the last answer.
    #[serde(deserialize_with = "lenient")]
    pub stop_reason: Option<String>,
    /// The CLI's reason for the end, such as `prompt_too_long`.
    #[serde(deserialize_with = "lenient")]
    pub terminal_reason: Option<String>,
    /// HTTP status of an API failure.
    #[serde(deserialize_with = "lenient")]
    pub api_error_status: Option<u16>,
    /// The provider's error type of an API failure.
    #[serde(deserialize_with = "lenient")]
    pub api_error_type: Option<String>,
    /// Number of model requests in the turn.
    #[serde(deserialize_with = "lenient")]
    pub num_turns: u64,
    /// Duration of the turn in milliseconds.
    #[serde(deserialize_with = "lenient")]
    pub duration_ms: f64,
    /// Tokens of the whole turn.
    #[serde(deserialize_with = "lenient")]
    pub usage: Usage,
    /// Use of each model since the CLI started.
    #[serde(rename = "modelUsage", deserialize_with = "lenient")]
    pub model_usage: BTreeMap<String, ModelUsage>,
    /// The cause of the turn; its `kind` is `human`, `user` or `sdk` if a person sent the prompt.
    #[serde(deserialize_with = "lenient")]
    pub origin: Option<Value>,
    /// Id of the turn's prompt; absent if the CLI does not stamp.
    #[serde(deserialize_with = "lenient")]
    pub user_message_uuid: Option<String>,
    /// Ids of all prompts of the turn; empty if the CLI does not stamp.
    #[serde(deserialize_with = "lenient")]
    pub user_message_uuids: Vec<String>,
}

/// The use of one model. Only its size is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ModelUsage {
    /// Size of the model's context in tokens; 0 if the CLI does not report it.
    #[serde(rename = "contextWindow", deserialize_with = "lenient")]
    pub context_window: u64,
}

impl TurnReport {
    /// Does the result carry a prompt id?
    #[must_use]
    pub fn is_stamped(&self) -> bool {
        self.user_message_uuid.is_some() || !self.user_message_uuids.is_empty()
    }

    /// Does the result carry the id of this prompt?
    #[must_use]
    pub fn is_for(&self, prompt: &str) -> bool {
        self.stamps().any(|stamp| stamp == prompt)
    }

    /// All prompt ids of the result.
    pub fn stamps(&self) -> impl Iterator<Item = &str> {
        self.user_message_uuid.iter().chain(&self.user_message_uuids).map(String::as_str)
    }

    /// The error messages and the final text, joined with `; `, for the operator.
    #[must_use]
    pub fn messages(&self) -> String {
        let errors = self.errors.iter().map(|error| match error {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        let messages: Vec<String> = errors.chain(self.result.clone()).collect();
        messages.join("; ")
    }
}

/// A `control_request/can_use_tool` line.
#[derive(Clone, Debug, PartialEq)]
pub struct CanUseTool {
    /// Id of the request, needed for the answer.
    pub id: String,
    /// The call that needs permission.
    pub request: CanUseToolRequest,
}

/// The `request` of a permission request.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CanUseToolRequest {
    /// Name of the tool, as the CLI knows it.
    #[serde(deserialize_with = "lenient")]
    pub tool_name: String,
    /// The arguments of the call.
    pub input: Value,
    /// The CLI's id of the call.
    #[serde(deserialize_with = "lenient")]
    pub tool_use_id: Option<String>,
    /// The CLI's reason to ask.
    #[serde(deserialize_with = "lenient")]
    pub decision_reason: Option<String>,
    /// The path that made the CLI ask.
    #[serde(deserialize_with = "lenient")]
    pub blocked_path: Option<String>,
}

/// A `control_response` line.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ControlResponse {
    /// Id of the request that it answers.
    #[serde(deserialize_with = "lenient")]
    pub request_id: String,
    /// `success` or `error`.
    #[serde(deserialize_with = "lenient")]
    pub subtype: String,
    /// The error message; present if `subtype` is `error`.
    #[serde(deserialize_with = "lenient")]
    pub error: Option<String>,
    /// The payload of a successful answer.
    pub response: Value,
}

#[derive(Deserialize)]
struct LineKind {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    subtype: Option<Value>,
}

/// Parses a line. It never fails: see [`CliLine::Other`] and [`CliLine::Unreadable`].
#[must_use]
pub fn read(line: &[u8]) -> CliLine {
    let head: LineKind = match serde_json::from_slice(line) {
        Ok(head) => head,
        Err(error) => return CliLine::Unreadable { reason: error.to_string() },
    };
    let subtype = head.subtype.as_ref().and_then(Value::as_str).unwrap_or_default();
    let known = match (head.kind.as_str(), subtype) {
        ("stream_event", _) => parse(line).map(CliLine::Stream),
        ("assistant", _) => parse(line).map(CliLine::Assistant),
        ("user", _) => parse(line).map(CliLine::User),
        ("result", _) => parse(line).map(|result| CliLine::Result(Box::new(result))),
        ("system", "init") => parse(line).map(CliLine::Init),
        ("system", "status") => mode(line),
        ("system", "api_retry") => parse(line).map(CliLine::Retry),
        ("system", "permission_denied") => parse_denial(line),
        ("command_lifecycle", _) => lifecycle(line),
        ("control_request", _) => request(line),
        ("control_cancel_request", _) => withdrawn(line),
        ("control_response", _) => parse_control_response(line),
        _ => None,
    };
    known.unwrap_or_else(|| {
        let kind = match subtype {
            "" => head.kind.clone(),
            subtype => format!("{}/{subtype}", head.kind),
        };
        CliLine::Other { kind }
    })
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    serde_json::from_slice(line).ok()
}

/// Reads a status line; `None` unless it names the permission mode, which most do not.
fn mode(line: &[u8]) -> Option<CliLine> {
    #[derive(Deserialize)]
    struct Status {
        #[serde(rename = "permissionMode", default, deserialize_with = "lenient")]
        mode: Option<String>,
    }
    parse::<Status>(line).and_then(|status| status.mode).map(|mode| CliLine::Mode { mode })
}

fn parse_denial(line: &[u8]) -> Option<CliLine> {
    #[derive(Deserialize)]
    struct DeniedLine {
        tool_use_id: String,
    }
    parse::<DeniedLine>(line).map(|denied| CliLine::Denied { tool_use_id: denied.tool_use_id })
}

fn lifecycle(line: &[u8]) -> Option<CliLine> {
    #[derive(Deserialize)]
    struct Lifecycle {
        command_uuid: String,
        state: String,
    }
    let Lifecycle { command_uuid, state } = parse(line)?;
    Some(CliLine::Lifecycle { prompt: command_uuid, state })
}

fn request(line: &[u8]) -> Option<CliLine> {
    #[derive(Deserialize)]
    struct Request {
        request_id: String,
        request: Value,
    }
    let Request { request_id, request } = parse(line)?;
    let subtype = request["subtype"].as_str().unwrap_or_default().to_owned();
    if subtype != "can_use_tool" {
        return Some(CliLine::Request { id: request_id, subtype });
    }
    let request = serde_json::from_value(request).ok()?;
    Some(CliLine::CanUseTool(CanUseTool { id: request_id, request }))
}

fn withdrawn(line: &[u8]) -> Option<CliLine> {
    #[derive(Deserialize)]
    struct CancelLine {
        request_id: String,
    }
    parse::<CancelLine>(line).map(|line| CliLine::Withdrawn { id: line.request_id })
}

fn parse_control_response(line: &[u8]) -> Option<CliLine> {
    #[derive(Deserialize)]
    struct Response {
        response: ControlResponse,
    }
    parse::<Response>(line).map(|line| CliLine::ControlResponse(line.response))
}

/// Reads a value of an unexpected type as the default.
fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_output_of_the_cli_stops_the_reader() {
        let odd: &[&[u8]] = &[
            b"",
            b"null",
            b"[1,2]",
            b"{\"type\":7}",
            b"{\"type\":\"result\",\"subtype\":5,\"is_error\":\"yes\",\"errors\":{}}",
            b"{\"type\":\"stream_event\"}",
            b"{\"type\":\"stream_event\",\"event\":{\"type\":\"content_block_sparkle\"}}",
            b"{\"type\":\"control_request\",\"request\":{}}",
            b"{\"type\":\"assistant\",\"message\":{\"content\":\"text\",\"usage\":null}}",
            b"\xff\xfe{\"type\":",
        ];
        for line in odd {
            let line = read(line);
            assert!(
                !matches!(line, CliLine::CanUseTool(_) | CliLine::Lifecycle { .. }),
                "{line:?}"
            );
        }
        let future = br#"{"type":"system","subtype":"telepathy","x":{"y":[1]}}"#;
        assert_eq!(read(future), CliLine::Other { kind: "system/telepathy".into() });
    }

    #[test]
    fn a_result_belongs_to_every_prompt_it_is_stamped_with() {
        let line = br#"{"type":"result","subtype":"success","user_message_uuid":"a","user_message_uuids":["a","b"]}"#;
        let CliLine::Result(result) = read(line) else { panic!("a result") };
        assert!(result.is_for("a") && result.is_for("b") && !result.is_for("c"));
    }
}
