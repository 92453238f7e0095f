//! One fault, told to each audience. Plain data: the edges give it their own shape.
//!
//! The model's telling is the exception that has its JSON here: it is what every engine puts into a
//! tool result, whatever provider carries it.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::{CatalogRow, Detail, FactValue, Fault, Hop, Mismatch, text};
use crate::{lang::Lang, tool::Failure, trace::Trace};

/// What the model reads in a `tool_result` with `is_error`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelRendering<'a> {
    ok: bool,
    /// The sentence.
    pub error: String,
    /// Its class.
    pub error_type: &'static str,
    /// Would repeating the same call make sense?
    pub retryable: bool,
    /// What to do with the call.
    pub next: &'static str,
    /// For looking it up.
    pub code: &'static str,
    /// What the tool had to say besides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<&'a Value>,
    /// A remark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'a str>,
    /// Each place that does not fit.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub mismatches: &'a [Mismatch],
    /// The smallest call that fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<&'a FactValue>,
    /// What to do, specific first.
    pub recommendations: Vec<Cow<'a, str>>,
}

impl ModelRendering<'_> {
    /// The JSON object the model reads.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and JSON values always serialise")
    }
}

/// Tells the model of a failed call.
#[must_use]
pub fn render_for_model(failure: &Failure, lang: Lang) -> ModelRendering<'_> {
    let Failure { fault, data, note } = failure;
    let (row, repeat) = (fault.row(), fault.repeat());
    let words = text::FaultText::of(fault, lang);
    ModelRendering {
        ok: false,
        error: words.model(),
        error_type: row.error_type.into(),
        retryable: repeat.retryable,
        next: repeat.next.into(),
        code: row.code,
        data: data.as_ref(),
        note: note.as_deref(),
        mismatches: fault.mismatches(),
        example: fault.detail().get(super::Fact::Example),
        recommendations: words.recommendations(),
    }
}

/// What the user is told in an `error.*` event.
#[derive(Clone, Debug, PartialEq)]
pub struct UserRendering {
    /// The event: `error.timeout`.
    pub event: &'static str,
    /// `content`, in English for logs and machines that read it.
    pub content: String,
    /// `show_content`, in the user's language.
    pub shown: String,
    /// The columns that go into `metadata`.
    pub row: &'static CatalogRow,
    /// `metadata.operation`.
    pub operation: &'static str,
    /// `metadata.context`: the facts of this kind's context, when present.
    pub context: Detail,
    /// Every other fact.
    pub facts: Detail,
}

/// Tells the user.
#[must_use]
pub fn render_for_user(fault: &Fault, lang: Lang) -> UserRendering {
    let row = fault.row();
    let (mut context, mut facts) = (Detail::new(), Detail::new());
    for (fact, value) in fault.detail().iter() {
        let into = if row.context.contains(&fact) { &mut context } else { &mut facts };
        into.set(fact, value.clone());
    }
    UserRendering {
        event: row.event.into(),
        content: text::user_text(fault, Lang::En),
        shown: text::user_text(fault, lang),
        row,
        operation: fault.operation().into(),
        context,
        facts,
    }
}

/// What a peer machine is told: an SMCP error, an MCP error result, a JSON-RPC error, an HTTP problem.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerRendering {
    /// The permanent code.
    pub code: &'static str,
    /// A2C-SMCP's number.
    pub smcp: u16,
    /// HTTP's status.
    pub http: u16,
    /// JSON-RPC's code.
    pub json_rpc: i32,
    /// A short name for the kind.
    pub title: String,
    /// The sentence.
    pub message: String,
    /// The facts.
    pub details: Detail,
    /// Would repeating the same request make sense?
    pub retryable: bool,
    /// May the work still be running, or be done?
    pub outcome_unknown: bool,
    /// When to come back.
    pub retry_after_ms: Option<u64>,
    /// For finding the log line, when there is one to find.
    pub trace: Option<Trace>,
    /// Where it passed, so that the next place can add itself.
    pub hops: Vec<Hop>,
}

/// Tells a peer machine. The fault must have been scrubbed.
#[must_use]
pub fn render_for_peer(fault: &Fault, lang: Lang) -> PeerRendering {
    let row = fault.row();
    PeerRendering {
        code: row.code,
        smcp: row.smcp,
        http: row.http,
        json_rpc: row.json_rpc,
        title: text::of_kind(fault.kind(), "title", lang),
        message: text::user_text(fault, lang),
        details: fault.detail().clone(),
        retryable: fault.repeat().retryable,
        outcome_unknown: fault.is_outcome_unknown(),
        retry_after_ms: fault.retry_hint().and_then(|wait| u64::try_from(wait.as_millis()).ok()),
        trace: Some(fault.trace()).filter(|trace| trace.is_some()),
        hops: fault.hops().to_vec(),
    }
}

/// What an editor shows.
#[derive(Clone, Debug, PartialEq)]
pub struct EditorRendering {
    /// How the turn or the call looks.
    pub outcome: &'static str,
    /// The code when it ends as an error.
    pub json_rpc: i32,
    /// The sentence.
    pub message: String,
    /// The kind's name, for `data.kind`.
    pub kind: &'static str,
    /// Would repeating the same prompt make sense?
    pub retryable: bool,
    /// What to do.
    pub advice: Vec<String>,
}

/// Tells an editor.
#[must_use]
pub fn render_for_editor(fault: &Fault, lang: Lang) -> EditorRendering {
    let row = fault.row();
    let words = text::FaultText::of(fault, lang);
    EditorRendering {
        outcome: row.editor.into(),
        json_rpc: row.json_rpc,
        message: words.user(),
        kind: row.name,
        retryable: fault.repeat().retryable,
        advice: words.recommendations().into_iter().map(Cow::into_owned).collect(),
    }
}
