//! Renderings of a fault, one for each audience.
//!
//! A rendering is plain data that gateways convert to their protocols. Only the model's rendering defines its JSON
//! here, because every engine puts the same JSON into a tool result.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::{CatalogRow, Detail, FactValue, Fault, Hop, Mismatch, text};
use crate::{lang::Lang, tool::Failure, trace::Trace};

/// The content of a `tool_result` with `is_error`, for the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelRendering<'a> {
    ok: bool,
    /// One sentence from the catalog, filled with facts.
    pub error: String,
    /// The class of the fault: `validation`, `runtime` …
    pub error_type: &'static str,
    /// Whether repeating the same call makes sense.
    pub retryable: bool,
    /// What the model should do with the call: `retry_same`, `retry_changed` or `stop`.
    pub next: &'static str,
    /// The permanent code of the kind, for example `ERR_VAL_002`.
    pub code: &'static str,
    /// Data that the tool attached to its failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<&'a Value>,
    /// A remark of a person or the runtime about the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'a str>,
    /// Each place where the arguments do not fit.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub mismatches: &'a [Mismatch],
    /// The smallest valid call, if the kind provides one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub example: Option<&'a FactValue>,
    /// What to do with the call, most specific first; written for the model alone.
    pub recommendations: Vec<Cow<'a, str>>,
}

impl ModelRendering<'_> {
    /// The JSON object for the tool result.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and JSON values always serialise")
    }
}

/// Renders a failed call for the model.
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
        recommendations: words.model_advice(),
    }
}

/// The content of an `error.*` event, for the user.
#[derive(Clone, Debug, PartialEq)]
pub struct UserRendering {
    /// The event's name, for example `error.timeout`.
    pub event: &'static str,
    /// `content`: always English, for logs and programs.
    pub content: String,
    /// `show_content`: in the user's language.
    pub shown: String,
    /// The catalog columns for `metadata`.
    pub row: &'static CatalogRow,
    /// `metadata.operation`: the stable identifier of the operation.
    pub operation: &'static str,
    /// `metadata.context`: the facts that the kind lists as context, when present.
    pub context: Detail,
    /// All facts that are not in `context`.
    pub facts: Detail,
}

/// Renders a fault for the user.
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

/// A fault for a peer. The edge that speaks the peer's protocol adds the number that the protocol has for the kind.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerRendering {
    /// The permanent code of the kind, for example `ERR_VAL_002`.
    pub code: &'static str,
    /// A short title for the kind.
    pub title: String,
    /// One sentence about this fault.
    pub message: String,
    /// All facts of the fault.
    pub details: Detail,
    /// Whether repeating the same request makes sense.
    pub retryable: bool,
    /// Whether the work may still be running or may be done.
    pub outcome_unknown: bool,
    /// The delay before the next request, in milliseconds, if a service asked for one.
    pub retry_after_ms: Option<u64>,
    /// The trace that finds the log line; absent if the fault has none.
    pub trace: Option<Trace>,
    /// The components passed so far; the next one appends itself.
    pub hops: Vec<Hop>,
}

/// Renders a fault for a peer. The caller scrubs the fault first.
#[must_use]
pub fn render_for_peer(fault: &Fault, lang: Lang) -> PeerRendering {
    let row = fault.row();
    PeerRendering {
        code: row.code,
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

/// A fault for an editor.
#[derive(Clone, Debug, PartialEq)]
pub struct EditorRendering {
    /// How the turn or the call ends in the editor, for example `tool_call_failed`.
    pub outcome: &'static str,
    /// One sentence in the user's language.
    pub message: String,
    /// The kind's name, for `data.kind`.
    pub kind: &'static str,
    /// Whether repeating the same prompt makes sense.
    pub retryable: bool,
    /// What the user can do, most specific first.
    pub advice: Vec<String>,
}

/// Renders a fault for an editor.
#[must_use]
pub fn render_for_editor(fault: &Fault, lang: Lang) -> EditorRendering {
    let row = fault.row();
    let words = text::FaultText::of(fault, lang);
    EditorRendering {
        outcome: row.editor.into(),
        message: words.user(),
        kind: row.name,
        retryable: fault.repeat().retryable,
        advice: words.recommendations().into_iter().map(Cow::into_owned).collect(),
    }
}
