//! Records projected onto three channels for embedders: progress, control, monitor.
//!
//! Names and payloads are those of the agent SDK this replaces, so that its readers feel at home. The
//! projection is a fold over records: the same records give the same events, live, on replay and after a
//! restart. A bookmark is a position in the journal, so it stays unambiguous for ever; the events of one
//! record share one bookmark and are delivered together.

use std::collections::BTreeMap;

use budao_core::{
    Lang, Record, Timestamp,
    event::{Decision, Event, Seq, StopReason},
    fault::{Fault, Operation, Severity, text},
    message::{Block, CallId, Usage},
    tool::{Failure, Outcome, Todo},
};
use serde::Serialize;
use serde_json::{Value, json};

/// Characters of arguments that are shown in a snapshot.
const PREVIEW: usize = 200;

/// Whom an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// What a user follows.
    Progress,
    /// What a person must decide.
    Control,
    /// What an operator follows.
    Monitor,
}

/// A place to go on from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bookmark {
    /// The record's position.
    pub seq: Seq,
    /// When it was made, in milliseconds since 1970.
    pub timestamp: i64,
}

/// An event with where it stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Envelope {
    /// Where to go on from after this event.
    pub bookmark: Bookmark,
    /// Whom it is for.
    pub channel: Channel,
    /// What happened.
    pub event: ChannelEvent,
}

/// What happened, in the words of the channels.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum ChannelEvent {
    /// Thought begins.
    ThinkChunkStart {
        /// The step.
        step: u32,
    },
    /// More thought.
    ThinkChunk {
        /// The step.
        step: u32,
        /// The thought.
        delta: String,
    },
    /// Thought ends.
    ThinkChunkEnd {
        /// The step.
        step: u32,
    },
    /// Words begin.
    TextChunkStart {
        /// The step.
        step: u32,
    },
    /// More words.
    TextChunk {
        /// The step.
        step: u32,
        /// The words.
        delta: String,
    },
    /// Words end. `text` is all of them, or empty if they are void.
    TextChunkEnd {
        /// The step.
        step: u32,
        /// All words.
        text: String,
    },
    /// A call starts.
    #[serde(rename = "tool:start")]
    ToolStart {
        /// The call.
        call: CallSnapshot,
    },
    /// A call ended, well or not.
    #[serde(rename = "tool:end")]
    ToolEnd {
        /// The call.
        call: CallSnapshot,
    },
    /// A call failed.
    #[serde(rename = "tool:error")]
    ToolError {
        /// The call.
        call: CallSnapshot,
        /// What the model was told.
        error: String,
    },
    /// The turn is over.
    Done {
        /// The last step.
        step: u32,
        /// `completed`, `interrupted` or `failed`.
        reason: &'static str,
    },
    /// A person must decide.
    PermissionRequired {
        /// The question to answer.
        question: String,
        /// The call.
        call: CallSnapshot,
    },
    /// A person decided, or nobody did in time.
    PermissionDecided {
        /// The call.
        call_id: CallId,
        /// `allow` or `deny`.
        decision: &'static str,
        /// Who.
        decided_by: String,
        /// A word for the model.
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// The session does something else now.
    StateChanged {
        /// `READY`, `WORKING` or `PAUSED`.
        state: &'static str,
    },
    /// A model request is through.
    StepComplete {
        /// The step.
        step: u32,
        /// How long it took.
        duration_ms: u64,
    },
    /// Something failed.
    Error {
        /// `info`, `warn` or `error`.
        severity: &'static str,
        /// `model`, `tool`, `system` or `lifecycle`.
        phase: &'static str,
        /// What, in words.
        message: String,
        /// `errorType`, `retryable`, `recommendations`, `code` and more.
        detail: Value,
    },
    /// What a model request cost.
    TokenUsage {
        /// Read.
        input_tokens: u64,
        /// Written.
        output_tokens: u64,
        /// Both.
        total_tokens: u64,
    },
    /// A call is finished, failed ones too.
    ToolExecuted {
        /// The call.
        call: CallSnapshot,
    },
    /// The session was taken up again.
    AgentResumed {
        /// `crash`: somebody else had it.
        strategy: &'static str,
        /// Calls whose outcome is unknown.
        sealed: Vec<CallId>,
    },
    /// The turn is at another point.
    BreakpointChanged {
        /// Where it was.
        previous: &'static str,
        /// Where it is.
        current: &'static str,
        /// When.
        timestamp: i64,
    },
    /// The to-do list changed.
    TodoChanged {
        /// Now.
        current: Vec<Todo>,
        /// Before.
        previous: Vec<Todo>,
    },
    /// A tool saw a file change.
    FileChanged {
        /// Which.
        path: String,
        /// When it was seen.
        mtime: i64,
    },
    /// Old history was summarised.
    ContextCompression {
        /// `end`: it is told when it is done.
        phase: &'static str,
        /// The summary.
        summary: String,
        /// Tokens after over tokens before.
        ratio: f64,
    },
    /// A tool had something to say.
    ToolCustomEvent {
        /// The tool.
        tool_name: String,
        /// What about.
        event_type: String,
        /// What.
        data: Value,
        /// When.
        timestamp: i64,
    },
}

/// A call as it stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallSnapshot {
    /// Which.
    pub id: CallId,
    /// The tool.
    pub name: String,
    /// `PENDING`, `APPROVAL_REQUIRED`, `APPROVED`, `DENIED`, `EXECUTING`, `COMPLETED`, `FAILED`, `SEALED`.
    pub state: &'static str,
    /// What became of the question, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// The beginning of its arguments.
    pub input_preview: String,
    /// What it gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Did it fail?
    pub is_error: bool,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<i64>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<i64>,
    /// How long it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Its states in order.
    pub audit_trail: Vec<Audit>,
}

/// What became of a question.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// There was one.
    pub required: bool,
    /// `allow` or `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<&'static str>,
    /// Who.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<i64>,
    /// A word for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One state of a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Audit {
    /// The state.
    pub state: &'static str,
    /// When it came to it.
    pub timestamp: i64,
    /// Why.
    pub note: &'static str,
}

/// The fold that projects.
#[derive(Clone, Debug)]
pub struct Projector {
    lang: Lang,
    state: &'static str,
    breakpoint: &'static str,
    step: u32,
    step_began: Timestamp,
    thinking: bool,
    talking: bool,
    calls: BTreeMap<CallId, CallSnapshot>,
    todos: Vec<Todo>,
    /// Every call of the session, once it has ended; kept only for an audit.
    ended: Option<Vec<CallSnapshot>>,
}

impl Default for Projector {
    fn default() -> Self {
        Self::new(Lang::En)
    }
}

/// The events of one record, as they are found.
struct Out {
    bookmark: Bookmark,
    events: Vec<Envelope>,
}

impl Out {
    fn push(&mut self, channel: Channel, event: ChannelEvent) {
        self.events.push(Envelope { bookmark: self.bookmark, channel, event });
    }
}

impl Projector {
    /// Starts before the first record.
    #[must_use]
    pub fn new(lang: Lang) -> Self {
        Self {
            lang,
            state: "READY",
            breakpoint: "READY",
            step: 0,
            step_began: Timestamp::default(),
            thinking: false,
            talking: false,
            calls: BTreeMap::new(),
            todos: Vec::new(),
            ended: None,
        }
    }

    /// One that remembers every finished call.
    #[must_use]
    pub fn auditing(lang: Lang) -> Self {
        Self { ended: Some(Vec::new()), ..Self::new(lang) }
    }

    /// Every finished call, oldest first, if it is auditing.
    #[must_use]
    pub fn into_calls(self) -> Vec<CallSnapshot> {
        self.ended.unwrap_or_default()
    }

    /// What a record is on the channels.
    pub fn project(&mut self, record: &Record) -> Vec<Envelope> {
        let timestamp = record.at.as_millis();
        let mut out = Out { bookmark: Bookmark { seq: record.seq, timestamp }, events: Vec::new() };
        self.chunks(&record.event, &mut out);
        match &record.event {
            Event::TurnStarted { .. } => {
                self.calls.clear();
                self.enter("WORKING", "PRE_MODEL", &mut out);
            }
            Event::StepStarted { step, .. } => {
                (self.step, self.step_began) = (*step, record.at);
                self.enter("WORKING", "STREAMING_MODEL", &mut out);
            }
            Event::ModelAnswered { step, content, usage, .. } => {
                self.answered(*step, content, *usage, record.at, &mut out);
            }
            Event::TurnEnded { stop, fault, .. } => self.turn_ended(*stop, fault, &mut out),
            Event::SessionResumed { sealed } => {
                let sealed = sealed.clone();
                out.push(
                    Channel::Monitor,
                    ChannelEvent::AgentResumed { strategy: "crash", sealed },
                );
            }
            Event::HistoryCompacted { summary, tokens_before, tokens_after, .. } => {
                #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
                let ratio = *tokens_after as f64 / (*tokens_before).max(1) as f64;
                let summary = summary.clone();
                let event = ChannelEvent::ContextCompression { phase: "end", summary, ratio };
                out.push(Channel::Monitor, event);
            }
            Event::TodosChanged { todos } => {
                let previous = std::mem::replace(&mut self.todos, todos.clone());
                let event = ChannelEvent::TodoChanged { current: todos.clone(), previous };
                out.push(Channel::Monitor, event);
            }
            Event::FileSeen { path, .. } => {
                let event = ChannelEvent::FileChanged { path: path.clone(), mtime: timestamp };
                out.push(Channel::Monitor, event);
            }
            Event::CallNoted { tool, topic, data, .. } => {
                let event = ChannelEvent::ToolCustomEvent {
                    tool_name: tool.clone(),
                    event_type: topic.clone(),
                    data: data.clone(),
                    timestamp,
                };
                out.push(Channel::Monitor, event);
            }
            Event::FaultRaised { fault, scope } => {
                let phase = phase(fault, scope.tool.is_some());
                out.push(Channel::Monitor, self.error(fault, phase));
            }
            Event::RecoveryFailed { fault, .. } => {
                out.push(Channel::Monitor, self.error(fault, phase(fault, false)));
            }
            other => self.call(other, &mut out),
        }
        out.events
    }

    /// Begins and ends of words and thought.
    fn chunks(&mut self, event: &Event, out: &mut Out) {
        let step = self.step;
        if let Event::ThoughtCame { text, .. } = event {
            if !std::mem::replace(&mut self.thinking, true) {
                out.push(Channel::Progress, ChannelEvent::ThinkChunkStart { step });
            }
            let delta = text.clone();
            return out.push(Channel::Progress, ChannelEvent::ThinkChunk { step, delta });
        }
        let ends_thought = matches!(
            event,
            Event::TextCame { .. } | Event::ModelAnswered { .. } | Event::AnswerAbandoned { .. }
        );
        if ends_thought && std::mem::replace(&mut self.thinking, false) {
            out.push(Channel::Progress, ChannelEvent::ThinkChunkEnd { step });
        }
        match event {
            Event::TextCame { text, .. } => {
                if !std::mem::replace(&mut self.talking, true) {
                    out.push(Channel::Progress, ChannelEvent::TextChunkStart { step });
                }
                let delta = text.clone();
                out.push(Channel::Progress, ChannelEvent::TextChunk { step, delta });
            }
            Event::AnswerAbandoned { .. } if std::mem::replace(&mut self.talking, false) => {
                let text = String::new();
                out.push(Channel::Progress, ChannelEvent::TextChunkEnd { step, text });
            }
            _ => {}
        }
    }

    fn answered(
        &mut self,
        step: u32,
        content: &[Block],
        usage: Usage,
        at: Timestamp,
        out: &mut Out,
    ) {
        let text = budao_core::message::text_of(content);
        if !self.talking && !text.is_empty() {
            out.push(Channel::Progress, ChannelEvent::TextChunkStart { step });
            let delta = text.clone();
            out.push(Channel::Progress, ChannelEvent::TextChunk { step, delta });
        }
        if std::mem::replace(&mut self.talking, false) || !text.is_empty() {
            out.push(Channel::Progress, ChannelEvent::TextChunkEnd { step, text });
        }
        let (input_tokens, output_tokens) = (usage.input_tokens, usage.output_tokens);
        let total_tokens = input_tokens.saturating_add(output_tokens);
        out.push(
            Channel::Monitor,
            ChannelEvent::TokenUsage { input_tokens, output_tokens, total_tokens },
        );
        let duration_ms = u64::try_from(at.since(self.step_began).as_millis()).unwrap_or(u64::MAX);
        out.push(Channel::Monitor, ChannelEvent::StepComplete { step, duration_ms });
        for block in content {
            if let Block::ToolUse(call) = block {
                let snapshot = CallSnapshot::new(&call.id, &call.name, &call.arguments, at);
                self.calls.insert(call.id.clone(), snapshot);
            }
        }
        if content.iter().any(|block| matches!(block, Block::ToolUse(_))) {
            self.enter(self.state, "TOOL_PENDING", out);
        }
    }

    fn turn_ended(&mut self, stop: StopReason, fault: &Option<Fault>, out: &mut Out) {
        let reason = match (stop, fault) {
            (StopReason::Cancelled, _) => "interrupted",
            (StopReason::Failed, _) | (_, Some(_)) => "failed",
            _ => "completed",
        };
        if let (Some(fault), false) = (fault, stop == StopReason::Failed) {
            // A failed turn's fault was told when recovery failed; any other one is told here.
            out.push(Channel::Monitor, self.error(fault, phase(fault, false)));
        }
        out.push(Channel::Progress, ChannelEvent::Done { step: self.step, reason });
        self.enter("READY", "READY", out);
    }

    fn enter(&mut self, state: &'static str, breakpoint: &'static str, out: &mut Out) {
        if std::mem::replace(&mut self.state, state) != state {
            out.push(Channel::Monitor, ChannelEvent::StateChanged { state });
        }
        let previous = std::mem::replace(&mut self.breakpoint, breakpoint);
        if previous != breakpoint {
            let timestamp = out.bookmark.timestamp;
            let current = breakpoint;
            out.push(
                Channel::Monitor,
                ChannelEvent::BreakpointChanged { previous, current, timestamp },
            );
        }
    }

    /// What happens to calls.
    fn call(&mut self, event: &Event, out: &mut Out) {
        let at = out.bookmark.timestamp;
        match event {
            Event::QuestionAsked { question, call, .. } => {
                let Some(snapshot) = self.moved(call, "APPROVAL_REQUIRED", "awaiting approval", at)
                else {
                    return;
                };
                snapshot.approval = Some(Approval { required: true, ..Approval::default() });
                let call = snapshot.clone();
                self.enter("PAUSED", "AWAITING_APPROVAL", out);
                let question = question.to_string();
                out.push(Channel::Control, ChannelEvent::PermissionRequired { question, call });
            }
            Event::QuestionAnswered { call, decision, by, note, .. } => {
                self.decided(call, *decision, by, note.clone(), out);
            }
            Event::QuestionExpired { call, .. } => {
                self.decided(call, Decision::Deny, "nobody", Some("expired".into()), out);
            }
            Event::CallStarted { call, .. } => {
                if let Some(snapshot) = self.moved(call, "EXECUTING", "execution start", at) {
                    snapshot.started_at.get_or_insert(at);
                    let call = snapshot.clone();
                    self.enter("WORKING", "TOOL_EXECUTING", out);
                    out.push(Channel::Progress, ChannelEvent::ToolStart { call });
                }
            }
            Event::CallEnded { call, outcome, duration_ms, .. } => {
                self.call_ended(call, outcome, *duration_ms, out);
            }
            _ => {}
        }
    }

    fn decided(
        &mut self,
        id: &CallId,
        decision: Decision,
        by: &str,
        note: Option<String>,
        out: &mut Out,
    ) {
        let at = out.bookmark.timestamp;
        let (state, word, why) = match decision {
            Decision::Allow => ("APPROVED", "allow", "approval granted"),
            Decision::Deny => ("DENIED", "deny", "approval denied"),
        };
        if let Some(snapshot) = self.moved(id, state, why, at) {
            snapshot.approval = Some(Approval {
                required: true,
                decision: Some(word),
                decided_by: Some(by.to_owned()),
                decided_at: Some(at),
                note: note.clone(),
            });
        }
        let (call_id, decided_by) = (id.clone(), by.to_owned());
        let event = ChannelEvent::PermissionDecided { call_id, decision: word, decided_by, note };
        out.push(Channel::Control, event);
    }

    fn call_ended(&mut self, id: &CallId, outcome: &Outcome, duration_ms: u64, out: &mut Out) {
        let (at, lang) = (out.bookmark.timestamp, self.lang);
        let (state, why) = ended_as(outcome);
        let Some(snapshot) = self.moved(id, state, why, at) else { return };
        snapshot.completed_at = Some(at);
        snapshot.duration_ms = Some(duration_ms);
        match outcome {
            Outcome::Done(output) => snapshot.result = Some(output.data.clone()),
            Outcome::Failed(Failure { fault, data, .. }) => {
                snapshot.is_error = true;
                snapshot.error = Some(text::for_model(fault, lang));
                snapshot.result.clone_from(data);
            }
        }
        let call = snapshot.clone();
        if let Some(ended) = &mut self.ended {
            ended.push(call.clone());
        }
        if let Some(fault) = outcome.fault() {
            let error = call.error.clone().unwrap_or_default();
            out.push(Channel::Progress, ChannelEvent::ToolError { call: call.clone(), error });
            out.push(Channel::Monitor, self.error(fault, "tool"));
        }
        out.push(Channel::Progress, ChannelEvent::ToolEnd { call: call.clone() });
        out.push(Channel::Monitor, ChannelEvent::ToolExecuted { call });
        self.enter(self.state, "POST_TOOL", out);
    }

    fn moved(
        &mut self,
        id: &CallId,
        state: &'static str,
        note: &'static str,
        timestamp: i64,
    ) -> Option<&mut CallSnapshot> {
        let snapshot = self.calls.get_mut(id)?;
        snapshot.state = state;
        snapshot.audit_trail.push(Audit { state, timestamp, note });
        Some(snapshot)
    }

    fn error(&self, fault: &Fault, phase: &'static str) -> ChannelEvent {
        let row = fault.row();
        let severity = match row.severity {
            Severity::Info => "info",
            Severity::Warn => "warn",
            Severity::Error | Severity::Critical => "error",
        };
        let error_type: &'static str = row.error_type.into();
        let detail = json!({
            "errorType": error_type,
            "retryable": row.retryable,
            "recommendations": text::recommendations(fault, self.lang),
            "code": row.code,
            "kind": row.name,
            "facts": fault.detail(),
            "attempts": fault.attempts(),
            "traceId": fault.trace().to_string(),
            "causes": fault.causes(),
        });
        let message = text::for_model(fault, self.lang);
        ChannelEvent::Error { severity, phase, message, detail }
    }
}

impl CallSnapshot {
    fn new(id: &CallId, name: &str, written: &str, at: Timestamp) -> Self {
        let timestamp = at.as_millis();
        Self {
            id: id.clone(),
            name: name.to_owned(),
            state: "PENDING",
            approval: None,
            input_preview: written.chars().take(PREVIEW).collect(),
            result: None,
            error: None,
            is_error: false,
            started_at: None,
            completed_at: None,
            duration_ms: None,
            audit_trail: vec![Audit { state: "PENDING", timestamp, note: "requested" }],
        }
    }
}

fn ended_as(outcome: &Outcome) -> (&'static str, &'static str) {
    use budao_core::Kind;
    match outcome.fault().map(Fault::kind) {
        None => ("COMPLETED", "execution complete"),
        Some(Kind::OutcomeUnknown) => ("SEALED", "sealed: nobody knows whether it happened"),
        Some(Kind::DeniedByPolicy) => ("DENIED", "policy deny"),
        Some(Kind::DeniedByHook | Kind::GuardFailed) => ("DENIED", "hook deny"),
        Some(Kind::DeniedByPerson | Kind::QuestionExpired) => ("DENIED", "approval denied"),
        Some(Kind::UnknownTool) => ("FAILED", "tool missing"),
        Some(Kind::InvalidArguments | Kind::MalformedArguments) => {
            ("FAILED", "input schema invalid")
        }
        Some(Kind::Cancelled | Kind::DeadlinePassed) => ("FAILED", "tool aborted"),
        Some(Kind::ToolSaidNo) => ("FAILED", "tool reported failure"),
        Some(_) => ("FAILED", "execution failed"),
    }
}

fn phase(fault: &Fault, about_a_tool: bool) -> &'static str {
    match fault.operation() {
        Operation::ModelRequest | Operation::CompactHistory | Operation::CountTokens => "model",
        Operation::ToolCall | Operation::StartTool | Operation::RunHook => "tool",
        _ if about_a_tool => "tool",
        Operation::RunTurn | Operation::ResumeSession | Operation::OpenSession => "lifecycle",
        _ => "system",
    }
}
