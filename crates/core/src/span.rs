//! Spans for a trace collector: finished operations, each below the operation that caused it.
//!
//! [`SpanBuilder`] derives a session's spans from its durable records. A turn that a crash interrupted and another
//! process finished is therefore one span, from its first record to its last. It reads events and not the facts of
//! [`activity`](crate::activity), which people are shown: a span needs traces, ids and attempts.

mod content;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use content::SpanContent;
use content::TurnMessages;

use crate::{
    event::{
        CallStart, CommandId, Compaction, Event, Scope, SessionId, Settings, StopReason, TurnNumber,
    },
    fault::{Fault, Kind},
    message::{CallId, ModelStop, ResponseInfo, Usage},
    session::{CallState, Session},
    time::Timestamp,
    tool::Outcome,
    trace::{SpanId, Trace},
};

/// The most calls of one turn tracked as open; for further calls only the end is known.
const OPEN_CALLS: usize = 256;

/// The most waiting messages remembered as untraced.
const UNTRACED: usize = 256;

/// A finished operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The trace that the span belongs to.
    pub trace: Trace,
    /// Unique in its trace.
    pub id: SpanId,
    /// The operation that caused this one; none for a root.
    pub parent: SpanId,
    /// The session that did the work; absent outside sessions.
    pub session: Option<SessionId>,
    /// UTC time of the start.
    pub began: Timestamp,
    /// UTC time of the end.
    pub ended: Timestamp,
    /// The code of the failure, from the catalog or a protocol, or `cancelled`; absent after a success.
    pub failed: Option<Cow<'static, str>>,
    /// The operation and its attributes.
    pub about: SpanOperation,
}

/// The operation that a span describes.
#[derive(Clone, Debug, PartialEq)]
pub enum SpanOperation {
    /// A command to a session.
    Request {
        /// The snake-case name of the command.
        name: &'static str,
    },
    /// One turn of a session.
    Turn {
        /// The number of the turn, from 1.
        turn: TurnNumber,
        /// Model requests the turn made.
        steps: u32,
        /// Why the turn ended.
        stop: StopReason,
        /// Tokens the turn used.
        usage: Usage,
        /// The message and the answer, if content is wanted.
        content: Option<Box<SpanContent>>,
    },
    /// One attempt at a model request.
    Model {
        /// The model's name.
        model: String,
        /// The step of the turn, from 1.
        step: u32,
        /// The attempt, from 1.
        attempt: u32,
        /// Why the model stopped, and the tokens used; absent if it did not answer.
        answer: Option<(ModelStop, Usage)>,
        /// How the service names the answer; absent if it does not say.
        response: Option<Box<ResponseInfo>>,
        /// The most tokens that the answer may have; absent if the engine does not bound it.
        max_tokens: Option<u32>,
        /// Whether a final answer is JSON of a schema.
        has_shape: bool,
        /// When the first text or thinking arrived; absent if none did.
        first_text_at: Option<Timestamp>,
        /// The code of the failure that this attempt recovered from.
        recovered_from: Option<Cow<'static, str>>,
        /// The messages, if content is wanted.
        content: Option<Box<SpanContent>>,
    },
    /// A summary of old history.
    Compaction {
        /// The model that wrote it, and the tokens used; absent if the history was cut by rule.
        by_model: Option<(String, Usage)>,
    },
    /// One attempt at a tool call.
    Call {
        /// The tool's name.
        tool: String,
        /// The call's id in its session.
        call: CallId,
        /// The attempt, from 1.
        attempt: u32,
        /// The arguments and the result, if content is wanted.
        content: Option<Box<SpanContent>>,
    },
    /// A call of a tool on another computer, measured by the caller.
    RemoteCall {
        /// The name of the called computer.
        computer: String,
        /// The tool's name.
        tool: String,
    },
    /// A request that a server relayed between two peers.
    Relay {
        /// The protocol's name of the request.
        event: &'static str,
        /// The name of the target computer.
        computer: String,
        /// The tool's name; empty if the request concerns no tool.
        tool: String,
    },
    /// A tool call served for a remote caller.
    ServedCall {
        /// The tool's name.
        tool: String,
    },
}

/// The code that identifies a fault in metrics and traces.
#[must_use]
pub fn code_of(fault: &Fault) -> Cow<'static, str> {
    Cow::Borrowed(fault.row().code)
}

/// Builds spans from the records of one session.
#[derive(Debug)]
pub struct SpanBuilder {
    session: SessionId,
    turn: Option<OpenTurn>,
    /// Waiting messages without a trace; the spans of their turns are roots.
    untraced: Vec<CommandId>,
    /// The message that the next turn answers; kept only if content is wanted.
    question: Option<Vec<crate::message::Block>>,
    has_content: bool,
    request: RequestBounds,
}

/// What the session's settings say of each model request.
#[derive(Clone, Copy, Debug)]
struct RequestBounds {
    max_tokens: Option<u32>,
    has_shape: bool,
}

impl RequestBounds {
    fn of(settings: &Settings) -> Self {
        let max_tokens = (!settings.is_foreign()).then(|| settings.answer_tokens());
        Self { max_tokens, has_shape: settings.answer_schema.is_some() }
    }
}

#[derive(Debug)]
struct OpenTurn {
    trace: Trace,
    number: TurnNumber,
    began: Timestamp,
    parent: SpanId,
    step: Option<OpenStep>,
    calls: Vec<OpenCall>,
    /// The start of a summary, and the model that is asked for it.
    compacting: Option<(Timestamp, String)>,
    /// The model of the last step that is known.
    model: String,
    /// Absent unless content is wanted.
    messages: Option<TurnMessages>,
}

#[derive(Debug)]
struct OpenStep {
    model: String,
    request: RequestBounds,
    step: u32,
    attempt: u32,
    began: Timestamp,
    first_text_at: Option<Timestamp>,
    recovered_from: Option<Cow<'static, str>>,
    response: Option<Box<ResponseInfo>>,
}

#[derive(Debug)]
struct OpenCall {
    call: CallId,
    tool: String,
    attempt: u32,
    began: Timestamp,
    /// Absent unless content is wanted.
    arguments: Option<serde_json::Value>,
}

impl SpanBuilder {
    /// Continues from the current state of the session.
    #[must_use]
    pub fn new(session: SessionId, state: &Session) -> Self {
        let turn = state.turn.as_ref().map(|turn| {
            let began = |call: &crate::session::Call| match &call.state {
                CallState::Started { attempt, at, .. } => Some(OpenCall {
                    call: call.id.clone(),
                    tool: call.tool.clone(),
                    attempt: *attempt,
                    began: *at,
                    arguments: None,
                }),
                _ => None,
            };
            let open = OpenTurn::new(session, turn.number, &turn.message, turn.trace);
            let calls = turn.calls.iter().filter_map(began).collect();
            let model = state.model().to_owned();
            OpenTurn { began: turn.started_at, calls, model, ..open }
        });
        let untraced = state.queue.iter().filter(|queued| !queued.trace.is_some());
        let untraced = untraced.map(|queued| queued.command.clone()).collect();
        let request = RequestBounds::of(&state.settings);
        Self { session, turn, untraced, question: None, has_content: false, request }
    }

    /// Adds messages, arguments and results to the spans.
    #[must_use]
    pub fn with_content(mut self, has_content: bool) -> Self {
        self.has_content = has_content;
        self
    }

    /// Processes recorded events and emits a span for each operation that they end.
    pub fn take(
        &mut self,
        at: Timestamp,
        trace: Trace,
        number: TurnNumber,
        event: &Event,
    ) -> Vec<Span> {
        match event {
            Event::MessageAccepted { command, .. }
            | Event::PipelineAccepted { command, .. }
            | Event::RetryAccepted { command, .. } => {
                if let (true, Event::MessageAccepted { content, .. }) = (self.has_content, event) {
                    self.question = Some(content.clone());
                }
                if !trace.is_some() && self.untraced.len() < UNTRACED {
                    self.untraced.push(command.clone());
                }
                return Vec::new();
            }
            Event::TurnStarted { message } => {
                self.begin(at, trace, number, message);
                return Vec::new();
            }
            Event::SettingsChanged { settings } => {
                self.request = RequestBounds::of(settings);
                return Vec::new();
            }
            _ => {}
        }
        let Some(turn) = self.turn.as_mut().filter(|turn| turn.number == number) else {
            return Vec::new();
        };
        let (session, request) = (self.session, self.request);
        let over = match event {
            Event::StepStarted { step, attempt, model } => {
                let (step, attempt, model) = (*step, *attempt, model.clone());
                turn.model.clone_from(&model);
                turn.step = Some(OpenStep {
                    model,
                    request,
                    step,
                    attempt,
                    began: at,
                    first_text_at: None,
                    recovered_from: None,
                    response: None,
                });
                None
            }
            Event::TextDelta { .. } | Event::ThinkingDelta { .. } => {
                if let Some(step) = &mut turn.step {
                    step.first_text_at.get_or_insert(at);
                }
                None
            }
            Event::Recovered { kind, scope: Scope { call: None, .. }, .. } => {
                if let Some(step) = &mut turn.step {
                    step.recovered_from = Some(Cow::Borrowed(kind.row().code));
                }
                None
            }
            Event::ModelAnswered { usage, stop, content, response, .. } => {
                if let Some(step) = &mut turn.step {
                    step.response.clone_from(response);
                }
                let content = turn.messages.as_mut().map(|it| Box::new(it.answered(content)));
                turn.answered(session, at, Ok((*stop, *usage)), content)
            }
            Event::RetryScheduled { kind, scope, .. } => {
                let code = Cow::Borrowed(kind.row().code);
                match &scope.call {
                    Some(call) => turn.called(session, at, call, Some(code), None),
                    None => turn.answered(session, at, Err(code), None),
                }
            }
            Event::CompactionStarted { .. } => {
                turn.compacting = Some((at, turn.model.clone()));
                None
            }
            Event::HistoryCompacted(compaction) => turn.compacted(session, at, compaction),
            Event::ToolCallStarted(CallStart { call, tool, attempt, arguments, .. }) => {
                turn.calls.retain(|open| open.call != *call);
                if turn.calls.len() < OPEN_CALLS {
                    let (call, tool) = (call.clone(), tool.clone());
                    let arguments = turn.messages.as_ref().map(|_| arguments.clone());
                    let attempt = *attempt;
                    turn.calls.push(OpenCall { call, tool, attempt, began: at, arguments });
                }
                None
            }
            Event::ToolCallEnded { call, tool, outcome, duration_ms } => {
                let failed = outcome.fault().map(code_of);
                let missed = || {
                    let (call, tool) = (call.clone(), tool.clone());
                    let micros = i64::try_from(*duration_ms).unwrap_or(0).saturating_mul(1_000);
                    let began = Timestamp::from_micros(at.as_micros().saturating_sub(micros));
                    let arguments = turn.messages.as_ref().and_then(|it| it.arguments(&call.0));
                    OpenCall { call, tool, attempt: 1, began, arguments }
                };
                let missed = missed();
                if let Some(messages) = &mut turn.messages {
                    messages.called(&call.0, outcome);
                }
                let known = turn.called(session, at, call, failed.clone(), Some(outcome));
                known.or_else(|| Some(turn.call_span(session, at, missed, failed, Some(outcome))))
            }
            Event::TurnEnded { stop, fault, steps, usage } => {
                let content = turn.messages.take().map(|messages| Box::new(messages.turn()));
                let (steps, stop, usage) = (*steps, *stop, *usage);
                let about = SpanOperation::Turn { turn: number, steps, stop, usage, content };
                let over =
                    self.turn.take().map(|turn| turn.ended(session, at, fault.as_ref(), about));
                return over.unwrap_or_default();
            }
            _ => None,
        };
        over.into_iter().collect()
    }
}

impl SpanBuilder {
    fn begin(&mut self, at: Timestamp, trace: Trace, number: TurnNumber, message: &CommandId) {
        let mut open = OpenTurn::new(self.session, number, message, trace);
        open.began = at;
        open.messages = self.has_content.then(TurnMessages::default);
        if let (Some(messages), Some(question)) = (&mut open.messages, self.question.take()) {
            messages.asked(&question);
        }
        if self.untraced.contains(message) {
            self.untraced.retain(|waits| waits != message);
            open.parent = SpanId::NONE;
        }
        self.turn = Some(open);
    }
}

impl OpenTurn {
    fn new(session: SessionId, number: TurnNumber, message: &CommandId, trace: Trace) -> Self {
        Self {
            trace,
            number,
            began: Timestamp::default(),
            parent: SpanId::of_request(session, message),
            step: None,
            calls: Vec::new(),
            compacting: None,
            model: String::new(),
            messages: None,
        }
    }

    fn id(&self, session: SessionId) -> SpanId {
        SpanId::of_turn(session, self.number)
    }

    /// A span below the span of this turn.
    fn span(
        &self,
        session: SessionId,
        id: SpanId,
        (began, ended): (Timestamp, Timestamp),
        failed: Option<Cow<'static, str>>,
        about: SpanOperation,
    ) -> Span {
        let (trace, parent) = (self.trace, self.id(session));
        Span { trace, id, parent, session: Some(session), began, ended, failed, about }
    }

    fn answered(
        &mut self,
        session: SessionId,
        at: Timestamp,
        answer: Result<(ModelStop, Usage), Cow<'static, str>>,
        content: Option<Box<SpanContent>>,
    ) -> Option<Span> {
        let open = self.step.take()?;
        let OpenStep { model, request, step, attempt, began, .. } = open;
        let OpenStep { first_text_at, recovered_from, response, .. } = open;
        let RequestBounds { max_tokens, has_shape } = request;
        let id = SpanId::of_step(session, self.number, step, attempt);
        let (answer, failed) = match answer {
            Ok(answer) => (Some(answer), None),
            Err(code) => (None, Some(code)),
        };
        let about = SpanOperation::Model {
            model,
            step,
            attempt,
            answer,
            response,
            max_tokens,
            has_shape,
            first_text_at,
            recovered_from,
            content,
        };
        Some(self.span(session, id, (began, at), failed, about))
    }

    fn compacted(
        &mut self,
        session: SessionId,
        at: Timestamp,
        compaction: &Compaction,
    ) -> Option<Span> {
        let (began, model) = self.compacting.take()?;
        let by_model = compaction.by_model.then_some((model, compaction.usage));
        let id = SpanId::of(&["compact", &session.to_string(), &began.to_string()]);
        Some(self.span(session, id, (began, at), None, SpanOperation::Compaction { by_model }))
    }

    fn called(
        &mut self,
        session: SessionId,
        at: Timestamp,
        call: &CallId,
        failed: Option<Cow<'static, str>>,
        outcome: Option<&Outcome>,
    ) -> Option<Span> {
        let index = self.calls.iter().position(|open| open.call == *call)?;
        let open = self.calls.swap_remove(index);
        Some(self.call_span(session, at, open, failed, outcome))
    }

    fn call_span(
        &self,
        session: SessionId,
        at: Timestamp,
        open: OpenCall,
        failed: Option<Cow<'static, str>>,
        outcome: Option<&Outcome>,
    ) -> Span {
        let OpenCall { call, tool, attempt, began, arguments } = open;
        let id = SpanId::of_call(session, self.number, &call, attempt);
        let content = arguments.map(|arguments| Box::new(content::of_call(&arguments, outcome)));
        let about = SpanOperation::Call { tool, call, attempt, content };
        self.span(session, id, (began, at), failed, about)
    }

    /// Ends the operations that are still open at the end of the turn.
    fn ended(
        mut self,
        session: SessionId,
        at: Timestamp,
        fault: Option<&Fault>,
        about: SpanOperation,
    ) -> Vec<Span> {
        let failed = fault.map(code_of);
        let why = failed.clone().unwrap_or(Cow::Borrowed(Kind::Cancelled.row().code));
        let mut spans: Vec<Span> =
            self.answered(session, at, Err(why.clone()), None).into_iter().collect();
        for open in std::mem::take(&mut self.calls) {
            spans.push(self.call_span(session, at, open, Some(why.clone()), None));
        }
        let parent = self.parent;
        let turn = self.span(session, self.id(session), (self.began, at), failed, about);
        spans.push(Span { parent, ..turn });
        spans
    }
}
