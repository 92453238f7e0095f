//! The projection behind `channel`: a fold over the records of a session.

use std::collections::BTreeMap;

use budao_core::{
    Kind, Lang, Record, Timestamp,
    activity::{Activity, StageEnd, StageStart},
    event::{Decision, Scope, Stage, StopReason, TaskId},
    fault::{Fault, text},
    message::{Block, CallId, Usage},
    session::{Session, SessionState},
    tool::{Failure, Outcome, Todo},
};
use serde_json::Value;

use super::{Approval, Audit, Bookmark, CallSnapshot, Channel, ChannelEvent, Envelope, phase};

/// Folds records into channel events. It must see every record from its start on, in order.
#[derive(Clone, Debug)]
pub struct Projector {
    lang: Lang,
    state: &'static str,
    breakpoint: &'static str,
    step: u32,
    step_began: Timestamp,
    thinking: bool,
    talking: bool,
    /// A planner runs; its stage has started and not ended.
    planning: bool,
    calls: BTreeMap<CallId, CallSnapshot>,
    todos: Vec<Todo>,
    /// Every ended call of the session, oldest first; `None` unless auditing.
    ended: Option<Vec<CallSnapshot>>,
}

impl Default for Projector {
    fn default() -> Self {
        Self::new(Lang::En)
    }
}

/// Collects the events of one record.
struct ProjectedEvents {
    bookmark: Bookmark,
    events: Vec<Envelope>,
}

impl ProjectedEvents {
    fn push(&mut self, channel: Channel, event: ChannelEvent) {
        self.events.push(Envelope { bookmark: self.bookmark, channel, event });
    }
}

impl Projector {
    /// Creates a projector for a session's first record.
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
            planning: false,
            calls: BTreeMap::new(),
            todos: Vec::new(),
            ended: None,
        }
    }

    /// Creates a projector for a session that is already under way. The state holds no calls of a running
    /// turn: project the turn's records from its beginning, too.
    #[must_use]
    pub fn at(lang: Lang, session: &Session) -> Self {
        let state = match session.state() {
            SessionState::Running => "WORKING",
            SessionState::WaitingForDecision => "PAUSED",
            SessionState::Idle | SessionState::Closed | SessionState::Failed => "READY",
        };
        let mut projector = Self { state, todos: session.todos.clone(), ..Self::new(lang) };
        if let Some(turn) = &session.turn {
            (projector.step, projector.step_began) = (turn.step, turn.started_at);
        }
        projector
    }

    /// Creates a projector that also collects every ended call; see [`Self::into_calls`].
    #[must_use]
    pub fn auditing(lang: Lang) -> Self {
        Self { ended: Some(Vec::new()), ..Self::new(lang) }
    }

    /// Returns every ended call, oldest first; empty unless created with [`Self::auditing`].
    #[must_use]
    pub fn into_calls(self) -> Vec<CallSnapshot> {
        self.ended.unwrap_or_default()
    }

    /// Returns the events of one record, in order; empty if no channel shows it.
    pub fn project(&mut self, record: &Record) -> Vec<Envelope> {
        let timestamp = record.at.as_millis();
        let mut out = ProjectedEvents {
            bookmark: Bookmark { seq: record.seq, timestamp },
            events: Vec::new(),
        };
        let Some(activity) = Activity::of(&record.event) else { return out.events };
        self.project_delta(activity, &mut out);
        match activity {
            Activity::TurnStarted { .. } => {
                self.calls.clear();
                (self.step, self.step_began) = (0, record.at);
                self.enter_state("WORKING", "PRE_MODEL", &mut out);
            }
            Activity::StepStarted { step, .. } => {
                (self.step, self.step_began) = (step, record.at);
                self.enter_state("WORKING", "STREAMING_MODEL", &mut out);
            }
            Activity::Answered { step, content, usage, .. } => {
                self.project_answer(step, content, usage, record.at, &mut out);
            }
            Activity::TurnEnded { stop, fault, .. } => self.project_turn_end(stop, fault, &mut out),
            Activity::SessionResumed { sealed } => {
                let (strategy, sealed) = ("crash", sealed.to_vec());
                out.push(Channel::Monitor, ChannelEvent::AgentResumed { strategy, sealed });
            }
            Activity::CompactionStarted => {
                let (phase, summary, ratio) = ("start", None, None);
                let event = ChannelEvent::ContextCompression { phase, summary, ratio };
                out.push(Channel::Monitor, event);
            }
            Activity::Compacted { summary, tokens_before, tokens_after, usage, .. } => {
                #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
                let ratio = tokens_after as f64 / tokens_before.max(1) as f64;
                let (summary, ratio) = (Some(summary.to_owned()), Some(ratio));
                let event = ChannelEvent::ContextCompression { phase: "end", summary, ratio };
                out.push(Channel::Monitor, event);
                push_usage(usage, &mut out);
            }
            Activity::Child { usage: Some(usage), .. } => push_usage(usage, &mut out),
            Activity::TodosChanged { todos } => {
                let previous = std::mem::replace(&mut self.todos, todos.to_vec());
                let event = ChannelEvent::TodoChanged { current: todos.to_vec(), previous };
                out.push(Channel::Monitor, event);
            }
            Activity::FileSeen { path } => {
                let event = ChannelEvent::FileChanged { path: path.to_owned(), mtime: timestamp };
                out.push(Channel::Monitor, event);
            }
            Activity::CallAnnotated { tool, topic, data, .. } => {
                let event = ChannelEvent::ToolCustomEvent {
                    tool_name: tool.to_owned(),
                    event_type: topic.to_owned(),
                    data: data.clone(),
                    timestamp,
                };
                out.push(Channel::Monitor, event);
            }
            Activity::Fault { fault, scope, .. } => {
                out.push(Channel::Monitor, self.error_event(fault, scope));
            }
            Activity::StageStarted(start) => self.project_stage_start(start, &mut out),
            Activity::PlanMade { summary, .. } => {
                self.enter_state("WORKING", "PRE_MODEL", &mut out);
                if std::mem::replace(&mut self.planning, false) {
                    push_end(Stage::Planning, None, "COMPLETED", summary.to_owned(), &mut out);
                }
            }
            Activity::StageEnded { stage, task, end } => {
                self.project_stage_end(stage, task, end, &mut out);
            }
            _ => self.project_call(activity, &mut out),
        }
        out.events
    }

    fn error_event(&self, fault: &Fault, scope: &Scope) -> ChannelEvent {
        let phase = phase(fault, scope.tool.is_some());
        ChannelEvent::error(fault, self.lang, phase, scope.stage, scope.task.as_ref())
    }

    fn project_stage_start(&mut self, start: StageStart<'_>, out: &mut ProjectedEvents) {
        let (stage, task, title) = match start {
            StageStart::Planning(question) => {
                self.planning = true;
                self.enter_state("WORKING", "PRE_MODEL", out);
                (Stage::Planning, None, Some(question))
            }
            StageStart::Task { task, .. } => (Stage::Solving, Some(&task.id), Some(&*task.title)),
            StageStart::Aggregation { .. } => (Stage::Aggregation, None, None),
        };
        let (task_id, title) = (task.cloned(), title.map(str::to_owned));
        out.push(Channel::Progress, ChannelEvent::StageStart { stage, task_id, title });
    }

    fn project_stage_end(
        &mut self,
        stage: Stage,
        task: Option<&TaskId>,
        end: StageEnd<'_>,
        out: &mut ProjectedEvents,
    ) {
        let was_planning = stage == Stage::Planning && std::mem::replace(&mut self.planning, false);
        let (state, text) = match end {
            StageEnd::Completed(output) => ("COMPLETED", output.to_owned()),
            StageEnd::Failed(fault) => ("FAILED", text::user_text(fault, self.lang)),
            // The plan was made, or its tasks came with the command: the stage is not open.
            StageEnd::Cancelled(_) if stage == Stage::Planning && !was_planning => return,
            StageEnd::Cancelled(reason) => ("CANCELLED", reason.to_owned()),
        };
        push_end(stage, task, state, text, out);
    }

    /// Projects text and thinking, and opens and closes their blocks.
    fn project_delta(&mut self, activity: Activity<'_>, out: &mut ProjectedEvents) {
        if let Activity::Text { step, .. } | Activity::Thought { step, .. } = activity {
            self.step = step;
        }
        let step = self.step;
        if let Activity::Thought { text, .. } = activity {
            if !std::mem::replace(&mut self.thinking, true) {
                out.push(Channel::Progress, ChannelEvent::ThinkChunkStart { step });
            }
            let delta = text.to_owned();
            return out.push(Channel::Progress, ChannelEvent::ThinkChunk { step, delta });
        }
        let ends_thought = matches!(
            activity,
            Activity::Text { .. } | Activity::Answered { .. } | Activity::AnswerAbandoned { .. }
        );
        if ends_thought && std::mem::replace(&mut self.thinking, false) {
            out.push(Channel::Progress, ChannelEvent::ThinkChunkEnd { step });
        }
        match activity {
            Activity::Text { text, .. } => {
                if !std::mem::replace(&mut self.talking, true) {
                    out.push(Channel::Progress, ChannelEvent::TextChunkStart { step });
                }
                let delta = text.to_owned();
                out.push(Channel::Progress, ChannelEvent::TextChunk { step, delta });
            }
            Activity::AnswerAbandoned { .. } if std::mem::replace(&mut self.talking, false) => {
                let text = String::new();
                out.push(Channel::Progress, ChannelEvent::TextChunkEnd { step, text });
            }
            _ => {}
        }
    }

    fn project_answer(
        &mut self,
        step: u32,
        content: &[Block],
        usage: Usage,
        at: Timestamp,
        out: &mut ProjectedEvents,
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
        push_usage(usage, out);
        let duration_ms = u64::try_from(at.since(self.step_began).as_millis()).unwrap_or(u64::MAX);
        out.push(Channel::Monitor, ChannelEvent::StepComplete { step, duration_ms });
        for block in content {
            if let Block::ToolUse(call) = block {
                let snapshot =
                    CallSnapshot::new(&call.id, &call.name, &call.arguments, at.as_millis());
                self.calls.insert(call.id.clone(), snapshot);
            }
        }
        if content.iter().any(|block| matches!(block, Block::ToolUse(_))) {
            self.enter_state(self.state, "TOOL_PENDING", out);
        }
    }

    fn project_turn_end(
        &mut self,
        stop: StopReason,
        fault: Option<&Fault>,
        out: &mut ProjectedEvents,
    ) {
        let reason = match (stop, fault) {
            (StopReason::Cancelled, _) => "interrupted",
            (StopReason::Failed, _) | (_, Some(_)) => "failed",
            _ => "completed",
        };
        if let (Some(fault), StopReason::Cancelled) = (fault, stop) {
            // `RecoveryFailed` has already reported the fault of any other turn.
            out.push(Channel::Monitor, self.error_event(fault, &Scope::default()));
        }
        out.push(Channel::Progress, ChannelEvent::Done { step: self.step, reason });
        self.enter_state("READY", "READY", out);
    }

    fn enter_state(
        &mut self,
        state: &'static str,
        breakpoint: &'static str,
        out: &mut ProjectedEvents,
    ) {
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

    /// Projects questions and calls.
    fn project_call(&mut self, activity: Activity<'_>, out: &mut ProjectedEvents) {
        let at = out.bookmark.timestamp;
        match activity {
            Activity::QuestionAsked(asked) => {
                self.add_call(asked.call, asked.tool, Some(asked.arguments), at);
                let moved = self.change_call_state(
                    asked.call,
                    "APPROVAL_REQUIRED",
                    "awaiting approval",
                    at,
                );
                let Some(snapshot) = moved else { return };
                snapshot.approval = Some(Approval { required: true, ..Approval::default() });
                let (question, call) = (asked.into(), snapshot.clone());
                self.enter_state("PAUSED", "AWAITING_APPROVAL", out);
                out.push(Channel::Control, ChannelEvent::PermissionRequired { question, call });
            }
            Activity::QuestionClosed { call, answer, .. } => {
                let (decision, by, note) = answer
                    .map_or((Decision::Deny, "nobody", Some("expired")), |answer| {
                        (answer.decision, answer.by, answer.note)
                    });
                self.apply_decision(call, decision, by, note.map(str::to_owned), out);
            }
            Activity::CallStarted { call, tool, arguments, .. } => {
                self.add_call(call, tool, Some(arguments), at);
                if let Some(snapshot) =
                    self.change_call_state(call, "EXECUTING", "execution start", at)
                {
                    snapshot.started_at.get_or_insert(at);
                    let call = snapshot.clone();
                    self.enter_state("WORKING", "TOOL_EXECUTING", out);
                    out.push(Channel::Progress, ChannelEvent::ToolStart { call });
                }
            }
            Activity::CallEnded { call, tool, outcome, duration_ms } => {
                self.add_call(call, tool, None, at);
                self.project_call_end(call, outcome, duration_ms, out);
            }
            _ => {}
        }
    }

    fn apply_decision(
        &mut self,
        id: &CallId,
        decision: Decision,
        by: &str,
        note: Option<String>,
        out: &mut ProjectedEvents,
    ) {
        let at = out.bookmark.timestamp;
        let (state, word, why) = match decision {
            Decision::Allow => ("APPROVED", "allow", "approval granted"),
            Decision::Deny => ("DENIED", "deny", "approval denied"),
        };
        if let Some(snapshot) = self.change_call_state(id, state, why, at) {
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

    fn project_call_end(
        &mut self,
        id: &CallId,
        outcome: &Outcome,
        duration_ms: u64,
        out: &mut ProjectedEvents,
    ) {
        let (at, lang) = (out.bookmark.timestamp, self.lang);
        let (state, why) = end_states(outcome);
        let Some(snapshot) = self.change_call_state(id, state, why, at) else { return };
        snapshot.completed_at = Some(at);
        snapshot.duration_ms = Some(duration_ms);
        match outcome {
            Outcome::Done(output) => snapshot.result = Some(output.data.clone()),
            Outcome::Failed(Failure { fault, data, .. }) => {
                snapshot.is_error = true;
                snapshot.error = Some(text::model_text(fault, lang));
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
            let error = ChannelEvent::error(fault, self.lang, "tool", None, None);
            out.push(Channel::Monitor, error);
        }
        out.push(Channel::Progress, ChannelEvent::ToolEnd { call: call.clone() });
        out.push(Channel::Monitor, ChannelEvent::ToolExecuted { call });
        self.enter_state(self.state, "POST_TOOL", out);
    }

    fn change_call_state(
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

    /// Inserts a snapshot if the call is unknown: the model never requested the call that confirms a plan,
    /// and retention may have removed the request of another call.
    fn add_call(&mut self, id: &CallId, tool: &str, arguments: Option<&Value>, at: i64) {
        if !self.calls.contains_key(id) {
            let written = arguments.map(Value::to_string).unwrap_or_default();
            let snapshot = CallSnapshot::new(id, tool, &written, at);
            self.calls.insert(id.clone(), snapshot);
        }
    }
}

fn push_usage(usage: Usage, out: &mut ProjectedEvents) {
    let (input_tokens, output_tokens) = (usage.input_tokens, usage.output_tokens);
    let total_tokens = input_tokens.saturating_add(output_tokens);
    let event = ChannelEvent::TokenUsage { input_tokens, output_tokens, total_tokens };
    out.push(Channel::Monitor, event);
}

fn push_end(
    stage: Stage,
    task: Option<&TaskId>,
    state: &'static str,
    text: String,
    out: &mut ProjectedEvents,
) {
    let task_id = task.cloned();
    out.push(Channel::Progress, ChannelEvent::StageEnd { stage, task_id, state, text });
}

fn end_states(outcome: &Outcome) -> (&'static str, &'static str) {
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
