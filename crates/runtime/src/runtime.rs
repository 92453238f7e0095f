//! The native engine: sessions by id, loaded when touched, evicted when idle.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    engine::{Engine, Opening},
    event::{
        Answer, Ask, Command, CommandId, Event, Record, Seq, SessionId, StopReason, TurnNumber,
    },
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    message::{Block, text_of},
    scrub::Scrubber,
    seams::World,
    session::Session,
    trace::Trace,
};
use budao_journal::{
    Info, Journal, Missing, PageLimits, Stored, fold,
    tenure::{Census, Sessions, Terms, confirm, gone, hand_in},
};
use budao_tools::{hooks::Hooks, policy::Policy, pool::Pool};
use dashmap::DashMap;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    CleanUp, ModelSource, Providers, Stages, SubAgents, ToolSource,
    actor::{self, Message},
    model_hooks::ModelHooks,
    question::Question,
};

/// How long an answer of another process is waited for at a time; it does not end the wait.
const REMOTE_ANSWER: Duration = Duration::from_secs(30);
/// How soon a session that should go on is looked at again, at first and at last.
const PURSUIT: Duration = Duration::from_millis(250);
const PURSUIT_MAX: Duration = Duration::from_secs(5);
/// Sessions looked at together when a process starts.
const RECOVERY_PAGE: usize = 256;

/// What all sessions of a runtime share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) models: Arc<dyn ModelSource>,
    pub(crate) tools: Arc<dyn ToolSource>,
    pub(crate) hooks: Hooks,
    pub(crate) model_hooks: ModelHooks,
    pub(crate) world: World,
    pub(crate) limits: Arc<Limits>,
    pub(crate) scrubber: Scrubber,
    pub(crate) clean_ups: Vec<Arc<dyn CleanUp>>,
    pub(crate) providers: Providers,
    pub(crate) holder: String,
    pub(crate) census: Arc<dyn Census>,
    pub(crate) idle_keep: Duration,
    pub(crate) stages: Stages,
    pub(crate) sub_agents: Option<SubAgents>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) policy: Option<Arc<dyn Policy>>,
}

impl Shared {
    /// What it is bound to when it writes.
    pub(crate) fn terms(&self) -> Terms<'_> {
        Terms {
            journal: &self.journal,
            world: &self.world,
            limits: &self.limits,
            holder: &self.holder,
            census: &*self.census,
        }
    }
}

/// The native engine. Clones are cheap and are the same engine.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub(crate) shared: Arc<Shared>,
    pub(crate) sessions: Sessions<Message>,
    /// Sessions that are being looked after until they are finished.
    pursued: Arc<DashMap<SessionId, ()>>,
}

/// How a turn ended, or why it has not.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnResult {
    /// Which turn.
    pub turn: TurnNumber,
    /// Its trace.
    pub trace: Trace,
    /// Why it ended; none while it waits for a person.
    pub stop: Option<StopReason>,
    /// What went wrong.
    pub fault: Option<Fault>,
    /// The words of its last answer.
    pub text: String,
    /// Questions a person must answer before it goes on.
    pub pending: Vec<Question>,
    /// The last record looked at.
    pub last: Seq,
}

impl TurnResult {
    /// Did it end, and end well?
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.fault.is_none() && self.stop == Some(StopReason::EndTurn)
    }

    /// Would sending the same message again make sense?
    #[must_use]
    pub fn retryable(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.repeat().retryable)
    }
}

impl Runtime {
    pub(crate) fn new(shared: Shared) -> Self {
        Self { shared: Arc::new(shared), sessions: Sessions::default(), pursued: Arc::default() }
    }

    /// The journal it writes.
    #[must_use]
    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.shared.journal
    }

    /// Its bounds.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// Time, chance and spawning as it has them.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.shared.world
    }

    /// A command with a new id.
    #[must_use]
    pub fn command(&self, by: impl Into<String>, ask: Ask) -> Command {
        let id = CommandId::own(self.shared.world.uuid());
        Command { id, by: by.into(), trace: Trace::NONE, ask }
    }

    /// Sends words and waits until they are answered, or the turn waits for a person.
    ///
    /// # Errors
    /// When the message was not accepted. A turn that failed is an `Ok` with its fault.
    pub async fn run(&self, session: SessionId, text: &str) -> Result<TurnResult, Fault> {
        let content = vec![Block::Text(text.to_owned())];
        let command = self.command("user", Ask::Message { content });
        let id = command.id.clone();
        match self.submit(session, command).await? {
            Answer::Rejected { fault } => Err(fault),
            Answer::Accepted { at } => self.wait_for(session, &id, at).await,
        }
    }

    /// Waits for the turn that answers a message that was accepted, however long ago.
    ///
    /// # Errors
    /// When the records cannot be read; `history_gap` when its turn is long over and retention has removed
    /// it.
    pub async fn wait(&self, session: SessionId, message: &CommandId) -> Result<TurnResult, Fault> {
        let (state, snapshot) = fold(&*self.shared.journal, session).await?;
        let waits = state.queue.iter().any(|queued| queued.command == *message);
        let after = match &state.turn {
            _ if waits => state.head,
            Some(turn) if turn.message == *message => turn.began.saturating_sub(1),
            // It is over. Most likely lately.
            _ if self.began_after(session, message, snapshot, state.head).await? => snapshot,
            _ => 0,
        };
        self.wait_for(session, message, after).await
    }

    /// Did the turn that answers a message begin between these positions?
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
                let event = stored.event()?;
                if matches!(event, Event::TurnStarted { message: answers } if answers == *message) {
                    return Ok(true);
                }
            }
            after = page.records.last().map_or(until, |last| last.seq);
        }
        Ok(false)
    }

    /// Waits for the turn that answers a message. `after` is a position before it began.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn wait_for(
        &self,
        session: SessionId,
        message: &CommandId,
        after: Seq,
    ) -> Result<TurnResult, Fault> {
        // Asked for when a question comes up: most turns have none.
        let mut head = None;
        let batches = self.shared.journal.follow(session, after);
        let mut records = batches.flat_map(|batch| stream::iter(each(batch)));
        let mut result: Option<TurnResult> = None;
        let mut open_calls = 0_usize;
        while let Some(record) = records.next().await {
            let record = record?;
            match &mut result {
                None => result = begun(&record, message)?,
                Some(result) if record.turn == result.turn => {
                    if advance(result, &mut open_calls, &record)? {
                        return Ok(result.clone());
                    }
                }
                Some(_) => {}
            }
            if let Some(result) = &result
                && !result.pending.is_empty()
                // A plan that waits is no call.
                && result.pending.len() >= open_calls
            {
                // What was asked and answered since is history; only what is open at the head is a pause.
                if head.is_none() {
                    let info = self.shared.journal.info(session).await?;
                    head = Some(info.map_or(0, |info| info.head));
                }
                if head.is_some_and(|head| record.seq >= head) {
                    return Ok(result.clone());
                }
            }
        }
        Err(Fault::new(Kind::ShuttingDown, Operation::RunTurn))
    }

    /// The session as it is now, read from its records.
    ///
    /// # Errors
    /// When there is no such session or its records cannot be read.
    pub async fn state(&self, session: SessionId) -> Result<Session, Fault> {
        fold(&*self.shared.journal, session).await.map(|(state, _)| state)
    }

    /// How many sessions are in memory.
    #[must_use]
    pub fn loaded(&self) -> usize {
        self.sessions.len()
    }

    /// Loads a session so that whatever is unfinished goes on.
    ///
    /// If another process has it, that one's lease is waited for.
    pub fn touch(&self, session: SessionId) {
        drop(self.handle(session, Missing::Refuse));
        self.pursue(session);
    }

    /// Sees to it that somebody finishes a session: looks again until nothing in it is unfinished or a
    /// living process has it. One pursuit a session.
    pub(crate) fn pursue(&self, session: SessionId) {
        if self.pursued.insert(session, ()).is_some() {
            return;
        }
        let runtime = self.clone();
        self.shared.world.spawn.spawn(Box::pin(async move {
            let mut wait = PURSUIT;
            while !runtime.is_in_hand(session).await {
                runtime.shared.world.clock.sleep(wait).await;
                wait = (wait * 2).min(PURSUIT_MAX);
                drop(runtime.handle(session, Missing::Refuse));
            }
            runtime.pursued.remove(&session);
            // Whoever gave it up a moment ago thought that it was still being pursued.
            if !runtime.is_in_hand(session).await {
                runtime.pursue(session);
            }
        }));
    }

    /// Is the session here, or finished, or gone?
    async fn is_in_hand(&self, session: SessionId) -> bool {
        if self.sessions.has(session) {
            // It may just be finding out that it cannot have the lease.
            tokio::task::yield_now().await;
        }
        match self.shared.journal.info(session).await {
            Ok(None) => true,
            // A lease of ours that nobody here knows of is left from a write the disk did not confirm.
            Ok(Some(Info { lease: Some(lease), .. }))
                if lease.holder == self.shared.holder && self.sessions.has(session) =>
            {
                true
            }
            Ok(Some(_)) => match self.state(session).await {
                Ok(state) if state.settings.is_foreign() => true,
                Ok(state) => {
                    let waits = self.shared.journal.inbox(session).await;
                    state.turn.is_none()
                        && state.queue.is_empty()
                        && waits.is_ok_and(|inbox| inbox.is_empty())
                }
                Err(fault) => fault.kind() == Kind::UnknownSession,
            },
            Err(_) => false,
        }
    }

    /// Takes up every session whose turn is unfinished or whose commands wait, and nobody else has.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn recover(&self) -> Result<usize, Fault> {
        let (mut after, mut taken) = (None, 0);
        loop {
            let page = self.shared.journal.unfinished(after, RECOVERY_PAGE).await?;
            let Some(last) = page.last() else { return Ok(taken) };
            after = Some(last.session);
            for unfinished in page {
                let state = self.state(unfinished.session).await;
                if !state.is_ok_and(|state| state.settings.is_foreign()) {
                    taken += 1;
                    self.touch(unfinished.session);
                }
            }
        }
    }

    /// Lets turns finish for up to `patience`, then parks what is left: it resumes at the next start.
    pub async fn shutdown(&self, patience: Duration) {
        let clock = &self.shared.world.clock;
        let handles = self.sessions.all();
        let stop = |handle: mpsc::Sender<Message>| async move {
            let (reply, done) = oneshot::channel();
            if handle.send(Message::Stop { patience, reply }).await.is_ok() {
                drop(done.await);
            }
        };
        // Together: one that has no room for the message keeps nobody else waiting.
        let all = futures::future::join_all(handles.into_iter().map(stop));
        let bound = patience + self.shared.limits.kill_grace * 2 + Duration::from_secs(5);
        tokio::select! {
            biased;
            _ = all => {}
            () = clock.sleep(bound) => tracing::warn!("some sessions did not stop in time"),
        }
    }

    pub(crate) fn handle(&self, session: SessionId, missing: Missing) -> mpsc::Sender<Message> {
        self.sessions.handle(session, || actor::start(self.clone(), session, missing))
    }

    /// Hands a message to the session's task, loading it if need be.
    pub(crate) async fn send(
        &self,
        session: SessionId,
        missing: Missing,
        message: Message,
    ) -> Result<(), Fault> {
        let start = || actor::start(self.clone(), session, missing);
        self.sessions.send(session, self.shared.limits.sessions, start, message).await
    }

    /// Another process writes the session: its inbox is the way in.
    async fn submit_elsewhere(
        &self,
        session: SessionId,
        command: Command,
    ) -> Result<Answer, Fault> {
        let journal = &*self.shared.journal;
        let mut handed = match hand_in(journal, session, command).await? {
            Ok(answer) => return Ok(answer),
            Err(handed) => handed,
        };
        // Whoever has it may be gone; then it is taken over as soon as the lease has run out.
        self.pursue(session);
        loop {
            let clock = &*self.shared.world.clock;
            if let Some(answer) = handed.answer(journal, clock, REMOTE_ANSWER).await? {
                return Ok(answer);
            }
        }
    }
}

/// The records of a batch, or what went wrong.
fn each(batch: Result<Vec<Stored>, Fault>) -> Vec<Result<Stored, Fault>> {
    match batch {
        Ok(batch) => batch.into_iter().map(Ok).collect(),
        Err(fault) => vec![Err(fault)],
    }
}

fn begun(record: &Stored, message: &CommandId) -> Result<Option<TurnResult>, Fault> {
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

/// Takes one more record of the turn into account. Is it over?
fn advance(
    result: &mut TurnResult,
    open_calls: &mut usize,
    record: &Stored,
) -> Result<bool, Fault> {
    result.last = record.seq;
    match &*record.shared_event()? {
        Event::ModelAnswered { content, .. } => {
            result.text = text_of(content);
            let calls = content.iter().filter(|block| matches!(block, Block::ToolUse(_)));
            *open_calls = calls.count();
        }
        Event::CallEnded { .. } => *open_calls = open_calls.saturating_sub(1),
        asked @ Event::QuestionAsked { .. } => result.pending.extend(Question::of(asked)),
        Event::QuestionAnswered { question, .. } | Event::QuestionExpired { question, .. } => {
            result.pending.retain(|pending| pending.id != *question);
        }
        Event::TurnEnded { stop, fault, .. } => {
            result.stop = Some(*stop);
            result.fault.clone_from(fault);
            result.pending.clear();
            return Ok(true);
        }
        _ => {}
    }
    Ok(false)
}

#[async_trait]
impl Engine for Runtime {
    async fn open(&self, opening: Opening) -> Result<SessionId, Fault> {
        let session = opening.session.unwrap_or_else(|| SessionId(self.shared.world.uuid()));
        if opening.settings.is_foreign() {
            return Err(Fault::new(Kind::ConfigurationWrong, Operation::OpenSession)
                .with(Fact::ConfigKey, "labels.engine")
                .with(Fact::Expected, "no such label, which is for sessions of other engines")
                .with(Fact::Received, "a label"));
        }
        self.shared.models.model(&opening.settings.model)?;
        let (reply, opened) = oneshot::channel();
        let Opening { settings, origin, .. } = opening;
        let message = Message::Open { settings: Box::new(settings), origin, reply };
        self.send(session, Missing::Create, message).await?;
        opened.await.map_err(|_| gone(session))??;
        Ok(session)
    }

    async fn submit(&self, session: SessionId, mut command: Command) -> Result<Answer, Fault> {
        command.bound_nesting();
        let (reply, answered) = oneshot::channel();
        let message = Message::Command { command: Box::new(command.clone()), waits: false, reply };
        self.send(session, Missing::Refuse, message).await?;
        match answered.await.unwrap_or_else(|_| Err(gone(session))) {
            Err(fault) if fault.kind() == Kind::SessionBusy => {
                self.submit_elsewhere(session, command).await
            }
            Err(fault) => confirm(&*self.shared.journal, session, &command.id, fault).await,
            Ok(answer) => Ok(answer),
        }
    }

    async fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> Result<BoxStream<'static, Result<Record, Fault>>, Fault> {
        let batches = self.shared.journal.follow(session, after);
        let records = batches.flat_map(|batch| stream::iter(each(batch)));
        Ok(records.map(|stored| stored?.record()).boxed())
    }
}
