//! A session is the fold of its records, and nothing else may change it.
//!
//! Replay, resume, snapshot and the running turn all use [`Session::apply`]; so a session that was
//! killed and read back is the same session. `history` is what a model would be given next; the whole
//! history stays in the records.

mod files;

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    brake::{Brake, call_key},
    event::{
        CommandId, Decision, Event, Origin, QuestionId, Record, Scope, Seq, SessionEnd, Settings,
        StopReason, TurnNumber,
    },
    fault::{Fault, Kind, Operation},
    lang::Lang,
    message::{Block, CallId, Message, Role, ToolUse, Usage, text_of},
    pipeline::{self, Pipeline},
    time::Timestamp,
    tool::{Outcome, Repair, Todo},
    trace::Trace,
};

pub use files::Files;

/// Everything a session is, at one position of its history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// The position this is the fold up to.
    pub head: Seq,
    /// What it is set to.
    pub settings: Settings,
    /// Where it comes from.
    pub origin: Option<Origin>,
    /// Accepted messages nobody has begun to answer.
    pub queue: VecDeque<Queued>,
    /// The number of the last turn that began.
    pub turns: TurnNumber,
    /// The turn that is running.
    pub turn: Option<Turn>,
    /// How the last turn ended.
    pub last: Option<LastTurn>,
    /// What a model is given: well paired whenever a model is asked.
    pub history: Arc<Vec<Message>>,
    /// About how many tokens that is.
    pub tokens: u64,
    /// Set once it ended; a message re-opens it.
    pub ended: Option<SessionEnd>,
    /// The to-do list.
    pub todos: Vec<Todo>,
    /// In which state tools last saw which file.
    pub files: Files,
    /// What all turns used.
    pub usage: Usage,
    /// Plan → solve → aggregate, when that is what runs.
    pub pipeline: Option<Pipeline>,
    /// Set while it is being closed: how many of the queued messages came before that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closing: Option<usize>,
}

/// A message waiting for its turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queued {
    /// The command that brought it.
    pub command: CommandId,
    /// What it says.
    pub content: Vec<Block>,
    /// The trace it came with.
    pub trace: Trace,
    /// Set when it is not for the model itself but for a pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<pipeline::Asked>,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastTurn {
    /// Which.
    pub number: TurnNumber,
    /// Why.
    pub stop: StopReason,
    /// What went wrong.
    pub fault: Option<Fault>,
}

/// A turn that is running.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Which.
    pub number: TurnNumber,
    /// Its trace.
    pub trace: Trace,
    /// The message it answers.
    pub message: CommandId,
    /// When it began.
    pub started_at: Timestamp,
    /// The position of the record that began it.
    #[serde(default)]
    pub began: Seq,
    /// Where in `history` it began.
    pub first_message: usize,
    /// Model requests so far.
    pub step: u32,
    /// What is being done.
    pub phase: Phase,
    /// Words of the current try have been shown.
    pub partial: bool,
    /// Calls of the current step, in the model's order.
    pub calls: Vec<Call>,
    /// What failed first in the step, while we try again.
    pub failing: Option<Failing>,
    /// What stops a model that repeats itself.
    pub brake: Brake,
    /// Somebody asked to stop.
    pub cancelling: bool,
    /// The provider said the history is too long.
    pub too_long: bool,
    /// The step for which history was compacted last.
    pub compacted_in_step: u32,
    /// What it used.
    pub usage: Usage,
}

/// What a turn is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Asking the model.
    Asking {
        /// Which try.
        attempt: u32,
    },
    /// Waiting to ask it again.
    Waiting {
        /// The try that comes.
        attempt: u32,
        /// When.
        until: Timestamp,
    },
    /// Calling tools.
    Calling,
    /// Planning, solving, aggregating: the session's pipeline says how far.
    Pipeline,
    /// A plan waits for a person to confirm it.
    Confirming,
}

/// A failure we are recovering from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failing {
    /// What.
    pub kind: Kind,
    /// Since when.
    pub since: Timestamp,
}

/// A call of the current step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Which.
    pub id: CallId,
    /// The tool the model named.
    pub tool: String,
    /// The arguments as the model wrote them.
    pub written: String,
    /// How far it is.
    pub state: CallState,
}

/// How far a call is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// The model asked for it; it has not been checked.
    Requested {
        /// A person allowed it; it is checked once more all the same.
        approved: Option<Approved>,
    },
    /// A person must decide.
    Asked {
        /// The question.
        question: QuestionId,
        /// The exact arguments.
        arguments: Value,
        /// Repairs made to get them.
        repairs: Vec<Repair>,
        /// What the answer is bound to.
        digest: String,
        /// May it run again after a crash?
        idempotent: bool,
        /// Unanswered by then, it is denied.
        expires_at: Timestamp,
    },
    /// It runs, or a crash interrupted it.
    Started {
        /// Which try.
        attempt: u32,
        /// What with.
        arguments: Value,
        /// May it run again?
        idempotent: bool,
        /// Since when.
        at: Timestamp,
        /// What failed first, while we try again.
        failing: Option<Failing>,
        /// For the model, beside the outcome.
        remark: Option<String>,
    },
    /// It failed and will be tried again.
    Waiting {
        /// The try that comes.
        attempt: u32,
        /// What with.
        arguments: Value,
        /// When.
        until: Timestamp,
        /// What failed first.
        failing: Failing,
        /// For the model, beside the outcome.
        remark: Option<String>,
    },
    /// It is over.
    Ended {
        /// How.
        outcome: Outcome,
        /// It never ran, because it does not fit.
        invalid: bool,
    },
}

/// What a person allowed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Approved {
    /// The arguments to run with.
    pub arguments: Value,
    /// Are they other ones than were asked about?
    pub edited: bool,
    /// A word for the model.
    pub note: Option<String>,
}

impl Approved {
    /// What the model is told about it, if it is worth telling.
    fn remark(&self) -> Option<String> {
        let edited = self
            .edited
            .then(|| format!("A person changed the arguments; it ran with {}.", self.arguments));
        let note = self.note.as_ref().map(|note| format!("A person allowed it and wrote: {note}"));
        match (edited, note) {
            (Some(edited), Some(note)) => Some(format!("{edited} {note}")),
            (edited, note) => edited.or(note),
        }
    }
}

/// What a session is doing, in one word.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::Display,
    strum::EnumString,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Status {
    /// Nothing to do.
    Idle,
    /// A turn is running.
    Running,
    /// A turn waits for a person.
    Paused,
    /// It ended.
    Ended,
}

impl Session {
    /// The fold of some records onto this.
    pub fn apply_all<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>) {
        for record in records {
            self.apply_record(record);
        }
    }

    /// One record of the fold.
    pub fn apply_record(&mut self, record: &Record) {
        self.apply(&record.event, record.at, record.trace);
    }

    /// One event of the fold: total, so that no history can stop it.
    pub fn apply(&mut self, event: &Event, at: Timestamp, trace: Trace) {
        self.head += 1;
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.apply(event);
        } else if let Event::PlanStarted { .. } | Event::PlanMade { .. } = event {
            let mut pipeline = Pipeline::default();
            pipeline.apply(event);
            self.pipeline = Some(pipeline);
        }
        match event {
            Event::SessionOpened { settings, origin } => {
                self.settings = settings.clone();
                self.origin.clone_from(origin);
            }
            Event::SettingsChanged { settings } => self.settings = settings.clone(),
            Event::SessionEnded { end, .. } => {
                self.ended = Some(*end);
                self.closing = None;
            }
            Event::CloseRequested { .. } => self.closing = Some(self.queue.len()),
            Event::MessageAccepted { command, content } => {
                self.ended = None;
                let (command, content) = (command.clone(), content.clone());
                self.queue.push_back(Queued { command, content, trace, pipeline: None });
            }
            Event::PipelineAccepted { command, question, confirm, tasks } => {
                self.ended = None;
                let asked = pipeline::Asked { confirm: *confirm, tasks: tasks.clone() };
                let content = vec![Block::Text(question.clone())];
                let (command, pipeline) = (command.clone(), Some(asked));
                self.queue.push_back(Queued { command, content, trace, pipeline });
            }
            Event::TurnStarted { message } => self.begin_turn(message, at, trace),
            Event::TurnEnded { stop, fault, usage, .. } => self.end_turn(*stop, fault, *usage),
            Event::TodosChanged { todos } => self.todos.clone_from(todos),
            Event::FileSeen { path, digest } => self.files.saw(path, digest.as_ref()),
            Event::ModelAnswered { step, content, usage, .. } => {
                self.answered(*step, content, *usage);
            }
            Event::HistoryCompacted { messages, summary, tokens_after, usage, .. } => {
                self.compacted(*messages, summary, *tokens_after, *usage);
            }
            Event::CallEnded { call, outcome, .. } => self.call_ended(call, outcome),
            other => {
                if let Some(turn) = &mut self.turn {
                    turn.apply(other, at);
                }
            }
        }
    }

    fn begin_turn(&mut self, message: &CommandId, at: Timestamp, trace: Trace) {
        let index = self.queue.iter().position(|queued| queued.command == *message);
        let queued = index.and_then(|index| self.queue.remove(index));
        let (content, asked) =
            queued.map_or((None, None), |queued| (Some(queued.content), queued.pipeline));
        let phase = if asked.is_some() { Phase::Pipeline } else { Phase::Calling };
        if let (Some(asked), Some(content)) = (asked, &content) {
            self.pipeline = Some(Pipeline::new(text_of(content), asked));
        }
        self.turns += 1;
        self.ended = None;
        self.closing = self.closing.map(|before| before.saturating_sub(1));
        self.turn = Some(Turn {
            number: self.turns,
            trace,
            message: message.clone(),
            started_at: at,
            began: self.head,
            first_message: self.history.len(),
            step: 0,
            phase,
            partial: false,
            calls: Vec::new(),
            failing: None,
            brake: Brake::default(),
            cancelling: false,
            too_long: false,
            compacted_in_step: 0,
            usage: Usage::default(),
        });
        if let Some(content) = content {
            self.push(Message { role: Role::User, content });
        }
    }

    fn end_turn(&mut self, stop: StopReason, fault: &Option<Fault>, usage: Usage) {
        if self.turn.as_ref().is_some_and(|turn| turn.calls.iter().any(Call::is_open)) {
            self.seal_open_calls();
        }
        if let Some(turn) = self.turn.take() {
            self.last = Some(LastTurn { number: turn.number, stop, fault: fault.clone() });
        }
        self.usage += usage;
    }

    /// No call may stay unanswered in history, whatever the records say: heals what should not happen.
    fn seal_open_calls(&mut self) {
        let calls = self.turn.iter().flat_map(|turn| &turn.calls);
        let ids: Vec<CallId> =
            calls.filter(|call| call.is_open()).map(|call| call.id.clone()).collect();
        for id in ids {
            self.call_ended(&id, &Fault::new(Kind::OutcomeUnknown, Operation::ToolCall).into());
        }
    }

    fn answered(&mut self, step: u32, content: &[Block], usage: Usage) {
        let Some(turn) = &mut self.turn else { return };
        turn.usage += usage;
        turn.failing = None;
        turn.partial = false;
        turn.too_long = false;
        turn.step = step;
        turn.phase = Phase::Calling;
        turn.calls = content
            .iter()
            .filter_map(|block| match block {
                Block::ToolUse(ToolUse { id, name, arguments }) => Some(Call {
                    id: id.clone(),
                    tool: name.clone(),
                    written: arguments.clone(),
                    state: CallState::Requested { approved: None },
                }),
                _ => None,
            })
            .collect();
        if !content.is_empty() {
            self.push(Message { role: Role::Assistant, content: content.to_vec() });
        }
        if usage.input_tokens > 0 {
            self.tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        }
    }

    fn call_ended(&mut self, id: &CallId, outcome: &Outcome) {
        let Some(turn) = &mut self.turn else { return };
        let Some(call) = turn.calls.iter_mut().find(|call| call.id == *id && call.is_open()) else {
            return;
        };
        let never_ran = matches!(call.state, CallState::Requested { approved: None });
        let invalid = never_ran && outcome.fault().is_some_and(|fault| is_invalid(fault.kind()));
        call.state = CallState::Ended { outcome: outcome.clone(), invalid };
        if turn.calls.iter().all(|call| !call.is_open()) {
            turn.note_step();
            let results = turn.results(self.settings.language);
            self.push(Message { role: Role::User, content: results });
        }
    }

    fn compacted(&mut self, messages: u64, summary: &str, tokens_after: u64, usage: Usage) {
        let cut = usize::try_from(messages).unwrap_or(usize::MAX).min(self.history.len());
        let history = Arc::make_mut(&mut self.history);
        history.splice(..cut, [Message::user(summary)]);
        self.tokens = tokens_after;
        if let Some(turn) = &mut self.turn {
            turn.first_message = turn.first_message.saturating_sub(cut) + 1;
            turn.compacted_in_step = turn.step;
            turn.usage += usage;
            turn.too_long = false;
        }
    }

    fn push(&mut self, message: Message) {
        self.tokens = self.tokens.saturating_add(estimate_tokens(&message));
        Arc::make_mut(&mut self.history).push(message);
    }

    /// What it is doing, in one word.
    #[must_use]
    pub fn status(&self) -> Status {
        match &self.turn {
            Some(turn) if turn.waits_for_a_person() => Status::Paused,
            Some(_) => Status::Running,
            None if !self.queue.is_empty() => Status::Running,
            None if self.ended.is_some() => Status::Ended,
            None => Status::Idle,
        }
    }

    /// The trace things belong to now.
    #[must_use]
    pub fn trace(&self) -> Trace {
        self.turn.as_ref().map_or(Trace::NONE, |turn| turn.trace)
    }

    /// The last words of the model.
    #[must_use]
    pub fn last_text(&self) -> Option<String> {
        let last = self.history.iter().rev().find(|message| message.role == Role::Assistant)?;
        Some(text_of(&last.content))
    }

    /// How deep below a person's session it is.
    #[must_use]
    pub fn depth(&self) -> u32 {
        match self.origin {
            Some(Origin::Call { depth, .. } | Origin::Stage { depth, .. }) => depth,
            Some(Origin::Fork { .. }) | None => 0,
        }
    }
}

/// Refused before it ran, because it does not fit.
pub(crate) fn is_invalid(kind: Kind) -> bool {
    kind.row().error_type == crate::fault::ErrorType::Validation
        || matches!(kind, Kind::UnknownTool | Kind::RepeatedCallStopped)
}

impl Turn {
    fn apply(&mut self, event: &Event, at: Timestamp) {
        match event {
            Event::CancelRequested { .. } => self.cancelling = true,
            Event::ChildEnded { usage, .. } => self.usage += *usage,
            Event::QuestionAsked { .. } if self.phase == Phase::Pipeline => {
                self.phase = Phase::Confirming;
            }
            Event::PlanMade { .. } | Event::PlanCancelled { .. }
                if self.phase == Phase::Confirming =>
            {
                self.phase = Phase::Pipeline;
            }
            Event::StepStarted { step, attempt, .. } => {
                self.step = *step;
                self.phase = Phase::Asking { attempt: *attempt };
                self.calls.clear();
            }
            Event::TextCame { .. } | Event::ThoughtCame { .. } => self.partial = true,
            Event::AnswerAbandoned { .. } => self.partial = false,
            // What fails beside the work is not what the work recovers from.
            Event::FaultRaised { fault, .. } if fault.operation() == Operation::RunHook => {}
            Event::FaultRaised { fault, scope: Scope { call: None, step: Some(_), .. } } => {
                self.too_long |= fault.kind() == Kind::ContextTooLong;
                self.failing.get_or_insert(Failing { kind: fault.kind(), since: at });
            }
            Event::FaultRaised { fault, scope: Scope { call: Some(id), .. } } => {
                self.with_call(id, |call| call.failed_once(fault.kind(), at));
            }
            Event::RetryScheduled { next_attempt, due_at, scope, .. } => match &scope.call {
                Some(id) => self.with_call(id, |call| call.wait(*next_attempt, *due_at)),
                None => self.phase = Phase::Waiting { attempt: *next_attempt, until: *due_at },
            },
            Event::QuestionAsked {
                question,
                call,
                arguments,
                repairs,
                digest,
                idempotent,
                expires_at,
                ..
            } => {
                let asked = CallState::Asked {
                    question: question.clone(),
                    arguments: arguments.clone(),
                    repairs: repairs.clone(),
                    digest: digest.clone(),
                    idempotent: *idempotent,
                    expires_at: *expires_at,
                };
                self.with_call(call, |call| call.state = asked);
            }
            Event::QuestionAnswered {
                call, decision: Decision::Allow, arguments, note, ..
            } => {
                self.with_call(call, |call| call.approve(arguments.clone(), note.clone()));
            }
            Event::CallStarted { call, arguments, attempt, idempotent, .. } => {
                self.with_call(call, |call| call.start(*attempt, arguments, *idempotent, at));
            }
            _ => {}
        }
    }

    /// The step is over: tells the brake.
    fn note_step(&mut self) {
        let mut failed = Vec::new();
        for call in &self.calls {
            match &call.state {
                CallState::Ended { outcome: Outcome::Done(_), .. } => {
                    return self.brake.note_success();
                }
                CallState::Ended { outcome: Outcome::Failed(failure), invalid } => {
                    let key = invalid.then(|| call_key(&call.tool, &call.written));
                    failed.push((failure.fault.kind(), key));
                }
                _ => {}
            }
        }
        self.brake.note_failures(failed);
    }

    fn with_call(&mut self, id: &CallId, change: impl FnOnce(&mut Call)) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == *id && call.is_open()) {
            change(call);
        }
    }

    /// A call of the current step.
    #[must_use]
    pub fn call(&self, id: &CallId) -> Option<&Call> {
        self.calls.iter().find(|call| call.id == *id)
    }

    /// Everything that is open waits for a person.
    #[must_use]
    pub fn waits_for_a_person(&self) -> bool {
        let mut open = self.calls.iter().filter(|call| call.is_open()).peekable();
        let asks = self.phase == Phase::Calling
            && open.peek().is_some()
            && open.all(|call| matches!(call.state, CallState::Asked { .. }));
        asks || self.phase == Phase::Confirming
    }

    /// The results of the step, in the model's order.
    fn results(&self, lang: Lang) -> Vec<Block> {
        self.calls
            .iter()
            .filter_map(|call| match &call.state {
                CallState::Ended { outcome, .. } => {
                    let (content, is_error) = outcome.told_to_model(lang);
                    Some(Block::ToolResult { call: call.id.clone(), is_error, content })
                }
                _ => None,
            })
            .collect()
    }
}

impl Call {
    /// Has it no outcome yet?
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self.state, CallState::Ended { .. })
    }

    fn approve(&mut self, other: Option<Value>, note: Option<String>) {
        if let CallState::Asked { arguments, .. } = &self.state {
            let edited = other.is_some();
            let arguments = other.unwrap_or_else(|| arguments.clone());
            self.state =
                CallState::Requested { approved: Some(Approved { arguments, edited, note }) };
        }
    }

    fn start(&mut self, attempt: u32, arguments: &Value, idempotent: bool, at: Timestamp) {
        let (failing, remark) = match &self.state {
            CallState::Waiting { failing, remark, .. } => (Some(failing.clone()), remark.clone()),
            CallState::Started { failing, remark, .. } => (failing.clone(), remark.clone()),
            CallState::Requested { approved: Some(approved) } => (None, approved.remark()),
            _ => (None, None),
        };
        let arguments = arguments.clone();
        self.state = CallState::Started { attempt, arguments, idempotent, at, failing, remark };
    }

    fn failed_once(&mut self, kind: Kind, at: Timestamp) {
        if let CallState::Started { failing, .. } = &mut self.state {
            failing.get_or_insert(Failing { kind, since: at });
        }
    }

    fn wait(&mut self, attempt: u32, until: Timestamp) {
        if let CallState::Started { arguments, failing: Some(failing), remark, .. } = &self.state {
            let (arguments, failing) = (arguments.clone(), failing.clone());
            let remark = remark.clone();
            self.state = CallState::Waiting { attempt, arguments, until, failing, remark };
        }
    }
}

/// About how many tokens a message is: four bytes of text a token, and something for a picture.
#[must_use]
pub fn estimate_tokens(message: &Message) -> u64 {
    const IMAGE_TOKENS: usize = 1_500;
    let bytes: usize = message
        .content
        .iter()
        .map(|block| match block {
            Block::Text(text) | Block::Opaque(text) => text.len(),
            Block::Thinking { text, .. } => text.len(),
            Block::ToolUse(call) => call.name.len() + call.arguments.len() + 16,
            Block::ToolResult { content, .. } => content.len() + 16,
            Block::Image { .. } => IMAGE_TOKENS * 4,
        })
        .sum();
    (bytes as u64).div_ceil(4) + 4
}

/// The first place, from `from` on, where a tool use has no result right behind it, or a result no use
/// right before it.
#[must_use]
pub fn unpaired(history: &[Message], from: usize) -> Option<usize> {
    let uses = |message: &Message| -> Vec<CallId> {
        let ids = message.content.iter().filter_map(|block| match block {
            Block::ToolUse(call) => Some(call.id.clone()),
            _ => None,
        });
        ids.collect()
    };
    let results = |message: &Message| -> Vec<CallId> {
        let ids = message.content.iter().filter_map(|block| match block {
            Block::ToolResult { call, .. } => Some(call.clone()),
            _ => None,
        });
        ids.collect()
    };
    (from..history.len()).find(|&index| {
        let wanted = uses(&history[index]);
        let given = history.get(index + 1).map(results).unwrap_or_default();
        let orphans = index == from
            && from > 0
            && !results(&history[index]).is_empty()
            && uses(&history[index - 1]).is_empty();
        wanted != given || orphans
    })
}
