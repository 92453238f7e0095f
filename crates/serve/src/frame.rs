//! Frames: what a client receives, one JSON text each.
//!
//! A frame that came of a record has a place (`seq`, `prev`, `epoch`, `event_id`) and is the same for
//! every observer of its language, so it is encoded once. A frame about the connection has none.

pub mod connection;
mod fault;

use std::{fmt::Write as _, ops::Range, sync::Arc};

use budao_core::{
    Record, Timestamp,
    event::{Epoch, Seq, SessionId, Stage},
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::texts::{cut, is_cut, is_plain};
pub(crate) use fault::millis;
pub use fault::{FaultContext, metadata_of, outline};

/// The close codes a client may meet, and what it should do.
pub mod close {
    /// Done; nothing to come back for.
    pub const NORMAL: u16 = 1000;
    /// A frame was not UTF-8.
    pub const NOT_UTF8: u16 = 1007;
    /// A rule of the connection was broken: nothing was heard for too long.
    pub const POLICY: u16 = 1008;
    /// A frame was far too large.
    pub const TOO_LARGE: u16 = 1009;
    /// The server failed; come back and resume.
    pub const SERVER_FAILED: u16 = 1011;
    /// The server restarts; come back and resume.
    pub const RESTARTING: u16 = 1012;
    /// The client read too slowly; come back and resume.
    pub const TOO_SLOW: u16 = 4408;
    /// The session has no room and this connection was silent: another one took its place. A client that is
    /// alive may come back, and will find room or be told that there is none.
    pub const TAKEN_OVER: u16 = 4409;

    /// Should a client come back with its cursor after this code?
    #[must_use]
    pub const fn is_resumable(code: u16) -> bool {
        matches!(code, 1001 | 1006 | POLICY | SERVER_FAILED | RESTARTING | TOO_SLOW | TAKEN_OVER)
    }
}

/// Where a frame stands in its session's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePosition {
    /// The record's position.
    pub seq: Seq,
    /// The position of the frame before it; a client that has another one misses something.
    pub prev: Seq,
    /// Which history.
    pub epoch: Epoch,
}

/// What a frame says.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Content {
    /// Nothing.
    #[default]
    None,
    /// Words.
    Text(String),
    /// An object.
    Object(Value),
}

/// The text a person is shown.
#[derive(Clone, Debug, Default, PartialEq)]
enum DisplayText {
    #[default]
    Nothing,
    Text(String),
    /// The content, cut to this many characters.
    Content(usize),
}

/// What is said about a delta. Apart from other metadata because deltas are most of what is sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Delta {
    /// More will come.
    pub is_streaming: bool,
    /// It was the last.
    pub is_final: bool,
    /// Words in it.
    pub word_count: usize,
    /// The step it belongs to.
    pub step: u32,
    /// The stage the session works on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<&'static str>,
    /// The task the session works on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
enum Metadata {
    Fields(Map<String, Value>),
    Delta(Delta),
}

/// One frame to a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    event: &'static str,
    timestamp: Timestamp,
    session: Option<SessionId>,
    step: Option<Arc<str>>,
    content: Content,
    metadata: Metadata,
    shown: DisplayText,
    place: Option<FramePosition>,
}

impl Frame {
    /// A frame about the connection, without a session.
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
            place: None,
        }
    }

    /// A frame that comes of a record. `prev` is the frame before it.
    #[must_use]
    pub fn of(record: &Record, prev: Seq, event: &'static str) -> Self {
        let place = FramePosition { seq: record.seq, prev, epoch: record.epoch };
        Self { place: Some(place), ..Self::new(event, record.at).about(record.session) }
    }

    /// Says whose it is.
    #[must_use]
    pub fn about(mut self, session: SessionId) -> Self {
        self.session = Some(session);
        self
    }

    /// Correlates it with a call or a question.
    #[must_use]
    pub fn step(mut self, step: impl Into<Arc<str>>) -> Self {
        self.step = Some(step.into());
        self
    }

    /// Says something in words.
    #[must_use]
    pub fn text(mut self, content: impl Into<String>) -> Self {
        self.content = Content::Text(content.into());
        self
    }

    /// Says something as an object.
    #[must_use]
    pub fn object(mut self, content: Value) -> Self {
        self.content = Content::Object(content);
        self
    }

    /// Adds a field of metadata; nulls are left out.
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

    /// Adds fields of metadata.
    #[must_use]
    pub fn extended(mut self, more: Map<String, Value>) -> Self {
        for (name, value) in more {
            self.set(&name, value);
        }
        self
    }

    /// Makes it a delta: its metadata, and its content as what is shown.
    #[must_use]
    pub fn delta(mut self, delta: Delta) -> Self {
        self.metadata = Metadata::Delta(delta);
        self.shown = DisplayText::Content(crate::texts::PARTIAL_CHARS);
        self
    }

    /// Names the stage and the task its session works on, unless it names others.
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

    /// Shows its content, cut to so many characters.
    #[must_use]
    pub fn show_content(mut self, chars: usize) -> Self {
        self.shown = DisplayText::Content(chars);
        self
    }

    /// Says what a person is shown.
    #[must_use]
    pub fn show(mut self, text: impl Into<String>) -> Self {
        self.shown = DisplayText::Text(text.into());
        self
    }

    /// The event's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.event
    }

    /// Whose it is, if it is a session's.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Where it stands; none if it is about the connection.
    #[must_use]
    pub fn place(&self) -> Option<FramePosition> {
        self.place
    }

    /// May it be left out for a client that is behind? Only what the next one of its kind says anew.
    #[must_use]
    pub fn is_droppable(&self) -> bool {
        self.place.is_none() && self.event == "system.heartbeat"
    }

    /// The JSON text that is sent.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut out = String::with_capacity(self.about_bytes());
        out.push_str(r#"{"event":"#);
        push_json(&mut out, self.event);
        if let (Some(FramePosition { seq, prev, epoch }), Some(session)) =
            (self.place, self.session)
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

    /// What a person is shown. `content` is where in the text it was said: what is said and shown alike is escaped once.
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

/// Words as JSON; most are their own.
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
    /// About how long it is when it is encoded.
    fn about_bytes(&self) -> usize {
        const BESIDES: usize = 640;
        let words = if let Content::Text(text) = &self.content { text.len() } else { 0 };
        let shown = match &self.shown {
            DisplayText::Nothing => 0,
            DisplayText::Text(text) => text.len(),
            DisplayText::Content(chars) => words.min(chars.saturating_mul(4)),
        };
        BESIDES + words + words / 16 + shown + shown / 16
    }
}
