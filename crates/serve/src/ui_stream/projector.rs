//! Records as chunks of the UI message stream. Unknown chunk types are fatal for the client, so other facts are `data-*`.

use std::{collections::BTreeSet, fmt::Write as _, sync::Arc};

use budao_core::{
    Fault, Kind, Lang, Record,
    activity::{Activity, ActivityFold, ControlRequest, QuestionDetails, StageEnd},
    event::{CommandId, Decision, Seq, SessionId, Settings, Stage, StopReason, TurnNumber},
    fault::{Operation, text},
    message::{Block, CallId, Usage, text_of},
    session::Session,
    spending::RAISE_CAP,
    tool::Outcome,
};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::{
    connection::Connection,
    front_end::{EventSink, Notices, Prelude, Projection, TurnCalls, WORKER},
    texts::translate,
};

/// The version of the stream: version 6 of the SDK cannot take text back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UiVersion {
    V6,
    V7,
}

/// The open part of the message.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OpenPart {
    /// `text` or `reasoning`.
    kind: &'static str,
    id: String,
}

/// Projects the records of one session to chunks.
#[derive(Clone, Debug)]
pub(crate) struct UiProjector {
    version: UiVersion,
    /// The message whose turn is shown; all turns if absent.
    only: Option<CommandId>,
    activity: ActivityFold,
    notices: Notices,
    /// The names of the tools that the front end runs.
    front_end_tools: BTreeSet<String>,
    turn: TurnNumber,
    message: Option<CommandId>,
    /// Whether a `start` has no `finish` yet.
    is_active: bool,
    /// Whether the turn waits for the front end.
    is_paused: bool,
    step: u32,
    attempt: u32,
    has_open_step: bool,
    part: Option<OpenPart>,
    /// Counts the parts of an attempt.
    part_count: u32,
    has_thoughts: bool,
    calls: TurnCalls,
    /// Questions about something other than a call.
    plan_questions: BTreeSet<CallId>,
}

impl UiProjector {
    /// Begins after `cursor`. `state` is the fold of the records up to it, and no turn runs there.
    pub(crate) fn new(version: UiVersion, state: &Session, cursor: Seq, language: Lang) -> Self {
        let mut projector = Self {
            version,
            only: None,
            activity: ActivityFold::default(),
            notices: Notices::new(state, cursor, language),
            front_end_tools: BTreeSet::new(),
            turn: state.turns,
            message: None,
            is_active: false,
            is_paused: false,
            step: 0,
            attempt: 1,
            has_open_step: false,
            part: None,
            part_count: 0,
            has_thoughts: false,
            calls: TurnCalls::default(),
            plan_questions: BTreeSet::new(),
        };
        projector.set_tools(&state.settings);
        projector
    }

    /// Shows only the turn of this message.
    #[must_use]
    pub(crate) fn showing_only(mut self, message: Option<CommandId>) -> Self {
        self.only = message;
        self
    }

    fn set_tools(&mut self, settings: &Settings) {
        let offers = settings.offers.iter().filter(|offer| offer.worker == WORKER);
        self.front_end_tools =
            offers.flat_map(|offer| &offer.tools).map(|tool| tool.name.clone()).collect();
    }

    fn push_chunk(sink: &mut EventSink, chunk: &Value) {
        sink.push(chunk.to_string());
    }

    fn is_shown(&self) -> bool {
        self.only.is_none() || self.only == self.message
    }

    fn begin_message(&mut self, sink: &mut EventSink) {
        if self.is_active {
            return;
        }
        (self.is_active, self.is_paused) = (true, false);
        let id = format!("turn-{}", self.turn);
        Self::push_chunk(sink, &json!({ "type": "start", "messageId": id }));
        if self.step > 0 {
            self.open_step(sink);
        }
    }

    fn open_step(&mut self, sink: &mut EventSink) {
        self.has_open_step = true;
        Self::push_chunk(sink, &json!({ "type": "start-step" }));
    }

    fn close_part(&mut self, sink: &mut EventSink) {
        if let Some(part) = self.part.take() {
            let kind = format!("{}-end", part.kind);
            Self::push_chunk(sink, &json!({ "type": kind, "id": part.id }));
        }
    }

    fn close_step(&mut self, sink: &mut EventSink) {
        self.close_part(sink);
        if std::mem::take(&mut self.has_open_step) {
            Self::push_chunk(sink, &json!({ "type": "finish-step" }));
        }
    }

    fn push_delta(&mut self, kind: &'static str, text: &str, sink: &mut EventSink) {
        if text.is_empty() {
            return;
        }
        if self.part.as_ref().is_none_or(|part| part.kind != kind) {
            self.close_part(sink);
            self.part_count += 1;
            let id = format!("{}.{}.{}", self.step, self.attempt, self.part_count);
            Self::push_chunk(sink, &json!({ "type": format!("{kind}-start"), "id": id }));
            self.part = Some(OpenPart { kind, id });
        }
        let id = self.part.as_ref().map_or("", |part| &part.id);
        sink.push(delta_chunk(kind, id, text));
    }

    fn project_answer(&mut self, blocks: &[Block], is_streamed: bool, sink: &mut EventSink) {
        if !self.has_thoughts {
            for block in blocks {
                if let Block::Thinking { text, .. } = block {
                    self.push_delta("reasoning", text, sink);
                }
            }
        }
        if !is_streamed {
            self.push_delta("text", &text_of(blocks), sink);
        }
        self.close_part(sink);
        for block in blocks {
            let Block::ToolUse(call) = block else { continue };
            let input = serde_json::from_str(&call.arguments)
                .unwrap_or_else(|_| Value::from(call.arguments.as_str()));
            self.add_call(&call.id, &call.name, input, sink);
        }
    }

    fn add_call(&mut self, call: &CallId, tool: &str, input: Value, sink: &mut EventSink) {
        let mut start = json!({
            "type": "tool-input-start", "toolCallId": call, "toolName": tool, "dynamic": true,
        });
        // The client runs a tool that it does not take for the server's.
        if !self.front_end_tools.contains(tool) {
            start["providerExecuted"] = true.into();
        }
        let mut available = start.clone();
        available["type"] = "tool-input-available".into();
        available["input"] = input;
        Self::push_chunk(sink, &start);
        Self::push_chunk(sink, &available);
    }

    fn project_call_end(&mut self, call: &CallId, outcome: &Outcome, sink: &mut EventSink) {
        let chunk = match outcome {
            Outcome::Done(output) => {
                json!({ "type": "tool-output-available", "toolCallId": call, "output": output.data })
            }
            Outcome::Failed(failure) if failure.fault.kind() == Kind::DeniedByPerson => {
                json!({ "type": "tool-output-denied", "toolCallId": call })
            }
            Outcome::Failed(failure) => {
                let error = self.error_text(&failure.fault);
                json!({ "type": "tool-output-error", "toolCallId": call, "errorText": error })
            }
        };
        Self::push_chunk(sink, &chunk);
    }

    fn error_text(&self, fault: &Fault) -> String {
        let text = text::user_text(fault, self.notices.language());
        format!("{text} ({})", fault.kind().row().code)
    }

    fn project_question(&mut self, asked: &QuestionDetails<'_>, sink: &mut EventSink) {
        if !self.calls.has(asked.call) {
            // A plan has no call of the model, and the client wants one.
            self.plan_questions.insert(asked.call.clone());
            self.add_call(asked.call, asked.tool, asked.arguments.clone(), sink);
        }
        let request = json!({
            "type": "tool-approval-request", "approvalId": asked.question, "toolCallId": asked.call,
        });
        Self::push_chunk(sink, &request);
    }

    fn project_question_end(
        &mut self,
        question: &str,
        call: &CallId,
        approved: bool,
        note: Option<&str>,
        sink: &mut EventSink,
    ) {
        if self.version == UiVersion::V7 {
            let mut response = json!({
                "type": "tool-approval-response", "approvalId": question, "approved": approved,
            });
            if let Some(note) = note {
                response["reason"] = note.into();
            }
            Self::push_chunk(sink, &response);
        }
        if self.plan_questions.remove(call) {
            let chunk = match approved {
                true => {
                    json!({ "type": "tool-output-available", "toolCallId": call, "output": {} })
                }
                false => json!({ "type": "tool-output-denied", "toolCallId": call }),
            };
            Self::push_chunk(sink, &chunk);
        }
    }

    fn project_abandonment(&mut self, sink: &mut EventSink) {
        if self.part_count == 0 {
            return;
        }
        match self.version {
            UiVersion::V7 => {
                self.part = None;
                Self::push_chunk(sink, &json!({ "type": "reset-step" }));
            }
            UiVersion::V6 => {
                self.close_part(sink);
                let data = json!({ "step": self.step, "attempt": self.attempt });
                Self::push_chunk(sink, &json!({ "type": "data-budao-abandoned", "data": data }));
            }
        }
        self.part_count = 0;
    }

    fn finish_message(&mut self, reason: &str, metadata: Option<Value>, sink: &mut EventSink) {
        self.is_active = false;
        let mut finish = json!({ "type": "finish", "finishReason": reason });
        if let Some(metadata) = metadata {
            finish["messageMetadata"] = metadata;
        }
        sink.push_end(finish.to_string());
    }

    fn pause_message(&mut self, sink: &mut EventSink) {
        if !self.is_active || self.calls.pause().is_none() {
            return;
        }
        self.close_step(sink);
        self.is_paused = true;
        self.finish_message("tool-calls", None, sink);
    }

    fn project_turn_end(
        &mut self,
        stop: StopReason,
        fault: Option<&Fault>,
        usage: Usage,
        sink: &mut EventSink,
    ) {
        self.begin_message(sink);
        self.close_step(sink);
        let reason = match (stop, self.version) {
            (StopReason::EndTurn, _) => "stop",
            (StopReason::MaxTokens, _) => "length",
            (StopReason::Refusal, _) => "content-filter",
            (StopReason::MaxTurnRequests, _) | (StopReason::Cancelled, UiVersion::V6) => "other",
            (StopReason::Cancelled, UiVersion::V7) => "interrupted",
            (StopReason::Failed, _) => "error",
        };
        let bug = Fault::new(Kind::Bug, Operation::RunTurn);
        let fault = fault.unwrap_or(&bug);
        let mut metadata = json!({ "stop": stop, "usage": {
            "inputTokens": usage.input_tokens, "outputTokens": usage.output_tokens,
        } });
        match stop {
            StopReason::Cancelled => Self::push_chunk(sink, &json!({ "type": "abort" })),
            StopReason::Failed => {
                metadata["code"] = fault.kind().row().code.into();
                let error = self.error_text(fault);
                Self::push_chunk(sink, &json!({ "type": "error", "errorText": error }));
            }
            _ => {}
        }
        self.finish_message(reason, Some(metadata), sink);
        (self.step, self.is_paused) = (0, false);
    }

    /// Facts that begin or end something; `true` if this was one.
    fn project_boundary(
        &mut self,
        record: &Record,
        activity: &Activity<'_>,
        sink: &mut EventSink,
    ) -> bool {
        match *activity {
            Activity::SettingsChanged { settings } => self.set_tools(settings),
            Activity::TurnStarted { message } => {
                self.turn = record.turn;
                self.message = Some(message.clone());
                (self.step, self.attempt, self.part_count) = (0, 1, 0);
                self.has_thoughts = false;
                if self.is_shown() {
                    self.begin_message(sink);
                }
            }
            Activity::TurnEnded { stop, fault, usage, .. } => {
                if self.is_shown() {
                    self.project_turn_end(stop, fault, usage, sink);
                }
            }
            Activity::ControlRequested { request: ControlRequest::Withdraw(command), .. }
                if self.only.as_ref() == Some(command) =>
            {
                Self::push_chunk(sink, &json!({ "type": "abort" }));
                self.finish_message("other", None, sink);
            }
            _ => return false,
        }
        true
    }

    fn project_turn_activity(
        &mut self,
        activity: &Activity<'_>,
        is_streamed: bool,
        sink: &mut EventSink,
    ) {
        match *activity {
            Activity::StepStarted { step, attempt, .. } => {
                self.begin_message(sink);
                if step != self.step {
                    self.close_step(sink);
                    self.step = step;
                    self.open_step(sink);
                }
                (self.attempt, self.part_count, self.has_thoughts) = (attempt, 0, false);
            }
            Activity::Text { text, .. } => self.push_delta("text", text, sink),
            Activity::Thought { text, .. } => {
                self.has_thoughts = true;
                self.push_delta("reasoning", text, sink);
            }
            Activity::AnswerAbandoned { .. } => self.project_abandonment(sink),
            Activity::Answered { content, .. } => self.project_answer(content, is_streamed, sink),
            Activity::QuestionAsked(asked) => {
                self.begin_message(sink);
                self.project_question(&asked, sink);
            }
            Activity::QuestionClosed { question, call, answer } => {
                self.begin_message(sink);
                let approved = answer.is_some_and(|answer| answer.decision == Decision::Allow);
                let note = answer.and_then(|answer| answer.note);
                self.project_question_end(&question.0, call, approved, note, sink);
            }
            // The end of its question ends the part of a raised cap.
            Activity::CallEnded { call, tool, outcome, .. } if tool != RAISE_CAP => {
                self.begin_message(sink);
                self.project_call_end(call, outcome, sink);
            }
            Activity::TodosChanged { todos } => {
                self.begin_message(sink);
                let chunk = json!({ "type": "data-budao-todos", "id": "todos", "data": todos });
                Self::push_chunk(sink, &chunk);
            }
            Activity::StageEnded {
                stage: Stage::Aggregation,
                end: StageEnd::Completed(text),
                ..
            } => {
                self.begin_message(sink);
                self.push_delta("text", text, sink);
                self.close_part(sink);
            }
            _ => {}
        }
    }

    /// The previous turn waits for a person, so the turn of this stream cannot begin.
    fn push_blocked(&mut self, sink: &mut EventSink) {
        if !self.is_paused && self.calls.pause().is_some() {
            self.is_paused = true;
            let error = translate("front-end-question-open", self.notices.language());
            Self::push_chunk(sink, &json!({ "type": "error", "errorText": error }));
            self.finish_message("error", None, sink);
        }
    }
}

impl Projection for UiProjector {
    fn project(&mut self, record: &Record, sink: &mut EventSink) {
        let is_streamed = self.activity.turn().is_some_and(|turn| turn.is_streamed);
        let activity = self.activity.apply(&record.event, record.at, record.turn);
        let notice = self.notices.apply(record, activity);
        let Some(activity) = activity else { return };
        let has_turn = self.activity.turn().is_some();
        if self.project_boundary(record, &activity, sink) || !has_turn {
            self.calls.apply(&activity);
            return;
        }
        if !self.is_shown() {
            self.calls.apply(&activity);
            return self.push_blocked(sink);
        }
        self.project_turn_activity(&activity, is_streamed, sink);
        self.calls.apply(&activity);
        if let (Some(value), true) = (notice, self.is_active) {
            let chunk = json!({ "type": "data-budao-event", "transient": true, "data": value });
            Self::push_chunk(sink, &chunk);
        }
        self.pause_message(sink);
    }

    fn fail(&mut self, fault: &Fault, sink: &mut EventSink) {
        self.close_step(sink);
        let error = self.error_text(fault);
        Self::push_chunk(sink, &json!({ "type": "error", "errorText": error }));
        self.finish_message("error", None, sink);
    }

    fn prelude(&mut self, _: Prelude, _: &mut EventSink) {}

    fn snapshot(
        &self,
        _: Arc<Connection>,
        _: SessionId,
        _: Seq,
    ) -> BoxFuture<'static, Result<Vec<String>, Fault>> {
        // This protocol has no such chunk.
        Box::pin(async { Err(Fault::new(Kind::Bug, Operation::ServeRequest)) })
    }

    fn trailer(&self) -> &'static str {
        "data: [DONE]\n\n"
    }
}

/// A delta chunk. Deltas are most of the chunks, so they are written without a JSON tree.
fn delta_chunk(kind: &str, id: &str, delta: &str) -> String {
    let mut chunk = String::with_capacity(delta.len() + id.len() + 48);
    let _ = write!(chunk, r#"{{"type":"{kind}-delta","id":"{id}","delta":"#);
    chunk.push_str(&serde_json::to_string(delta).expect("a string always serialises"));
    chunk.push('}');
    chunk
}
