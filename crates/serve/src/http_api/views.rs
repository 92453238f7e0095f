//! The JSON types of HTTP responses. They are separate from the records, so records can change.

use budao_core::{
    Timestamp,
    event::{Epoch, SessionId},
    session::{CallState, Session},
};
use budao_journal::SessionSummary;
use serde::Serialize;
use serde_json::Value;

use crate::stats::FaultCounts;

/// A session in a list.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SessionItem {
    /// Its id.
    #[schema(value_type = String)]
    session_id: SessionId,
    /// `idle`, `running`, `asking`, `closed` or `failed`.
    state: &'static str,
    /// Its short name.
    title: Option<String>,
    /// When it was opened.
    opened_at: String,
    /// When something last happened.
    updated_at: String,
    /// Turns begun.
    turns: u64,
    /// The code of the fault that ended its last turn.
    last_code: Option<String>,
    /// The position of its last event.
    head: u64,
    /// Faults it met in the last seven days, when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    faults: Option<u64>,
    /// Those it recovered from, when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    recovered: Option<u64>,
}

impl SessionItem {
    /// Adds the fault counts, if requested.
    pub(crate) fn with(self, met: Option<FaultCounts>) -> Self {
        Self { faults: met.map(|met| met.faults), recovered: met.map(|met| met.recovered), ..self }
    }
}

impl From<SessionSummary> for SessionItem {
    fn from(summary: SessionSummary) -> Self {
        Self {
            session_id: summary.session,
            state: summary.state.as_str(),
            title: summary.title,
            opened_at: summary.opened_at.to_string(),
            updated_at: summary.updated_at.to_string(),
            turns: summary.turns,
            last_code: summary.last_code,
            head: summary.head,
            faults: None,
            recovered: None,
        }
    }
}

/// A page of sessions.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SessionList {
    /// The most recently changed first.
    pub(crate) sessions: Vec<SessionItem>,
    /// For the next page, as `after`; none when this is the last.
    pub(crate) next: Option<String>,
}

/// A session that was opened.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SessionOpened {
    /// Its id.
    #[schema(value_type = String)]
    pub(crate) session_id: SessionId,
    /// Was it there already, opened by the same command id?
    pub(crate) existed: bool,
    /// Where its events are.
    pub(crate) events: String,
}

/// A session as it stands.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SessionView {
    #[schema(value_type = String)]
    session_id: SessionId,
    /// Which incarnation of its history.
    epoch: String,
    /// The position of its last event.
    head: u64,
    /// `idle`, `running`, `paused` or `ended`.
    status: &'static str,
    title: Option<String>,
    /// The language people are spoken to in.
    language: String,
    model: String,
    /// Turns begun.
    turns: u64,
    /// Messages that wait to be answered.
    queued: usize,
    /// The last words of the model.
    last_text: Option<String>,
    /// Questions that wait for a person.
    questions: Vec<QuestionView>,
    input_tokens: u64,
    output_tokens: u64,
}

/// A question that waits for a person.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct QuestionView {
    /// What an answer names.
    step_id: String,
    /// The tool; none when a plan is to be confirmed.
    tool: Option<String>,
    /// What it would run with.
    arguments: Option<Value>,
    /// What an answer may be bound to.
    digest: String,
    /// Unanswered by then, it is denied.
    expires_at: String,
}

impl SessionView {
    pub(crate) fn new(session: SessionId, epoch: Epoch, state: &Session) -> Self {
        Self {
            session_id: session,
            epoch: epoch.to_string(),
            head: state.head,
            status: state.status().into(),
            title: state.settings.title.clone(),
            language: state.settings.language.to_string(),
            model: state.settings.model.clone(),
            turns: state.turns,
            queued: state.queue.len(),
            last_text: state.last_text(),
            questions: questions(state),
            input_tokens: state.usage.input_tokens,
            output_tokens: state.usage.output_tokens,
        }
    }
}

fn questions(state: &Session) -> Vec<QuestionView> {
    let view = |step: &str, tool, arguments, digest: &str, expires: Timestamp| QuestionView {
        step_id: step.to_owned(),
        tool,
        arguments,
        digest: digest.to_owned(),
        expires_at: expires.to_string(),
    };
    let calls = state.turn.iter().flat_map(|turn| &turn.calls);
    let of_calls = calls.filter_map(|call| match &call.state {
        CallState::AwaitingDecision { question, arguments, digest, expires_at, .. } => Some(view(
            &question.0,
            Some(call.tool.clone()),
            Some(arguments.clone()),
            digest,
            *expires_at,
        )),
        _ => None,
    });
    let pipeline = state.pipeline.iter().filter(|_| state.turn.is_some());
    let of_plan = pipeline.filter_map(|pipeline| {
        let confirmation = pipeline.confirmation.as_ref()?;
        let (question, digest) = (&confirmation.question.0, &confirmation.digest);
        Some(view(question, None, None, digest, confirmation.expires_at))
    });
    of_calls.chain(of_plan).collect()
}

/// A command was accepted; what comes of it are events.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct CommandAccepted {
    /// Always `accepted`.
    pub(crate) status: &'static str,
    /// What was asked: `message`, `cancel` …
    pub(crate) action: &'static str,
    #[schema(value_type = String)]
    pub(crate) session_id: SessionId,
    /// The id the client gave the command.
    pub(crate) command_id: Option<String>,
    /// Its effects are found after this position.
    pub(crate) after: u64,
}
