//! The way of a question: checked, passed on, waited for, answered once.

use std::{sync::Arc, time::Duration};

use budao_core::{
    Timestamp,
    fault::{Fact, Fault, Kind, Operation},
    span::{About, Span},
    trace::SpanId,
};
use serde_json::Value;

use super::{
    Inner,
    handle::{Carrier, Desk, full, render},
    line::{Pending, Unanswered, Unsent},
    rooms::{Key, Way},
    send::Answer,
    stats::Answered,
};
use crate::wire::{
    asked_by, error,
    event::Ask,
    request::{Fields, Routed, ToolCall},
    trace_of,
};

/// Between two tries to put a question into a full queue.
const PAUSE: Duration = Duration::from_millis(10);

/// A question on its way.
struct Question {
    hub: Arc<Inner>,
    ask: Ask,
    routed: Routed,
    tool: Option<ToolCall>,
    way: Way,
    deadline: Duration,
    began: Timestamp,
}

/// Keeps a request id taken, and frees a request id when its call is over.
struct Fence {
    hub: Arc<Inner>,
    id: (Key, String),
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.hub.state().calls.remove(&self.id);
    }
}

fn carrier(ask: Ask) -> Carrier {
    if ask == Ask::ToolCall { Carrier::Result } else { Carrier::Flat }
}

/// Puts a question on its way, or refuses it.
pub(super) fn begin(desk: &Desk, ask: Ask, mut payload: Value, answer: Answer) {
    if !answer.is_wanted() {
        // Nobody could be told what came of it.
        desk.hub.stats.refused(400);
        tracing::warn!(event = <&str>::from(ask), "a question without an ack is dropped");
        return;
    }
    let id = payload.get("req_id").and_then(Value::as_str).unwrap_or_default().to_owned();
    match check(desk, ask, &mut payload) {
        Err(fault) => desk.refuse(&answer, carrier(ask), &id, fault),
        Ok((routed, tool, way, fence)) => {
            let limits = desk.hub.config.limits;
            let deadline =
                tool.as_ref().map_or(limits.question, |call| call.timeout + limits.grace);
            let hub = desk.hub.clone();
            let began = hub.world.clock.now();
            let question = Question { hub, ask, routed, tool, way, deadline, began };
            // Sent here and now, so that a computer gets questions in the order they were asked.
            let first = question.send(&payload);
            let spawn = question.hub.world.spawn.clone();
            spawn.spawn(Box::pin(question.run(first, payload, answer, fence)));
        }
    }
}

type Checked = (Routed, Option<ToolCall>, Way, Option<Fence>);

fn check(desk: &Desk, ask: Ask, payload: &mut Value) -> Result<Checked, Fault> {
    let op = Operation::RelayCall;
    let fields = Fields::new(ask.into(), op, payload)?;
    let routed = fields.routed()?;
    let tool = (ask == Ask::ToolCall).then(|| fields.tool_call()).transpose()?;
    if desk.hub.closing.is_cancelled() {
        return Err(Fault::new(Kind::ShuttingDown, op));
    }
    let mut state = desk.hub.state();
    let way = state.rooms.way(desk.key, &routed)?;
    let Some(call) = tool else { return Ok((routed, None, way, None)) };
    let id = (desk.key, routed.req_id.clone());
    if state.calls.contains_key(&id) {
        return Err(Fault::new(Kind::DuplicateCallId, op)
            .with(Fact::CallId, routed.req_id)
            .with(Fact::ToolName, call.tool_name));
    }
    let limit = desk.hub.config.limits.calls_max;
    let from = (desk.key, String::new());
    let until = (desk.key + 1, String::new());
    if state.calls.range(from..until).count() >= limit {
        return Err(full("calls_max", limit, op));
    }
    state.calls.insert(id.clone(), way.to);
    drop(state);
    payload["timeout"] = call.timeout.as_secs().into();
    Ok((routed, Some(call), way, Some(Fence { hub: desk.hub.clone(), id })))
}

impl Question {
    fn send(&self, payload: &Value) -> Result<Pending, Unsent> {
        let line = self.hub.state().lines.get(&self.way.to).cloned();
        let line = line.ok_or_else(|| Unsent::Gone("it left".into()))?;
        // Its own clock only has to outlive ours.
        let patience = self.deadline + self.hub.config.limits.late_watch + Duration::from_secs(60);
        line.ask(self.ask.into(), payload, patience)
    }

    /// Waits for the answer and gives it.
    async fn run(
        self,
        first: Result<Pending, Unsent>,
        payload: Value,
        answer: Answer,
        fence: Option<Fence>,
    ) {
        let mut pending = Box::pin(self.exchange(first, &payload));
        let (agent, computer) = (&self.way.agent_present, &self.way.computer_present);
        let ended = tokio::select! {
            biased;
            value = &mut pending => value,
            () = computer.cancelled() => Err(self.gone()),
            () = agent.cancelled() => Err(Fault::new(Kind::NotInRoom, Operation::RelayCall)),
            () = self.hub.closing.cancelled() => {
                Err(Fault::new(Kind::ShuttingDown, Operation::RelayCall))
            }
            () = self.hub.world.clock.sleep(self.deadline) => Err(self.too_late()),
        };
        let is_late = ended.as_ref().is_err_and(|fault| fault.kind() == Kind::RequestTimedOut);
        let args = self.conclude(ended.and_then(|value| self.judge(value)));
        // Free before the answer is out: whoever has the answer may use the id again.
        drop(fence);
        answer.send(&self.hub, args);
        if is_late {
            self.hub.stats.count(|all| all.answers_lost += 1);
            self.watch(pending).await;
        }
    }

    /// Counts the answer that comes after all.
    async fn watch(&self, pending: impl Future<Output = Result<Value, Fault>>) {
        let late = tokio::select! {
            biased;
            late = pending => late.is_ok(),
            () = self.way.computer_present.cancelled() => false,
            () = self.hub.world.clock.sleep(self.hub.config.limits.late_watch) => false,
        };
        if late {
            self.hub.stats.count(|all| all.answers_late += 1);
            tracing::warn!(
                req_id = self.routed.req_id, computer = self.routed.computer,
                tool_name = self.tool_name(), trace_id = %trace_of(&self.routed.req_id),
                "a late answer was dropped"
            );
        }
    }

    /// The computer's answer. A full queue is waited for; the deadline bounds the wait.
    async fn exchange(
        &self,
        first: Result<Pending, Unsent>,
        payload: &Value,
    ) -> Result<Value, Fault> {
        let mut sent = first;
        loop {
            match sent {
                Ok(answer) => {
                    return answer.await.map_err(|error| match error {
                        Unanswered::Garbage(error) => self.garbage().caused_by(&*error),
                        Unanswered::TooLate => self.too_late(),
                        Unanswered::Gone => self.gone(),
                    });
                }
                Err(Unsent::Full) => {
                    self.hub.stats.count(|all| all.sends_delayed += 1);
                    self.hub.world.clock.sleep(PAUSE).await;
                    sent = self.send(payload);
                }
                Err(Unsent::Gone(_)) => return Err(self.gone()),
            }
        }
    }

    fn tool_name(&self) -> &str {
        self.tool.as_ref().map_or("", |call| call.tool_name.as_str())
    }

    fn gone(&self) -> Fault {
        let fault = Fault::new(Kind::ComputerGone, Operation::RelayCall)
            .with(Fact::Computer, self.routed.computer.clone());
        if self.tool_name().is_empty() {
            fault
        } else {
            fault.with(Fact::ToolName, self.tool_name().to_owned())
        }
    }

    fn too_late(&self) -> Fault {
        let fault = Fault::new(Kind::RequestTimedOut, Operation::RelayCall)
            .with(Fact::TimeoutMs, self.deadline)
            .with(Fact::Service, self.routed.computer.clone());
        if self.tool_name().is_empty() {
            fault
        } else {
            fault.with(Fact::ToolName, self.tool_name().to_owned())
        }
    }

    fn garbage(&self) -> Fault {
        Fault::new(Kind::PeerFailed, Operation::RelayCall)
            .with(Fact::Computer, self.routed.computer.clone())
    }

    /// Is the answer one that may be passed on?
    fn judge(&self, answer: Value) -> Result<Value, Fault> {
        let fits = match self.ask {
            Ask::ToolCall => error::is_result(&answer),
            _ => answer.is_object(),
        };
        if !fits {
            return Err(self.garbage().because("the computer's answer is no answer to this"));
        }
        let limit = self.hub.config.limits.answer_bytes_max;
        let bytes = size(&answer);
        if bytes > limit {
            let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
            let fault = Fault::new(Kind::OutputTooLarge, Operation::RelayCall)
                .with(Fact::Limit, count(limit))
                .with(Fact::Actual, count(bytes));
            return Err(fault.with(Fact::ToolName, self.tool_name().to_owned()));
        }
        Ok(answer)
    }

    /// Counts and logs what came of it, and makes the arguments of the answer.
    fn conclude(&self, judged: Result<Value, Fault>) -> Vec<Value> {
        let dialect = self.hub.config.dialect;
        let mut args = match judged {
            Ok(value) => vec![value],
            Err(fault) => {
                render(&self.hub.finish(fault, &self.routed.req_id), carrier(self.ask), dialect)
            }
        };
        let failed = args.first().is_some_and(error::says_failed);
        let code = args.first().filter(|_| failed).and_then(error::code_of);
        if let Some(answer) = args.first().filter(|_| self.ask == Ask::GetTools && !failed) {
            self.hub.state().known.learn(self.way.to, answer);
        }
        if let Some(answer) = args.first_mut().filter(|_| failed) {
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
                error_message = %words(answer), trace_id = %trace, "a question failed"
            );
        }
        let ended = self.hub.world.clock.now();
        self.hub.world.tell(|| Span {
            trace: trace_of(&self.routed.req_id),
            id: SpanId::of(&["relay", &self.routed.req_id]),
            parent: asked_by(&self.routed.req_id),
            session: None,
            began: self.began,
            ended,
            failed: failed.then(|| code.map_or("failed".into(), |code| code.to_string().into())),
            about: About::Relay {
                event: self.ask.into(),
                computer: self.routed.computer.clone(),
                tool: self.tool_name().to_owned(),
            },
        });
        let took = ended.since(self.began);
        self.hub.stats.answered(Answered {
            room: &self.way.room,
            computer: &self.routed.computer,
            tool: self.tool.as_ref().map(|call| call.tool_name.as_str()),
            took,
            failed,
            code,
        });
        args
    }
}

/// A failed answer's words and the reason it gives, shortened.
fn words(answer: &Value) -> String {
    let first = |places: [&str; 3]| places.iter().find_map(|it| answer.pointer(it)?.as_str());
    let text = first(["/message", "/error/message", "/content/0/text"]).unwrap_or("no words");
    let reason = first(["/details/reason", "/error/details/reason", "/structuredContent/error"]);
    let reason = reason.filter(|reason| !text.contains(*reason));
    let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    text.chars().chain(reason.chars()).take(400).collect()
}

/// Bytes of a value as JSON, without writing it.
fn size(value: &Value) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}
