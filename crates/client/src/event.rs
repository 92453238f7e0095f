//! The frames a client receives, and its cursor in the history.

use std::fmt;

use budao_core::{
    fault::{Fault, render},
    lang::Lang,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One frame as the server sent it. Fields unknown to this version are in `more`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The event's name, such as `agent.final_answer` or `error.timeout`.
    pub event: String,
    /// The session; absent on frames about the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The position in the session's history; absent on frames that are not part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The `seq` of the previous frame sent to this observer. A difference from the cursor means a missing frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<u64>,
    /// The incarnation of the history; it changes when the history is replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// `session.epoch.seq`, identical on every replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// The id of the command that this frame answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<String>,
    /// Links a question to its answer, and a call to its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// The time of the event in UTC, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// A text, an object, or null.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub content: Value,
    /// Structured details for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// The text to show to a person, in the session's language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub show_content: Option<String>,
    /// All fields without a member of their own.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Event {
    /// The content if it is text, otherwise `show_content`, otherwise an empty string.
    #[must_use]
    pub fn text(&self) -> &str {
        self.content.as_str().or(self.show_content.as_deref()).unwrap_or_default()
    }

    /// A field of the metadata; null if it is absent.
    #[must_use]
    pub fn meta(&self, name: &str) -> &Value {
        self.metadata.as_ref().and_then(|all| all.get(name)).unwrap_or(&Value::Null)
    }

    /// True for `error.connection_lost` events that this client created; the server cannot send them.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.meta("source") == "client"
    }

    /// The id of the command that this frame answers. Frames of a run also name their command but have a position; only
    /// `agent.session_created` is an answer with a position.
    pub(crate) fn answers(&self) -> Option<&str> {
        if self.seq.is_some() && self.event != "agent.session_created" {
            return None;
        }
        self.command_id.as_deref().or_else(|| self.meta("command_id").as_str())
    }

    /// True if the frame reports an error.
    pub(crate) fn is_refusal(&self) -> bool {
        self.event.starts_with("error.") || self.event == "system.error"
    }

    /// Renders a fault of this client as an event with `source: client`.
    pub(crate) fn local(fault: &Fault, session_id: Option<&str>) -> Self {
        let rendered = render::render_for_user(fault, Lang::En);
        let mut metadata = Map::new();
        let mut put = |name: &str, value: Value| metadata.insert(name.into(), value);
        put("source", "client".into());
        put("error_code", rendered.row.code.into());
        put("error_type", rendered.row.type_name.into());
        put("recoverable", rendered.row.recoverable.into());
        put("recovery_strategy", <&str>::from(rendered.row.strategy).into());
        put("operation", rendered.operation.into());
        put("context", serde_json::to_value(&rendered.context).unwrap_or_default());
        if let Ok(Value::Object(facts)) = serde_json::to_value(&rendered.facts) {
            metadata.extend(facts);
        }
        Self {
            event: rendered.event.into(),
            session_id: session_id.map(Into::into),
            content: rendered.content.into(),
            show_content: Some(rendered.shown),
            metadata: Some(metadata),
            ..Self::default()
        }
    }
}

/// A client's position in a session's history. It can be stored and used from another process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// The incarnation of the history; empty before the first frame.
    pub epoch: String,
    /// The position of the last received frame; 0 before the first.
    pub seq: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.seq)
    }
}
