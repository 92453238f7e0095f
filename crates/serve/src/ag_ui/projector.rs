//! Records as AG-UI events.
//!
//! A run is a stretch of a turn between pauses: `RUN_STARTED`, events, and `RUN_FINISHED` or `RUN_ERROR`. The verifier of
//! the AG-UI client accepts no event outside a run, and wants everything closed at its end.

mod interrupts;
mod upstream;

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc};

use budao_core::{
    Fault, Kind, Lang, Record,
    activity::{Activity, ActivityFold, ControlRequest, StageEnd},
    event::{CommandId, Seq, SessionId, Stage, StopReason, TurnNumber},
    fault::{Operation, text},
    message::{Block, CallId, Usage, text_of},
    session::Session,
    spending::RAISE_CAP,
    tool::{Outcome, Todo},
};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::conversation;
use crate::{
    connection::Connection,
    front_end::{EventSink, Notices, PagedReader, Prelude, Projection, TurnCalls, run_of},
};

/// The id of the message of an attempt at a step. The first attempt has the plain one.
pub(super) fn message_id(turn: TurnNumber, step: u32, attempt: u32) -> String {
    match attempt {
        0 | 1 => format!("turn-{turn}.{step}"),
        attempt => format!("turn-{turn}.{step}.{attempt}"),
    }
}

/// The id of the message with the result of a call.
pub(super) fn result_id(call: &CallId) -> String {
    format!("{call}.result")
}

/// The id of the final answer of a pipeline.
pub(super) fn answer_id(turn: TurnNumber) -> String {
    format!("turn-{turn}.answer")
}

/// The text of a call's outcome, and the code of its fault.
pub(super) fn outcome_text(outcome: &Outcome, lang: Lang) -> (String, Option<&'static str>) {
    match outcome {
        Outcome::Done(output) => match &output.data {
            Value::String(text) => (text.clone(), None),
            other => (other.to_string(), None),
        },
        Outcome::Failed(failure) => {
            (text::user_text(&failure.fault, lang), Some(failure.fault.kind().row().code))
        }
    }
}

/// Whether a run is active at the current position.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RunState {
    /// No turn runs.
    Idle,
    /// Events belong to a run.
    Active,
    /// The turn waits for the front end.
    Paused,
}

/// Projects the records of one session to AG-UI events.
#[derive(Clone, Debug)]
pub(crate) struct AgUiProjector {
    thread: String,
    /// The message after whose turn the stream ends; any turn's end does if absent.
    own_message: Option<CommandId>,
    activity: ActivityFold,
    notices: Notices,
    state: RunState,
    turn: TurnNumber,
    /// The message that the turn answers.
    message: Option<CommandId>,
    /// Counts the runs of the turn, from 1.
    run_count: u32,
    /// The id of the active run, or of the last one.
    run: String,
    /// The id that a front end gave the next run of the turn.
    next_run: Option<String>,
    step: Option<u32>,
    /// The open steps of a relayed agent, by their names.
    agent_steps: Vec<String>,
    attempt: u32,
    /// The open text message.
    text: Option<String>,
    /// The open reasoning message.
    reasoning: Option<String>,
    /// Reasoning messages of the attempt.
    reasoning_count: u32,
    calls: TurnCalls,
    /// Results that a front end sent: it has a message of its own for each.
    sent_results: BTreeSet<CallId>,
    /// Whether the next run begins with the conversation so far.
    must_send_snapshot: bool,
    /// The event that ended the last turn, for a client that joins after it.
    last_end: Option<String>,
}

impl AgUiProjector {
    /// Begins after `cursor`. `state` is the fold of the records up to it, and no turn runs there.
    pub(crate) fn new(thread: &str, state: &Session, cursor: Seq, language: Lang) -> Self {
        Self {
            thread: thread.to_owned(),
            own_message: None,
            activity: ActivityFold::default(),
            notices: Notices::new(state, cursor, language),
            state: RunState::Idle,
            turn: state.turns,
            message: None,
            run_count: 0,
            run: format!("turn-{}", state.turns),
            next_run: None,
            step: None,
            agent_steps: Vec::new(),
            attempt: 1,
            text: None,
            reasoning: None,
            reasoning_count: 0,
            calls: TurnCalls::default(),
            sent_results: BTreeSet::new(),
            must_send_snapshot: false,
            last_end: None,
        }
    }

    /// Whether the turn waits for the front end alone.
    pub(crate) fn is_paused(&self) -> bool {
        self.state == RunState::Paused
    }

    /// Ends the stream with the turn of this message.
    #[must_use]
    pub(crate) fn ending_with(mut self, own_message: Option<CommandId>) -> Self {
        self.own_message = own_message;
        self
    }

    /// Sends the conversation so far at the start of the next run.
    #[must_use]
    pub(crate) fn with_snapshot(mut self, snapshot: bool) -> Self {
        self.must_send_snapshot = snapshot;
        self
    }

    fn push_event(sink: &mut EventSink, event: &Value) {
        sink.push(event.to_string());
    }

    fn next_run_id(&mut self) -> String {
        if let Some(run) = self.next_run.take() {
            return run;
        }
        let turn = self.turn;
        let named = self.message.as_ref().filter(|command| !command.is_own());
        let run =
            named.map_or_else(|| format!("turn-{turn}"), |command| run_of(command).to_owned());
        match self.run_count {
            0 | 1 => run,
            stretch => format!("{run}.{stretch}"),
        }
    }

    /// Begins a run, if none is active.
    fn begin_run(&mut self, sink: &mut EventSink) {
        if self.state == RunState::Active {
            return;
        }
        self.state = RunState::Active;
        self.run_count += 1;
        self.run = self.next_run_id();
        let (thread, run) = (&self.thread, &self.run);
        Self::push_event(sink, &json!({ "type": "RUN_STARTED", "threadId": thread, "runId": run }));
        if std::mem::take(&mut self.must_send_snapshot) {
            sink.push_snapshot();
        }
    }

    fn close_text(&mut self, sink: &mut EventSink) {
        if let Some(id) = self.text.take() {
            Self::push_event(sink, &json!({ "type": "TEXT_MESSAGE_END", "messageId": id }));
        }
    }

    fn close_reasoning(&mut self, sink: &mut EventSink) {
        if let Some(id) = self.reasoning.take() {
            Self::push_event(sink, &json!({ "type": "REASONING_MESSAGE_END", "messageId": id }));
            Self::push_event(sink, &json!({ "type": "REASONING_END", "messageId": id }));
        }
    }

    fn close_step(&mut self, sink: &mut EventSink) {
        if let Some(step) = self.step.take() {
            let name = format!("step-{step}");
            Self::push_event(sink, &json!({ "type": "STEP_FINISHED", "stepName": name }));
        }
    }

    fn close_all(&mut self, sink: &mut EventSink) {
        self.close_reasoning(sink);
        self.close_text(sink);
        self.close_step(sink);
        self.close_agent_steps(sink);
    }

    fn open_text(&mut self, id: String, sink: &mut EventSink) {
        let start = json!({ "type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant" });
        Self::push_event(sink, &start);
        self.text = Some(id);
    }

    fn open_reasoning(&mut self, id: String, sink: &mut EventSink) {
        Self::push_event(sink, &json!({ "type": "REASONING_START", "messageId": id }));
        let start =
            json!({ "type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning" });
        Self::push_event(sink, &start);
        self.reasoning = Some(id);
    }

    fn add_text(&mut self, step: u32, text: &str, sink: &mut EventSink) {
        if text.is_empty() {
            return;
        }
        self.close_reasoning(sink);
        if self.text.is_none() {
            self.open_text(message_id(self.turn, step, self.attempt), sink);
        }
        let id = self.text.as_deref().unwrap_or_default();
        sink.push(delta_event("TEXT_MESSAGE_CONTENT", id, text));
    }

    fn add_thought(&mut self, step: u32, text: &str, sink: &mut EventSink) {
        if text.is_empty() {
            return;
        }
        if self.reasoning.is_none() {
            self.reasoning_count += 1;
            let message = message_id(self.turn, step, self.attempt);
            self.open_reasoning(format!("{message}.thought-{}", self.reasoning_count), sink);
        }
        let id = self.reasoning.as_deref().unwrap_or_default();
        sink.push(delta_event("REASONING_MESSAGE_CONTENT", id, text));
    }

    fn project_answer(
        &mut self,
        step: u32,
        blocks: &[Block],
        is_streamed: bool,
        sink: &mut EventSink,
    ) {
        if self.reasoning_count == 0 {
            for block in blocks {
                if let Block::Thinking { text, .. } = block {
                    self.add_thought(step, text, sink);
                }
            }
        }
        if !is_streamed {
            self.add_text(step, &text_of(blocks), sink);
        }
        self.close_reasoning(sink);
        self.close_text(sink);
        let parent = message_id(self.turn, step, self.attempt);
        for block in blocks {
            let Block::ToolUse(call) = block else { continue };
            let id = &call.id;
            let start = json!({
                "type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": call.name,
                "parentMessageId": parent,
            });
            Self::push_event(sink, &start);
            if !call.arguments.is_empty() {
                let args =
                    json!({ "type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": call.arguments });
                Self::push_event(sink, &args);
            }
            Self::push_event(sink, &json!({ "type": "TOOL_CALL_END", "toolCallId": id }));
        }
    }

    fn project_call_end(&mut self, call: &CallId, outcome: &Outcome, sink: &mut EventSink) {
        let (content, code) = outcome_text(outcome, self.notices.language());
        let mut event = json!({
            "type": "TOOL_CALL_RESULT", "messageId": result_id(call), "toolCallId": call,
            "content": content, "role": "tool",
        });
        if let Some(code) = code {
            event["metadata"] = json!({ "error": code });
        }
        Self::push_event(sink, &event);
    }

    /// Sends the final text of a pipeline as a message.
    fn push_final_text(&mut self, text: &str, sink: &mut EventSink) {
        self.close_text(sink);
        if !text.is_empty() {
            self.open_text(answer_id(self.turn), sink);
            let id = self.text.as_deref().unwrap_or_default();
            sink.push(delta_event("TEXT_MESSAGE_CONTENT", id, text));
            self.close_text(sink);
        }
    }

    fn push_todos(sink: &mut EventSink, todos: &[Todo]) {
        let delta = json!([{ "op": "add", "path": "/todos", "value": todos }]);
        Self::push_event(sink, &json!({ "type": "STATE_DELTA", "delta": delta }));
    }

    /// Ends the run if the turn waits for the front end alone.
    fn pause(&mut self, sink: &mut EventSink) {
        let Some(pause) = self.calls.pause() else { return };
        let outcome = self.pause_outcome(&pause);
        self.close_all(sink);
        self.state = RunState::Paused;
        let finished = json!({
            "type": "RUN_FINISHED", "threadId": self.thread, "runId": self.run, "outcome": outcome,
        });
        sink.push_end(finished.to_string());
    }

    fn project_turn_end(
        &mut self,
        stop: StopReason,
        fault: Option<&Fault>,
        usage: Usage,
        sink: &mut EventSink,
    ) {
        self.begin_run(sink);
        self.close_all(sink);
        let usage = usage_json(usage);
        let event = match stop {
            StopReason::Failed => {
                let bug = Fault::new(Kind::Bug, Operation::RunTurn);
                let mut event = self.error_event(fault.unwrap_or(&bug));
                event["usage"] = usage;
                event
            }
            stop => {
                let outcome = match stop {
                    StopReason::Cancelled => json!({ "type": "cancelled" }),
                    _ => json!({ "type": "success" }),
                };
                json!({
                    "type": "RUN_FINISHED", "threadId": self.thread, "runId": self.run,
                    "outcome": outcome, "result": { "stop": stop }, "usage": usage,
                })
            }
        };
        let is_end = self.own_message.is_none() || self.own_message == self.message;
        self.state = RunState::Idle;
        let event = event.to_string();
        self.last_end = Some(event.clone());
        match is_end {
            true => sink.push_end(event),
            false => sink.push(event),
        }
    }

    fn error_event(&self, fault: &Fault) -> Value {
        let message = text::user_text(fault, self.notices.language());
        json!({ "type": "RUN_ERROR", "message": message, "code": fault.kind().row().code })
    }

    /// Projects facts at the boundary of a turn or a run. Returns true if the record needs no further projection.
    fn project_boundary(
        &mut self,
        record: &Record,
        activity: &Activity<'_>,
        sink: &mut EventSink,
    ) -> bool {
        match *activity {
            Activity::TurnStarted { message } => {
                self.turn = record.turn;
                self.message = Some(message.clone());
                (self.run_count, self.attempt, self.reasoning_count) = (0, 1, 0);
                self.next_run = None;
                self.sent_results.clear();
                self.begin_run(sink);
            }
            Activity::TurnEnded { stop, fault, usage, .. } => {
                self.project_turn_end(stop, fault, usage, sink);
            }
            Activity::Annotated { topic, data } => self.project_annotation(topic, data, sink),
            Activity::ControlRequested { request: ControlRequest::Withdraw(command), .. }
                if self.own_message.as_ref() == Some(command) =>
            {
                self.project_withdrawal(sink);
            }
            _ => return false,
        }
        true
    }

    /// Another client withdrew the message of this run before its turn.
    fn project_withdrawal(&mut self, sink: &mut EventSink) {
        let run = self.own_message.as_ref().map(|command| run_of(command).to_owned());
        if self.state == RunState::Active {
            self.close_all(sink);
            let finished = json!({
                "type": "RUN_FINISHED", "threadId": self.thread, "runId": self.run,
            });
            Self::push_event(sink, &finished);
        }
        let (thread, run) = (&self.thread, run.unwrap_or_default());
        Self::push_event(sink, &json!({ "type": "RUN_STARTED", "threadId": thread, "runId": run }));
        let finished = json!({
            "type": "RUN_FINISHED", "threadId": thread, "runId": run,
            "outcome": { "type": "cancelled" },
        });
        sink.push_end(finished.to_string());
    }

    /// Events of facts inside a turn.
    fn project_turn_activity(
        &mut self,
        activity: &Activity<'_>,
        is_streamed: bool,
        notice: Option<Value>,
        sink: &mut EventSink,
    ) {
        match *activity {
            Activity::StepStarted { step, attempt, .. } => {
                self.begin_run(sink);
                (self.attempt, self.reasoning_count) = (attempt, 0);
                if self.step != Some(step) {
                    self.close_step(sink);
                    self.step = Some(step);
                    let name = format!("step-{step}");
                    self.close_agent_step(&name, sink);
                    Self::push_event(sink, &json!({ "type": "STEP_STARTED", "stepName": name }));
                }
            }
            Activity::Text { step, text } => self.add_text(step, text, sink),
            Activity::Thought { step, text } => self.add_thought(step, text, sink),
            Activity::AnswerAbandoned { .. } => {
                let was_shown = self.text.is_some() || self.reasoning_count > 0;
                self.close_reasoning(sink);
                self.close_text(sink);
                self.reasoning_count = 0;
                if was_shown {
                    sink.push_snapshot();
                }
            }
            Activity::Answered { step, content, .. } => {
                self.project_answer(step, content, is_streamed, sink);
            }
            Activity::QuestionClosed { .. } => self.begin_run(sink),
            Activity::CallEnded { call, tool, outcome, .. } if tool != RAISE_CAP => {
                // A snapshot that begins the run has the result.
                let is_in_snapshot = self.must_send_snapshot && self.state != RunState::Active;
                self.begin_run(sink);
                // The AG-UI client adds a message for each result, even if it has one for the call.
                if !self.sent_results.remove(call) && !is_in_snapshot {
                    self.project_call_end(call, outcome, sink);
                }
            }
            Activity::TodosChanged { todos } => {
                self.begin_run(sink);
                Self::push_todos(sink, todos);
            }
            Activity::StageEnded {
                stage: Stage::Aggregation,
                end: StageEnd::Completed(text),
                ..
            } => {
                self.begin_run(sink);
                self.push_final_text(text, sink);
            }
            _ => {}
        }
        if let Some(value) = notice
            && self.state == RunState::Active
        {
            let name = format!("budao.{}", value["event"].as_str().unwrap_or("notice"));
            Self::push_event(sink, &json!({ "type": "CUSTOM", "name": name, "value": value }));
        }
    }

    /// The event that ended the last run. A thread without a turn has none, and is as after a success.
    fn last_run_end(&self) -> String {
        let outcome = match (self.calls.pause(), &self.last_end) {
            (Some(pause), _) => self.pause_outcome(&pause),
            (None, Some(end)) => return end.clone(),
            (None, None) => json!({ "type": "success" }),
        };
        let finished = json!({
            "type": "RUN_FINISHED", "threadId": self.thread, "runId": self.run, "outcome": outcome,
        });
        finished.to_string()
    }

    /// Sends the start events of the open step, text and reasoning again, for a client that joins here.
    fn reopen_parts(&mut self, sink: &mut EventSink) {
        let own = self.step.map(|step| format!("step-{step}"));
        for name in own.iter().chain(&self.agent_steps) {
            Self::push_event(sink, &json!({ "type": "STEP_STARTED", "stepName": name }));
        }
        if let Some(id) = self.text.take() {
            self.open_text(id, sink);
        }
        if let Some(id) = self.reasoning.take() {
            self.open_reasoning(id, sink);
        }
    }
}

impl Projection for AgUiProjector {
    fn project(&mut self, record: &Record, sink: &mut EventSink) {
        let is_streamed = self.activity.turn().is_some_and(|turn| turn.is_streamed);
        let activity = self.activity.apply(&record.event, record.at, record.turn);
        let notice = self.notices.apply(record, activity);
        let Some(activity) = activity else { return };
        self.calls.apply(&activity);
        let has_turn = self.activity.turn().is_some();
        if self.project_boundary(record, &activity, sink) || !has_turn {
            return;
        }
        self.project_turn_activity(&activity, is_streamed, notice, sink);
        if self.state == RunState::Active {
            self.pause(sink);
        }
    }

    fn fail(&mut self, fault: &Fault, sink: &mut EventSink) {
        sink.push_end(self.error_event(fault).to_string());
    }

    fn prelude(&mut self, prelude: Prelude, sink: &mut EventSink) {
        let run = self.run.clone();
        let started = json!({ "type": "RUN_STARTED", "threadId": self.thread, "runId": run });
        match (&self.state, prelude) {
            (_, Prelude::Nothing) | (RunState::Idle | RunState::Paused, Prelude::IfActive) => {}
            (RunState::Active, _) => {
                Self::push_event(sink, &started);
                sink.push_snapshot();
                self.reopen_parts(sink);
            }
            (RunState::Idle | RunState::Paused, Prelude::Always) => {
                Self::push_event(sink, &started);
                sink.push_snapshot();
                sink.push_end(self.last_run_end());
            }
        }
    }

    fn snapshot(
        &self,
        connection: Arc<Connection>,
        session: SessionId,
        until: Seq,
    ) -> BoxFuture<'static, Result<Vec<String>, Fault>> {
        let lang = self.notices.language();
        Box::pin(async move {
            let reader = PagedReader { server: &connection.server, permit: &connection.permit };
            conversation::read(&reader, session, until, lang).await
        })
    }
}

/// A delta event. Deltas are most of the events, so they are written without a JSON tree.
fn delta_event(kind: &str, id: &str, delta: &str) -> String {
    let mut event = String::with_capacity(delta.len() + id.len() + 72);
    let _ = write!(event, r#"{{"type":"{kind}","messageId":{},"delta":"#, json_string(id));
    event.push_str(&json_string(delta));
    event.push('}');
    event
}

fn json_string(text: &str) -> String {
    serde_json::to_string(text).expect("a string always serialises")
}

fn usage_json(usage: Usage) -> Value {
    let total = usage.input_tokens.saturating_add(usage.output_tokens);
    json!([{
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "totalTokens": total,
        "cachedInputTokens": usage.cached_tokens,
        "cacheWriteInputTokens": usage.cache_write_tokens,
        "reasoningTokens": usage.reasoning_tokens,
    }])
}
