//! The lines of the CLI, read tolerantly.
//!
//! Every set here is open: a line, a value or a field we do not know becomes [`CliLine::Other`] or is
//! skipped, and never ends anything. What we write ourselves is in [`crate::outgoing`].

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// One line the CLI wrote.
#[derive(Clone, Debug, PartialEq)]
pub enum CliLine {
    /// A turn of the CLI's begins: what it is and can.
    Init(Init),
    /// The CLI reports the permission mode that is in force from now on.
    Mode {
        /// In the CLI's word.
        mode: String,
    },
    /// It asks the model again, by itself, after a pause.
    Retry(Retry),
    /// It denied a call by its own rules.
    Denied {
        /// The call, as the CLI names it.
        tool_use_id: String,
    },
    /// What became of a prompt of ours.
    Lifecycle {
        /// The prompt.
        prompt: String,
        /// How far it is.
        state: String,
    },
    /// An event of the model's stream.
    Stream(StreamLine),
    /// Whole blocks of an answer.
    Assistant(Assistant),
    /// Results of tools, echoes of prompts, outputs of commands.
    User(User),
    /// A turn of the CLI's ended.
    Result(Box<TurnReport>),
    /// May a tool be used?
    CanUseTool(CanUseTool),
    /// Something else is asked of us.
    Request {
        /// The request's id.
        id: String,
        /// What is asked.
        subtype: String,
    },
    /// A request is withdrawn.
    Withdrawn {
        /// The request's id.
        id: String,
    },
    /// The answer to a request of ours.
    ControlResponse(ControlResponse),
    /// A line we know of and need not act on, or do not know.
    Other {
        /// Its `type`, with `subtype` if it has one.
        kind: String,
    },
    /// No line of the protocol.
    Unreadable {
        /// What is wrong with it.
        reason: String,
    },
}

/// `system/init`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Init {
    /// Which prompts the turn is for; empty when the CLI began it by itself.
    #[serde(deserialize_with = "lenient")]
    pub user_message_uuids: Vec<String>,
    /// What it can.
    #[serde(deserialize_with = "lenient")]
    pub capabilities: Vec<String>,
    /// Its version.
    #[serde(deserialize_with = "lenient")]
    pub claude_code_version: Option<String>,
    /// Its model.
    #[serde(deserialize_with = "lenient")]
    pub model: Option<String>,
    /// The permission mode in force.
    #[serde(rename = "permissionMode", deserialize_with = "lenient")]
    pub permission_mode: Option<String>,
}

/// `system/api_retry`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Retry {
    /// The try that failed.
    #[serde(deserialize_with = "lenient")]
    pub attempt: u32,
    /// Further tries.
    #[serde(deserialize_with = "lenient")]
    pub max_retries: u32,
    /// The pause.
    #[serde(deserialize_with = "lenient")]
    pub retry_delay_ms: f64,
    /// The HTTP status.
    #[serde(deserialize_with = "lenient")]
    pub error_status: Option<u16>,
    /// What failed, as the CLI calls it.
    #[serde(deserialize_with = "lenient")]
    pub error: Option<String>,
}

/// `stream_event`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct StreamLine {
    /// The event.
    pub event: StreamEvent,
    /// Set when it is a sub-agent's.
    #[serde(default)]
    pub parent_tool_use_id: Option<String>,
    /// Set on the end of a stream that was thrown away.
    #[serde(default, deserialize_with = "lenient")]
    pub abandoned_blocks: Option<AbandonedBlocks>,
    /// Which prompts it is for, on the first of a turn.
    #[serde(default, deserialize_with = "lenient")]
    pub user_message_uuids: Vec<String>,
}

/// Which blocks of an answer are void.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct AbandonedBlocks {
    /// The first of them.
    #[serde(default)]
    pub from_block_index: usize,
}

/// An event of the model's stream.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StreamEvent {
    /// An answer begins.
    MessageStart {
        /// What is known of it.
        message: MessageHead,
    },
    /// More of a block.
    ContentBlockDelta {
        /// Which block.
        #[serde(default)]
        index: usize,
        /// What.
        delta: Delta,
    },
    /// Why it stopped, what it cost.
    MessageDelta {
        /// Why.
        #[serde(default, deserialize_with = "lenient")]
        delta: StopDelta,
        /// What.
        #[serde(default, deserialize_with = "lenient")]
        usage: Usage,
    },
    /// An answer ends.
    MessageStop,
    /// Anything else.
    #[serde(other)]
    Other,
}

/// What is known of an answer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct MessageHead {
    /// The provider's id of it.
    #[serde(deserialize_with = "lenient")]
    pub id: Option<String>,
    /// The model.
    #[serde(deserialize_with = "lenient")]
    pub model: Option<String>,
    /// Its blocks.
    #[serde(deserialize_with = "lenient")]
    pub content: Vec<Value>,
    /// Why it stopped.
    #[serde(deserialize_with = "lenient")]
    pub stop_reason: Option<String>,
    /// What it cost so far.
    #[serde(deserialize_with = "lenient")]
    pub usage: Usage,
}

/// More of a block.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Delta {
    /// Words.
    TextDelta {
        /// The words.
        text: String,
    },
    /// Thought.
    ThinkingDelta {
        /// The thought.
        thinking: String,
    },
    /// Anything else: arguments, signatures.
    #[serde(other)]
    Other,
}

/// Why an answer stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StopDelta {
    /// In the provider's word.
    #[serde(deserialize_with = "lenient")]
    pub stop_reason: Option<String>,
}

/// Tokens, as the provider counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Read, not from the cache.
    #[serde(deserialize_with = "lenient")]
    pub input_tokens: u64,
    /// Written.
    #[serde(deserialize_with = "lenient")]
    pub output_tokens: u64,
    /// Read from the cache.
    #[serde(deserialize_with = "lenient")]
    pub cache_read_input_tokens: u64,
    /// Read and put into the cache.
    #[serde(deserialize_with = "lenient")]
    pub cache_creation_input_tokens: u64,
}

/// `assistant`: one block or more of an answer, whole.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Assistant {
    /// The answer it belongs to.
    pub message: MessageHead,
    /// Set when it is a sub-agent's.
    #[serde(deserialize_with = "lenient")]
    pub parent_tool_use_id: Option<String>,
    /// Set when it is no answer but the report of a failure.
    #[serde(deserialize_with = "lenient")]
    pub error: Option<String>,
    /// Which prompts it is for, on the first of a turn.
    #[serde(deserialize_with = "lenient")]
    pub user_message_uuids: Vec<String>,
}

/// `user`: what was put into the conversation that the model did not say.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct User {
    /// What.
    pub message: UserMessage,
    /// Set when it is a sub-agent's.
    #[serde(deserialize_with = "lenient")]
    pub parent_tool_use_id: Option<String>,
    /// Its id; of an echo, the prompt's.
    #[serde(deserialize_with = "lenient")]
    pub uuid: Option<String>,
    /// Is it the echo of something we sent?
    #[serde(rename = "isReplay", deserialize_with = "lenient")]
    pub is_replay: bool,
}

/// The inside of a `user` line.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct UserMessage {
    /// Text, or blocks.
    pub content: Value,
}

/// `result`: how a turn of the CLI's ended.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TurnReport {
    /// In one word.
    #[serde(deserialize_with = "lenient")]
    pub subtype: String,
    /// Did it fail? Set for failures of the API although the word is `success`.
    #[serde(deserialize_with = "lenient")]
    pub is_error: bool,
    /// The last words.
    #[serde(deserialize_with = "lenient")]
    pub result: Option<String>,
    /// What went wrong, in the CLI's words.
    #[serde(deserialize_with = "lenient")]
    pub errors: Vec<Value>,
    /// Why the model stopped.
    #[serde(deserialize_with = "lenient")]
    pub stop_reason: Option<String>,
    /// Why the turn ended.
    #[serde(deserialize_with = "lenient")]
    pub terminal_reason: Option<String>,
    /// The HTTP status of the failure.
    #[serde(deserialize_with = "lenient")]
    pub api_error_status: Option<u16>,
    /// The provider's word for the failure.
    #[serde(deserialize_with = "lenient")]
    pub api_error_type: Option<String>,
    /// Model requests of the turn.
    #[serde(deserialize_with = "lenient")]
    pub num_turns: u64,
    /// How long the turn took.
    #[serde(deserialize_with = "lenient")]
    pub duration_ms: f64,
    /// What the turn used.
    #[serde(deserialize_with = "lenient")]
    pub usage: Usage,
    /// Set when no prompt of ours caused the turn.
    #[serde(deserialize_with = "lenient")]
    pub origin: Option<Value>,
    /// The prompt it is for.
    #[serde(deserialize_with = "lenient")]
    pub user_message_uuid: Option<String>,
    /// All prompts it is for.
    #[serde(deserialize_with = "lenient")]
    pub user_message_uuids: Vec<String>,
}

impl TurnReport {
    /// Is it stamped with a prompt?
    #[must_use]
    pub fn is_stamped(&self) -> bool {
        self.user_message_uuid.is_some() || !self.user_message_uuids.is_empty()
    }

    /// Is it this prompt's?
    #[must_use]
    pub fn is_for(&self, prompt: &str) -> bool {
        self.stamps().any(|stamp| stamp == prompt)
    }

    /// The prompts it is stamped with.
    pub fn stamps(&self) -> impl Iterator<Item = &str> {
        self.user_message_uuid.iter().chain(&self.user_message_uuids).map(String::as_str)
    }

    /// What went wrong, for the operator.
    #[must_use]
    pub fn words(&self) -> String {
        let errors = self.errors.iter().map(|error| match error {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        let words: Vec<String> = errors.chain(self.result.clone()).collect();
        words.join("; ")
    }
}

/// `control_request/can_use_tool`.
#[derive(Clone, Debug, PartialEq)]
pub struct CanUseTool {
    /// The request's id.
    pub id: String,
    /// What is asked.
    pub request: CanUseToolRequest,
}

/// The inside of a permission request.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct CanUseToolRequest {
    /// The tool.
    #[serde(deserialize_with = "lenient")]
    pub tool_name: String,
    /// What it would run with.
    pub input: Value,
    /// The call.
    #[serde(deserialize_with = "lenient")]
    pub tool_use_id: Option<String>,
    /// Why it is asked.
    #[serde(deserialize_with = "lenient")]
    pub decision_reason: Option<String>,
    /// The path that made it ask.
    #[serde(deserialize_with = "lenient")]
    pub blocked_path: Option<String>,
}

/// `control_response`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ControlResponse {
    /// The request it answers.
    #[serde(deserialize_with = "lenient")]
    pub request_id: String,
    /// `success` or `error`.
    #[serde(deserialize_with = "lenient")]
    pub subtype: String,
    /// What went wrong.
    #[serde(deserialize_with = "lenient")]
    pub error: Option<String>,
    /// The answer.
    pub response: Value,
}

#[derive(Deserialize)]
struct LineKind {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    subtype: Option<Value>,
}

/// Reads a line. Whatever it is, it is something.
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
        ("system", "permission_denied") => denied(line),
        ("command_lifecycle", _) => lifecycle(line),
        ("control_request", _) => request(line),
        ("control_cancel_request", _) => withdrawn(line),
        ("control_response", _) => answered(line),
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

/// A status line, if it names the permission mode; most do not.
fn mode(line: &[u8]) -> Option<CliLine> {
    #[derive(Deserialize)]
    struct Status {
        #[serde(rename = "permissionMode", default, deserialize_with = "lenient")]
        mode: Option<String>,
    }
    parse::<Status>(line).and_then(|status| status.mode).map(|mode| CliLine::Mode { mode })
}

fn denied(line: &[u8]) -> Option<CliLine> {
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

fn answered(line: &[u8]) -> Option<CliLine> {
    #[derive(Deserialize)]
    struct Response {
        response: ControlResponse,
    }
    parse::<Response>(line).map(|line| CliLine::ControlResponse(line.response))
}

/// A value of another shape than we expect is as good as none.
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
    fn nothing_the_cli_says_stops_the_reader() {
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
