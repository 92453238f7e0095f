//! Records upstream events as they came and projects what they mean.

use budao_core::{
    event::{Event, Scope},
    fault::{Fact, Fault, Kind, Operation},
    json_patch::{self, PatchError},
    message::{Block, CallId, ModelStop},
    session::Call,
};
use serde_json::Value;

use super::RelayStepper;
use crate::{
    SERVICE,
    draft::DraftCall,
    wire::{self, Change, ItemKind, UpstreamEvent},
};

/// Longest name of an event in a fault, in characters.
const NAME_CHARS: usize = 80;

impl RelayStepper<'_> {
    /// Handles an event of the run. Events of an earlier POST are ignored.
    pub(super) fn upstream(&mut self, post_number: u32, mut event: Value, bytes: usize) {
        let now = self.env.steady;
        let Some(run) = self.m.run.as_mut().filter(|run| run.post_number == post_number) else {
            return;
        };
        let is_first = !run.has_answered;
        run.has_answered = true;
        run.last_event_at = now;
        run.bytes = run.bytes.saturating_add(bytes as u64);
        if run.bytes > self.env.run_limits.turn_bytes {
            let fault = limit("turn_bytes", self.env.run_limits.turn_bytes);
            return self.fail(fault, false);
        }
        if let Some(fields) = event.as_object_mut() {
            // The framework's own event, often as large as all the others together.
            fields.remove("rawEvent");
        }
        let Some(parsed) = wire::parse(&event) else {
            let cause = if is_first { "not_agui" } else { "malformed" };
            return self.fail(protocol(cause, None), false);
        };
        if parsed == UpstreamEvent::Raw {
            return;
        }
        self.project(event, parsed);
        self.count_buffered(bytes);
    }

    fn project(&mut self, event: Value, parsed: UpstreamEvent) {
        let name = wire::event_type(&event).unwrap_or_default();
        let name: String = name.chars().take(NAME_CHARS).collect();
        if !self.has_begun(&parsed) {
            self.buffer_silent(event);
            return self.fail(protocol("out_of_order", Some(name)), false);
        }
        let is_chunk = matches!(parsed, UpstreamEvent::Stream { change: Change::Chunk { .. }, .. });
        if !is_chunk {
            self.close_chunk();
        }
        if let UpstreamEvent::Stream { item, id, change } = parsed {
            return match self.stream(event, item, id, change) {
                Ok(()) => {}
                Err(StreamProblem::NeverOpened) => {
                    self.fail(protocol("out_of_order", Some(name)), false);
                }
                Err(StreamProblem::TooManyOpen) => {
                    self.fail(limit("open_ids", self.env.run_limits.open_ids as u64), false);
                }
            };
        }
        self.buffer_silent(event);
        match parsed {
            UpstreamEvent::RunFinished(end) => self.run_finished(end),
            UpstreamEvent::RunError { message, code, usage } => {
                self.run().usage = usage;
                self.fail(upstream_fault(&message, code), false);
            }
            UpstreamEvent::CallResult { id, content } => self.call_result(&id, content),
            UpstreamEvent::StateSnapshot(state) => self.state_replaced(state),
            UpstreamEvent::StateDelta(operations) => self.state_patched(&operations),
            UpstreamEvent::MessagesSnapshot(messages) => self.snapshot(&messages),
            UpstreamEvent::LegacyInterrupt(value) => self.run().legacy_interrupts.push(value),
            UpstreamEvent::RunStarted
            | UpstreamEvent::Stream { .. }
            | UpstreamEvent::Raw
            | UpstreamEvent::Other => {}
        }
    }

    /// Whether the run has begun, or begins or fails with this event. Unprojected events may come before.
    fn has_begun(&mut self, parsed: &UpstreamEvent) -> bool {
        let run = self.run();
        run.has_begun |= *parsed == UpstreamEvent::RunStarted;
        run.has_begun || matches!(parsed, UpstreamEvent::RunError { .. } | UpstreamEvent::Other)
    }

    /// Buffers an event without text of its own. It is recorded before all that follows from it.
    fn buffer_silent(&mut self, event: Value) {
        self.buffer(event, None);
    }

    fn stream(
        &mut self,
        event: Value,
        item: ItemKind,
        id: String,
        change: Change,
    ) -> Result<(), StreamProblem> {
        match change {
            Change::Start(name) => {
                let parent = event["parentMessageId"].as_str().map(str::to_owned);
                self.buffer_silent(event);
                self.open_item(item, id, name, parent)
            }
            Change::Delta(delta) => self.grow_item(event, item, &id, &delta),
            Change::End => {
                self.buffer_silent(event);
                self.close_item(item, &id);
                Ok(())
            }
            Change::Chunk { name, delta } => self.chunk(event, item, id, name, &delta),
        }
    }

    fn open_item(
        &mut self,
        item: ItemKind,
        id: String,
        name: Option<String>,
        parent: Option<String>,
    ) -> Result<(), StreamProblem> {
        let is_shown =
            item != ItemKind::Text || matches!(name.as_deref(), None | Some("assistant"));
        let has_open_calls = self.m.has_open_calls();
        let ours = self.run().calls.get(&id).cloned();
        let call = ours.and_then(|ours| self.turn().call(&ours));
        let is_running = item == ItemKind::Call && call.is_some_and(Call::is_open);
        let most = self.env.run_limits.open_ids;
        let run = self.run();
        if item == ItemKind::Text && is_shown && run.open.is_empty() {
            // Another message without calls in between is another answer.
            let is_other = run.draft.message.as_ref().is_some_and(|message| *message != id);
            if is_other && run.draft.has_text() && !run.draft.has_calls() {
                self.finish_answer(false);
            }
        }
        let run = self.run();
        run.settled_at = None;
        run.open.insert((item, id.clone()), is_shown);
        if run.open.len() > most {
            return Err(StreamProblem::TooManyOpen);
        }
        match item {
            ItemKind::Text if is_shown => drop(run.draft.message.get_or_insert(id)),
            ItemKind::Call if !is_running => {
                if run.draft.message.is_none() {
                    run.draft.message = parent;
                }
                run.draft.add_call(DraftCall::begin(id, name));
                if !has_open_calls {
                    self.open_step();
                }
            }
            ItemKind::Text | ItemKind::Thought | ItemKind::Call => {}
        }
        Ok(())
    }

    fn grow_item(
        &mut self,
        event: Value,
        item: ItemKind,
        id: &str,
        delta: &str,
    ) -> Result<(), StreamProblem> {
        let Some(is_shown) = self.run().open.get(&(item, id.to_owned())).copied() else {
            self.buffer_silent(event);
            return Err(StreamProblem::NeverOpened);
        };
        if item == ItemKind::Call {
            if let Some(call) = self.run().draft.call(id) {
                call.arguments.push_str(delta);
            }
            self.buffer(event, None);
            return Ok(());
        }
        if !is_shown || delta.is_empty() {
            self.buffer(event, None);
            return Ok(());
        }
        self.open_step();
        self.run().draft.push_text(item, delta);
        self.run().has_shown_text |= item == ItemKind::Text;
        self.buffer(event, Some(item));
        Ok(())
    }

    pub(super) fn close_item(&mut self, item: ItemKind, id: &str) {
        let now = self.env.steady;
        let run = self.run();
        if item == ItemKind::Call
            && let Some(call) = run.draft.call(id)
        {
            call.is_complete = true;
        }
        run.open.remove(&(item, id.to_owned()));
        if run.open.is_empty() && run.draft.has_calls() {
            run.settled_at = Some(now);
        }
    }

    /// Handles a chunk: it opens its item if another one was open, and extends it.
    fn chunk(
        &mut self,
        event: Value,
        item: ItemKind,
        id: String,
        name: Option<String>,
        delta: &str,
    ) -> Result<(), StreamProblem> {
        let current = self.run().chunk.clone();
        let continued =
            current.filter(|(kind, open)| *kind == item && (id.is_empty() || *open == id));
        let id = match continued {
            Some((_, open)) => open,
            None => {
                self.close_chunk();
                let parent = event["parentMessageId"].as_str().map(str::to_owned);
                self.open_item(item, id.clone(), name, parent)?;
                self.run().chunk = Some((item, id.clone()));
                id
            }
        };
        self.grow_item(event, item, &id, delta)
    }

    fn close_chunk(&mut self) {
        if let Some((item, id)) = self.run().chunk.take() {
            self.close_item(item, &id);
        }
    }

    /// Starts the step of the current answer. Calls of the step before it are over: the agent went on.
    pub(super) fn open_step(&mut self) {
        if self.run().draft.is_open {
            return;
        }
        self.end_calls_without_result(|_| false);
        let next = self.turn().step + 1;
        self.begin_step(next, 1);
        self.run().draft.is_open = true;
    }

    /// Records the answer so far; nothing if there is none. `partial` marks an answer that was cut.
    pub(super) fn finish_answer(&mut self, partial: bool) {
        if self.run().draft.is_empty() {
            return;
        }
        self.open_step();
        self.flush();
        let draft = std::mem::take(&mut self.run().draft);
        let (number, step) = (self.turn().number, self.turn().step);
        let content = draft
            .finish(partial, |call| CallId::from(format!("call_{number}_{step}_{call}").as_str()));
        let has_calls = content.iter().any(|block| matches!(block, Block::ToolUse(_)));
        let ids = crate::draft::UpstreamIds::of(&content);
        let calls = ids.calls.into_iter();
        let calls = calls.map(|(ours, theirs)| (theirs, CallId::from(ours.as_str())));
        self.run().calls.extend(calls);
        let stop = match (partial, has_calls) {
            (true, _) => ModelStop::Other,
            (false, true) => ModelStop::ToolUse,
            (false, false) => ModelStop::EndTurn,
        };
        let usage = self.run().usage.take().unwrap_or_default();
        self.record_recovery(partial);
        self.emit(Event::ModelAnswered { step, content, stop, usage, response: None });
    }

    /// Records that an attempt succeeded after failed ones.
    fn record_recovery(&mut self, partial: bool) {
        let turn = self.turn();
        let Some(failing) = turn.failing.clone().filter(|_| !partial) else { return };
        let scope = Scope { step: Some(turn.step), ..Scope::default() };
        let attempts = match turn.phase {
            budao_core::session::Phase::AwaitingModel { attempt } => attempt,
            _ => 1,
        };
        let elapsed = self.env.now.since(failing.since).as_millis();
        self.emit(Event::Recovered {
            operation: Operation::ModelRequest,
            kind: failing.kind,
            attempts,
            elapsed_ms: u64::try_from(elapsed).unwrap_or(u64::MAX),
            scope,
        });
    }

    fn state_replaced(&mut self, state: Value) {
        if json_patch::size(&state) > self.env.run_limits.state_bytes {
            return self.fail(limit("state_bytes", self.env.run_limits.state_bytes as u64), false);
        }
        self.m.memory.state = Some(state);
    }

    /// Applies a patch. One that does not fit is recorded and skipped, as the protocol's own client does.
    fn state_patched(&mut self, operations: &[Value]) {
        let most = self.env.run_limits.state_bytes;
        let state = self.m.memory.state.get_or_insert_with(|| serde_json::json!({}));
        if json_patch::patch(state, operations, most) == Err(PatchError::TooLarge) {
            self.fail(limit("state_bytes", most as u64), false);
        }
    }

    /// Shows what only a snapshot of the conversation has: results of open calls and, if the run streamed no text,
    /// the answers after the last message of a person.
    fn snapshot(&mut self, messages: &[Value]) {
        let last = messages.iter().rposition(|message| message["role"] == "user");
        let new = &messages[last.map_or(0, |last| last + 1)..];
        let shows_text = !self.run().has_shown_text;
        for message in new {
            let text = message["content"].as_str().unwrap_or_default();
            match message["role"].as_str() {
                Some("tool") => {
                    if let Some(call) = message["toolCallId"].as_str() {
                        self.call_result(call, message["content"].clone());
                    }
                }
                Some("assistant") if shows_text => self.snapshot_answer(message, text),
                _ => {}
            }
        }
    }

    fn snapshot_answer(&mut self, message: &Value, text: &str) {
        let calls = message["toolCalls"].as_array().map_or(&[][..], Vec::as_slice);
        let theirs = |call: &Value| call["id"].as_str().unwrap_or_default().to_owned();
        let is_known = |step: &mut Self, call: &Value| {
            let id = theirs(call);
            step.run().calls.contains_key(&id) || step.run().draft.call(&id).is_some()
        };
        let new: Vec<&Value> = calls.iter().filter(|call| !is_known(self, call)).collect();
        if text.is_empty() && new.is_empty() {
            return;
        }
        if self.run().draft.has_text() || self.run().draft.has_calls() {
            self.finish_answer(false);
        }
        self.open_step();
        let id = message["id"].as_str().map(str::to_owned);
        self.run().draft.message = id;
        if !text.is_empty() {
            self.run().draft.push_text(ItemKind::Text, text);
            self.run().has_shown_text = true;
            let step = self.turn().step;
            self.emit(Event::TextDelta { step, text: text.to_owned() });
        }
        for call in new {
            let function = &call["function"];
            self.run().draft.add_call(DraftCall {
                theirs: theirs(call),
                name: function["name"].as_str().unwrap_or("tool").to_owned(),
                arguments: function["arguments"].as_str().unwrap_or_default().to_owned(),
                is_complete: true,
                is_synthetic: false,
            });
        }
    }
}

/// Why a streamed event cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamProblem {
    NeverOpened,
    TooManyOpen,
}

/// The fault for an agent that exceeded a limit of `[engines.agui.limits]`.
pub(crate) fn limit(name: &'static str, limit: u64) -> Fault {
    Fault::new(Kind::LimitReached, Operation::ModelRequest)
        .with(Fact::Limit, limit)
        .with(Fact::LimitName, format!("engines.agui.limits.{name}"))
        .unconfirmed()
}

/// The fault for an answer that does not follow the protocol.
pub(crate) fn protocol(cause: &'static str, event: Option<String>) -> Fault {
    let fault = Fault::new(Kind::UpstreamProtocol, Operation::ModelRequest)
        .with(Fact::Service, SERVICE)
        .with(Fact::Cause, cause)
        .unconfirmed();
    match event {
        Some(event) => fault.with(Fact::EventName, event),
        None => fault,
    }
}

/// The fault for a run that the agent itself ended with an error. Only a code that is an identifier is shown.
fn upstream_fault(message: &str, code: Option<String>) -> Fault {
    let is_plain = |code: &String| {
        let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-' | '.');
        !code.is_empty() && code.len() <= 64 && code.chars().all(is_plain)
    };
    let fault =
        Fault::new(Kind::UpstreamFailed, Operation::ModelRequest).with(Fact::Service, SERVICE);
    let fault = match code.filter(is_plain) {
        Some(code) => fault.with(Fact::Cause, code),
        None => fault,
    };
    match message.is_empty() {
        true => fault,
        false => fault.with_cause(message.chars().take(2_000).collect::<String>()),
    }
}
