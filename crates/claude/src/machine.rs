//! Who said what for which turn: a pure state machine. No clock, no I/O, no waiting.
//!
//! [`step`] takes one [`Input`] (a command, a line of the CLI, the end of its process, a time that came) and
//! answers with events, which are applied to the session at once, and with [`Action`]s for the process. The
//! caller makes the events durable before it acts.
//!
//! One prompt is with the CLI at a time; what comes meanwhile waits in the session's queue, where it is
//! durable and can be cancelled without the CLI's help. A prompt has an id of its own. A result ends a turn
//! only if it is stamped with that id; for a CLI that does not stamp, only if the turn has begun there, no
//! other is owed, and the result does not claim to be older than the turn. Everything else is recorded as
//! late and dropped.

mod answers;
mod calls;
mod command;
mod lines;
mod mode;
mod process;
mod turn_end;

pub(crate) use command::check_settings;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::PathBuf,
    time::Duration,
};

use budao_core::{
    event::{
        Answer, Command, CommandId, Entry, Event, QuestionId, SessionId, Settings, TurnNumber,
    },
    fault::{Fault, Operation},
    limits::Limits,
    message::{Block, CallId},
    scrub::Scrubber,
    session::{Session, Turn},
    time::Timestamp,
    trace::Trace,
};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    answer_draft::AnswerDraft,
    outcome::ReportedError,
    outgoing, sanitize,
    wire::{CanUseTool, CliLine},
};

/// Prompts remembered after their turn, so that what comes late for them can be told whose it was.
const PAST: usize = 64;

/// How long the CLI may take for what. Each bound names itself in the fault that reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliTimeouts {
    /// From its start to its first word.
    pub start: Duration,
    /// Without a word while a turn runs, before it is asked whether it lives.
    pub silence: Duration,
    /// To answer that question.
    pub probe: Duration,
    /// Alive, but without anything for the turn.
    pub quiet: Duration,
    /// To end a turn that was cancelled.
    pub stop: Duration,
    /// To ask whether a tool may be used, before the tool counts as running.
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

/// Everything that can wake the machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// Somebody asked for something.
    Command(Command),
    /// The session was loaded by a new writer.
    Resumed,
    /// The session is to begin.
    Opened {
        /// What it is set to.
        settings: Box<Settings>,
        /// Where it comes from.
        origin: Option<budao_core::event::Origin>,
    },
    /// Have the CLI started although nothing is asked of it yet.
    Warm,
    /// The CLI said something.
    Line {
        /// Which process.
        life: u32,
        /// What.
        line: Box<CliLine>,
    },
    /// The CLI's process ended, or its output did.
    Exited {
        /// Which process.
        life: u32,
        /// What to tell.
        fault: Fault,
    },
    /// The CLI could not be started, or not be written to.
    Broken {
        /// Which process.
        life: u32,
        /// Why.
        fault: Fault,
    },
    /// The session cannot go on as it is: the turn ends here.
    Aborted {
        /// Why.
        fault: Fault,
    },
    /// The engine stops: the turn ends here, and what waits is left for the next writer.
    Parked {
        /// Why.
        fault: Fault,
    },
    /// A time came that somebody was waiting for.
    TimerFired,
    /// Words that came are to be recorded now.
    Flush,
}

/// What the process is to do. In order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Start it.
    Start {
        /// Its number.
        life: u32,
        /// On which conversation.
        launch: Launch,
        /// Set to what.
        settings: Box<Settings>,
    },
    /// Write a line to it.
    Send {
        /// Its number.
        life: u32,
        /// The line.
        line: Value,
    },
    /// End it, with everything it started.
    Kill {
        /// Its number.
        life: u32,
    },
}

/// On which conversation the CLI is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// A new one, under the session's id.
    Fresh,
    /// The session's.
    Resume,
    /// A copy of another session's, under the session's id.
    Fork(SessionId),
}

/// What a decision may use besides the state: all of it handed in.
#[derive(Clone, Copy, Debug)]
pub struct Env<'a> {
    /// The time.
    pub now: Timestamp,
    /// A new id.
    pub uuid: Uuid,
    /// A trace for a turn that nobody brought one for.
    pub trace: Trace,
    /// The bounds.
    pub limits: &'a Limits,
    /// The CLI's bounds.
    pub timeouts: &'a CliTimeouts,
    /// Takes secrets out of what is recorded.
    pub scrubber: &'a Scrubber,
}

/// What follows from an input.
#[derive(Clone, Debug, Default)]
pub struct Transition {
    /// To be made durable before anything else. Already applied to the session.
    pub entries: Vec<Entry>,
    /// To the command, if the input was one.
    pub answer: Option<(CommandId, Answer)>,
    /// For the process, after that.
    pub actions: Vec<Action>,
}

/// A session and what is known of its CLI.
#[derive(Clone, Debug)]
pub struct Machine {
    id: SessionId,
    session: Session,
    up: Option<ProcessState>,
    lives: u32,
    /// The CLI has answered in this conversation, so it has it on disk.
    is_kept: bool,
    live: Option<LiveTurn>,
    /// What the CLI says in a turn of its own while ours waits to begin there.
    aside: Option<String>,
    words: Option<TextBuffer>,
    questions: BTreeMap<QuestionId, OpenQuestion>,
    past: VecDeque<(String, TurnNumber)>,
    requests: u64,
    /// No further turn begins here.
    is_parked: bool,
    /// Where the CLI keeps its plans.
    plan_folder: Option<PathBuf>,
}

/// A process of the CLI.
#[derive(Clone, Debug)]
struct ProcessState {
    life: u32,
    launch: Launch,
    started_at: Timestamp,
    /// It has understood us: it is more than a process.
    has_begun: bool,
    heard_at: Timestamp,
    /// Something came that was no mere sign of life.
    moved_at: Timestamp,
    probed_at: Option<Timestamp>,
    /// It stamps what it says with prompts.
    stamps: bool,
    /// The settings it was started with are no longer the session's.
    is_stale: bool,
    /// The permission mode it last said it was in; at first, the one it was started in.
    mode: String,
    /// Requests of ours that wait for an answer, and what they are about.
    requests: BTreeMap<String, &'static str>,
    last_words: Option<String>,
}

/// What is known of the running turn beyond the session's state.
#[derive(Clone, Debug)]
struct LiveTurn {
    prompt: String,
    content: Vec<Block>,
    number: TurnNumber,
    /// The CLI began it by itself.
    is_own: bool,
    sent_at: Timestamp,
    /// The CLI has begun it.
    has_begun: bool,
    draft: Option<AnswerDraft>,
    attempt: u32,
    /// The next answer is another try of the same step: which.
    redo: Option<u32>,
    held: Vec<DeferredLine>,
    /// Calls by the CLI's name for them.
    calls: BTreeMap<String, CallId>,
    /// Calls the CLI denied by its own rules.
    denied: BTreeSet<String>,
    /// Words were shown that stand.
    has_spoken: bool,
    reported: Option<ReportedError>,
    /// The turn is being cancelled, since then.
    stopping: Option<Timestamp>,
    interrupts: u32,
    /// The CLI was started on another conversation than tried first.
    is_relaunched: bool,
    called_at: Option<Timestamp>,
}

/// What came for an answer whose stream is still open.
#[derive(Clone, Debug)]
enum DeferredLine {
    CanUseTool(CanUseTool),
    Result(calls::CliToolResult),
}

/// A question that waits for a person.
#[derive(Clone, Debug)]
struct OpenQuestion {
    request: String,
    call: CallId,
    tool: String,
    arguments: Value,
    digest: String,
    expires_at: Timestamp,
}

/// Words that came and are not recorded yet.
#[derive(Clone, Debug)]
struct TextBuffer {
    step: u32,
    is_thought: bool,
    text: String,
}

impl Machine {
    /// A session as its records say, without a CLI.
    #[must_use]
    pub fn new(id: SessionId, session: Session) -> Self {
        Self {
            id,
            is_kept: session.turns > 0,
            session,
            up: None,
            lives: 0,
            live: None,
            aside: None,
            words: None,
            questions: BTreeMap::new(),
            past: VecDeque::new(),
            requests: 0,
            is_parked: false,
            plan_folder: None,
        }
    }

    /// With the folder in which the CLI keeps its plans, an absolute path.
    #[must_use]
    pub fn plan_folder(self, folder: Option<PathBuf>) -> Self {
        Self { plan_folder: folder, ..self }
    }

    /// The session's state.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Is there nothing under way?
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.live.is_none() && self.session.turn.is_none() && self.questions.is_empty()
    }

    /// Have words come that are not recorded yet?
    #[must_use]
    pub fn has_words(&self) -> bool {
        self.words.is_some()
    }

    /// When it wants to be woken.
    #[must_use]
    pub fn wake(&self, timeouts: &CliTimeouts) -> Option<Timestamp> {
        let mut times: Vec<Timestamp> =
            self.questions.values().map(|asked| asked.expires_at).collect();
        if let Some(live) = &self.live {
            times.extend(live.stopping.map(|since| since.after(timeouts.stop)));
            times.extend(live.called_at.map(|since| since.after(timeouts.call)));
        }
        times.extend(self.up.as_ref().and_then(|up| self.silent_at(up, timeouts)));
        times.into_iter().min()
    }

    /// When the CLI will have been silent for too long.
    fn silent_at(&self, up: &ProcessState, timeouts: &CliTimeouts) -> Option<Timestamp> {
        if !up.has_begun {
            return Some(up.started_at.after(timeouts.start));
        }
        if self.live.is_none() || !self.questions.is_empty() {
            return None;
        }
        let silent = match up.probed_at {
            Some(since) => since.after(timeouts.probe),
            None => up.heard_at.after(timeouts.silence),
        };
        Some(silent.min(up.moved_at.after(timeouts.quiet)))
    }
}

/// Decides what follows from `input`, and applies it to the machine.
pub fn step(machine: &mut Machine, input: Input, env: &Env<'_>) -> Transition {
    let mut step = Stepper { m: machine, env, out: Transition::default() };
    match input {
        Input::Command(command) => step.command(command),
        Input::Resumed => step.resumed(),
        Input::Opened { settings, origin } => {
            step.emit(Event::SessionOpened { settings: *settings, origin });
        }
        Input::Warm => {
            if step.m.session.ended.is_none() {
                step.ensure_up();
            }
        }
        Input::Line { life, line } => step.line(life, *line),
        Input::Exited { life, fault } => step.exited(life, fault),
        Input::Broken { life, fault } => step.broken(life, fault),
        Input::Aborted { fault } => step.halted(fault),
        Input::Parked { fault } => step.park(fault),
        Input::TimerFired => step.woke(),
        Input::Flush => step.flush(),
    }
    step.out
}

/// One decision in the making.
struct Stepper<'a> {
    m: &'a mut Machine,
    env: &'a Env<'a>,
    out: Transition,
}

impl Stepper<'_> {
    /// Records an event of the running turn, or of none. Words that came before it come before it.
    fn emit(&mut self, event: Event) {
        self.flush();
        self.emit_now(event);
    }

    fn emit_now(&mut self, event: Event) {
        let (turn, trace) = match (&event, &self.m.session.turn) {
            (Event::TurnStarted { message }, _) => {
                let mut queue = self.m.session.queue.iter();
                let brought = queue.find(|queued| queued.command == *message);
                let brought = brought.map_or(Trace::NONE, |queued| queued.trace);
                (self.m.session.turns + 1, brought.or(self.env.trace))
            }
            (_, Some(turn)) => (turn.number, turn.trace),
            (_, None) => (0, Trace::NONE),
        };
        self.record(turn, trace, event);
    }

    fn record(&mut self, turn: TurnNumber, trace: Trace, event: Event) {
        let event = sanitize::event(event, self.env.scrubber, self.env.limits.json_depth);
        self.m.session.apply(&event, self.env.now, trace);
        self.out.entries.push(Entry { at: self.env.now, trace, turn, event });
    }

    /// Records the words that came.
    fn flush(&mut self) {
        if let Some(TextBuffer { step, is_thought, text }) = self.m.words.take() {
            self.emit_now(match is_thought {
                true => Event::ThinkingDelta { step, text },
                false => Event::TextDelta { step, text },
            });
        }
    }

    /// Words came for the current step.
    fn buffer_text(&mut self, is_thought: bool, text: &str) {
        if text.is_empty() {
            return;
        }
        let step = self.turn().step;
        match &mut self.m.words {
            Some(words) if words.step == step && words.is_thought == is_thought => {
                words.text.push_str(text);
            }
            _ => {
                self.flush();
                self.m.words = Some(TextBuffer { step, is_thought, text: text.to_owned() });
            }
        }
    }

    /// Something came for a turn that is over, or for none.
    fn late(&mut self, of_turn: TurnNumber) {
        self.emit(Event::LateArrivalDropped { operation: Operation::ReadCli, of_turn, call: None });
    }

    fn turn(&self) -> &Turn {
        self.m.session.turn.as_ref().expect("only called while a turn runs")
    }

    fn live(&mut self) -> &mut LiveTurn {
        self.m.live.as_mut().expect("only called while a turn runs")
    }

    fn is_cancelling(&self) -> bool {
        self.m.session.turn.as_ref().is_some_and(|turn| turn.cancelling)
    }

    /// Starts a turn for the next message, if there is one and nothing runs.
    fn start_next(&mut self) {
        if self.m.session.turn.is_some() || self.m.is_parked {
            return;
        }
        let Some(next) = self.m.session.queue.front() else { return self.shut_if_ended() };
        let (message, content) = (next.command.clone(), next.content.clone());
        self.emit(Event::TurnStarted { message });
        self.go_live(content);
    }

    /// Has the CLI answer this in the turn that has begun.
    fn go_live(&mut self, content: Vec<Block>) {
        self.m.live = Some(LiveTurn::new(self.env.uuid.to_string(), content, self));
        self.send_prompt();
    }

    fn send_prompt(&mut self) {
        self.ensure_up();
        let session = self.m.id.to_string();
        let live = self.live();
        let line = outgoing::prompt(&live.prompt, &session, &live.content);
        self.send(line);
    }

    fn send(&mut self, line: Value) {
        if let Some(up) = &self.m.up {
            self.out.actions.push(Action::Send { life: up.life, line });
        }
    }

    /// Asks the CLI for something; `about` is what an error is reported with.
    fn request(&mut self, about: &'static str, request: &Value) {
        self.m.requests += 1;
        let id = format!("budao-{}", self.m.requests);
        if let Some(up) = &mut self.m.up {
            up.requests.insert(id.clone(), about);
            self.send(outgoing::request(&id, request));
        }
    }
}

impl LiveTurn {
    fn new(prompt: String, content: Vec<Block>, step: &Stepper<'_>) -> Self {
        Self {
            prompt,
            content,
            number: step.m.session.turns,
            is_own: false,
            sent_at: step.env.now,
            has_begun: false,
            draft: None,
            attempt: 1,
            redo: None,
            held: Vec::new(),
            calls: BTreeMap::new(),
            denied: BTreeSet::new(),
            has_spoken: false,
            reported: None,
            stopping: None,
            interrupts: 0,
            is_relaunched: false,
            called_at: None,
        }
    }
}
