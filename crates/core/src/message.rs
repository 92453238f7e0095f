//! What a conversation is made of, and what passes between us and a model.
//!
//! These are our own shapes; each provider's wire has its twin in `budao-models`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    tool::ToolSpec,
    trace::{SpanId, Trace},
};

/// One piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// Words.
    Text(String),
    /// What the model thought, with the provider's seal; sent back byte for byte.
    Thinking {
        /// The words; empty when the provider keeps them to itself.
        text: String,
        /// The provider's signature over them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// The model wants a tool called.
    ToolUse(ToolUse),
    /// What became of a call.
    ToolResult {
        /// The call it answers.
        call: CallId,
        /// Did it fail?
        is_error: bool,
        /// What the model reads: one JSON object.
        content: String,
    },
    /// A picture, as base64.
    Image {
        /// `image/png` …
        media_type: String,
        /// The bytes in base64.
        data: String,
    },
    /// A block we do not know: the provider's own JSON text, kept and sent back as it came.
    Opaque(String),
}

/// A tool call as the model wrote it. The arguments are its words and may not even be JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolUse {
    /// Unique in the session: the provider's id, unless it was empty or used before.
    pub id: CallId,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// JSON text, exactly as it came.
    pub arguments: String,
}

/// Names a call, unique in its session.
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

/// Who said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person, or the results of tools.
    User,
    /// The model.
    Assistant,
}

/// One entry of the history a model is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who said it.
    pub role: Role,
    /// What was said.
    pub content: Vec<Block>,
}

impl Message {
    /// Words of the user.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, content: vec![Block::Text(text.into())] }
    }

    /// Words of the model.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self { role: Role::Assistant, content: vec![Block::Text(text.into())] }
    }
}

/// What a model is asked.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The model's name, as its provider knows it.
    pub model: String,
    /// Standing instructions.
    pub system: Option<Arc<str>>,
    /// The conversation; well paired, ends with the user. Shared with the session, not copied.
    pub messages: Arc<Vec<Message>>,
    /// The tools on offer.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// The most tokens it may answer with.
    pub max_tokens: u32,
    /// Tokens it may think with; none is no thinking.
    pub thinking_tokens: Option<u32>,
    /// Goes with the request as `traceparent`.
    pub trace: Trace,
    /// Goes with it: which piece of work of the trace asks.
    pub span: SpanId,
}

/// One thing that comes out of a model's stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// More words.
    Text(String),
    /// More thought.
    Thought(String),
    /// Something whole: a finished block, in the order of the answer. Text and thinking blocks repeat
    /// what was streamed as pieces; a tool use comes only whole.
    Block(Block),
    /// How it ended. Nothing follows; a stream that ends without one was cut.
    End {
        /// Why it stopped.
        stop: ModelStop,
        /// What it cost.
        usage: Usage,
    },
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelStop {
    /// It was done.
    EndTurn,
    /// It wants tools called.
    ToolUse,
    /// It ran into its output limit.
    MaxTokens,
    /// It, or its provider's filter, declined.
    Refusal,
    /// A stop sequence, or a reason we do not know; treated as done.
    Other,
}

/// Tokens used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Read by the model, cached ones included.
    pub input_tokens: u64,
    /// Written by it.
    pub output_tokens: u64,
    /// Of the read ones, those that came from its cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
    }
}

/// The text of some blocks, joined.
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

/// What a model reads of a success: `{"ok":true,"data":…}`.
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
