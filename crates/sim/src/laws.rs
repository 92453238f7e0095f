//! The laws that every history of the native engine must obey. A reader checks them in one pass, record by record.

pub(crate) mod answers;
mod calls;
#[cfg(feature = "gateways")]
pub(crate) mod cli;
mod progress;
#[cfg(feature = "gateways")]
pub(crate) mod views;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

use budao_core::{
    event::{CallStart, CommandId, Event, QuestionId, Record, SessionId, StopReason, TaskId},
    fallback::ModelChangeReason,
    fault::{Fault, Kind, Operation},
    limits::Limits,
    message::{Block, CallId, ToolUse, text_of},
    session::Session,
    timer::Timers,
    tool::Outcome,
};
use budao_journal::{Memory, fold};
use budao_pipeline::replay::replay;

use crate::check::Violations;
use progress::ProgressTracker;

/// The name of an event from its JSON.
pub(crate) fn name(event: &str) -> &str {
    event.split('"').nth(1).unwrap_or_default()
}

/// Checks one history.
pub(crate) fn of_session(history: &[Record], limits: &Limits, violations: &Violations) {
    let mut reader = Reader::new(limits, violations);
    for record in history {
        reader.read(record);
    }
    reader.close(history);
}

/// Checks that folding from the snapshot gives the same state as folding all records.
pub(crate) async fn of_snapshot(
    kept: &Memory,
    session: SessionId,
    history: &[Record],
    violations: &Violations,
) {
    let mut whole = Session::default();
    whole.apply_all(history);
    let same = fold(kept, session).await.is_ok_and(|(state, _)| state == whole);
    violations.expect(same, "a snapshot is the fold of its records", || session.to_string());
    let mut in_doubt = BTreeSet::new();
    for record in history {
        match &record.event {
            Event::ToolCallEnded { call, outcome, .. } if outcome.is_in_doubt() => {
                in_doubt.insert(call);
            }
            Event::DoubtSettled { call, .. } => {
                in_doubt.remove(call);
            }
            _ => {}
        }
    }
    let listed: BTreeSet<&CallId> =
        whole.doubts.all_open().iter().map(|doubt| &doubt.call).collect();
    violations.expect(listed == in_doubt, "a call in doubt is listed until it is settled", || {
        format!("{session}: {listed:?}, not {in_doubt:?}")
    });
    for record in history {
        let Event::DoubtSettled { call, .. } = &record.event else { continue };
        let about = format!("(call {call})");
        let blocks = whole.history.iter().flat_map(|message| &message.content);
        // A summary may quote what the model was told.
        let is_told = |text: &str| text.contains(&about) && !text.starts_with("[Summary of ");
        let times = blocks.filter(|it| matches!(it, Block::Text(text) if is_told(text)));
        let is_told_once = times.count() <= 1;
        violations
            .expect(is_told_once, "a settled doubt is told once", || format!("{session} {call}"));
    }
}

/// Checks that today's rules decide again what the records say.
pub(crate) fn of_replay(
    session: SessionId,
    history: &[Record],
    limits: &Limits,
    violations: &Violations,
) {
    let difference = replay(Session::default(), history, limits).difference;
    violations.expect(difference.is_none(), "a history follows from its own inputs", || {
        let mut text = format!("{session}: {difference:?}");
        text.truncate(text.floor_char_boundary(1_200));
        text
    });
}

/// The state of a reader at its position in the history.
struct Reader<'a> {
    limits: &'a Limits,
    violations: &'a Violations,
    at: String,
    seq: u64,
    /// Messages that are accepted and not started, with their marks.
    waiting: BTreeMap<CommandId, QueuedMessage>,
    accepted: BTreeSet<CommandId>,
    turn: Option<OpenTurn>,
    turns: u64,
    /// The last turn and its mark, if it ended with a fault.
    failed: Option<(u64, Option<String>)>,
    /// The session was closed, so waiting messages are not started.
    closed: bool,
    /// Calls whose outcome is unknown and not settled.
    doubts: BTreeSet<CallId>,
    /// The timers that are set.
    timers: Timers,
}

#[derive(Default)]
struct QueuedMessage {
    mark: Option<String>,
    pipeline: bool,
}

#[derive(Default)]
struct OpenTurn {
    number: u64,
    mark: Option<String>,
    /// An aggregator answers this turn; its text is not streamed.
    pipeline: bool,
    /// The history was compacted in this turn, which counts as a recovery.
    compacted: bool,
    /// The text streamed so far in the current step; `None` outside a step.
    shown: Option<String>,
    calls: BTreeMap<CallId, OpenCall>,
    retrying: BTreeSet<(Operation, Option<CallId>)>,
    /// The current step and its attempt.
    step: (u32, u32),
    stuck: ProgressTracker,
    questions: BTreeMap<QuestionId, CallId>,
    tasks: BTreeSet<TaskId>,
    planning: bool,
    aggregating: bool,
    cancelling: bool,
    wait: waits::WaitTime,
}

#[derive(Default)]
struct OpenCall {
    /// Its place in the model's answer.
    place: usize,
    /// It has a slot: it may have begun.
    runs: bool,
    /// It was interrupted, and its tool is asked what became of it.
    asked_tool: bool,
    /// It may run and waits for a slot.
    queued: bool,
    attempts: u32,
    tried: u32,
    idempotent: bool,
    asked: bool,
    denied: bool,
    ended: bool,
    /// The last attempt is said to have done nothing: by its failure, or by its tool after a crash.
    undone: bool,
}

impl<'a> Reader<'a> {
    fn new(limits: &'a Limits, violations: &'a Violations) -> Self {
        Self {
            limits,
            violations,
            at: String::new(),
            seq: 0,
            waiting: BTreeMap::new(),
            accepted: BTreeSet::new(),
            turn: None,
            turns: 0,
            failed: None,
            closed: false,
            doubts: BTreeSet::new(),
            timers: Timers::default(),
        }
    }

    fn law(&self, holds: bool, promise: &'static str) {
        self.violations.expect(holds, promise, || self.at.clone());
    }

    fn read(&mut self, record: &Record) {
        self.at = format!("{} at {}: {:?}", record.session, record.seq, record.event);
        self.at.truncate(self.at.floor_char_boundary(900));
        self.law(record.seq == self.seq + 1, "positions have no gap");
        self.law(
            (self.seq == 0) == matches!(record.event, Event::SessionOpened { .. }),
            "a session is opened first, once",
        );
        self.seq = record.seq;
        self.order(record);
        self.timers(record);
        self.messages(record);
        self.doubts(&record.event);
        if let Some(mut turn) = self.turn.take() {
            self.answers(&mut turn, &record.event);
            self.questions(&mut turn, &record.event);
            self.calls(&mut turn, &record.event);
            self.slots(&mut turn, &record.event);
            self.retries(&mut turn, &record.event);
            self.bounds(&mut turn, &record.event);
            self.waits(&mut turn, record);
            self.stages(&mut turn, &record.event);
            turn.cancelling |= matches!(
                record.event,
                Event::CancelRequested { .. } | Event::CloseRequested { .. }
            );
            self.turn = Some(turn);
            if let Event::TurnEnded { stop, fault, .. } = &record.event {
                self.end(*stop, fault.as_ref());
            }
        }
    }

    /// Every record of a turn lies between the turn's start and its end.
    fn order(&mut self, record: &Record) {
        // A dropped late arrival and the session's end name a turn that may be over.
        let after =
            matches!(record.event, Event::LateArrivalDropped { .. } | Event::SessionEnded { .. });
        if after || record.turn == 0 {
            return;
        }
        let open = self.turn.as_ref().map(|turn| turn.number);
        let begins = matches!(record.event, Event::TurnStarted { .. });
        let fits = if begins { record.turn == self.turns + 1 } else { open == Some(record.turn) };
        self.law(fits, "nothing of a turn comes before its start or after its end");
    }

    /// Each time of a timer fires once, not before it has come.
    fn timers(&mut self, record: &Record) {
        match &record.event {
            Event::TimerFired { timer, due, .. } => {
                let set = self.timers.get(timer);
                let is_its_time = set.is_some_and(|set| set.next == *due && set.queued.is_none());
                self.law(is_its_time, "each firing of a timer happens once");
                self.law(*due <= record.at, "no timer fires before its time");
            }
            Event::TimerCancelled { timer, .. } => {
                let is_set = self.timers.get(timer).is_some();
                self.law(is_set, "only a timer that is set is cancelled");
            }
            _ => {}
        }
        self.timers.apply(&record.event, record.at);
    }

    fn messages(&mut self, record: &Record) {
        match &record.event {
            Event::TimerFired { command, content, .. } => {
                let message = QueuedMessage { mark: mark(&text_of(content)), pipeline: false };
                self.accept(command, message, "a firing is accepted once");
            }
            Event::MessageAccepted { command, content } => {
                let message = QueuedMessage { mark: mark(&text_of(content)), pipeline: false };
                self.accept(command, message, "a message is accepted once");
                let room = self.waiting.len() <= self.limits.queued_messages;
                self.law(room, "no more messages wait than may");
            }
            Event::PipelineAccepted { command, question, .. } => {
                let message = QueuedMessage { mark: mark(question), pipeline: true };
                self.accept(command, message, "a message is accepted once");
            }
            Event::RetryAccepted { command, of_turn } => {
                let failed = self.failed.as_ref().filter(|(turn, _)| turn == of_turn);
                let is_last = *of_turn == self.turns && self.waiting.is_empty();
                let may_retry = failed.is_some() && is_last;
                let mark = failed.and_then(|(_, mark)| mark.clone());
                self.law(may_retry, "only the last turn is retried, if it failed");
                let message = QueuedMessage { mark, pipeline: false };
                self.accept(command, message, "a retry is accepted once");
            }
            Event::TurnStarted { message } => {
                self.law(self.turn.is_none(), "one turn at a time");
                let waiting = self.waiting.remove(message);
                self.law(waiting.is_some(), "a turn answers a message that waits");
                self.turns += 1;
                let QueuedMessage { mark, pipeline } = waiting.unwrap_or_default();
                let number = self.turns;
                self.turn = Some(OpenTurn { number, mark, pipeline, ..OpenTurn::default() });
            }
            Event::MessageWithdrawn { command, .. } => {
                let waited = self.waiting.remove(command).is_some();
                self.law(waited, "only a message that waits is taken back");
            }
            Event::TurnEnded { fault, .. } => {
                self.law(self.turn.is_some(), "a turn ends once");
                let ended = self.turn.as_ref().filter(|_| fault.is_some());
                self.failed = ended.map(|turn| (turn.number, turn.mark.clone()));
            }
            Event::SessionEnded { .. } => {
                self.closed = true;
                self.law(self.turn.is_none(), "a session ends between turns");
            }
            _ => {}
        }
    }

    fn accept(&mut self, command: &CommandId, message: QueuedMessage, promise: &'static str) {
        let is_new = self.accepted.insert(command.clone());
        self.law(is_new, promise);
        self.closed = false;
        self.waiting.insert(command.clone(), message);
    }

    /// Streamed text appears once, belongs to its turn, and adds up to the answer.
    fn answers(&self, turn: &mut OpenTurn, event: &Event) {
        match event {
            Event::StepStarted { .. } => {
                let partial = turn.shown.as_ref().is_some_and(|shown| !shown.is_empty());
                self.law(!partial, "half an answer is abandoned before the next is begun");
                let open = turn.calls.values().any(|call| !call.ended);
                self.law(!open, "every call has its outcome before a model is asked");
                turn.calls.clear();
                turn.shown = Some(String::new());
            }
            Event::TextDelta { text, .. } => {
                self.belongs(turn, text);
                match &mut turn.shown {
                    Some(shown) => shown.push_str(text),
                    None => self.law(turn.pipeline, "words come while a model is asked"),
                }
            }
            Event::AnswerAbandoned { .. } => turn.shown = Some(String::new()),
            Event::ModelAnswered { content, .. } => {
                let text = text_of(content);
                self.belongs(turn, &text);
                let shown = turn.shown.take().unwrap_or_default();
                self.law(shown.is_empty() || shown == text, "what was shown is what was answered");
                let calls = uses(content).enumerate();
                turn.calls = calls
                    .map(|(place, call)| {
                        (call.id.clone(), OpenCall { place, ..Default::default() })
                    })
                    .collect();
                let count = uses(content).count();
                self.law(turn.calls.len() == count, "call ids are unique");
            }
            _ => {}
        }
    }

    fn belongs(&self, turn: &OpenTurn, text: &str) {
        let ours = match (&turn.mark, mark(text)) {
            (Some(ours), Some(said)) => said == *ours || said.starts_with(&format!("{ours}.")),
            _ => true,
        };
        self.law(ours, "an answer belongs to its own turn");
    }

    /// Every fault that is retried is later recorded as recovered or not recovered.
    fn retries(&self, turn: &mut OpenTurn, event: &Event) {
        match event {
            Event::RetryScheduled { operation, scope, .. } => {
                turn.retrying.insert((*operation, scope.call.clone()));
            }
            // A request that waits because of the service's fault recovers when it is answered.
            Event::RequestHeld { fault: Some(_), .. } => {
                turn.retrying.insert((Operation::ModelRequest, None));
            }
            // A failed request that another model answers recovers, too.
            Event::ModelChanged { reason, .. } if *reason != ModelChangeReason::Returned => {
                turn.retrying.insert((Operation::ModelRequest, None));
            }
            Event::Recovered { operation, scope, .. } => {
                let was = turn.retrying.remove(&(*operation, scope.call.clone()));
                self.law(was || turn.compacted, "only what was tried again recovers");
            }
            Event::HistoryCompacted(_) => turn.compacted = true,
            Event::RecoveryFailed { fault, scope } => {
                turn.retrying.remove(&(fault.operation(), scope.call.clone()));
            }
            // A failed call settles its own retries.
            Event::ToolCallEnded { call, outcome: Outcome::Failed(_), .. } => {
                turn.retrying.retain(|(_, of)| of.as_ref() != Some(call));
            }
            _ => {}
        }
    }

    /// Attempts are counted and bounded. A cancelled turn starts nothing new, and neither does a stuck model.
    fn bounds(&self, turn: &mut OpenTurn, event: &Event) {
        let begins = matches!(
            event,
            Event::StepStarted { .. }
                | Event::ToolCallStarted(_)
                | Event::RetryScheduled { .. }
                | Event::PlanStarted { .. }
                | Event::TaskStarted { .. }
                | Event::AggregateStarted { .. }
        );
        self.law(!begins || !turn.cancelling, "a turn that is being stopped begins nothing");
        let most = self.limits.retry.tries;
        match event {
            Event::StepStarted { step, attempt, .. } => {
                let counted = match turn.step {
                    (before, tried) if before == *step => *attempt == tried + 1,
                    (before, _) => *step == before + 1 && *attempt == 1,
                };
                self.law(counted, "tries are counted");
                self.law(!turn.stuck.is_stuck(self.limits), "a model that is stuck is stopped");
                turn.step = (*step, *attempt);
            }
            Event::ToolCallStarted(CallStart { call, attempt, .. }) => {
                let tried = turn.calls.get(call).map_or(0, |call| call.tried);
                let counted = *attempt > tried && *attempt <= most;
                self.law(counted, "tries are counted, and no more than may be");
                if let Some(call) = turn.calls.get_mut(call) {
                    call.tried = *attempt;
                }
            }
            Event::ToolCallEnded { call, outcome: Outcome::Failed(failure), .. } => {
                // A call whose last attempt did nothing waits for the next one, and ends with its turn.
                let alone = turn
                    .calls
                    .get(call)
                    .is_some_and(|call| call.tried > 0 && !call.idempotent && !call.undone);
                let cancelled = alone && failure.fault.kind() == Kind::Cancelled;
                self.law(
                    !cancelled || turn.cancelling,
                    "a call is stopped only if somebody stops it",
                );
            }
            _ => {}
        }
        turn.stuck.hear(event);
    }

    /// Every stage that starts ends exactly once.
    fn stages(&self, turn: &mut OpenTurn, event: &Event) {
        match event {
            Event::PlanStarted { .. } => {
                self.law(!turn.planning, "one plan is made at a time");
                turn.planning = true;
            }
            Event::PlanMade { .. } | Event::PlanRefused { .. } | Event::PlanCancelled { .. } => {
                turn.planning = false;
            }
            Event::TaskStarted { task, .. } => {
                self.law(turn.tasks.insert(task.id.clone()), "a task runs once at a time");
            }
            Event::TaskEnded { task, .. } => {
                // The end of a plan may end a task that never started.
                turn.tasks.remove(task);
            }
            Event::AggregateStarted { .. } => {
                self.law(!turn.aggregating, "results are combined once at a time");
                turn.aggregating = true;
            }
            Event::AggregateEnded { .. } => {
                self.law(turn.aggregating, "what is combined was begun");
                turn.aggregating = false;
            }
            _ => {}
        }
    }

    fn end(&mut self, stop: StopReason, fault: Option<&Fault>) {
        let Some(turn) = self.turn.take() else { return };
        let (failed, kind) = (fault.is_some(), fault.map(Fault::kind));
        let held = turn.stuck.is_stuck(self.limits);
        let braked = matches!(kind, Some(Kind::FailuresExhausted | Kind::RepeatedCallStopped));
        self.law(!braked || held || turn.pipeline, "the brake holds nobody who makes progress");
        self.law(
            (stop == StopReason::Failed) == failed || stop != StopReason::EndTurn,
            "a failed turn is told from a finished one",
        );
        let partial = turn.shown.as_ref().is_some_and(|shown| !shown.is_empty());
        self.law(!partial, "half an answer is abandoned before its turn ends");
        let open = turn.calls.values().any(|call| !call.ended);
        self.law(!open, "every call has its outcome before its turn ends");
        let settled = turn.tasks.is_empty() && !turn.planning && !turn.aggregating;
        self.law(settled, "every start of a stage has its end before the turn's");
        let retrying = !turn.retrying.is_empty() && !turn.cancelling && stop != StopReason::Failed;
        self.law(!retrying, "every retry comes to an end before its turn does");
    }

    fn close(&mut self, history: &[Record]) {
        self.at = history
            .last()
            .map(|last| format!("{} at its end, {}", last.session, last.seq))
            .unwrap_or_default();
        self.law(self.turn.is_none(), "every turn ends");
        self.law(self.waiting.is_empty() || self.closed, "a message that was accepted is answered");
    }
}

fn uses(content: &[Block]) -> impl Iterator<Item = &ToolUse> {
    content.iter().filter_map(|block| match block {
        Block::ToolUse(call) => Some(call),
        _ => None,
    })
}

/// The mark of a text: `7` for `«7»`.
fn mark(text: &str) -> Option<String> {
    Some(text.split_once('«')?.1.split_once('»')?.0.to_owned())
}
