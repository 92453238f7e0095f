//! Frames: the JSON texts that a client receives.
//!
//! A frame that comes from a record has a position (`seq`, `prev`, `epoch`, `event_id`). It is identical for all
//! observers of one language, so it is encoded once. A frame about the connection has no position.

pub mod connection;
mod fault;
pub mod worker;

use std::{fmt::Write as _, ops::Range, sync::Arc};

use budao_core::{
    Record, Timestamp,
    event::{Epoch, Seq, SessionId, Stage},
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::texts::{cut, is_cut, is_plain};
pub(crate) use fault::millis;
pub use fault::{FaultContext, common_fields, metadata_of};

/// The WebSocket close codes that the server sends, and the reaction expected from a client.
pub mod close {
    /// Normal closure; a reconnect is not needed.
    pub const NORMAL: u16 = 1000;
    /// The client sent nothing for too long; the client reconnects and resumes.
    pub const GOING_AWAY: u16 = 1001;
    /// A frame violated the WebSocket protocol.
    pub const PROTOCOL_ERROR: u16 = 1002;
    /// A text frame was not UTF-8.
    pub const NOT_UTF8: u16 = 1007;
    /// A frame exceeded the hard size limit.
    pub const TOO_LARGE: u16 = 1009;
    /// The server failed; the client reconnects and resumes.
    pub const SERVER_FAILED: u16 = 1011;
    /// The server restarts; the client reconnects and resumes.
    pub const RESTARTING: u16 = 1012;
    /// The client read too slowly; the client reconnects and resumes.
    pub const TOO_SLOW: u16 = 4408;
    /// The session had its maximum of observers and this connection was silent, so another connection replaced it. The
    /// client may reconnect; it is refused if the session is still full.
    pub const TAKEN_OVER: u16 = 4409;

    /// True if a client should reconnect with its cursor after this code, or after 1006 (no close frame).
    #[must_use]
    pub const fn is_resumable(code: u16) -> bool {
        matches!(code, GOING_AWAY | 1006 | SERVER_FAILED | RESTARTING | TOO_SLOW | TAKEN_OVER)
    }
}

/// A frame's position in its session's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePosition {
    /// The position of the record that the frame comes from.
    pub seq: Seq,
    /// The position of the previous frame. A client whose last frame has another position has missed frames.
    pub prev: Seq,
    /// The incarnation of the history.
    pub epoch: Epoch,
}

/// The `content` field of a frame.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Content {
    /// Encoded as `null`.
    #[default]
    None,
    /// A string: text of the model or the user, or an English sentence.
    Text(String),
    /// A structured value, encoded as it is.
    Object(Value),
}

/// The `show_content` field of a frame.
#[derive(Clone, Debug, Default, PartialEq)]
enum DisplayText {
    #[default]
    Nothing,
    Text(String),
    /// The content, truncated to this many characters.
    Content(usize),
}

/// The metadata of a delta. A struct of its own because most frames are deltas and it avoids a map.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Delta {
    /// True if more deltas follow.
    pub is_streaming: bool,
    /// True for the last delta.
    pub is_final: bool,
    /// Number of words in this delta.
    pub word_count: usize,
    /// The step that the delta belongs to.
    pub step: u32,
    /// The session's current stage; absent outside a pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<&'static str>,
    /// The session's current task; absent outside a pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Metadata {
    Fields(Map<String, Value>),
    Delta(Delta),
}

/// One frame for a client, built by chained calls and sent with [`Frame::encode`].
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    event: &'static str,
    timestamp: Timestamp,
    session: Option<SessionId>,
    step: Option<Arc<str>>,
    content: Content,
    metadata: Metadata,
    shown: DisplayText,
    position: Option<FramePosition>,
}

impl Frame {
    /// Creates a frame about the connection, without session and position.
    #[must_use]
    pub fn new(event: &'static str, timestamp: Timestamp) -> Self {
        Self {
            event,
            timestamp,
            session: None,
            step: None,
            content: Content::None,
            metadata: Metadata::Fields(Map::new()),
            shown: DisplayText::Nothing,
            position: None,
        }
    }

    /// Creates a frame from a record. `prev` is the position of the previous frame.
    #[must_use]
    pub fn of(record: &Record, prev: Seq, event: &'static str) -> Self {
        let position = FramePosition { seq: record.seq, prev, epoch: record.epoch };
        Self { position: Some(position), ..Self::new(event, record.at).about(record.session) }
    }

    /// Sets the session.
    #[must_use]
    pub fn about(mut self, session: SessionId) -> Self {
        self.session = Some(session);
        self
    }

    /// Sets `step_id`, which links the frame to a call or a question.
    #[must_use]
    pub fn with_step_id(mut self, step: impl Into<Arc<str>>) -> Self {
        self.step = Some(step.into());
        self
    }

    /// Sets the content to a text.
    #[must_use]
    pub fn text(mut self, content: impl Into<String>) -> Self {
        self.content = Content::Text(content.into());
        self
    }

    /// Sets the content to a JSON value.
    #[must_use]
    pub fn object(mut self, content: Value) -> Self {
        self.content = Content::Object(content);
        self
    }

    /// Adds a metadata field. Nulls are left out; a delta ignores the call.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.set(name, value.into());
        self
    }

    fn set(&mut self, name: &str, value: Value) {
        if value.is_null() {
            return;
        }
        if let Metadata::Fields(fields) = &mut self.metadata {
            fields.insert(name.to_owned(), value);
        }
    }

    /// Adds several metadata fields, as [`Frame::with`] does.
    #[must_use]
    pub fn with_all(mut self, more: Map<String, Value>) -> Self {
        for (name, value) in more {
            self.set(&name, value);
        }
        self
    }

    /// Makes the frame a delta: replaces its metadata and shows its content.
    #[must_use]
    pub fn delta(mut self, delta: Delta) -> Self {
        self.metadata = Metadata::Delta(delta);
        self.shown = DisplayText::Content(crate::texts::PARTIAL_CHARS);
        self
    }

    /// Adds the session's stage and task, unless the frame already names a stage.
    #[must_use]
    pub fn at_stage(mut self, stage: Stage, task: Option<&Arc<str>>) -> Self {
        match &mut self.metadata {
            Metadata::Delta(delta) => {
                (delta.stage, delta.task_id) = (Some(stage.into()), task.cloned());
            }
            Metadata::Fields(fields) if !fields.contains_key("stage") => {
                fields.insert("stage".to_owned(), <&str>::from(stage).into());
                if let Some(task) = task {
                    fields.insert("task_id".to_owned(), (**task).into());
                }
            }
            Metadata::Fields(_) => {}
        }
        self
    }

    /// Shows the content to the user, truncated to `chars` characters.
    #[must_use]
    pub fn show_content(mut self, chars: usize) -> Self {
        self.shown = DisplayText::Content(chars);
        self
    }

    /// Sets the text that is shown to the user.
    #[must_use]
    pub fn show(mut self, text: impl Into<String>) -> Self {
        self.shown = DisplayText::Text(text.into());
        self
    }

    /// The event's name, such as `agent.final_answer`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.event
    }

    /// The session; `None` on frames about the connection.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// The position in the history; `None` on frames about the connection.
    #[must_use]
    pub fn position(&self) -> Option<FramePosition> {
        self.position
    }

    /// True if the frame may be dropped for a slow client: only heartbeats, because the next one replaces it.
    #[must_use]
    pub fn is_droppable(&self) -> bool {
        self.position.is_none() && self.event == "system.heartbeat"
    }

    /// Encodes the frame as JSON.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut out = String::with_capacity(self.estimate_bytes());
        out.push_str(r#"{"event":"#);
        push_json(&mut out, self.event);
        if let (Some(FramePosition { seq, prev, epoch }), Some(session)) =
            (self.position, self.session)
        {
            let _ = write!(out, r#","seq":{seq},"prev":{prev},"epoch":"{epoch}""#);
            let _ = write!(out, r#","event_id":"{session}.{epoch}.{seq}""#);
        }
        let _ = write!(out, r#","timestamp":"{}""#, self.timestamp);
        if let Some(session) = &self.session {
            let _ = write!(out, r#","session_id":"{session}""#);
        }
        if let Some(step) = &self.step {
            out.push_str(r#","step_id":"#);
            push_json(&mut out, &**step);
        }
        out.push_str(r#","content":"#);
        let content = out.len();
        match &self.content {
            Content::None => out.push_str("null"),
            Content::Text(text) => push_text(&mut out, text),
            Content::Object(value) => push_json(&mut out, value),
        }
        let content = content..out.len();
        out.push_str(r#","metadata":"#);
        push_json(&mut out, &self.metadata);
        self.push_shown(&mut out, content);
        out.push('}');
        out
    }

    /// Appends `show_content`. `content` is the range of the encoded content in `out`; if both texts are equal, the
    /// encoded bytes are copied.
    fn push_shown(&self, out: &mut String, content: Range<usize>) {
        const FIELD: &str = r#","show_content":"#;
        match (&self.shown, &self.content) {
            (DisplayText::Text(text), _) => {
                out.push_str(FIELD);
                push_text(out, text);
            }
            (DisplayText::Content(chars), Content::Text(text)) if is_cut(text, *chars) => {
                out.push_str(FIELD);
                push_text(out, &cut(text, *chars));
            }
            (DisplayText::Content(_), Content::Text(_)) => {
                out.push_str(FIELD);
                out.extend_from_within(content);
            }
            (DisplayText::Content(_) | DisplayText::Nothing, _) => {}
        }
    }
}

/// Appends a text as a JSON string; text without special characters is copied without escaping.
fn push_text(out: &mut String, text: &str) {
    if is_plain(text.as_bytes()) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        push_json(out, text);
    }
}

fn push_json<T: Serialize + ?Sized>(out: &mut String, value: &T) {
    let text = serde_json::to_string(value);
    out.push_str(&text.expect("a frame has string keys and finite numbers"));
}

impl Frame {
    /// Estimates the encoded length in bytes.
    fn estimate_bytes(&self) -> usize {
        const ENVELOPE_BYTES: usize = 640;
        let words = if let Content::Text(text) = &self.content { text.len() } else { 0 };
        let shown = match &self.shown {
            DisplayText::Nothing => 0,
            DisplayText::Text(text) => text.len(),
            DisplayText::Content(chars) => words.min(chars.saturating_mul(4)),
        };
        ENVELOPE_BYTES + words + words / 16 + shown + shown / 16
    }
}
