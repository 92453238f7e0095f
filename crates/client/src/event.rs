//! What arrives: one frame of the protocol, and the place it has in the history.

use std::fmt;

use budao_core::{
    fault::{Fault, render},
    lang::Lang,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One event as the server tells it. Fields this version does not know are in `more`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// `agent.final_answer`, `error.timeout` …
    pub event: String,
    /// Whose it is; absent on what belongs to the connection alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Its position in the session's history; absent on what is not part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The position of the frame before it, as this observer was sent them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prev: Option<u64>,
    /// Which incarnation of the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// The same on every replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// The command this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<String>,
    /// What a question and its answer have in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// When, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// The text or the object.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub content: Value,
    /// What is meant for machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
    /// What is meant for people, in the session's language.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub show_content: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl Event {
    /// The content if it is text, else what is meant to be shown, else nothing.
    #[must_use]
    pub fn text(&self) -> &str {
        self.content.as_str().or(self.show_content.as_deref()).unwrap_or_default()
    }

    /// A field of the metadata; null if there is none.
    #[must_use]
    pub fn meta(&self, name: &str) -> &Value {
        self.metadata.as_ref().and_then(|all| all.get(name)).unwrap_or(&Value::Null)
    }

    /// True for `error.connection_lost` made on this side of the line: the server cannot send it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.meta("source") == "client"
    }

    /// The command this answers. What a run tells names its command too, but has a place in the history; only the
    /// opening of a session is both.
    pub(crate) fn answers(&self) -> Option<&str> {
        if self.seq.is_some() && self.event != "agent.session_created" {
            return None;
        }
        self.command_id.as_deref().or_else(|| self.meta("command_id").as_str())
    }

    /// Does it say no?
    pub(crate) fn is_refusal(&self) -> bool {
        self.event.starts_with("error.") || self.event == "system.error"
    }

    /// A fault of this side as the event that announces it.
    pub(crate) fn local(fault: &Fault, session_id: Option<&str>) -> Self {
        let told = render::render_for_user(fault, Lang::En);
        let mut metadata = Map::new();
        let mut put = |name: &str, value: Value| metadata.insert(name.into(), value);
        put("source", "client".into());
        put("error_code", told.row.code.into());
        put("error_type", told.row.type_name.into());
        put("recoverable", told.row.recoverable.into());
        put("recovery_strategy", <&str>::from(told.row.strategy).into());
        put("operation", told.operation.into());
        put("context", serde_json::to_value(&told.context).unwrap_or_default());
        if let Ok(Value::Object(facts)) = serde_json::to_value(&told.facts) {
            metadata.extend(facts);
        }
        Self {
            event: told.event.into(),
            session_id: session_id.map(Into::into),
            content: told.content.into(),
            show_content: Some(told.shown),
            metadata: Some(metadata),
            ..Self::default()
        }
    }
}

/// How far a client is in a session's history: what to hand in when coming back, also from another process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Which incarnation; empty if not known yet.
    pub epoch: String,
    /// The last position that arrived; 0 is before the first.
    pub seq: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.seq)
    }
}
