//! The native engine: sessions by id, loaded on first use, evicted when idle.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    activity::Activity,
    engine::{Engine, ForkRequest, SessionChoice, SessionOptions, WrittenRange},
    event::{
        Answer, Command, CommandBody, CommandId, Event, Record, Seq, SessionId, StopReason,
        TurnNumber,
    },
    fault::{Fact, Fault, Kind, Mismatch, NodeIdentity, Operation},
    gate::{GateKey, GateStatus, Priority},
    limits::Limits,
    message::{Block, text_of},
    retention::{Retention, RetentionReport},
    session::Session,
    trace::Trace,
    world::World,
};
use budao_engine::{Host, HostConfig};
use budao_journal::{Journal, PageLimits, StoredRecord, fold};
use budao_scrub::Scrubber;
use budao_tools::{FINAL_ANSWER, hooks::Hooks, policy::Policy, pool::Pool};
use futures::{StreamExt, stream::BoxStream};
use serde::de::DeserializeOwned;

use crate::{
    CleanUp, ModelSource, Stages, SubAgents, ToolSource, decider::NativeFactory, gates::Gates,
    model_hooks::ModelHooks, observers::Observers, question::Question,
};

/// The parts that all sessions of a runtime share.
#[derive(Debug)]
pub(crate) struct RuntimeShared {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) models: Arc<dyn ModelSource>,
    pub(crate) tools: Arc<dyn ToolSource>,
    pub(crate) hooks: Hooks,
    pub(crate) model_hooks: ModelHooks,
    pub(crate) world: World,
    pub(crate) limits: Arc<Limits>,
    pub(crate) scrubber: Scrubber,
    pub(crate) server: Option<Arc<NodeIdentity>>,
    pub(crate) clean_ups: Vec<Arc<dyn CleanUp>>,
    pub(crate) gates: Arc<Gates>,
    pub(crate) observers: Observers,
    pub(crate) stages: Stages,
    pub(crate) sub_agents: Option<SubAgents>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) policy: Option<Arc<dyn Policy>>,
}

/// The native engine. A clone is cheap and refers to the same engine.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub(crate) shared: Arc<RuntimeShared>,
    pub(crate) host: Host<NativeFactory>,
}

/// The result of a turn that ended or waits for a person.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnResult {
    /// Number of the turn within its session.
    pub turn: TurnNumber,
    /// Trace that ties the turn's records and spans together.
    pub trace: Trace,
    /// Reason of the end; `None` while the turn waits for a person.
    pub stop: Option<StopReason>,
    /// The fault that ended the turn; `None` if there was none.
    pub fault: Option<Fault>,
    /// Text of the turn's last answer.
    pub text: String,
    /// Open questions. The turn continues once all of them are answered.
    pub pending: Vec<Question>,
    /// Position of the last record that contributed to this result.
    pub last: Seq,
}

impl TurnResult {
    /// True if the turn ended with `EndTurn` and without a fault.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.fault.is_none() && self.stop == Some(StopReason::EndTurn)
    }

    /// The answer of a turn whose session has a schema for it (`answer_schema`).
    ///
    /// # Errors
    /// The fault that ended the turn. `cancelled` if it was cancelled or waits for a person; `invalid_arguments` if the
    /// answer is no JSON of this type, which a schema of the type rules out.
    pub fn answer<T: DeserializeOwned>(self) -> Result<T, Fault> {
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        if self.stop != Some(StopReason::EndTurn) {
            let stop = self.stop.map_or("waits for a person".to_owned(), |stop| stop.to_string());
            return Err(Fault::new(Kind::Cancelled, Operation::RunTurn).with(Fact::Reason, stop));
        }
        serde_json::from_str(&self.text).map_err(|error| {
            Fault::new(Kind::InvalidArguments, Operation::RunTurn)
                .with(Fact::ToolName, FINAL_ANSWER)
                .mismatch(Mismatch {
                    rule: "type".into(),
                    expected: "JSON of the requested type".into(),
                    ..Mismatch::default()
                })
                .caused_by(&error)
        })
    }

    /// True if the turn has a fault that sending the same message again may avoid.
    #[must_use]
    pub fn retryable(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.repeat().retryable)
    }
}

impl Runtime {
    pub(crate) fn new(config: HostConfig, shared: RuntimeShared) -> Self {
        let shared = Arc::new(shared);
        Self { host: Host::new(config, NativeFactory(Arc::clone(&shared))), shared }
    }

    /// The journal that stores this runtime's sessions.
    #[must_use]
    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.shared.journal
    }

    /// The limits that apply to every session.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// The clock, entropy, spawner and span exporter of this runtime.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.shared.world
    }

    /// Creates a command with a new id. `by` names its sender in the records.
    #[must_use]
    pub fn command(&self, by: impl Into<String>, body: CommandBody) -> Command {
        let id = CommandId::own(self.shared.world.uuid());
        Command { id, by: by.into(), trace: Trace::NONE, body }
    }

    /// Sends a message and waits until the turn ends or waits for a person.
    ///
    /// # Errors
    /// The message was rejected. A failed turn is an `Ok` with its fault.
    pub async fn run(&self, session: SessionId, text: &str) -> Result<TurnResult, Fault> {
        let content = vec![Block::Text(text.to_owned())];
        let command = self.command("user", CommandBody::Message { content });
        let id = command.id.clone();
        match self.submit(session, command).await? {
            Answer::Rejected { fault } => Err(fault),
            Answer::Accepted { at } => self.wait_for(session, &id, at).await,
        }
    }

    /// Continues the last turn, which failed, and waits until the turn ends or waits for a person. Calls that ended are
    /// not made again.
    ///
    /// # Errors
    /// The last turn did not fail, or the journal fails. A turn that fails again is an `Ok` with its fault.
    pub async fn retry(&self, session: SessionId) -> Result<TurnResult, Fault> {
        let command = self.command("user", CommandBody::Retry { turn: None });
        let id = command.id.clone();
        match self.submit(session, command).await? {
            Answer::Rejected { fault } => Err(fault),
            Answer::Accepted { at } => self.wait_for(session, &id, at).await,
        }
    }

    /// Waits for the turn that answers an accepted message; the turn may have ended already.
    ///
    /// # Errors
    /// The records cannot be read; `history_gap` if retention has removed the turn.
    pub async fn wait(&self, session: SessionId, message: &CommandId) -> Result<TurnResult, Fault> {
        let (state, snapshot) = fold(&*self.shared.journal, session).await?;
        let waits = state.queue.iter().any(|queued| queued.command == *message);
        let after = match &state.turn {
            _ if waits => state.head,
            Some(turn) if turn.message == *message => turn.began.saturating_sub(1),
            // The turn has ended, most likely after the latest snapshot.
            _ if self.began_after(session, message, snapshot, state.head).await? => snapshot,
            _ => 0,
        };
        self.wait_for(session, message, after).await
    }

    /// Did the turn that answers a message start between these positions?
    async fn began_after(
        &self,
        session: SessionId,
        message: &CommandId,
        mut after: Seq,
        until: Seq,
    ) -> Result<bool, Fault> {
        while after < until {
            let page = self.shared.journal.read(session, after, PageLimits::default()).await?;
            for stored in &page.records {
                let event = stored.shared_event()?;
                if matches!(&*event, Event::TurnStarted { message: by } if by == message) {
                    return Ok(true);
                }
            }
            after = page.records.last().map_or(until, |last| last.seq);
        }
        Ok(false)
    }

    /// Waits for the turn that answers a message. `after` is a position before the turn's start.
    ///
    /// # Errors
    /// The records cannot be read.
    pub async fn wait_for(
        &self,
        session: SessionId,
        message: &CommandId,
        after: Seq,
    ) -> Result<TurnResult, Fault> {
        // Read only once a question comes up: most turns have none.
        let mut head = None;
        let mut batches = self.shared.journal.follow(session, after);
        let mut fold = ResultFold::default();
        while let Some(batch) = batches.next().await {
            for record in &batch? {
                let has_ended = fold.apply(record, message)?;
                if !has_ended && !fold.is_paused() {
                    continue;
                }
                // On replay a question may have been answered since; the turn is paused only if one is open
                // at the head.
                if !has_ended && head.is_none() {
                    let info = self.shared.journal.info(session).await?;
                    head = Some(info.map_or(0, |info| info.head));
                }
                let is_over = has_ended || head.is_some_and(|head| record.seq >= head);
                if let Some(result) = fold.result.take_if(|_| is_over) {
                    return Ok(result);
                }
            }
        }
        Err(Fault::new(Kind::ShuttingDown, Operation::RunTurn))
    }

    /// Folds the session's state from its records.
    ///
    /// # Errors
    /// The session is unknown, or its records cannot be read.
    pub async fn state(&self, session: SessionId) -> Result<Session, Fault> {
        self.host.state(session).await
    }

    /// The number of loaded sessions.
    #[must_use]
    pub fn loaded(&self) -> usize {
        self.host.loaded()
    }
}

/// Folds the records of the turn that answers a message to its result.
#[derive(Default)]
struct ResultFold {
    /// `None` until the turn starts.
    result: Option<TurnResult>,
    /// Calls of the turn's last answer that have not ended.
    open_calls: usize,
}

impl ResultFold {
    /// Applies one record. Returns true once the turn has ended.
    fn apply(&mut self, record: &StoredRecord, message: &CommandId) -> Result<bool, Fault> {
        match &mut self.result {
            None if record.is_delta() => Ok(false),
            None => {
                self.result = start_result(record, message)?;
                Ok(false)
            }
            Some(result) if record.turn == result.turn => {
                apply_to_result(result, &mut self.open_calls, record)
            }
            Some(_) => Ok(false),
        }
    }

    /// Whether the turn does nothing but wait for people. A plan that waits for confirmation is not counted as a call.
    fn is_paused(&self) -> bool {
        let waits = |result: &TurnResult| {
            !result.pending.is_empty() && result.pending.len() >= self.open_calls
        };
        self.result.as_ref().is_some_and(waits)
    }
}

/// The result of the turn that this record starts for the message; `None` for any other record.
fn start_result(record: &StoredRecord, message: &CommandId) -> Result<Option<TurnResult>, Fault> {
    Ok(match &*record.shared_event()? {
        Event::TurnStarted { message: answers } if answers == message => Some(TurnResult {
            turn: record.turn,
            trace: record.trace,
            stop: None,
            fault: None,
            text: String::new(),
            pending: Vec::new(),
            last: record.seq,
        }),
        Event::MessageWithdrawn { command, by } if command == message => {
            return Err(Fault::new(Kind::Cancelled, Operation::RunTurn)
                .with(Fact::CommandId, command.to_string())
                .with(Fact::Reason, format!("{by} took the message back before its turn began")));
        }
        _ => None,
    })
}

/// Applies one record of the turn to its result. Returns true once the turn has ended.
fn apply_to_result(
    result: &mut TurnResult,
    open_calls: &mut usize,
    record: &StoredRecord,
) -> Result<bool, Fault> {
    result.last = record.seq;
    if record.is_delta() {
        return Ok(false);
    }
    match Activity::of(&*record.shared_event()?) {
        Some(Activity::Answered { content, .. }) => {
            result.text = text_of(content);
            let calls = content.iter().filter(|block| matches!(block, Block::ToolUse(_)));
            *open_calls = calls.count();
        }
        Some(Activity::CallEnded { .. }) => *open_calls = open_calls.saturating_sub(1),
        Some(Activity::QuestionAsked(asked)) => result.pending.push(asked.into()),
        Some(Activity::QuestionClosed { question, .. }) => {
            result.pending.retain(|pending| pending.id != *question);
        }
        Some(Activity::TurnEnded { stop, fault, .. }) => {
            (result.stop, result.fault) = (Some(stop), fault.cloned());
            result.pending.clear();
            return Ok(true);
        }
        _ => {}
    }
    Ok(false)
}

#[async_trait]
impl Engine for Runtime {
    async fn open(&self, opening: SessionOptions) -> Result<SessionId, Fault> {
        self.host.open(opening).await
    }

    async fn fork(&self, request: ForkRequest) -> Result<SessionId, Fault> {
        self.host.fork(request).await
    }

    async fn submit(&self, session: SessionId, command: Command) -> Result<Answer, Fault> {
        self.host.submit(session, command).await
    }

    async fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> Result<BoxStream<'static, Result<Record, Fault>>, Fault> {
        self.host.follow(session, after).await
    }

    fn touch(&self, session: SessionId) {
        self.host.touch(session);
    }

    fn track_observers(&self) {
        self.shared.observers.track();
    }

    fn gates(&self) -> Vec<(GateKey, GateStatus)> {
        self.shared.gates.status()
    }

    fn set_observed(&self, session: SessionId, is_observed: bool) {
        for (session, is_observed) in self.shared.observers.set(session, is_observed) {
            self.shared.gates.set_priority(session, Priority::of(is_observed));
        }
    }

    fn is_waiting(&self, session: SessionId) -> bool {
        self.shared.observers.is_waiting(session) || self.shared.gates.is_suspended(session)
    }

    async fn recover(&self) -> Result<usize, Fault> {
        self.host.recover().await
    }

    async fn take_over(&self, dead: &[String], wants: SessionChoice<'_>) -> Result<usize, Fault> {
        self.host.take_over(dead, wants).await
    }

    fn loaded(&self) -> usize {
        self.host.loaded()
    }

    fn take_written(&self) -> Vec<WrittenRange> {
        self.host.take_written()
    }

    async fn delete(&self, session: SessionId) -> Result<bool, Fault> {
        self.host.delete(session).await
    }

    async fn retain(&self, retention: Retention) -> Result<RetentionReport, Fault> {
        self.host.retain(retention).await
    }

    async fn shutdown(&self, grace: Duration) {
        self.host.shutdown(grace).await;
    }
}
