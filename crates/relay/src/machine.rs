//! Turns the events of a foreign agent into domain events: a pure state machine without clock or I/O.
//!
//! [`step`] takes one [`Input`] and returns events, already applied to the session, and [`RelayAction`]s. The caller makes
//! the events durable before it performs the actions.
//!
//! A turn is one POST. Its start is recorded before it is made, so a turn that a new writer finds begun may have been
//! posted: it is not posted again, unless the agent may be asked twice. A question of the agent ends its run, not our
//! turn: when all questions are answered, the next POST continues the turn.

mod calls;
mod command;
mod events;
mod input;
mod interruption;
mod questions;
mod turn_end;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use budao_core::{
    event::{
        Answer, Command, CommandId, Entry, Event, Origin, Seq, SessionEnd, SessionId, Settings,
        StopReason, TurnNumber,
    },
    fault::{Fault, NodeIdentity},
    limits::Limits,
    message::{CallId, Usage},
    session::{Call, ENGINE_STATE, Phase, Session, Turn},
    time::Timestamp,
    trace::Trace,
};
use budao_engine::{BufferContent, sanitize};
use budao_scrub::Scrubber;
use serde_json::Value;

pub(crate) use command::check_settings;
pub(crate) use events::{limit, protocol};
pub(crate) use interruption::upstream_cut;

use crate::{
    MODEL, RelayLimits, TOPIC,
    draft::{Draft, UpstreamIds},
    interrupt::RelayState,
    partial::PartialTurn,
    request,
    wire::{self, ItemKind},
};

/// Buffered events are recorded at the latest at this size, in bytes.
const BUFFER_BYTES: usize = 16 * 1024;
/// How long a complete call waits for further calls of the same answer before it counts as running.
const CALL_WAIT: Duration = Duration::from_millis(200);

/// The inputs of the machine.
#[derive(Debug)]
pub enum Input {
    /// A command to the session; it gets exactly one answer.
    Command(Command),
    /// The session was loaded by a new writer.
    Resumed,
    /// A new session is opened.
    Opened {
        /// The settings of the session.
        settings: Box<Settings>,
        /// The parent of a fork or a child session; `None` for a session without a parent.
        origin: Option<Origin>,
    },
    /// The records of an interrupted turn were read back.
    Restored {
        /// The turn that the records belong to.
        turn: TurnNumber,
        /// What the turn had received; `None` if the records could not be read.
        partial: Option<Box<PartialTurn>>,
    },
    /// The agent sent an event.
    Upstream {
        /// Number of the POST.
        post_number: u32,
        /// The event, parsed from its data.
        event: Value,
        /// Size of the event's data.
        bytes: usize,
    },
    /// The POST ended without an event that ends the run, or was refused.
    Failed {
        /// Number of the POST.
        post_number: u32,
        /// Says what happened.
        fault: Fault,
        /// True if no byte of the request left, so that the agent cannot have acted.
        is_unsent: bool,
    },
    /// The session cannot continue; the running turn ends.
    Aborted {
        /// The fault that ends the turn.
        fault: Fault,
    },
    /// The engine shuts down: the running POST is left, and queued messages wait for the next writer.
    Parked,
    /// The wait that [`RelayMachine::wake`] returned is over.
    TimerFired,
    /// Record the buffered events now.
    Flush,
}

/// An action for the caller, performed in order once the events are durable.
#[derive(Clone, Debug, PartialEq)]
pub enum RelayAction {
    /// Post a request and report its events.
    Post {
        /// Number of the POST, counted per loaded session.
        post_number: u32,
        /// The body, `RunAgentInput` of the protocol.
        body: Value,
        /// The trace of the turn.
        trace: Trace,
    },
    /// End the connection of a POST.
    Leave {
        /// Number of the POST.
        post_number: u32,
    },
    /// Read the records of the running turn and report what it had received.
    Restore {
        /// The turn to read.
        turn: TurnNumber,
        /// The position before its first record.
        after: Seq,
        /// The shared state before the turn.
        before: Option<Value>,
    },
}

/// The outside values that one decision may use.
#[derive(Clone, Copy, Debug)]
pub struct RelayEnv<'a> {
    /// The wall-clock time, for records and for the deadlines of questions. It may jump.
    pub now: Timestamp,
    /// A time that never jumps, for ages and waits. It starts anywhere; only its differences mean something.
    pub steady: Timestamp,
    /// The trace of a turn whose message carries none.
    pub trace: Trace,
    /// A random number in −1..=1, for the waits between attempts.
    pub jitter: f64,
    /// Limits of sessions and payloads.
    pub limits: &'a Limits,
    /// Limits of a run.
    pub run_limits: &'a RelayLimits,
    /// Whether a run that was cut may be posted again.
    pub resubmit: bool,
    /// Removes secrets from everything that is recorded.
    pub scrubber: &'a Scrubber,
    /// The server that recorded faults name; `None` for a program without a name.
    pub server: Option<&'a Arc<NodeIdentity>>,
}

/// The result of one decision.
#[derive(Debug, Default)]
pub struct RelayTransition {
    /// Events to append, already applied to the session.
    pub entries: Vec<Entry>,
    /// The answer to the command; `None` if the input was no command.
    pub answer: Option<(CommandId, Answer)>,
    /// Actions to perform once the entries are durable.
    pub actions: Vec<RelayAction>,
}

/// A session and the run of its agent.
#[derive(Clone, Debug)]
pub struct RelayMachine {
    id: SessionId,
    session: Session,
    memory: RelayState,
    run: Option<AgentRun>,
    last_post_number: u32,
    /// The records of an interrupted turn are being read.
    is_restoring: bool,
    /// Upstream events that are not recorded yet, in order.
    buffer: Vec<BufferedEvent>,
    buffered_bytes: usize,
    /// The engine shuts down; no further turn starts.
    is_parked: bool,
}

/// One POST and the state of its run.
#[derive(Clone, Debug)]
struct AgentRun {
    post_number: u32,
    posted_at: Timestamp,
    last_event_at: Timestamp,
    /// The agent has sent an event.
    has_answered: bool,
    /// The agent has sent the event that begins a run.
    has_begun: bool,
    bytes: u64,
    /// Open messages and calls; `false` for a message of another author, which is not shown.
    open: BTreeMap<(ItemKind, String), bool>,
    /// The message or call that chunks open and extend.
    chunk: Option<(ItemKind, String)>,
    draft: Draft,
    /// Our call ids by the agent's, for all calls of the turn.
    calls: BTreeMap<String, CallId>,
    /// When the last call of the draft was complete and nothing else was open.
    settled_at: Option<Timestamp>,
    /// Payloads of interrupts in LangGraph's older form.
    legacy_interrupts: Vec<Value>,
    has_shown_text: bool,
    usage: Option<Usage>,
}

/// An upstream event that is not recorded yet.
#[derive(Clone, Debug)]
struct BufferedEvent {
    /// The event, with all deltas of its item joined.
    event: Value,
    /// The sort of the text to show; `None` for an event that is only recorded.
    shown: Option<ItemKind>,
    step: u32,
}

impl RelayMachine {
    /// Creates a machine for a session that was folded from its records. No POST runs yet.
    #[must_use]
    pub fn new(id: SessionId, session: Session) -> Self {
        let memory = session.engine_state.as_deref();
        let memory = memory.and_then(|state| serde_json::from_value(state.clone()).ok());
        Self {
            id,
            session,
            memory: memory.unwrap_or_default(),
            run: None,
            last_post_number: 0,
            is_restoring: false,
            buffer: Vec::new(),
            buffered_bytes: 0,
            is_parked: false,
        }
    }

    /// The session's state after the last decision.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Is there no turn?
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.session.turn.is_none()
    }

    /// The upstream events that are not recorded yet, by how long they may wait.
    #[must_use]
    pub fn buffer_content(&self) -> BufferContent {
        let is_shown = |buffered: &BufferedEvent| {
            matches!(buffered.shown, Some(ItemKind::Text | ItemKind::Thought))
        };
        match self.buffer.is_empty() {
            true => BufferContent::Nothing,
            false if self.buffer.iter().any(is_shown) => BufferContent::Shown,
            false => BufferContent::Hidden,
        }
    }

    /// How long until the machine needs an [`Input::TimerFired`]; zero if it is due, `None` if nothing is timed.
    #[must_use]
    pub fn wake(&self, env: &RelayEnv<'_>) -> Option<Duration> {
        let mut waits = Vec::new();
        if let Some(run) = &self.run {
            let (at, _, _) = run.deadline(env.run_limits);
            waits.push(at.since(env.steady));
            waits.extend(run.settled_at.map(|at| at.after(CALL_WAIT).since(env.steady)));
        }
        if let Some(turn) = &self.session.turn {
            if let Phase::Waiting { until, .. } = turn.phase {
                waits.push(until.since(env.now));
            }
            waits.extend(questions::expiries(turn).map(|at| at.since(env.now)));
        }
        let timer = self.session.timers.wake_at().filter(|_| !self.is_parked);
        waits.extend(timer.map(|at| at.since(env.now)));
        waits.into_iter().min()
    }

    fn has_open_calls(&self) -> bool {
        self.session.turn.as_ref().is_some_and(|turn| turn.calls.iter().any(Call::is_open))
    }
}

impl AgentRun {
    /// When the run exceeds a limit: the time, the limit's name and its value.
    fn deadline(&self, limits: &RelayLimits) -> (Timestamp, &'static str, Duration) {
        let silence = match self.has_answered {
            false => (self.posted_at, "first_event", limits.first_event),
            true => (self.last_event_at, "between_events", limits.between_events),
        };
        [silence, (self.posted_at, "run", limits.run)]
            .map(|(from, name, limit)| (from.after(limit), name, limit))
            .into_iter()
            .min_by_key(|(at, ..)| *at)
            .expect("there are two")
    }
}

/// Decides about `input` and applies the decision to the machine.
pub fn step(machine: &mut RelayMachine, input: Input, env: &RelayEnv<'_>) -> RelayTransition {
    let mut step = RelayStepper { m: machine, env, out: RelayTransition::default() };
    match input {
        Input::Command(command) => step.command(command),
        Input::Resumed => step.resume_turn(),
        Input::Opened { settings, origin } => {
            step.emit(Event::SessionOpened { settings: *settings, origin });
        }
        Input::Restored { turn, partial } => step.restore_turn(turn, partial),
        Input::Upstream { post_number, event, bytes } => step.upstream(post_number, event, bytes),
        Input::Failed { post_number, fault, is_unsent } => {
            step.take_failure(post_number, fault, is_unsent);
        }
        Input::Aborted { fault } => step.abort(fault),
        Input::Parked => step.park(),
        Input::TimerFired => step.timer_fired(),
        Input::Flush => step.flush(),
    }
    step.out
}

/// Collects the events and actions of one decision.
struct RelayStepper<'a> {
    m: &'a mut RelayMachine,
    env: &'a RelayEnv<'a>,
    out: RelayTransition,
}

impl RelayStepper<'_> {
    /// Records an event, of the running turn if there is one. Buffered events are recorded before it.
    fn emit(&mut self, event: Event) {
        self.flush();
        self.emit_now(event);
    }

    fn emit_now(&mut self, event: Event) {
        let (turn, trace) = self.m.session.attribute(&event, self.env.trace);
        self.record(turn, trace, event);
    }

    fn record(&mut self, turn: TurnNumber, trace: Trace, event: Event) {
        let mut event = sanitize::clean_event(event, self.env.scrubber, self.env.limits.json_depth);
        event.set_server(self.env.server);
        self.m.session.apply(&event, self.env.now, trace);
        self.out.entries.push(Entry { at: self.env.now, trace, turn, event: event.into() });
    }

    /// Records the buffered events: each as it came, then its text.
    fn flush(&mut self) {
        self.m.buffered_bytes = 0;
        for BufferedEvent { event, shown, step } in std::mem::take(&mut self.m.buffer) {
            let text = event["delta"].as_str().unwrap_or_default().to_owned();
            self.emit_now(Event::Annotated { topic: TOPIC.to_owned(), data: event });
            match shown {
                Some(ItemKind::Text) => self.emit_now(Event::TextDelta { step, text }),
                Some(ItemKind::Thought) => self.emit_now(Event::ThinkingDelta { step, text }),
                Some(ItemKind::Call) | None => {}
            }
        }
    }

    /// Records the relay's memory if it has changed.
    fn save_state(&mut self) {
        let memory = match self.m.memory == RelayState::default() {
            true => Value::Null,
            false => serde_json::to_value(&self.m.memory).unwrap_or_default(),
        };
        let recorded = self.m.session.engine_state.as_deref();
        if *recorded.unwrap_or(&Value::Null) != memory {
            self.emit(Event::Annotated { topic: ENGINE_STATE.to_owned(), data: memory });
        }
    }

    fn turn(&self) -> &Turn {
        self.m.session.turn.as_ref().expect("only called while a turn runs")
    }

    fn run(&mut self) -> &mut AgentRun {
        self.m.run.as_mut().expect("only called while a run is under way")
    }

    fn is_cancelling(&self) -> bool {
        self.m.session.turn.as_ref().is_some_and(|turn| turn.cancelling)
    }

    /// Starts a turn for the next queued message unless a turn runs. While the session closes, the turn is empty.
    fn start_next(&mut self) {
        if self.m.session.turn.is_some() || self.m.is_parked {
            return;
        }
        if self.m.session.closing == Some(0) {
            return self.emit(Event::SessionEnded { end: SessionEnd::Closed, fault: None });
        }
        let Some(next) = self.m.session.queue.front() else { return };
        let (message, is_retry) = (next.command.clone(), next.retry_of.is_some());
        let is_closing = self.m.session.closing.is_some();
        self.emit(Event::TurnStarted { message: message.clone() });
        self.choose_input(&message, is_retry);
        if is_closing {
            return self.end(StopReason::Cancelled, None);
        }
        self.begin_step(1, 1);
        self.post();
    }

    fn begin_step(&mut self, step: u32, attempt: u32) {
        self.emit(Event::StepStarted { step, attempt, model: MODEL.to_owned() });
    }

    /// Posts the turn as it stands.
    fn post(&mut self) {
        self.m.last_post_number += 1;
        let post_number = self.m.last_post_number;
        let (number, trace) = (self.turn().number, self.turn().trace);
        let run = format!("{}-{number}-{}", self.m.id, self.m.session.head);
        let body = request::run_input(self.m.id, &run, &self.m.session, &self.m.memory);
        let draft = Draft::new(self.is_awaiting_answer());
        self.m.run = Some(self.new_run(draft));
        self.out.actions.push(RelayAction::Post { post_number, body, trace });
    }

    /// Sets the run of the previous writer, which receives no further events.
    fn set_interrupted_run(&mut self, draft: Draft) {
        self.m.last_post_number += 1;
        self.m.run = Some(self.new_run(draft));
    }

    fn new_run(&self, draft: Draft) -> AgentRun {
        let (post_number, now) = (self.m.last_post_number, self.env.steady);
        AgentRun {
            post_number,
            posted_at: now,
            last_event_at: now,
            has_answered: false,
            has_begun: false,
            bytes: 0,
            open: BTreeMap::new(),
            chunk: None,
            draft,
            calls: self.known_calls(),
            settled_at: None,
            legacy_interrupts: Vec::new(),
            has_shown_text: false,
            usage: None,
        }
    }

    fn is_awaiting_answer(&self) -> bool {
        matches!(self.turn().phase, Phase::AwaitingModel { .. })
    }

    /// Our ids of the turn's calls by the agent's.
    fn known_calls(&self) -> BTreeMap<String, CallId> {
        let first = self.turn().first_message;
        let answers = self.m.session.history.iter().skip(first);
        answers
            .flat_map(|message| UpstreamIds::of(&message.content).calls)
            .map(|(ours, theirs)| (theirs, CallId::from(ours.as_str())))
            .collect()
    }

    /// Ends the connection of the running POST.
    fn leave(&mut self) -> Option<AgentRun> {
        let run = self.m.run.take()?;
        self.out.actions.push(RelayAction::Leave { post_number: run.post_number });
        Some(run)
    }

    /// Buffers an upstream event. A delta is joined with the one before it if both are of the same item.
    fn buffer(&mut self, event: Value, shown: Option<ItemKind>) {
        let step = self.turn().step;
        match self.m.buffer.last_mut() {
            Some(last)
                if last.step == step
                    && last.shown == shown
                    && wire::continues(&last.event, &event) =>
            {
                wire::join(&mut last.event, &event);
            }
            _ => self.m.buffer.push(BufferedEvent { event, shown, step }),
        }
    }

    /// Counts the size of a buffered event. A full buffer is recorded.
    fn count_buffered(&mut self, bytes: usize) {
        if !self.m.buffer.is_empty() {
            self.m.buffered_bytes = self.m.buffered_bytes.saturating_add(bytes);
            if self.m.buffered_bytes >= BUFFER_BYTES {
                self.flush();
            }
        }
    }
}
