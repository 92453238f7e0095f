//! The JSON types of HTTP responses. They are separate from the records, so records can change.

use budao_core::{
    Timestamp,
    event::{Epoch, Origin, SessionId},
    session::{Doubt, Session},
    tally::FaultCounts,
    timer::{Schedule, Timer},
};
use budao_journal::SessionSummary;
use serde::Serialize;
use serde_json::Value;

use crate::session_meta;

/// A session in the list.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SessionItem {
    /// The session's id, a UUID.
    #[schema(value_type = String)]
    session_id: SessionId,
    /// `idle`, `running`, `waiting_for_decision`, `closed` or `failed`.
    state: &'static str,
    /// The name from `session_name`; null if the client set none.
    title: Option<String>,
    /// The session's owner, as `tenant/user`; null for sessions that were not opened over this server.
    owner: Option<String>,
    /// Time of the first record, RFC 3339 in UTC.
    opened_at: String,
    /// Time of the last record, RFC 3339 in UTC.
    updated_at: String,
    /// Number of turns that have started.
    turns: u64,
    /// Code of the fault that ended the last turn; null if it ended without one, or while a turn runs.
    last_code: Option<String>,
    /// Position of the session's last record.
    head: u64,
    #[serde(flatten)]
    faults: FaultCountsView,
}

/// The fault counts of a session. A fault that is neither recovered nor not recovered did not stop its turn.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct FaultCountsView {
    /// Number of all faults of the session: failed attempts and failed calls.
    faults: u64,
    /// Number of those faults whose operation succeeded later.
    recovered: u64,
    /// Number of those faults that ended their turn, their task or their retries.
    not_recovered: u64,
}

impl From<FaultCounts> for FaultCountsView {
    fn from(counts: FaultCounts) -> Self {
        let FaultCounts { faults, recovered, not_recovered } = counts;
        Self { faults, recovered, not_recovered }
    }
}

impl From<SessionSummary> for SessionItem {
    fn from(summary: SessionSummary) -> Self {
        Self {
            faults: summary.fault_counts().into(),
            session_id: summary.session,
            state: summary.state.as_str(),
            title: summary.title,
            owner: summary.labels.get(session_meta::OWNER).cloned(),
            opened_at: summary.opened_at.to_string(),
            updated_at: summary.updated_at.to_string(),
            turns: summary.turns,
            last_code: summary.last_code,
            head: summary.head,
        }
    }
}

/// One page of the session list.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SessionList {
    /// At most `limit` sessions, the most recently changed first.
    pub(crate) sessions: Vec<SessionItem>,
    /// The value of `after` for the next page; null on the last page.
    pub(crate) next: Option<String>,
}

/// The answer to the request that opens a session.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct CreateSessionResponse {
    /// The session's id, a UUID.
    #[schema(value_type = String)]
    pub(crate) session_id: SessionId,
    /// True if an earlier request with the same command id opened the session.
    pub(crate) existed: bool,
    /// Path of the session's server-sent events.
    pub(crate) events: String,
}

/// The current state of a session.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SessionView {
    /// The session's id, a UUID.
    #[schema(value_type = String)]
    session_id: SessionId,
    /// Incarnation of the history, eight hex digits; changes only when the history is replaced.
    epoch: String,
    /// Position of the session's last record.
    head: u64,
    /// `idle`, `running`, `waiting_for_decision` (a question is open), `closed` or `failed`; a message re-opens a closed or failed
    /// session.
    status: &'static str,
    /// The name from `session_name`; null if the client set none.
    title: Option<String>,
    /// Language of texts for people: `en` or `zh`.
    language: String,
    /// Name of the model; empty for the engine's default.
    model: String,
    /// Number of turns that have started.
    turns: u64,
    /// Number of messages that wait behind the running turn.
    queued: usize,
    /// Text of the model's last message; null before the first one.
    last_text: Option<String>,
    /// Open questions that wait for a person's answer.
    questions: Vec<QuestionView>,
    /// Calls whose outcome is unknown, until a person settles them with `user.settle_doubt`.
    doubts: Vec<DoubtView>,
    /// Tools that a person allowed for the rest of the session, until `user.revoke_permission`.
    remembered_tools: Vec<String>,
    /// The session that this one is a fork of; null if it is none.
    forked_from: Option<String>,
    /// Timers that are set, by id.
    timers: Vec<TimerItem>,
    /// Input tokens of all model requests of the session.
    input_tokens: u64,
    /// Output tokens of all model requests of the session.
    output_tokens: u64,
    #[serde(flatten)]
    faults: FaultCountsView,
}

/// An open question that waits for a person's answer.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct QuestionView {
    /// Id of the question; the answer repeats it.
    step_id: String,
    /// Name of the tool; null if the question is about a plan.
    tool: Option<String>,
    /// Arguments of the call; null if the question is about a plan.
    arguments: Option<Value>,
    /// Digest of the arguments. An answer that repeats it applies only to these arguments.
    digest: String,
    /// Time after which the call or plan is denied, RFC 3339 in UTC.
    expires_at: String,
}

/// A call whose outcome is unknown.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct DoubtView {
    /// Id of the call; the settlement repeats it.
    call_id: String,
    /// Name of the tool.
    tool: String,
    /// Arguments of the call; a text with their beginning if they are long.
    arguments: Value,
    /// The key that the tool passed to services that de-duplicate.
    idempotency_key: String,
    /// Time at which the call ended with an unknown outcome, RFC 3339 in UTC.
    since: String,
}

impl DoubtView {
    fn new(session: SessionId, doubt: &Doubt) -> Self {
        Self {
            call_id: doubt.call.to_string(),
            tool: doubt.tool.clone(),
            arguments: doubt.arguments.clone(),
            idempotency_key: format!("{session}.{}", doubt.call),
            since: doubt.since.to_string(),
        }
    }
}

/// A timer that is set.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct TimerItem {
    /// Id of the timer; `user.cancel_timer` repeats it.
    timer_id: String,
    /// Next time at which it fires, RFC 3339 in UTC.
    next_at: String,
    /// The cron form; null for a timer that fires once.
    cron: Option<String>,
    /// The time zone of the cron form; null for a timer that fires once.
    zone: Option<String>,
    /// The message that the session receives when the timer fires.
    message: String,
    /// Number of firings so far.
    fired: u64,
}

impl TimerItem {
    fn new(timer: &Timer) -> Self {
        let (cron, zone) = match &timer.schedule {
            Schedule::At(_) => (None, None),
            Schedule::Cron { form, zone } => (Some(form.clone()), Some(zone.clone())),
        };
        Self {
            timer_id: timer.timer.to_string(),
            next_at: timer.next.to_string(),
            cron,
            zone,
            message: timer.message.clone(),
            fired: timer.fired,
        }
    }
}

impl SessionView {
    pub(crate) fn new(session: SessionId, epoch: Epoch, state: &Session) -> Self {
        let doubts = state.doubts.all_open();
        Self {
            session_id: session,
            epoch: epoch.to_string(),
            head: state.head,
            status: state.state().as_str(),
            title: state.settings.title.clone(),
            language: state.settings.language.to_string(),
            model: state.settings.model.clone(),
            turns: state.turns,
            queued: state.queue.len(),
            last_text: state.last_text(),
            questions: open_question_views(state),
            doubts: doubts.iter().map(|doubt| DoubtView::new(session, doubt)).collect(),
            remembered_tools: state.settings.permissions.remembered.clone(),
            forked_from: match &state.origin {
                Some(Origin::Fork { parent, .. }) => Some(parent.to_string()),
                _ => None,
            },
            timers: state.timers.all().map(TimerItem::new).collect(),
            input_tokens: state.usage.input_tokens,
            output_tokens: state.usage.output_tokens,
            faults: state.faults.counts().into(),
        }
    }
}

fn open_question_views(state: &Session) -> Vec<QuestionView> {
    let view = |step: &str, tool, arguments, digest: &str, expires: Timestamp| QuestionView {
        step_id: step.to_owned(),
        tool,
        arguments,
        digest: digest.to_owned(),
        expires_at: expires.to_string(),
    };
    let calls = state.turn.iter().flat_map(|turn| &turn.calls);
    let of_calls = calls.filter_map(|call| {
        let open = call.open_question()?;
        let (tool, arguments) = (Some(call.tool.clone()), Some(open.arguments.clone()));
        Some(view(&open.question.0, tool, arguments, open.digest, open.expires_at))
    });
    let pipeline = state.pipeline.iter().filter(|_| state.turn.is_some());
    let of_plan = pipeline.filter_map(|pipeline| {
        let confirmation = pipeline.confirmation.as_ref()?;
        let (question, digest) = (&confirmation.question.0, &confirmation.digest);
        Some(view(question, None, None, digest, confirmation.expires_at))
    });
    of_calls.chain(of_plan).collect()
}

/// The answer to an accepted command. The command is durable; its effects follow as events.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct CommandResponse {
    /// Always the text `accepted`.
    pub(crate) status: &'static str,
    /// The event's name without `user.`: `message`, `cancel` …
    pub(crate) action: &'static str,
    /// The session's id, a UUID.
    #[schema(value_type = String)]
    pub(crate) session_id: SessionId,
    /// The command id that the client set; null without one.
    pub(crate) command_id: Option<String>,
    /// Position in the history; the command's effects come after it.
    pub(crate) after: u64,
}
