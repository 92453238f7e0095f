//! Attributes every CLI line to a turn: a pure state machine without clock or I/O.
//!
//! [`step`] takes one [`Input`] and returns events, already applied to the session, and [`Action`]s for the
//! process. The caller makes the events durable before it performs the actions.
//!
//! The CLI has one prompt at a time; further messages wait in the session's queue, where they are durable and
//! can be cancelled without the CLI. Each prompt has an id. A result ends a turn only if it carries that id.
//! Without ids, the turn must have begun in the CLI, and the result must not claim to have run longer than
//! the turn. Any other result is recorded as late and dropped.

mod answers;
mod calls;
mod command;
mod lines;
mod mode;
mod process;
mod reports;
mod turn_end;

pub(crate) use command::check_settings;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use budao_core::{
    event::{
        Answer, Command, CommandId, Entry, Event, QuestionId, SessionId, Settings, TurnNumber,
    },
    fault::{Fault, NodeIdentity, Operation},
    limits::Limits,
    message::{Block, CallId},
    session::{Session, Turn},
    time::Timestamp,
    trace::Trace,
};
use budao_engine::sanitize;
use budao_scrub::Scrubber;
use serde_json::Value;
use uuid::Uuid;

use crate::{
    answer_draft::AnswerDraft,
    outcome::ReportedError,
    outgoing,
    wire::{CanUseTool, CliLine},
};

/// Ended prompts that are remembered, so that a late result can be attributed to its turn.
const REMEMBERED_PROMPTS: usize = 64;

/// Time limits of the CLI. A `cli_silent` fault names the limit that was exceeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliTimeouts {
    /// From the process's start to its first protocol line; 60 s by default.
    pub start: Duration,
    /// Silence during a turn after which a probe is sent; 60 s by default.
    pub silence: Duration,
    /// Time to answer the probe before the process is killed; 20 s by default.
    pub probe: Duration,
    /// Time without progress of the turn although the CLI answers probes; 30 min by default.
    pub quiet: Duration,
    /// Time to end a cancelled turn before the process is killed; 10 s by default.
    pub stop: Duration,
    /// Time to ask for permission before a requested call counts as running; 200 ms by default.
    pub call: Duration,
}

impl Default for CliTimeouts {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(60),
            silence: Duration::from_secs(60),
            probe: Duration::from_secs(20),
            quiet: Duration::from_secs(30 * 60),
            stop: Duration::from_secs(10),
            call: Duration::from_millis(200),
        }
    }
}

/// The inputs of the machine.
#[derive(Clone, Debug)]
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
        origin: Option<budao_core::event::Origin>,
    },
    /// Start the CLI although no prompt waits.
    Warm,
    /// The CLI wrote a line.
    Line {
        /// Number of the process.
        generation: u32,
        /// The line, already parsed.
        line: Box<CliLine>,
    },
    /// The CLI's process or its output ended.
    Exited {
        /// Number of the process.
        generation: u32,
        /// Describes the end: exit code or signal, and the end of standard error.
        fault: Fault,
    },
    /// The CLI could not be started or written to.
    Broken {
        /// Number of the process.
        generation: u32,
        /// The fault of the start or the write.
        fault: Fault,
    },
    /// The session cannot continue; the running turn ends.
    Aborted {
        /// The fault that ends the turn.
        fault: Fault,
    },
    /// The engine shuts down: the running turn ends, and queued messages are left for the next writer.
    Parked {
        /// The fault that ends the turn.
        fault: Fault,
    },
    /// The wait that [`Machine::wake`] returned is over.
    TimerFired,
    /// Record the buffered text now.
    Flush,
}

/// An action on the CLI's process. Actions are performed in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Start a process.
    Start {
        /// Number of the process, counted per loaded session.
        generation: u32,
        /// The conversation to start on.
        launch: Launch,
        /// The session's settings at the start.
        settings: Box<Settings>,
    },
    /// Write a line to the process.
    Send {
        /// Number of the process.
        generation: u32,
        /// The line as JSON, without its newline.
        line: Value,
    },
    /// End the process and everything it started.
    Kill {
        /// Number of the process.
        generation: u32,
    },
}

/// The conversation on which the CLI is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// A new conversation under the session's id.
    Fresh,
    /// The session's existing conversation.
    Resume,
    /// A copy of another session's conversation, under this session's id.
    Fork(SessionId),
}

/// The outside values that one decision may use.
#[derive(Clone, Copy, Debug)]
pub struct Env<'a> {
    /// The wall-clock time, for records and for the deadlines of questions. It may jump.
    pub now: Timestamp,
    /// A time that never jumps, for ages and waits. It starts anywhere; only its differences mean something.
    pub steady: Timestamp,
    /// A fresh id, for the prompt of a turn that starts.
    pub uuid: Uuid,
    /// The trace of a turn whose message carries none.
    pub trace: Trace,
    /// Limits of sessions and payloads.
    pub limits: &'a Limits,
    /// Time limits of the CLI.
    pub timeouts: &'a CliTimeouts,
    /// Removes secrets from everything that is recorded.
    pub scrubber: &'a Scrubber,
    /// The server that recorded faults name; `None` for a program without a name.
    pub server: Option<&'a Arc<NodeIdentity>>,
}

/// The result of one decision.
#[derive(Clone, Debug, Default)]
pub struct Transition {
    /// Events to append, already applied to the session.
    pub entries: Vec<Entry>,
    /// The answer to the command; `None` if the input was no command.
    pub answer: Option<(CommandId, Answer)>,
    /// Actions to perform once the entries are durable.
    pub actions: Vec<Action>,
}

/// A session and the known state of its CLI.
#[derive(Clone, Debug)]
pub struct Machine {
    id: SessionId,
    session: Session,
    process: Option<ProcessState>,
    last_generation: u32,
    /// The CLI has the conversation on disk, because it has answered in it.
    is_persisted: bool,
    current_turn: Option<RunningTurn>,
    /// Text of a turn that the CLI started by itself while the session's turn waits to begin there.
    background_text: Option<String>,
    buffer: Option<TextBuffer>,
    questions: BTreeMap<QuestionId, OpenQuestion>,
    ended_prompts: VecDeque<(String, TurnNumber)>,
    requests: u64,
    /// The engine shuts down; no further turn starts.
    is_parked: bool,
    /// Folder in which the CLI stores plans, an absolute path.
    plan_folder: Option<PathBuf>,
}

/// The state of the CLI's process.
#[derive(Clone, Debug)]
struct ProcessState {
    generation: u32,
    launch: Launch,
    started_at: Timestamp,
    /// The process has sent a protocol line, so its start succeeded.
    has_begun: bool,
    last_line_at: Timestamp,
    /// Time of the last line that was progress, not only a sign of generation.
    last_progress_at: Timestamp,
    probed_at: Option<Timestamp>,
    /// The CLI stamps its lines with prompt ids.
    stamps: bool,
    /// The session's settings changed in a way that requires a restart.
    is_stale: bool,
    /// The permission mode that the CLI last reported; initially the one it was started in.
    mode: String,
    /// Open control requests to the CLI: request id and topic.
    requests: BTreeMap<String, &'static str>,
    last_result_text: Option<String>,
    /// Name of the model that the CLI last reported.
    model: Option<String>,
    /// Size of that model's context, as last reported.
    context_tokens: Option<u64>,
    /// MCP servers whose failure is recorded.
    failed_servers: BTreeSet<String>,
}

/// The state of the running turn beyond the session's own state.
#[derive(Clone, Debug)]
struct RunningTurn {
    prompt: String,
    content: Vec<Block>,
    number: TurnNumber,
    /// The CLI started this turn by itself.
    is_own: bool,
    sent_at: Timestamp,
    /// The CLI has begun the turn.
    has_begun: bool,
    draft: Option<AnswerDraft>,
    attempt: u32,
    /// Set if the next answer is another attempt of the same step: the attempt's number.
    next_attempt_number: Option<u32>,
    deferred: Vec<DeferredLine>,
    /// Call ids by the CLI's own tool-use id.
    calls: BTreeMap<String, CallId>,
    /// Tool-use ids of calls that the CLI denied by its own rules.
    denied: BTreeSet<String>,
    /// Text was shown that is still valid.
    has_shown_text: bool,
    /// An answer of the turn had any content.
    has_content: bool,
    /// The provider's stop reason of the last answer; `None` before the first.
    last_stop: Option<String>,
    reported: Option<ReportedError>,
    /// When the turn was asked to stop; `None` if it was not.
    stopping: Option<Timestamp>,
    interrupts: u32,
    /// The CLI was restarted on the other conversation; that is tried once per turn.
    is_relaunched: bool,
    called_at: Option<Timestamp>,
}

/// A line that concerns a call of an answer whose stream is still open.
#[derive(Clone, Debug)]
enum DeferredLine {
    CanUseTool(CanUseTool),
    Result(calls::CliToolResult),
}

/// An open permission question.
#[derive(Clone, Debug)]
struct OpenQuestion {
    request: String,
    call: CallId,
    tool: String,
    arguments: Value,
    digest: String,
    expires_at: Timestamp,
}

/// Received text that is not recorded yet.
#[derive(Clone, Debug)]
struct TextBuffer {
    step: u32,
    is_thought: bool,
    text: String,
}

impl Machine {
    /// Creates a machine for a session that was folded from its records. No CLI runs yet.
    #[must_use]
    pub fn new(id: SessionId, session: Session) -> Self {
        Self {
            id,
            is_persisted: session.turns > 0,
            session,
            process: None,
            last_generation: 0,
            current_turn: None,
            background_text: None,
            buffer: None,
            questions: BTreeMap::new(),
            ended_prompts: VecDeque::new(),
            requests: 0,
            is_parked: false,
            plan_folder: None,
        }
    }

    /// Sets the folder in which the CLI stores plans, an absolute path.
    #[must_use]
    pub fn plan_folder(self, folder: Option<PathBuf>) -> Self {
        Self { plan_folder: folder, ..self }
    }

    /// The session's state after the last decision.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Is there no turn and no open question?
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.current_turn.is_none() && self.session.turn.is_none() && self.questions.is_empty()
    }

    /// Is there buffered text that is not recorded yet?
    #[must_use]
    pub fn has_words(&self) -> bool {
        self.buffer.is_some()
    }

    /// How long until the machine needs an [`Input::TimerFired`]; zero if it is due, `None` if nothing is timed.
    #[must_use]
    pub fn wake(&self, env: &Env<'_>) -> Option<Duration> {
        let mut times = Vec::new();
        if let Some(current) = &self.current_turn {
            times.extend(current.stopping.map(|since| since.after(env.timeouts.stop)));
            times.extend(current.called_at.map(|since| since.after(env.timeouts.call)));
        }
        times.extend(self.process.as_ref().and_then(|it| self.silent_at(it, env.timeouts)));
        let steady = times.into_iter().map(|at| at.since(env.steady));
        let expiring = self.questions.values().map(|open| open.expires_at.since(env.now));
        let timer = self.session.timers.wake_at().filter(|_| !self.is_parked);
        steady.chain(expiring).chain(timer.map(|at| at.since(env.now))).min()
    }

    /// When the CLI's current silence exceeds its limit.
    fn silent_at(&self, process: &ProcessState, timeouts: &CliTimeouts) -> Option<Timestamp> {
        if !process.has_begun {
            return Some(process.started_at.after(timeouts.start));
        }
        if self.current_turn.is_none() || !self.questions.is_empty() {
            return None;
        }
        let silent = match process.probed_at {
            Some(since) => since.after(timeouts.probe),
            None => process.last_line_at.after(timeouts.silence),
        };
        Some(silent.min(process.last_progress_at.after(timeouts.quiet)))
    }
}

/// Decides about `input` and applies the decision to the machine.
pub fn step(machine: &mut Machine, input: Input, env: &Env<'_>) -> Transition {
    let mut step = Stepper { m: machine, env, out: Transition::default() };
    match input {
        Input::Command(command) => step.command(command),
        Input::Resumed => step.resume_turn(),
        Input::Opened { settings, origin } => {
            step.emit(Event::SessionOpened { settings: *settings, origin });
        }
        Input::Warm => {
            if step.m.session.ended.is_none() {
                step.ensure_process();
            }
        }
        Input::Line { generation, line } => step.line(generation, *line),
        Input::Exited { generation, fault } => step.take_exit(generation, fault),
        Input::Broken { generation, fault } => step.take_broken_output(generation, fault),
        Input::Aborted { fault } => step.abort_turn(fault),
        Input::Parked { fault } => step.park(fault),
        Input::TimerFired => step.handle_timers(),
        Input::Flush => step.flush(),
    }
    step.out
}

/// Collects the events and actions of one decision.
struct Stepper<'a> {
    m: &'a mut Machine,
    env: &'a Env<'a>,
    out: Transition,
}

impl Stepper<'_> {
    /// Records an event, of the running turn if there is one. Buffered text is recorded before it.
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

    /// Records the buffered text.
    fn flush(&mut self) {
        if let Some(TextBuffer { step, is_thought, text }) = self.m.buffer.take() {
            self.emit_now(match is_thought {
                true => Event::ThinkingDelta { step, text },
                false => Event::TextDelta { step, text },
            });
        }
    }

    /// Buffers text of the current step.
    fn buffer_text(&mut self, is_thought: bool, text: &str) {
        if text.is_empty() {
            return;
        }
        let step = self.turn().step;
        match &mut self.m.buffer {
            Some(buffer) if buffer.step == step && buffer.is_thought == is_thought => {
                buffer.text.push_str(text);
            }
            _ => {
                self.flush();
                self.m.buffer = Some(TextBuffer { step, is_thought, text: text.to_owned() });
            }
        }
    }

    /// Records that a line of an ended or unknown turn was dropped.
    fn late(&mut self, of_turn: TurnNumber) {
        self.emit(Event::LateArrivalDropped { operation: Operation::ReadCli, of_turn, call: None });
    }

    fn turn(&self) -> &Turn {
        self.m.session.turn.as_ref().expect("only called while a turn runs")
    }

    fn current_turn(&mut self) -> &mut RunningTurn {
        self.m.current_turn.as_mut().expect("only called while a turn runs")
    }

    fn is_cancelling(&self) -> bool {
        self.m.session.turn.as_ref().is_some_and(|turn| turn.cancelling)
    }

    /// Starts a turn for the next queued message unless a turn runs.
    fn start_next(&mut self) {
        if self.m.session.turn.is_some() || self.m.is_parked {
            return;
        }
        let Some(next) = self.m.session.queue.front() else { return self.shut_if_ended() };
        let message = next.command.clone();
        self.emit(Event::TurnStarted { message });
        self.begin_turn(self.turn_prompt());
    }

    /// The prompt of the running turn as the history has it: the message, and what people said of calls in doubt.
    fn turn_prompt(&self) -> Vec<Block> {
        let prompt = self.m.session.history.get(self.turn().first_message);
        prompt.map_or_else(Vec::new, |prompt| prompt.content.clone())
    }

    /// Sends this content to the CLI as the prompt of the turn that has started.
    fn begin_turn(&mut self, content: Vec<Block>) {
        self.m.current_turn = Some(RunningTurn::new(self.env.uuid.to_string(), content, self));
        self.send_prompt();
    }

    fn send_prompt(&mut self) {
        self.ensure_process();
        let session = self.m.id.to_string();
        let current = self.current_turn();
        let line = outgoing::prompt(&current.prompt, &session, &current.content);
        self.send(line);
    }

    fn send(&mut self, line: Value) {
        if let Some(process) = &self.m.process {
            self.out.actions.push(Action::Send { generation: process.generation, line });
        }
    }

    /// Sends a control request to the CLI. `topic` names the request when its answer arrives.
    fn request(&mut self, topic: &'static str, request: &Value) {
        self.m.requests += 1;
        let id = format!("budao-{}", self.m.requests);
        if let Some(process) = &mut self.m.process {
            process.requests.insert(id.clone(), topic);
            self.send(outgoing::request(&id, request));
        }
    }
}

impl RunningTurn {
    fn new(prompt: String, content: Vec<Block>, step: &Stepper<'_>) -> Self {
        Self {
            prompt,
            content,
            number: step.m.session.turns,
            is_own: false,
            sent_at: step.env.steady,
            has_begun: false,
            draft: None,
            attempt: 1,
            next_attempt_number: None,
            deferred: Vec::new(),
            calls: BTreeMap::new(),
            denied: BTreeSet::new(),
            has_shown_text: false,
            has_content: false,
            last_stop: None,
            reported: None,
            stopping: None,
            interrupts: 0,
            is_relaunched: false,
            called_at: None,
        }
    }
}
