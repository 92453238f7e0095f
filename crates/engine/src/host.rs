//! The session host: loads sessions when they are used, routes commands to them, and resumes sessions
//! whose process died.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    engine::{Engine, ForkRequest, SessionChoice, SessionOptions, WrittenRange},
    event::{Answer, Command, CommandBody, Record, Seq, SessionId, Settings},
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    retention::{Retention, RetentionReport},
    session::Session,
    world::World,
};
use budao_journal::{HistoryInfo, IfMissing, Journal, StoredRecord, UnfinishedSession, fold};
use dashmap::DashMap;
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::{mpsc, oneshot};

use crate::{
    batch::TaskRefusal,
    decider::{DeciderFactory, SignalOf},
    registry::SessionRegistry,
    remote::{REMOTE_ANSWER_TIMEOUT, RemoteSubmission, confirm_failure, submit_remote},
    restart::is_transient,
    session_task::{Message, SessionTask},
    tenant_timers::TimerReservations,
    waker::TimerWaker,
    writer::{HolderLiveness, WriterConfig, task_gone},
    written::WrittenPositions,
};

/// First and longest wait between two polls of an unfinished session.
const POLL_WAIT: Duration = Duration::from_millis(250);
const POLL_WAIT_MAX: Duration = Duration::from_secs(5);
/// Unfinished sessions read at a time when a process starts.
const RECOVERY_PAGE: usize = 256;

/// The journal, the clock and the bounds that all sessions of a host share.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The journal that holds the sessions.
    pub journal: Arc<dyn Journal>,
    /// Clock, randomness and task spawning.
    pub world: World,
    /// The bounds of sessions, leases and shutdown.
    pub limits: Arc<Limits>,
    /// The name under which leases are taken; unique for each process run.
    pub holder: String,
    /// Reports dead holders, whose leases are taken at once.
    pub liveness: Arc<dyn HolderLiveness>,
    /// How long an idle session stays loaded.
    pub idle_keep: Duration,
    /// The places whose files this process has. Sessions bound to another place run elsewhere.
    pub places: Vec<String>,
}

impl HostConfig {
    /// Whether this process has the files that a session with these settings needs.
    pub(crate) fn serves_place(&self, settings: &Settings) -> bool {
        settings.place().is_none_or(|place| self.places.iter().any(|served| served == place))
    }
}

/// Hosts the sessions of one engine. Clones are cheap and share the same sessions.
#[derive(Debug)]
pub struct Host<F: DeciderFactory>(pub(crate) Arc<HostState<F>>);

/// Loads the sessions of a host that may have ended meanwhile.
#[derive(Debug)]
pub struct SessionLoader<F: DeciderFactory>(Weak<HostState<F>>);

impl<F: DeciderFactory> SessionLoader<F> {
    /// Loads a session that was suspended. Does nothing once the host shuts down.
    pub fn load(&self, session: SessionId) {
        let host = self.0.upgrade().map(Host);
        if let Some(host) = host.filter(|host| !host.waker().is_stopped()) {
            host.wake_session(session);
        }
    }
}

pub(crate) struct HostState<F: DeciderFactory> {
    config: HostConfig,
    factory: F,
    registry: SessionRegistry<Message<SignalOf<F>>>,
    /// Sessions with a polling task.
    polling: DashMap<SessionId, ()>,
    written: WrittenPositions,
    waker: TimerWaker,
    timer_reservations: TimerReservations,
}

impl<F: DeciderFactory> fmt::Debug for HostState<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loaded = self.registry.len();
        f.debug_struct("Host").field("factory", &self.factory).field("loaded", &loaded).finish()
    }
}

impl<F: DeciderFactory> Clone for Host<F> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<F: DeciderFactory> Host<F> {
    /// A host without loaded sessions.
    #[must_use]
    pub fn new(config: HostConfig, factory: F) -> Self {
        let (registry, polling) = (SessionRegistry::default(), DashMap::new());
        let written = WrittenPositions::default();
        let waker = TimerWaker::default();
        let timer_reservations = TimerReservations::default();
        Self(Arc::new(HostState {
            config,
            factory,
            registry,
            polling,
            written,
            waker,
            timer_reservations,
        }))
    }

    pub(crate) fn writer_config(&self) -> WriterConfig<'_> {
        let HostState { config, written, .. } = &*self.0;
        WriterConfig {
            journal: &config.journal,
            world: &config.world,
            limits: &config.limits,
            holder: &config.holder,
            liveness: &*config.liveness,
            written,
        }
    }

    /// The configuration given to [`Host::new`].
    #[must_use]
    pub fn config(&self) -> &HostConfig {
        &self.0.config
    }

    /// The engine's factory.
    #[must_use]
    pub fn factory(&self) -> &F {
        &self.0.factory
    }

    /// The number of loaded sessions.
    #[must_use]
    pub fn loaded(&self) -> usize {
        self.0.registry.len()
    }

    pub(crate) fn registry(&self) -> &SessionRegistry<Message<SignalOf<F>>> {
        &self.0.registry
    }

    pub(crate) fn waker(&self) -> &TimerWaker {
        &self.0.waker
    }

    /// Loads a session whose timer is due.
    pub(crate) fn wake_session(&self, session: SessionId) {
        drop(self.load(session));
    }

    /// Loads sessions as long as this host exists.
    pub(crate) fn loader(&self) -> SessionLoader<F> {
        SessionLoader(Arc::downgrade(&self.0))
    }

    /// The session's state, folded from its records.
    ///
    /// # Errors
    /// When the session is unknown or its records cannot be read.
    pub async fn state(&self, session: SessionId) -> Result<Session, Fault> {
        fold(&*self.config().journal, session).await.map(|(state, _)| state)
    }

    /// Sends a signal to a session's task, loading the session if need be.
    ///
    /// # Errors
    /// When too many sessions are loaded.
    pub async fn signal(&self, session: SessionId, signal: SignalOf<F>) -> Result<(), Fault> {
        self.send(session, IfMissing::Refuse, Message::Signal(signal)).await
    }

    /// Loads a session again and again until it is loaded here or nothing in it is unfinished. One polling task runs
    /// for each session.
    pub(crate) fn poll_until_finished(&self, session: SessionId) {
        if self.0.polling.insert(session, ()).is_some() {
            return;
        }
        let host = self.clone();
        self.config().world.spawn.spawn(Box::pin(async move {
            let mut wait = POLL_WAIT;
            while !host.needs_no_poll(session).await {
                host.config().world.clock.sleep(wait).await;
                wait = (wait * 2).min(POLL_WAIT_MAX);
                drop(host.load(session));
            }
            host.0.polling.remove(&session);
            // A session task that abandoned the session while this task ran did not start another poll.
            if !host.needs_no_poll(session).await {
                host.poll_until_finished(session);
            }
        }));
    }

    /// Whether the session is loaded here, finished, another engine's, deleted, or cannot be loaded at all.
    async fn needs_no_poll(&self, session: SessionId) -> bool {
        let journal = &self.config().journal;
        if self.factory().is_suspended(session) {
            return journal.inbox(session).await.is_ok_and(|inbox| inbox.is_empty());
        }
        if self.0.registry.contains(session) {
            // Its task may just be finding out that another process holds the lease.
            tokio::task::yield_now().await;
        }
        match journal.info(session).await {
            Ok(None) => true,
            // This process's lease without a task is left from a write that the disk did not confirm.
            Ok(Some(HistoryInfo { lease: Some(lease), .. }))
                if lease.holder == self.config().holder && self.0.registry.contains(session) =>
            {
                true
            }
            // Another live server holds the lease, and its death will be noticed: no poll, unless a command waits.
            Ok(Some(HistoryInfo { lease: Some(lease), .. }))
                if self.config().liveness.is_alive(&lease.holder)
                    && lease.holder != self.config().holder =>
            {
                journal.inbox(session).await.is_ok_and(|inbox| inbox.is_empty())
            }
            Ok(Some(_)) => match self.state(session).await {
                Ok(state) if self.is_foreign_state(&state) => true,
                Ok(state) => {
                    let inbox = journal.inbox(session).await;
                    state.turn.is_none()
                        && state.queue.is_empty()
                        && inbox.is_ok_and(|inbox| inbox.is_empty())
                }
                // No later load can succeed.
                Err(fault) => !is_transient(&fault),
            },
            Err(_) => false,
        }
    }

    /// Whether another engine, or a node of another place, runs the session.
    async fn is_foreign(&self, session: SessionId) -> bool {
        self.state(session).await.is_ok_and(|state| self.is_foreign_state(&state))
    }

    fn is_foreign_state(&self, state: &Session) -> bool {
        let settings = &state.settings;
        let is_own = self.factory().accepts(settings) && self.config().serves_place(settings);
        state.head > 0 && !is_own
    }

    /// Loads a session without a message.
    fn load(&self, session: SessionId) -> mpsc::Sender<Message<SignalOf<F>>> {
        let start = || SessionTask::start(self.clone(), session, IfMissing::Refuse);
        self.0.registry.get_or_start(session, start)
    }

    /// Sends a message to a session's task, loading the session if need be.
    pub(crate) async fn send(
        &self,
        session: SessionId,
        if_missing: IfMissing,
        message: Message<SignalOf<F>>,
    ) -> Result<(), Fault> {
        let start = || SessionTask::start(self.clone(), session, if_missing);
        self.0.registry.send(session, self.config().limits.sessions, start, message).await
    }

    /// Submits a command through the inbox of a session that another process writes.
    async fn submit_through_inbox(
        &self,
        session: SessionId,
        command: Command,
    ) -> Result<Answer, Fault> {
        let HostConfig { journal, world, .. } = self.config();
        let mut remote = match submit_remote(&**journal, session, command).await? {
            RemoteSubmission::Answered(answer) => return Ok(answer),
            RemoteSubmission::Pending(remote) => remote,
        };
        // The other process may have died; its session is loaded here when the lease has run out.
        self.poll_until_finished(session);
        loop {
            if let Some(answer) =
                remote.wait(&**journal, &*world.clock, REMOTE_ANSWER_TIMEOUT).await?
            {
                return Ok(answer);
            }
        }
    }
}

#[async_trait]
impl<F: DeciderFactory> Engine for Host<F> {
    async fn open(&self, opening: SessionOptions) -> Result<SessionId, Fault> {
        let session = opening.session.unwrap_or_else(|| SessionId(self.config().world.uuid()));
        let SessionOptions { mut settings, origin, .. } = opening;
        self.factory().prepare(&mut settings)?;
        let (reply, opened) = oneshot::channel();
        let message = Message::Open { settings: Box::new(settings), origin, reply };
        self.send(session, IfMissing::Create, message).await?;
        let opened = opened.await.unwrap_or_else(|_| Err(task_gone(session).into()));
        opened.map_err(|refusal| refusal.into_fault(session))?;
        Ok(session)
    }

    async fn fork(&self, request: ForkRequest) -> Result<SessionId, Fault> {
        if self.factory().can_fork() {
            return self.fork_session(request).await;
        }
        Err(Fault::new(Kind::UnsupportedOperation, Operation::OpenSession)
            .with(Fact::Reason, "another program has the conversation of this session"))
    }

    async fn submit(&self, session: SessionId, mut command: Command) -> Result<Answer, Fault> {
        command.bound_nesting();
        if let Err(fault) = command.body.check_topic() {
            return Ok(Answer::Rejected { fault });
        }
        if let CommandBody::Settings { settings, .. } = &mut command.body
            && let Err(fault) = self.factory().prepare(settings)
        {
            return Ok(Answer::Rejected { fault });
        }
        let config = self.config();
        let limit = config.limits.tenant_timers;
        let reservations = &self.0.timer_reservations;
        let _reserved =
            match reservations.reserve_for(&*config.journal, session, &command, limit).await {
                Err(fault) if fault.kind() == Kind::LimitReached => {
                    return Ok(Answer::Rejected { fault });
                }
                reserved => reserved?,
            };
        let (reply, answered) = oneshot::channel();
        let copy = Box::new(command.clone());
        let message = Message::Command { command: copy, from_inbox: false, reply };
        self.send(session, IfMissing::Refuse, message).await?;
        match answered.await.unwrap_or_else(|_| Err(task_gone(session).into())) {
            Err(TaskRefusal::UseInbox) => self.submit_through_inbox(session, command).await,
            Err(TaskRefusal::Fault(fault)) => {
                confirm_failure(&*self.config().journal, session, &command.id, fault).await
            }
            Ok(answer) => Ok(answer),
        }
    }

    async fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> Result<BoxStream<'static, Result<Record, Fault>>, Fault> {
        let batches = self.config().journal.follow(session, after);
        let records = batches.flat_map(|batch| {
            let records: Vec<Result<Record, Fault>> = match batch {
                Ok(batch) => batch.iter().map(StoredRecord::record).collect(),
                Err(fault) => vec![Err(fault)],
            };
            stream::iter(records)
        });
        Ok(records.boxed())
    }

    fn touch(&self, session: SessionId) {
        drop(self.load(session));
        self.poll_until_finished(session);
    }

    async fn recover(&self) -> Result<usize, Fault> {
        self.notify_timer_waker();
        let (mut after, mut recovered) = (None, 0);
        loop {
            let page = self.config().journal.unfinished(after, RECOVERY_PAGE).await?;
            let Some(last) = page.last() else { return Ok(recovered) };
            after = Some(last.session);
            for unfinished in page {
                let holder = unfinished.lease.map(|lease| lease.holder);
                if holder.is_some_and(|holder| self.config().liveness.is_alive(&holder)) {
                    continue;
                }
                if !self.is_foreign(unfinished.session).await {
                    recovered += 1;
                    self.touch(unfinished.session);
                }
            }
        }
    }

    async fn take_over(&self, dead: &[String], wants: SessionChoice<'_>) -> Result<usize, Fault> {
        let (mut after, mut taken) = (None, 0);
        loop {
            let journal = &self.config().journal;
            let page = journal.orphaned_sessions(dead, after, RECOVERY_PAGE).await?;
            let Some(last) = page.last() else { return Ok(taken) };
            after = Some(last.session);
            for UnfinishedSession { session, pending, .. } in page {
                let waits = pending == 0 && self.factory().is_suspended(session);
                let is_here = waits || self.0.registry.contains(session);
                if !is_here && wants(session) && !self.is_foreign(session).await {
                    taken += 1;
                    self.touch(session);
                }
            }
        }
    }

    fn loaded(&self) -> usize {
        self.0.registry.len()
    }

    fn take_written(&self) -> Vec<WrittenRange> {
        self.0.written.take()
    }

    async fn delete(&self, session: SessionId) -> Result<bool, Fault> {
        self.config().journal.delete(session).await
    }

    async fn retain(&self, retention: Retention) -> Result<RetentionReport, Fault> {
        self.config().journal.retain(retention).await
    }

    async fn shutdown(&self, grace: Duration) {
        self.waker().stop();
        let stop = |task: mpsc::Sender<Message<SignalOf<F>>>| async move {
            let (reply, stopped) = oneshot::channel();
            if task.send(Message::Stop { grace, reply }).await.is_ok() {
                drop(stopped.await);
                task.closed().await;
            }
        };
        // All at once: a session whose queue is full must not delay the others.
        let all = futures::future::join_all(self.0.registry.senders().into_iter().map(stop));
        let config = self.config();
        let bound = grace + config.limits.kill_grace * 2 + Duration::from_secs(5);
        tokio::select! {
            biased;
            _ = all => {}
            () = config.world.clock.sleep(bound) => {
                let sessions = self.0.registry.senders().len();
                tracing::warn!(sessions, ?bound, "sessions did not stop in time");
            }
        }
    }
}
