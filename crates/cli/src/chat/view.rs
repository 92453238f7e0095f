//! State of the conversation screen: a pure fold of records, without a terminal.

use std::collections::VecDeque;

use budao_core::{
    Fault, Lang, Record, Timestamp,
    activity::{Activity, ActivityFold, ControlRequest, MessageContent, TurnContext},
    event::{CommandId, Decision, Seq, Settings, StopReason},
    message::{self, Block, CallId},
    spending::{self, shown_amount},
    tool::Outcome,
};
use budao_runtime::Question;

use crate::{
    symbols::one_line,
    terminal::Terminal,
    transcript::{self, TranscriptPrinter},
};

/// Maximum entries kept; older ones are only in the journal.
const ENTRIES: usize = 2_000;
/// Maximum bytes kept of one text or thought.
const TEXT_BYTES: usize = 100_000;
/// Maximum bytes kept of a running call's output.
const OUTPUT_BYTES: usize = 4_000;

/// One entry of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ChatEntry {
    /// A message of the user, with its delivery state.
    UserMessage { command: CommandId, text: String, state: DeliveryState },
    /// Text of the model; void if its attempt was abandoned.
    Text { step: u32, text: String, is_void: bool },
    /// Thinking of the model; void if its attempt was abandoned.
    Thought { step: u32, text: String, is_void: bool },
    /// A tool call, updated in place while it runs.
    Call(CallView),
    /// A question whether a call may run, and its answer.
    Question { question: Question, reason: String, answer: QuestionReply },
    /// A fault outside a call's outcome, for example one that is retried.
    Fault(Box<FaultView>),
    /// A scheduled retry with its due time; over once the next attempt starts.
    Retry { next: u32, of: u32, due: Timestamp, is_over: bool },
    /// A transcript line for any other event.
    Notice(String),
    /// The end of a turn, with its summary line.
    End { stop: StopReason, line: String },
}

/// Delivery state of a user message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryState {
    Pending,
    Accepted,
    Withdrawn,
}

/// The answer to a question, or its absence.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum QuestionReply {
    None,
    Answered { decision: Decision, by: String, note: Option<String> },
    Expired,
}

/// A tool call and its progress.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallView {
    pub(crate) id: CallId,
    pub(crate) tool: String,
    pub(crate) arguments: String,
    pub(crate) attempt: u32,
    pub(crate) repaired: usize,
    /// Start time; none while the call waits, and if it never ran.
    pub(crate) since: Option<Timestamp>,
    /// The last [`OUTPUT_BYTES`] of the call's output.
    pub(crate) output: String,
    pub(crate) end: Option<CallEnd>,
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CallEnd {
    pub(crate) duration_ms: u64,
    /// The result as one line, shortened; empty if the call failed.
    pub(crate) gave: String,
    pub(crate) fault: Option<Box<FaultView>>,
}

/// The cost of a turn, as its records say.
#[derive(Clone, Debug, Default, PartialEq)]
struct TurnCost {
    micros: u64,
    currency: String,
    is_estimate: bool,
}

/// A fault with the renderings for its audiences.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FaultView {
    pub(crate) seq: Seq,
    pub(crate) turn: u64,
    pub(crate) fault: Fault,
    pub(crate) tool: Option<String>,
    /// The JSON the model received; none if the fault is not a call's outcome, because then the model receives nothing.
    pub(crate) model: Option<String>,
    /// True if recovery from this fault failed.
    pub(crate) is_given_up: bool,
}

/// The conversation so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) lang: Lang,
    pub(crate) entries: VecDeque<ChatEntry>,
    /// Number of entries removed from the front to stay within [`ENTRIES`].
    pub(crate) dropped: usize,
    pub(crate) settings: Settings,
    fold: ActivityFold,
    /// True if the running turn is being cancelled.
    pub(crate) is_cancelled: bool,
    /// What the running turn cost so far; none without prices.
    cost: Option<TurnCost>,
    /// Open questions, oldest first.
    pub(crate) questions: VecDeque<Question>,
    /// Position of the last record applied.
    pub(crate) head: Seq,
}

impl View {
    pub(crate) fn new(lang: Lang) -> Self {
        Self { lang, ..Self::default() }
    }

    /// The turn that runs now.
    pub(crate) fn turn(&self) -> Option<TurnContext> {
        self.fold.turn()
    }

    /// Applies a record. Records must come in order.
    pub(crate) fn take(&mut self, record: &Record) {
        self.head = record.seq;
        let turn = self.fold.turn();
        let Some(activity) = self.fold.apply(&record.event, record.at, record.turn) else { return };
        match activity {
            Activity::SessionOpened { settings, .. } | Activity::SettingsChanged { settings } => {
                self.settings = settings.clone();
            }
            Activity::MessageAccepted { command, content } => match content {
                MessageContent::Blocks(content) | MessageContent::Timer { content, .. } => {
                    self.message(command, message::text_of(content));
                }
                MessageContent::Pipeline { question, .. } => {
                    self.message(command, question.to_owned());
                }
                MessageContent::Retry { .. } => self.line(record),
            },
            Activity::TurnStarted { message } => {
                self.cost = None;
                self.sent(message, DeliveryState::Accepted);
            }
            Activity::Annotated { topic, data } if topic == spending::TOPIC => self.add_cost(data),
            Activity::TurnEnded { stop, fault, .. } => self.turn_ended(stop, fault, turn, record),
            Activity::StepStarted { .. } => self.retries_over(),
            Activity::Text { step, text } => self.words(step, text),
            Activity::Thought { step, text } => self.thought(step, text),
            Activity::Answered { step, content, .. } => {
                self.answered(step, content, turn.is_some_and(|turn| turn.is_streamed));
            }
            Activity::AnswerAbandoned { step, .. } => self.void(step),
            Activity::ControlRequested { request, .. } => self.controlled(request, record),
            _ => self.take_call(activity, record),
        }
    }

    /// Applies facts of calls, questions, faults and retries; others become a transcript line.
    fn take_call(&mut self, activity: Activity<'_>, record: &Record) {
        match activity {
            Activity::CallStarted { call, tool, arguments, attempt, repairs } => {
                let started = CallView {
                    attempt,
                    repaired: transcript::repaired(repairs),
                    since: Some(record.at),
                    ..CallView::wanted(call, tool, &arguments.to_string())
                };
                match self.call(call) {
                    Some(again) => *again = started,
                    None => self.push(ChatEntry::Call(started)),
                }
            }
            Activity::CallOutput { call, text } => {
                if let Some(call) = self.call(call) {
                    append(&mut call.output, text, OUTPUT_BYTES);
                }
            }
            Activity::CallEnded { call, tool, outcome, duration_ms } => {
                self.call_ended(call, tool, outcome, duration_ms, record);
            }
            Activity::QuestionAsked(asked) => {
                let (question, reason) = (Question::from(asked), asked.reason.to_owned());
                self.questions.push_back(question.clone());
                let answer = QuestionReply::None;
                self.push(ChatEntry::Question { question, reason, answer });
            }
            Activity::QuestionClosed { question, answer, .. } => {
                let reply = answer.map_or(QuestionReply::Expired, |answer| {
                    let (by, note) = (one_line(answer.by), answer.note.map(one_line));
                    QuestionReply::Answered { decision: answer.decision, by, note }
                });
                self.replied(question, reply);
            }
            Activity::Fault { fault, is_final: true, .. } => self.gave_up(fault, record),
            Activity::Fault { fault, scope, .. } => {
                self.push(ChatEntry::Fault(Box::new(FaultView {
                    tool: scope.tool.as_deref().map(one_line),
                    ..FaultView::of(fault, record)
                })));
            }
            Activity::RetryScheduled {
                next_attempt: next, max_attempts: of, due_at: due, ..
            } => {
                self.push(ChatEntry::Retry { next, of, due, is_over: false });
            }
            Activity::Recovered { .. } => {
                self.retries_over();
                self.line(record);
            }
            _ => self.line(record),
        }
    }

    fn message(&mut self, command: &CommandId, text: String) {
        let (command, state) = (command.clone(), DeliveryState::Pending);
        self.push(ChatEntry::UserMessage { command, text, state });
    }

    /// Adds the transcript's line for an event that has no entry type of its own.
    fn line(&mut self, record: &Record) {
        let printer = TranscriptPrinter { terminal: &Terminal::plain(), lang: self.lang };
        if let Some(line) = printer.line(record) {
            self.push(ChatEntry::Notice(line));
        }
    }

    fn push(&mut self, entry: ChatEntry) {
        self.entries.push_back(entry);
        if self.entries.len() > ENTRIES {
            self.entries.pop_front();
            self.dropped += 1;
        }
    }

    fn sent(&mut self, message: &CommandId, now: DeliveryState) {
        for entry in self.entries.iter_mut().rev() {
            if let ChatEntry::UserMessage { command, state, .. } = entry
                && command == message
            {
                *state = now;
                return;
            }
        }
    }

    fn words(&mut self, of: u32, more: &str) {
        if let Some(ChatEntry::Text { step, text, is_void: false }) = self.entries.back_mut()
            && *step == of
        {
            return append(text, more, TEXT_BYTES);
        }
        self.push(ChatEntry::Text { step: of, text: more.to_owned(), is_void: false });
    }

    /// Adds the text if it did not arrive as deltas, and an entry for each requested call.
    fn answered(&mut self, step: u32, content: &[Block], is_streamed: bool) {
        let text = message::text_of(content);
        if !is_streamed && !text.is_empty() {
            self.words(step, &text);
        }
        for block in content {
            if let Block::ToolUse(wanted) = block {
                let call = CallView::wanted(&wanted.id, &wanted.name, &wanted.arguments);
                self.push(ChatEntry::Call(call));
            }
        }
    }

    fn thought(&mut self, of: u32, more: &str) {
        if let Some(ChatEntry::Thought { step, text, is_void: false }) = self.entries.back_mut()
            && *step == of
        {
            return append(text, more, TEXT_BYTES);
        }
        self.push(ChatEntry::Thought { step: of, text: more.to_owned(), is_void: false });
    }

    /// Marks text and thoughts of the step's abandoned attempt as void.
    fn void(&mut self, of: u32) {
        for entry in self.entries.iter_mut().rev() {
            match entry {
                ChatEntry::Text { step, is_void, .. }
                | ChatEntry::Thought { step, is_void, .. }
                    if *step == of =>
                {
                    *is_void = true;
                }
                border if is_border(border) => return,
                _ => {}
            }
        }
    }

    fn call(&mut self, id: &CallId) -> Option<&mut CallView> {
        self.entries.iter_mut().rev().find_map(|entry| match entry {
            ChatEntry::Call(call) if call.id == *id => Some(call),
            _ => None,
        })
    }

    fn call_ended(
        &mut self,
        id: &CallId,
        tool: &str,
        outcome: &Outcome,
        duration_ms: u64,
        record: &Record,
    ) {
        let fault = outcome.fault().map(|fault| {
            let model = Some(outcome.render_for_model(self.settings.language).0);
            let tool = Some(one_line(tool));
            Box::new(FaultView { tool, model, ..FaultView::of(fault, record) })
        });
        let gave = match outcome {
            Outcome::Done(output) => transcript::preview(&one_line(&value_text(&output.data))),
            Outcome::Failed(_) => String::new(),
        };
        let end = Some(CallEnd { duration_ms, gave, fault });
        if let Some(call) = self.call(id) {
            call.end = end;
            return;
        }
        self.push(ChatEntry::Call(CallView { end, ..CallView::wanted(id, tool, "") }));
    }

    fn replied(&mut self, to: &budao_core::event::QuestionId, reply: QuestionReply) {
        self.questions.retain(|question| question.id != *to);
        for entry in self.entries.iter_mut().rev() {
            if let ChatEntry::Question { question, answer, .. } = entry
                && question.id == *to
            {
                *answer = reply;
                return;
            }
        }
    }

    fn gave_up(&mut self, fault: &Fault, record: &Record) {
        self.retries_over();
        let last = self.entries.iter_mut().rev().find_map(|entry| match entry {
            ChatEntry::Fault(fault_view) if fault_view.fault.kind() == fault.kind() => {
                Some(fault_view)
            }
            _ => None,
        });
        if let Some(last) = last.filter(|last| last.turn == record.turn) {
            last.is_given_up = true;
            return;
        }
        let fault_view = FaultView { is_given_up: true, ..FaultView::of(fault, record) };
        self.push(ChatEntry::Fault(Box::new(fault_view)));
    }

    fn retries_over(&mut self) {
        for entry in self.entries.iter_mut().rev().take(16) {
            if let ChatEntry::Retry { is_over, .. } = entry {
                *is_over = true;
            }
        }
    }

    fn controlled(&mut self, request: ControlRequest<'_>, record: &Record) {
        match request {
            ControlRequest::Withdraw(message) => self.sent(message, DeliveryState::Withdrawn),
            ControlRequest::Cancel(_) => {
                self.is_cancelled = true;
                self.line(record);
            }
            _ => self.line(record),
        }
    }

    fn turn_ended(
        &mut self,
        stop: StopReason,
        fault: Option<&Fault>,
        turn: Option<TurnContext>,
        record: &Record,
    ) {
        self.retries_over();
        self.questions.clear();
        self.is_cancelled = false;
        let shown = turn.and_then(|turn| turn.last_fault);
        let is_new = |fault: &&Fault| stop == StopReason::Failed && shown != Some(fault.kind());
        if let Some(fault) = fault.filter(is_new) {
            self.push(ChatEntry::Fault(Box::new(FaultView::of(fault, record))));
        }
        let printer = TranscriptPrinter { terminal: &Terminal::plain(), lang: self.lang };
        let mut line = printer.line(record).unwrap_or_default();
        if let Some(cost) = self.cost.take() {
            let mark = if cost.is_estimate { "≈ " } else { "" };
            line.push_str(&format!(" · {mark}{}", shown_amount(cost.micros, &cost.currency)));
        }
        self.push(ChatEntry::End { stop, line });
    }

    /// Adds what a request cost, or a child session.
    fn add_cost(&mut self, data: &serde_json::Value) {
        let (Some(micros), Some(currency)) = (data["cost"].as_u64(), data["currency"].as_str())
        else {
            return;
        };
        let cost = self.cost.get_or_insert_default();
        cost.micros = cost.micros.saturating_add(micros);
        currency.clone_into(&mut cost.currency);
        cost.is_estimate |= micros > 0 && data["is_estimate"] == true;
    }

    /// All faults, including those of calls, oldest first.
    pub(crate) fn faults(&self) -> impl DoubleEndedIterator<Item = &FaultView> {
        self.entries.iter().filter_map(|entry| match entry {
            ChatEntry::Fault(fault_view) => Some(&**fault_view),
            ChatEntry::Call(CallView {
                end: Some(CallEnd { fault: Some(fault_view), .. }),
                ..
            }) => Some(&**fault_view),
            _ => None,
        })
    }

    /// Due time of the next retry, if one is scheduled.
    pub(crate) fn next_try(&self) -> Option<Timestamp> {
        self.entries.iter().rev().take(16).find_map(|entry| match entry {
            ChatEntry::Retry { due, is_over: false, .. } => Some(*due),
            _ => None,
        })
    }
}

/// True for the entry that separates two turns.
fn is_border(entry: &ChatEntry) -> bool {
    matches!(entry, ChatEntry::End { .. })
}

impl CallView {
    fn wanted(id: &CallId, tool: &str, arguments: &str) -> Self {
        Self {
            id: id.clone(),
            tool: one_line(tool),
            arguments: one_line(arguments),
            attempt: 1,
            repaired: 0,
            since: None,
            output: String::new(),
            end: None,
        }
    }
}

impl FaultView {
    fn of(fault: &Fault, record: &Record) -> Self {
        Self {
            seq: record.seq,
            turn: record.turn,
            fault: fault.clone().with_trace(record.trace),
            tool: None,
            model: None,
            is_given_up: false,
        }
    }
}

/// Strings without quotes, null as nothing, other values as JSON.
fn value_text(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Appends `more` and removes text from the front beyond `most` bytes.
fn append(text: &mut String, more: &str, most: usize) {
    text.push_str(more);
    if text.len() > most {
        let mut from = text.len() - most;
        while !text.is_char_boundary(from) {
            from += 1;
        }
        text.replace_range(..from, "…");
    }
}
