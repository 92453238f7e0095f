//! Relays a request to a computer: checks it, forwards it, waits, and answers exactly once.

use std::{
    borrow::Cow,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use budao_core::{
    Timestamp,
    fault::{Fact, Fault, Kind, Operation},
    span::{Span, SpanOperation},
    trace::SpanId,
};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};
use tokio_util::sync::CancellationToken;

use super::{
    Inner,
    budget::{Charge, ReachedLimit, Share},
    client_connection::{AnswerError, ClientConnection, DeliveryError, PendingText},
    handle::{Carrier, ConnectionHandler, full, render},
    rooms::{Key, Route},
    send::{AnswerArgs, AnswerTarget, make_room, notify},
    stats::AnsweredRequest,
};
use crate::wire::{
    asked_by, error,
    event::{self, RequestEvent},
    passthrough,
    request::{Fields, RoutedRequest, ToolCall},
    trace_of,
};

/// Interval between attempts to send to a full queue.
const PAUSE: Duration = Duration::from_millis(10);

/// A parsed request and the text to forward.
pub(super) struct ParsedRequest<'a> {
    pub(super) request_event: RequestEvent,
    pub(super) routed: RoutedRequest,
    /// The fields of a tool call; `None` for other requests.
    pub(super) tool: Option<ToolCall>,
    pub(super) text: Cow<'a, RawValue>,
}

/// A request that is being relayed.
struct RelayedRequest {
    hub: Arc<Inner>,
    request_event: RequestEvent,
    routed: RoutedRequest,
    tool: Option<ToolCall>,
    route: Route,
    to: Option<Arc<dyn ClientConnection>>,
    deadline: Duration,
    began: Timestamp,
    /// Whether the computer has received the request, or may have.
    is_sent: AtomicBool,
    /// Whether the deadline has passed. A request that is still unsent is then dropped.
    is_over: AtomicBool,
}

/// A computer's answer that passed the checks.
enum ComputerAnswer {
    /// A successful tool result, forwarded as the original text.
    Raw(Box<RawValue>),
    /// Any other answer, parsed for its error and its tools.
    Parsed(Value),
}

/// Holds a request id for a running call and releases it when dropped.
struct RequestIdGuard {
    hub: Arc<Inner>,
    id: (Key, String),
    /// Whether the computer may know the call, so that a late cancel concerns it.
    is_sent: bool,
}

impl Drop for RequestIdGuard {
    fn drop(&mut self) {
        self.hub.state().end_call(&self.id, self.is_sent);
    }
}

/// A call that waits for room in its computer's queue. A cancel ends it here, before the computer knows it.
struct DelayedCall {
    hub: Arc<Inner>,
    id: (Key, String),
    given_up: CancellationToken,
}

impl DelayedCall {
    fn new(guard: &RequestIdGuard) -> Self {
        let (hub, id, given_up) = (guard.hub.clone(), guard.id.clone(), CancellationToken::new());
        hub.state().unsent.insert(id.clone(), given_up.clone());
        Self { hub, id, given_up }
    }
}

impl Drop for DelayedCall {
    fn drop(&mut self) {
        self.hub.state().unsent.remove(&self.id);
    }
}

/// A send that waits for a full queue: the text, and the cancellation of a tool call.
struct DelayedSend {
    text: Box<RawValue>,
    waiting: Option<DelayedCall>,
    /// Charges the waiting text to the computer's connection.
    charge: Mutex<Option<Charge>>,
}

/// Completes when a waiting call is cancelled; never for other requests.
async fn given_up(waiting: Option<&DelayedCall>) {
    match waiting {
        Some(waiting) => waiting.given_up.cancelled().await,
        None => std::future::pending().await,
    }
}

fn carrier(request_event: RequestEvent) -> Carrier {
    if request_event == RequestEvent::ToolCall { Carrier::Result } else { Carrier::Flat }
}

/// Parses a request and relays it, or refuses it.
pub(super) fn begin(
    handler: &ConnectionHandler,
    request_event: RequestEvent,
    payload: Value,
    answer: AnswerTarget,
) {
    let id = payload.get("req_id").and_then(Value::as_str).unwrap_or_default().to_owned();
    match read(request_event, payload) {
        Ok(request) => pass_on(handler, request, answer),
        Err(fault) => handler.refuse(&answer, carrier(request_event), &id, fault),
    }
}

fn read(request_event: RequestEvent, mut payload: Value) -> Result<ParsedRequest<'static>, Fault> {
    let op = Operation::RelayCall;
    let fields = Fields::new(request_event.into(), op, &payload)?;
    let routed = fields.routed()?;
    let tool = (request_event == RequestEvent::ToolCall).then(|| fields.tool_call()).transpose()?;
    if let Some(call) = &tool {
        payload["timeout"] = call.timeout.as_secs().into();
    }
    let text = to_raw_value(&payload)
        .map_err(|error| Fault::new(Kind::MalformedJson, op).caused_by(&error))?;
    Ok(ParsedRequest { request_event, routed, tool, text: Cow::Owned(text) })
}

/// Relays a parsed request, or refuses it.
pub(super) fn pass_on(
    handler: &ConnectionHandler,
    request: ParsedRequest<'_>,
    answer: AnswerTarget,
) {
    if !answer.is_wanted() {
        // Without an acknowledgement id the agent could not get the outcome.
        handler.hub.stats.refused(400);
        let trace = trace_of(&request.routed.req_id);
        let event = <&str>::from(request.request_event);
        tracing::warn!(event, trace_id = %trace, "request dropped: no ack id");
        return;
    }
    let (route, to, guard) = match enter(handler, &request) {
        Ok(entered) => entered,
        Err(fault) => {
            return handler.refuse(
                &answer,
                carrier(request.request_event),
                &request.routed.req_id,
                fault,
            );
        }
    };
    let ParsedRequest { request_event, routed, tool, text } = named_as_joined(request, &route);
    let limits = handler.hub.config.limits;
    let deadline = tool.as_ref().map_or(limits.question, |call| call.timeout + limits.grace);
    let hub = handler.hub.clone();
    let began = hub.world.clock.now();
    let (is_sent, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let question = RelayedRequest {
        hub,
        request_event,
        routed,
        tool,
        route,
        to,
        deadline,
        began,
        is_sent,
        is_over,
    };
    // Sent synchronously, so that a computer receives requests in their order.
    let first = question.send(&text);
    // Only an unsent request needs a copy of its text.
    let again = match first {
        Err(DeliveryError::Full) => match question.keep(text, guard.as_ref()) {
            Ok(again) => Some(again),
            Err(over) => {
                drop(guard);
                let fault = over.refusal(Operation::RelayCall);
                return handler.refuse(
                    &answer,
                    carrier(request_event),
                    &question.routed.req_id,
                    fault,
                );
            }
        },
        _ => None,
    };
    let spawn = question.hub.world.spawn.clone();
    spawn.spawn(Box::pin(question.run(first, again, answer, guard)));
}

/// The request under the names that both sides joined with, whatever it said.
fn named_as_joined<'a>(request: ParsedRequest<'a>, route: &Route) -> ParsedRequest<'a> {
    let ParsedRequest { request_event, mut routed, tool, text } = request;
    if routed.agent == route.agent && routed.computer == route.computer {
        return ParsedRequest { request_event, routed, tool, text };
    }
    (routed.agent, routed.computer) = (route.agent.clone(), route.computer.clone());
    let mut payload: Value = serde_json::from_str(text.get()).unwrap_or_default();
    if let Some(fields) = payload.as_object_mut() {
        fields.insert("agent".into(), route.agent.clone().into());
        fields.insert("computer".into(), route.computer.clone().into());
    }
    let text = to_raw_value(&payload).map_or(text, Cow::Owned);
    ParsedRequest { request_event, routed, tool, text }
}

type RegisteredRoute = (Route, Option<Arc<dyn ClientConnection>>, Option<RequestIdGuard>);

/// Finds the computer. For a tool call it also reserves the request id.
fn enter(
    handler: &ConnectionHandler,
    request: &ParsedRequest<'_>,
) -> Result<RegisteredRoute, Fault> {
    let op = Operation::RelayCall;
    if handler.hub.closing.is_cancelled() {
        return Err(Fault::new(Kind::ShuttingDown, op));
    }
    let mut state = handler.hub.state();
    let route = state.rooms.resolve_route(handler.key, &request.routed)?;
    let to = state.connections.get(&route.to).cloned();
    let Some(call) = &request.tool else { return Ok((route, to, None)) };
    let id = (handler.key, request.routed.req_id.clone());
    if state.calls.contains_key(&id) {
        return Err(Fault::new(Kind::DuplicateCallId, op)
            .with(Fact::CallId, id.1)
            .with(Fact::ToolName, call.tool_name.clone()));
    }
    let limit = handler.hub.config.limits.calls_max;
    let from = (handler.key, String::new());
    let until = (handler.key + 1, String::new());
    if state.calls.range(from..until).count() >= limit {
        return Err(full("calls_max", limit, op));
    }
    state.calls.insert(id.clone(), route.to);
    Ok((route, to, Some(RequestIdGuard { hub: handler.hub.clone(), id, is_sent: false })))
}

impl RelayedRequest {
    /// Keeps a request for a computer whose packet queue is full. Fails if the byte limit is reached.
    fn keep(
        &self,
        text: Cow<'_, RawValue>,
        guard: Option<&RequestIdGuard>,
    ) -> Result<DelayedSend, ReachedLimit> {
        let charge = make_room(&self.hub, self.route.to, text.get().len(), Share::Half)?;
        let waiting = guard.map(DelayedCall::new);
        Ok(DelayedSend { text: text.into_owned(), waiting, charge: Mutex::new(Some(charge)) })
    }

    fn send(&self, text: &RawValue) -> Result<PendingText, DeliveryError> {
        let to = self.to.as_ref().ok_or_else(|| DeliveryError::Disconnected("it left".into()))?;
        // The connection's own timeout must only be longer than the relay's.
        let timeout = self.deadline + self.hub.config.limits.late_watch + Duration::from_secs(60);
        let sent = to.ask_text(self.request_event.into(), text, timeout)?;
        self.is_sent.store(true, Ordering::Relaxed);
        Ok(sent)
    }

    /// Waits for the answer and sends it to the agent.
    async fn run(
        self,
        first: Result<PendingText, DeliveryError>,
        again: Option<DelayedSend>,
        answer: AnswerTarget,
        mut guard: Option<RequestIdGuard>,
    ) {
        let mut pending = pin!(self.exchange(first, again));
        let (agent, computer) = (&self.route.agent_present, &self.route.computer_present);
        // A shutdown of the hub cancels both presence tokens.
        let ended = tokio::select! {
            biased;
            text = &mut pending => text,
            () = computer.cancelled() => Err(self.unless_closing(self.gone())),
            () = agent.cancelled() => {
                self.give_up();
                Err(self.unless_closing(self.unanswered(Kind::NotInRoom)))
            }
            () = self.hub.world.clock.sleep(self.deadline) => Err(self.too_late()),
        };
        let is_late = ended.as_ref().is_err_and(|fault| fault.kind() == Kind::RequestTimedOut);
        let args = self.conclude(ended.and_then(|text| self.judge(text)));
        if let Some(guard) = &mut guard {
            guard.is_sent = self.is_sent.load(Ordering::Relaxed);
        }
        // Released before the answer is sent, so that the agent may reuse the id at once.
        drop(guard);
        answer.send(&self.hub, args);
        if is_late {
            self.hub.stats.count(|all| all.answers_lost += 1);
            self.is_over.store(true, Ordering::Relaxed);
            self.watch(pending).await;
        }
    }

    /// The agent has left: tells the computer to cancel the call.
    fn give_up(&self) {
        if self.tool.is_some() && self.is_sent.load(Ordering::Relaxed) {
            let gone = json!({ "agent": self.routed.agent, "req_id": self.routed.req_id });
            notify(&self.hub, &[self.route.to], event::CANCELLED, &gone);
        }
    }

    /// Waits for a late answer and counts it.
    async fn watch(&self, pending: impl Future<Output = Result<Box<RawValue>, Fault>>) {
        let late = tokio::select! {
            biased;
            late = pending => late.is_ok(),
            () = self.route.computer_present.cancelled() => false,
            () = self.hub.world.clock.sleep(self.hub.config.limits.late_watch) => false,
        };
        if late {
            self.hub.stats.count(|all| all.answers_late += 1);
            tracing::warn!(
                req_id = self.routed.req_id, computer = self.routed.computer,
                tool_name = self.tool_name(), trace_id = %trace_of(&self.routed.req_id),
                "late answer dropped"
            );
        }
    }

    /// Returns the computer's answer. Waits for a full queue; the caller bounds the wait.
    async fn exchange(
        &self,
        first: Result<PendingText, DeliveryError>,
        again: Option<DelayedSend>,
    ) -> Result<Box<RawValue>, Fault> {
        let sent = match again {
            Some(again) => self.insist(again).await?,
            None => first,
        };
        let Ok(answer) = sent else { return Err(self.gone()) };
        let answer = answer.await.map_err(|error| match error {
            AnswerError::Malformed(error) => self.garbage().caused_by(&*error),
            AnswerError::TimedOut => self.too_late(),
            AnswerError::Disconnected => self.gone(),
        });
        answer?.ok_or_else(|| self.rubbish())
    }

    /// Retries until the queue has room, the call is cancelled, or the deadline has passed. After the send, a cancel
    /// goes to the computer.
    async fn insist(
        &self,
        again: DelayedSend,
    ) -> Result<Result<PendingText, DeliveryError>, Fault> {
        loop {
            self.hub.stats.count(|all| all.sends_delayed += 1);
            tokio::select! {
                biased;
                () = given_up(again.waiting.as_ref()) => {
                    return Err(self.unanswered(Kind::Cancelled).not_started());
                }
                () = self.hub.world.clock.sleep(PAUSE) => {}
            }
            if self.is_over.load(Ordering::Relaxed) {
                return Err(self.too_late());
            }
            // The queue charges the bytes itself; releasing them first avoids a double charge.
            let held = again.charge.lock().unwrap_or_else(PoisonError::into_inner).take();
            match self.send(&again.text) {
                Err(DeliveryError::Full) => {
                    *again.charge.lock().unwrap_or_else(PoisonError::into_inner) = held;
                }
                sent => return Ok(sent),
            }
        }
    }

    fn tool_name(&self) -> &str {
        self.tool.as_ref().map_or("", |call| call.tool_name.as_str())
    }

    /// The fault for a request without an answer. A call or upload that was sent has an unknown outcome; one that was
    /// not sent did not begin.
    fn unanswered(&self, kind: Kind) -> Fault {
        let mut fault = Fault::new(kind, Operation::RelayCall);
        if let Some(call) = &self.tool {
            fault = fault.with(Fact::ToolName, call.tool_name.clone());
        }
        // All other requests only read.
        let changes_something =
            matches!(self.request_event, RequestEvent::ToolCall | RequestEvent::PutBlob);
        let may_have_begun = changes_something && self.is_sent.load(Ordering::Relaxed);
        if may_have_begun { fault.unconfirmed() } else { fault }
    }

    fn gone(&self) -> Fault {
        self.unanswered(Kind::ComputerGone).with(Fact::Computer, self.routed.computer.clone())
    }

    fn too_late(&self) -> Fault {
        self.unanswered(Kind::RequestTimedOut)
            .with(Fact::TimeoutMs, self.deadline)
            .with(Fact::Service, self.routed.computer.clone())
    }

    fn garbage(&self) -> Fault {
        self.unanswered(Kind::PeerFailed).with(Fact::Computer, self.routed.computer.clone())
    }

    fn rubbish(&self) -> Fault {
        self.garbage().with_cause("the computer's answer is no answer to this")
    }

    /// Replaces the fault during a shutdown of the hub. A call that the computer may have begun gets an unknown
    /// outcome, so that it is not repeated.
    fn unless_closing(&self, fault: Fault) -> Fault {
        if !self.hub.closing.is_cancelled() {
            return fault;
        }
        match &self.tool {
            Some(call) if self.is_sent.load(Ordering::Relaxed) => {
                Fault::new(Kind::OutcomeUnknown, Operation::RelayCall)
                    .with(Fact::ToolName, call.tool_name.clone())
                    .with_cause("the hub stopped during the call")
            }
            _ => Fault::new(Kind::ShuttingDown, Operation::RelayCall),
        }
    }

    /// Checks size and shape of the answer.
    fn judge(&self, text: Box<RawValue>) -> Result<ComputerAnswer, Fault> {
        let (bytes, limit) = (text.get().len(), self.hub.config.limits.answer_bytes_max);
        if bytes > limit {
            let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            // The tool has run; its result is lost.
            return Err(self
                .unanswered(Kind::OutputTooLarge)
                .with(Fact::LimitName, "answer_bytes_max")
                .with(Fact::Limit, count(limit))
                .with(Fact::Actual, count(bytes)));
        }
        if self.request_event == RequestEvent::ToolCall && passthrough::is_good_result(text.get()) {
            return Ok(ComputerAnswer::Raw(text));
        }
        let answer = Some(text.get()).filter(|text| passthrough::is_sound(text));
        let answer = answer.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let answer = answer.ok_or_else(|| self.rubbish())?;
        if error::has_odd_code(&answer) {
            return Err(self.foreign(&answer));
        }
        let answer = match self.request_event {
            RequestEvent::ToolCall if error::is_result(&answer) => Some(answer),
            RequestEvent::ToolCall => error::completed(&answer),
            _ => Some(answer).filter(Value::is_object),
        };
        answer.map(ComputerAnswer::Parsed).ok_or_else(|| self.rubbish())
    }

    /// The fault for an error that the protocol cannot carry. The computer answered, so the call has ended.
    fn foreign(&self, answer: &Value) -> Fault {
        let reason = error::foreign_text(answer);
        let fault = Fault::new(Kind::PeerFailed, Operation::RelayCall)
            .with(Fact::Computer, self.routed.computer.clone())
            .with(Fact::Reason, reason.clone());
        fault.with_cause(reason)
    }

    /// Counts and logs the outcome and builds the arguments of the answer.
    fn conclude(&self, judged: Result<ComputerAnswer, Fault>) -> AnswerArgs {
        let mut args = match judged {
            Ok(ComputerAnswer::Raw(text)) => {
                self.count(false, None);
                return AnswerArgs::Text(text);
            }
            Ok(ComputerAnswer::Parsed(answer)) => vec![answer],
            Err(fault) => {
                let fault = self.hub.finish(fault, &self.routed.req_id);
                render(&fault, carrier(self.request_event), self.hub.rendering())
            }
        };
        let failed = args.first().is_some_and(error::says_failed);
        let code = args.first().filter(|_| failed).and_then(error::code_of);
        match args.first_mut() {
            Some(answer) if failed => self.report_failure(answer, code),
            Some(answer) if self.request_event == RequestEvent::GetTools => {
                self.hub.state().known.learn(self.route.to, answer);
            }
            _ => {}
        }
        self.count(failed, code);
        AnswerArgs::Values(args)
    }

    /// Scrubs a failed answer, adds its trace and logs it.
    fn report_failure(&self, answer: &mut Value, code: Option<u16>) {
        let trace = trace_of(&self.routed.req_id);
        let before = answer.clone();
        self.hub.scrubber.scrub_json(answer);
        if *answer != before {
            self.hub.stats.count(|all| all.scrubbed += 1);
        }
        error::trace(answer, trace);
        tracing::warn!(
            req_id = self.routed.req_id, tool_name = self.tool_name(),
            computer = self.routed.computer, error_code = code,
            error_message = %error_text(answer), trace_id = %trace, "request failed"
        );
    }

    /// Updates the counters and exports a span.
    fn count(&self, failed: bool, code: Option<u16>) {
        let ended = self.hub.world.clock.now();
        self.hub.world.export_span(|| Span {
            trace: trace_of(&self.routed.req_id),
            id: SpanId::of(&["relay", &self.routed.req_id]),
            parent: asked_by(&self.routed.req_id),
            session: None,
            began: self.began,
            ended,
            failed: failed.then(|| code.map_or("failed".into(), |code| code.to_string().into())),
            about: SpanOperation::Relay {
                event: self.request_event.into(),
                computer: self.routed.computer.clone(),
                tool: self.tool_name().to_owned(),
            },
        });
        self.hub.stats.answered(AnsweredRequest {
            room: &self.route.room,
            computer: &self.routed.computer,
            tool: self.tool.as_ref().map(|call| call.tool_name.as_str()),
            took: ended.since(self.began),
            failed,
            code,
        });
    }
}

/// The error text of a failed answer, shortened for the log.
fn error_text(answer: &Value) -> String {
    let first = |places: [&str; 3]| places.iter().find_map(|it| answer.pointer(it)?.as_str());
    let text = first(["/message", "/error/message", "/content/0/text"]).unwrap_or("no words");
    let reason = first(["/details/reason", "/error/details/reason", "/structuredContent/error"]);
    let reason = reason.filter(|reason| !text.contains(*reason));
    let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    text.chars().chain(reason.chars()).take(400).collect()
}
