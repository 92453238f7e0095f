//! Messages, model requests and the parts of a model's answer.
//!
//! These types belong to no provider; `budao-models` converts them to each provider's format.

use std::sync::Arc;

use budao_scrub::Scrubber;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    tool::ToolSpec,
    trace::{SpanId, Trace},
};

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// Text of a person or of the model, verbatim.
    Text(String),
    /// The model's thinking, signed by the provider; sent back byte for byte.
    Thinking {
        /// The thinking text; empty when the provider hides it.
        text: String,
        /// The provider's signature over the text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// A tool call that the model requests.
    ToolUse(ToolUse),
    /// The outcome of a call.
    ToolResult {
        /// The call whose outcome this is.
        call: CallId,
        /// Whether the call failed.
        is_error: bool,
        /// One JSON object, as the model reads it.
        content: String,
    },
    /// A picture, base64-encoded.
    Image {
        /// The MIME type, for example `image/png`.
        media_type: String,
        /// The bytes in base64.
        data: String,
    },
    /// A block of a type unknown here: the provider's own JSON text, stored and sent back verbatim.
    Opaque(String),
}

/// Removes configured secrets only, except from blocks that a provider signed: the provider refuses a changed block.
pub fn clean_blocks(content: &mut [Block], scrubber: &Scrubber) {
    for block in content {
        match block {
            Block::Text(text) | Block::ToolResult { content: text, .. } => {
                scrubber.clean_text(text);
            }
            Block::ToolUse(call) => scrubber.clean_text(&mut call.arguments),
            Block::Thinking { .. } | Block::Opaque(_) | Block::Image { .. } => {}
        }
    }
}

/// A tool call as the model wrote it. The arguments may be invalid JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolUse {
    /// Unique in the session: the provider's id, unless it was empty or already used.
    pub id: CallId,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// JSON text, verbatim.
    pub arguments: String,
}

/// Identifies a call, unique in its session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub Arc<str>);

impl std::fmt::Display for CallId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for CallId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A person, or the runtime with tool results.
    User,
    /// The model, with its text, thinking and calls.
    Assistant,
}

/// One message of the history that a model receives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The author of the message.
    pub role: Role,
    /// The parts, in order.
    pub content: Vec<Block>,
}

impl Message {
    /// A text message of the user.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, content: vec![Block::Text(text.into())] }
    }

    /// A text message of the model.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self { role: Role::Assistant, content: vec![Block::Text(text.into())] }
    }
}

/// A request to a model.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The model's name, as its provider spells it.
    pub model: String,
    /// Standing instructions, sent as the system prompt.
    pub system: Option<Arc<str>>,
    /// The conversation: every tool use has its result, and the last message is the user's. Shared with the session,
    /// not copied. A message that is in two requests is the same allocation in both, unless it was changed in between.
    pub messages: Arc<Vec<Arc<Message>>>,
    /// The tools on offer.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// The tool of `tools` whose arguments are the final answer; absent if the answer is any text. A provider whose
    /// service takes a schema of the answer sends that instead of the tool.
    pub answer: Option<Arc<ToolSpec>>,
    /// The most tokens of the answer.
    pub max_tokens: u32,
    /// The thinking budget in tokens; no thinking if absent.
    pub thinking_tokens: Option<u32>,
    /// The same for all requests of a session, so that a service finds what it has cached of the earlier ones.
    pub cache_key: Option<Arc<str>>,
    /// Sent with the request in `traceparent`.
    pub trace: Trace,
    /// The span of this request, sent in `traceparent`.
    pub span: SpanId,
}

/// One item of a model's answer stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// More answer text.
    Text(String),
    /// More thinking text.
    Thought(String),
    /// A finished block, in the order of the answer. Text and thinking blocks repeat what was streamed before; a tool
    /// use arrives only as a block.
    Block(Block),
    /// How the service names the answer; directly before the end, and only if the service says it.
    Response(ResponseInfo),
    /// The end of the answer. Nothing follows; a stream without it was interrupted.
    End {
        /// Why the model stopped generating.
        stop: ModelStop,
        /// Tokens of the request.
        usage: Usage,
    },
}

/// How a service names an answer and the model that gave it. Both are empty if the service does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResponseInfo {
    /// The service's id of the answer, at most [`ResponseInfo::LENGTH_MAX`] bytes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The model that answered, which may be a version of the one that was asked.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub model: String,
}

impl ResponseInfo {
    /// Upper bound of each name; a longer one is left out.
    pub const LENGTH_MAX: usize = 256;

    /// Whether the service said nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.id.is_empty() && self.model.is_empty()
    }

    /// Removes configured secrets.
    pub fn clean(&mut self, scrubber: &Scrubber) {
        scrubber.clean_text(&mut self.id);
        scrubber.clean_text(&mut self.model);
    }
}

/// Why a model stopped generating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelStop {
    /// The answer is finished.
    EndTurn,
    /// The model waits for the results of its calls.
    ToolUse,
    /// The answer reached its token limit.
    MaxTokens,
    /// The model or its provider's filter refused to answer.
    Refusal,
    /// A stop sequence or an unknown reason; treated as a finished answer.
    Other,
}

/// Token counts, as providers report them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens the model read, cached ones included.
    pub input_tokens: u64,
    /// Tokens the model wrote.
    pub output_tokens: u64,
    /// The part of `input_tokens` that came from the provider's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    /// The part of `input_tokens` that the provider wrote to its cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// The part of `output_tokens` that is reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning_tokens: u64,
    /// The part of all tokens that is an estimate, because the service did not report a usable count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub estimated_tokens: u64,
}

impl Usage {
    fn combine(self, other: Self, count: fn(u64, u64) -> u64) -> Self {
        Self {
            input_tokens: count(self.input_tokens, other.input_tokens),
            output_tokens: count(self.output_tokens, other.output_tokens),
            cached_tokens: count(self.cached_tokens, other.cached_tokens),
            cache_write_tokens: count(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens: count(self.reasoning_tokens, other.reasoning_tokens),
            estimated_tokens: count(self.estimated_tokens, other.estimated_tokens),
        }
    }

    /// The counts that a service reported, with estimates in place of what cannot be true: a request without tokens, more
    /// tokens from and to the cache than were read, or none for an answer of `answer_tokens`, to which a quarter is added.
    #[must_use]
    pub fn or_estimate(mut self, estimate: Self, answer_tokens: u64) -> Self {
        let of_cache = self.cached_tokens.saturating_add(self.cache_write_tokens);
        if self.input_tokens == 0 || of_cache > self.input_tokens {
            (self.cached_tokens, self.cache_write_tokens) = (0, 0);
            self.input_tokens = estimate.input_tokens;
            self.estimated_tokens = estimate.input_tokens;
        }
        if self.output_tokens == 0 && answer_tokens > 0 {
            let with_margin = answer_tokens.saturating_add(answer_tokens.div_ceil(4));
            self.output_tokens = with_margin.min(estimate.output_tokens);
            self.estimated_tokens = self.estimated_tokens.saturating_add(self.output_tokens);
        }
        self
    }

    /// What is left of each count without `other`, at least 0.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        self.combine(other, u64::saturating_sub)
    }

    /// Tokens read and written.
    #[must_use]
    pub fn total_tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        *self = self.combine(other, u64::saturating_add);
    }
}

/// The text blocks, joined.
#[must_use]
pub fn text_of(content: &[Block]) -> String {
    content
        .iter()
        .filter_map(|block| match block {
            Block::Text(text) => Some(text.as_str()),
            Block::Thinking { .. }
            | Block::ToolUse(_)
            | Block::ToolResult { .. }
            | Block::Image { .. }
            | Block::Opaque(_) => None,
        })
        .collect()
}

/// The JSON for the model after a successful call: `{"ok":true,"data":…}`.
#[must_use]
pub fn success_content(data: &Value, note: Option<&str>) -> String {
    #[derive(Serialize)]
    struct Success<'a> {
        ok: bool,
        data: &'a Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<&'a str>,
    }
    serde_json::to_string(&Success { ok: true, data, note })
        .expect("a JSON value and a string always serialise")
}
