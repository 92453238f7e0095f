//! A session's state: the fold of its records, changed by nothing else.
//!
//! Replay, resume, snapshots and the running turn all use [`Session::apply`], so a session that was killed and read
//! back is the same session. `history` holds only what the next model request needs; the records keep everything.

mod call;
mod commands;
mod doubts;
mod files;
mod models;
mod pairs;
mod questions;
mod retry;
mod state;
mod turn;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    brake::Brake,
    event::{
        CommandId, Compaction, Event, Origin, Record, Seq, SessionEnd, Settings, StopReason,
        TurnNumber,
    },
    fault::{Fact, Fault, Kind, Operation},
    message::{Block, CallId, Message, Role, ToolUse, Usage, text_of},
    pipeline::{self, Pipeline},
    spending::{self, Spending},
    tally::FaultTally,
    time::Timestamp,
    timer::Timers,
    tool::{Outcome, Todo},
    trace::Trace,
};

pub(crate) use call::is_invalid;
pub use call::{ApprovedCall, Call, CallState};
pub use doubts::{Doubt, Doubts, SettledDoubt};
pub use files::SeenFiles;
pub use models::TurnModels;
pub use pairs::{estimate_content_tokens, estimate_tokens, question, unpaired};
pub use questions::{CallQuestion, OpenQuestion};
pub use state::SessionState;
pub use turn::{CapRaises, OngoingFailure, Phase, Turn, TurnWait};

/// The topic of the annotation with which an engine replaces its own state of a session. A null removes it.
pub const ENGINE_STATE: &str = "engine.state";

/// The most tools whose version a session remembers.
const TOOL_VERSIONS: usize = 512;

/// The state of a session at one position of its history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Session {
    /// The position of the last record applied.
    pub head: Seq,
    /// The settings in force.
    pub settings: Settings,
    /// The position in the settings' list of the model that is asked now or was asked last, from 0.
    pub model_position: u32,
    /// The parent session; absent for a session that a person opened.
    pub origin: Option<Origin>,
    /// Accepted messages that no turn has started to answer.
    pub queue: VecDeque<QueuedMessage>,
    /// The number of the last turn that started; 0 before the first.
    pub turns: TurnNumber,
    /// The running turn, if any.
    pub turn: Option<Turn>,
    /// The end of the previous turn; absent before the first turn ends.
    pub last: Option<LastTurn>,
    /// The messages of the next model request. Every tool use has its result whenever a model request starts.
    pub history: Arc<Vec<Arc<Message>>>,
    /// Estimated tokens of `history`.
    pub tokens: u64,
    /// Set when the session ended; a message re-opens it.
    pub ended: Option<SessionEnd>,
    /// The current to-do list, as tools last wrote it.
    pub todos: Vec<Todo>,
    /// The state in which tools last saw each file.
    pub files: SeenFiles,
    /// Tokens of all turns.
    pub usage: Usage,
    /// What the turns cost; nothing is counted without prices.
    #[serde(skip_serializing_if = "Spending::is_none")]
    pub spending: Spending,
    /// The plan → solve → aggregate pipeline that runs or ran last.
    pub pipeline: Option<Pipeline>,
    /// The faults so far and their resolutions.
    pub faults: FaultTally,
    /// The timers that are set.
    #[serde(skip_serializing_if = "Timers::is_empty")]
    pub timers: Timers,
    /// Calls whose outcome is unknown, and what people say of them.
    #[serde(skip_serializing_if = "Doubts::is_empty")]
    pub doubts: Doubts,
    /// The version of each worker's tool that last ran, by the tool's name. Another version needs a person's decision.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tool_versions: BTreeMap<String, String>,
    /// Set while the session closes: how many of the queued messages were accepted before the close.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closing: Option<usize>,
    /// What the session's engine last recorded for itself under [`ENGINE_STATE`]; only that engine reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_state: Option<Arc<serde_json::Value>>,
}

/// An accepted message that waits for its turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedMessage {
    /// The command that carried the message.
    pub command: CommandId,
    /// The content, verbatim.
    pub content: Vec<Block>,
    /// The trace of the command; its turn continues it.
    pub trace: Trace,
    /// Set when a pipeline, not the model, answers the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<pipeline::PipelineOptions>,
    /// The failed turn that the queued turn continues; it brings no message then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<TurnNumber>,
}

/// The end of the previous turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastTurn {
    /// The number of the turn, from 1.
    pub number: TurnNumber,
    /// Why the turn ended.
    pub stop: StopReason,
    /// The fault that ended the turn; absent unless it failed.
    pub fault: Option<Fault>,
    /// The index in `history` of the turn's first message.
    #[serde(default)]
    pub first_message: usize,
    /// Whether the turn was a pipeline.
    #[serde(default)]
    pub was_pipeline: bool,
}

impl Session {
    /// Applies records in order.
    pub fn apply_all<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>) {
        for record in records {
            self.apply_record(record);
        }
    }

    /// Applies one record. The caller passes records in order, without gaps.
    pub fn apply_record(&mut self, record: &Record) {
        self.apply(&record.event, record.at, record.trace);
    }

    /// Applies one event and advances `head`. The fold is total: no event can make it fail.
    pub fn apply(&mut self, event: &Event, at: Timestamp, trace: Trace) {
        self.head = self.head.saturating_add(1);
        self.faults.apply(event, at, &mut ());
        self.timers.apply(event, at);
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
            Event::SettingsChanged { settings } => self.change_settings(settings),
            Event::SessionEnded { end, .. } => {
                self.ended = Some(*end);
                self.closing = None;
            }
            Event::CloseRequested { .. } => self.closing = Some(self.queue.len()),
            Event::MessageAccepted { command, content }
            | Event::TimerFired { command, content, .. } => {
                self.ended = None;
                self.enqueue(command, content.clone(), trace, None, None);
            }
            Event::PipelineAccepted { command, question, confirm, tasks } => {
                self.ended = None;
                let asked = pipeline::PipelineOptions { confirm: *confirm, tasks: tasks.clone() };
                let content = vec![Block::Text(question.clone())];
                self.enqueue(command, content, trace, Some(asked), None);
            }
            Event::RetryAccepted { command, of_turn } => {
                self.ended = None;
                self.enqueue(command, Vec::new(), trace, None, Some(*of_turn));
            }
            Event::MessageWithdrawn { command, .. } => self.withdraw(command),
            Event::TurnStarted { message } => self.begin_turn(message, at, trace),
            Event::TurnEnded { stop, fault, usage, .. } => self.end_turn(*stop, fault, *usage, at),
            Event::TodosChanged { todos } => self.todos.clone_from(todos),
            Event::FileSeen { path, digest } => self.files.record(path, digest.as_ref()),
            Event::ModelAnswered { step, content, usage, .. } => {
                self.answered(*step, content, *usage, at);
            }
            Event::HistoryCompacted(Compaction {
                messages, summary, tokens_after, usage, ..
            }) => {
                self.compacted(*messages, summary, *tokens_after, *usage);
            }
            Event::ToolCallEnded { call, outcome, .. } => self.call_ended(call, outcome, at),
            Event::DoubtSettled { call, settlement, by, note, .. } => {
                self.doubts.settle(call, settlement, by, note.as_deref(), &self.settings);
            }
            Event::ToolCallOffered { tool, route, .. } => {
                self.note_tool_version(tool, &route.version);
                if let Some(turn) = &mut self.turn {
                    turn.apply(event, at);
                }
            }
            Event::StepStarted { .. } => {
                if !self.settings.is_foreign() {
                    self.report_settled_doubts();
                }
                if let Some(turn) = &mut self.turn {
                    turn.apply(event, at);
                }
            }
            Event::Annotated { topic, data } if topic == spending::TOPIC => {
                self.spending.apply(data);
            }
            Event::Annotated { topic, data } if topic == ENGINE_STATE => {
                self.engine_state = (!data.is_null()).then(|| Arc::new(data.clone()));
            }
            Event::ModelChanged { position, reason, fault, .. } => {
                self.change_model(*position, *reason, fault.as_ref(), at);
            }
            other => {
                if let Some(turn) = &mut self.turn {
                    turn.apply(other, at);
                }
            }
        }
    }

    /// Records the version of a worker's tool that runs. Beyond the bound, the first name is forgotten.
    fn note_tool_version(&mut self, tool: &str, version: &str) {
        self.tool_versions.insert(tool.to_owned(), version.to_owned());
        if self.tool_versions.len() > TOOL_VERSIONS {
            self.tool_versions.pop_first();
        }
    }

    fn enqueue(
        &mut self,
        command: &CommandId,
        content: Vec<Block>,
        trace: Trace,
        pipeline: Option<pipeline::PipelineOptions>,
        retry_of: Option<TurnNumber>,
    ) {
        let command = command.clone();
        self.queue.push_back(QueuedMessage { command, content, trace, pipeline, retry_of });
    }

    fn withdraw(&mut self, message: &CommandId) {
        let Some(at) = self.queue.iter().position(|queued| queued.command == *message) else {
            return;
        };
        self.queue.remove(at);
        // A withdrawn message from before the close no longer counts.
        self.closing = self.closing.map(|before| before - usize::from(at < before));
    }

    fn begin_turn(&mut self, message: &CommandId, at: Timestamp, trace: Trace) {
        let index = self.queue.iter().position(|queued| queued.command == *message);
        let queued = index.and_then(|index| self.queue.remove(index));
        let (is_prompted, retry_of) =
            (queued.is_some(), queued.as_ref().and_then(|queued| queued.retry_of));
        let (content, asked) = queued
            .filter(|_| retry_of.is_none())
            .map_or((None, None), |queued| (Some(queued.content), queued.pipeline));
        let first_message =
            retry_of.map_or(self.history.len(), |of_turn| self.reopen_history(of_turn));
        let phase = if asked.is_some() { Phase::Pipeline } else { Phase::Calling };
        if let (Some(asked), Some(content)) = (asked, &content) {
            self.pipeline = Some(Pipeline::new(text_of(content), asked));
        }
        self.turns = self.turns.saturating_add(1);
        self.spending.begin_turn();
        self.ended = None;
        self.closing = self.closing.map(|before| before.saturating_sub(1));
        self.turn = Some(Turn {
            number: self.turns,
            trace,
            message: message.clone(),
            started_at: at,
            began: self.head,
            first_message,
            step: 0,
            phase,
            partial: false,
            calls: Vec::new(),
            failing: None,
            brake: Brake::default(),
            cancelling: false,
            too_long: false,
            compacted_in_step: 0,
            wait: TurnWait::default(),
            models: TurnModels::default(),
            usage: Usage::default(),
            raises: CapRaises::default(),
        });
        if let Some(content) = content {
            self.push(Message { role: Role::User, content });
        }
        // A foreign agent makes its requests itself: what it shall read goes with a prompt.
        if is_prompted && self.settings.is_foreign() {
            self.report_settled_doubts();
        }
    }

    fn end_turn(&mut self, stop: StopReason, fault: &Option<Fault>, usage: Usage, at: Timestamp) {
        if self.turn.as_ref().is_some_and(|turn| turn.calls.iter().any(Call::is_open)) {
            self.seal_open_calls(at);
        }
        if let Some(turn) = self.turn.take() {
            self.last = Some(LastTurn {
                number: turn.number,
                stop,
                fault: fault.clone(),
                first_message: turn.first_message,
                was_pipeline: turn.phase.is_coordinated(),
            });
        }
        self.usage += usage;
    }

    /// Gives every open call a result in `history`. A complete history has none; this covers damaged ones.
    fn seal_open_calls(&mut self, at: Timestamp) {
        let calls = self.turn.iter().flat_map(|turn| &turn.calls);
        let open = calls.filter(|call| call.is_open());
        let open: Vec<_> = open.map(|call| (call.id.clone(), call.tool.to_string())).collect();
        for (id, tool) in open {
            let fault = Fault::new(Kind::OutcomeUnknown, Operation::ToolCall);
            self.call_ended(&id, &fault.with(Fact::ToolName, tool).into(), at);
        }
    }

    fn answered(&mut self, step: u32, content: &[Block], usage: Usage, at: Timestamp) {
        let Some(turn) = &mut self.turn else { return };
        turn.wait.end(at);
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
                    remote: None,
                    questions: Vec::new(),
                }),
                _ => None,
            })
            .collect();
        if !content.is_empty() {
            self.push(Message { role: Role::Assistant, content: content.to_vec() });
        }
        if usage.input_tokens > 0 && usage.estimated_tokens == 0 {
            self.tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        }
    }

    fn call_ended(&mut self, id: &CallId, outcome: &Outcome, at: Timestamp) {
        let Some(turn) = &mut self.turn else { return };
        let Some(call) = turn.calls.iter_mut().find(|call| call.id == *id && call.is_open()) else {
            return;
        };
        // A foreign program may have run a call without a word about its start.
        if outcome.is_in_doubt() {
            self.doubts.open(call, turn.number, at);
        }
        if call.tool == spending::RAISE_CAP {
            // The model did not make this call, so its history has no result.
            turn.raises.is_declined = outcome.fault().is_some();
            turn.calls.clear();
            return;
        }
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
        let first = self.turn.as_ref().map_or(usize::MAX, |turn| turn.first_message);
        let history = Arc::make_mut(&mut self.history);
        // A summary may lose the question of the running turn, so the question stays verbatim.
        let question = pairs::question(history, first, cut).cloned();
        let (asked_at, summary) =
            (usize::from(question.is_some()), Arc::new(Message::user(summary)));
        history.splice(..cut, std::iter::once(summary).chain(question));
        self.tokens = tokens_after;
        if let Some(turn) = &mut self.turn {
            turn.first_message = first.saturating_add(1).saturating_sub(cut).max(asked_at);
            turn.compacted_in_step = turn.step;
            turn.usage += usage;
            turn.too_long = false;
            turn.models.ruled_out.clear(); // A model that was too small may fit now.
        }
    }

    /// Adds what people said of calls in doubt to the next model request or prompt, once.
    fn report_settled_doubts(&mut self) {
        let notices = self.doubts.take_notices();
        if notices.is_empty() {
            return;
        }
        let content: Vec<Block> = notices.into_iter().map(Block::Text).collect();
        let message = Message { role: Role::User, content };
        if self.history.last().is_none_or(|last| last.role != Role::User) {
            return self.push(message);
        }
        self.tokens = self.tokens.saturating_add(estimate_tokens(&message));
        if let Some(last) = Arc::make_mut(&mut self.history).last_mut() {
            Arc::make_mut(last).content.extend(message.content);
        }
    }

    fn push(&mut self, message: Message) {
        self.tokens = self.tokens.saturating_add(estimate_tokens(&message));
        Arc::make_mut(&mut self.history).push(Arc::new(message));
    }

    /// The trace of the running turn; none if no turn runs.
    #[must_use]
    pub fn trace(&self) -> Trace {
        self.turn.as_ref().map_or(Trace::NONE, |turn| turn.trace)
    }

    /// The text of the model's last answer, if any.
    #[must_use]
    pub fn last_text(&self) -> Option<String> {
        let last = self.history.iter().rev().find(|message| message.role == Role::Assistant)?;
        Some(text_of(&last.content))
    }

    /// Distance from the session a person opened; 0 for that session itself.
    #[must_use]
    pub fn depth(&self) -> u32 {
        match self.origin {
            Some(Origin::Call { depth, .. } | Origin::Stage { depth, .. }) => depth,
            Some(Origin::Fork { .. }) | None => 0,
        }
    }
}
