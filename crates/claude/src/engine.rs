//! The engine: sessions by id, loaded when touched, their CLI ended when they have been idle for long.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    engine::{Engine, Opening},
    event::{Answer, Command, Record, Seq, SessionId, Settings},
    fault::{Fault, Kind},
    limits::Limits,
    scrub::Scrubber,
    seams::World,
};
use budao_journal::{
    Journal, Missing, Stored,
    tenure::{Census, NoCensus, Sessions, Terms, confirm, gone, hand_in},
};
use dashmap::DashMap;
use futures::{StreamExt, stream::BoxStream};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::{
    actor::{self, Message},
    launch::Launcher,
    machine::{Patience, check_settings},
};

/// How soon a session that another process had is tried again.
const TAKE_OVER: Duration = Duration::from_secs(1);
/// And how long we wait at most between two tries.
const PURSUIT_MAX: Duration = Duration::from_secs(60);

/// The label that says which engine runs a session.
pub const ENGINE_LABEL: &str = Settings::ENGINE;
/// The label's value for sessions of this engine.
pub const ENGINE_NAME: &str = "claude";

/// What an engine is made of.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where its records are.
    pub journal: Arc<dyn Journal>,
    /// Time, chance and tasks.
    pub world: World,
    /// Starts the CLI.
    pub launcher: Arc<dyn Launcher>,
    /// The bounds.
    pub limits: Limits,
    /// The CLI's bounds.
    pub patience: Patience,
    /// Takes secrets out of what is recorded.
    pub scrubber: Scrubber,
    /// Who writes; unique for each run of a program.
    pub holder: String,
    /// Who is gone.
    pub census: Arc<dyn Census>,
    /// How long an idle session keeps its CLI.
    pub idle_keep: Duration,
    /// Is the CLI started when a session is opened, before anything is asked?
    pub ahead: bool,
    /// Where the CLI keeps the plans it writes in plan mode, an absolute path. Without it no plan can be written there.
    pub plan_folder: Option<PathBuf>,
}

impl Config {
    /// The usual.
    #[must_use]
    pub fn new(journal: Arc<dyn Journal>, world: World, launcher: Arc<dyn Launcher>) -> Self {
        let holder = format!("claude-{}", world.uuid().simple());
        Self {
            journal,
            world,
            launcher,
            limits: Limits::default(),
            patience: Patience::default(),
            scrubber: Scrubber::new(),
            holder,
            census: Arc::new(NoCensus),
            idle_keep: Duration::from_secs(15 * 60),
            ahead: false,
            plan_folder: None,
        }
    }
}

/// What all sessions share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) world: World,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) limits: Limits,
    pub(crate) patience: Patience,
    pub(crate) scrubber: Scrubber,
    pub(crate) holder: String,
    pub(crate) census: Arc<dyn Census>,
    pub(crate) idle_keep: Duration,
    pub(crate) tool_servers: DashMap<SessionId, Value>,
    ahead: bool,
    pub(crate) plan_folder: Option<PathBuf>,
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

/// The Claude CLI as an engine. Clones are cheap and are the same engine.
#[derive(Clone, Debug)]
pub struct Claude {
    pub(crate) shared: Arc<Shared>,
    pub(crate) sessions: Sessions<Message>,
    /// Sessions that somebody must finish.
    pursued: Arc<DashMap<SessionId, ()>>,
}

impl Claude {
    /// An engine.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let Config { journal, world, launcher, limits, patience, scrubber, .. } = config;
        let Config { holder, census, idle_keep, ahead, plan_folder, .. } = config;
        let tool_servers = DashMap::new();
        let shared = Shared {
            journal,
            world,
            launcher,
            limits,
            patience,
            scrubber,
            holder,
            census,
            idle_keep,
            tool_servers,
            ahead,
            plan_folder,
        };
        Self { shared: Arc::new(shared), sessions: Sessions::default(), pursued: Arc::default() }
    }

    /// The journal it writes.
    #[must_use]
    pub fn journal(&self) -> &Arc<dyn Journal> {
        &self.shared.journal
    }

    /// Hands over MCP servers for a session, as the CLI's `mcpServers` has them; for when its CLI is started
    /// next. They are not recorded, because they may hold keys.
    pub fn tool_servers(&self, session: SessionId, servers: Value) {
        self.shared.tool_servers.insert(session, servers);
    }

    /// Forgets what was handed over for a session.
    pub fn forget(&self, session: SessionId) {
        self.shared.tool_servers.remove(&session);
    }

    /// How many sessions are in memory.
    #[must_use]
    pub fn loaded(&self) -> usize {
        self.sessions.len()
    }

    /// Takes up every session of this engine that is unfinished and nobody else has: a turn that was cut gets
    /// its fault, messages that wait are answered.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub async fn recover(&self) -> Result<usize, Fault> {
        let (mut after, mut taken) = (None, 0);
        loop {
            let page = self.shared.journal.unfinished(after, 256).await?;
            let Some(last) = page.last() else { return Ok(taken) };
            after = Some(last.session);
            for unfinished in page {
                if self.is_ours(unfinished.session).await? {
                    taken += 1;
                    self.send(unfinished.session, Missing::Refuse, Message::Touch).await?;
                    self.pursue(unfinished.session);
                }
            }
        }
    }

    /// Sees to it that somebody finishes a session: touches it again until nothing in it is unfinished, or it is
    /// here. Whoever had it may be gone without our knowing; then its lease must run out first.
    pub(crate) fn pursue(&self, session: SessionId) {
        if self.pursued.insert(session, ()).is_some() {
            return;
        }
        let engine = self.clone();
        self.shared.world.spawn.spawn(Box::pin(async move {
            let mut wait = TAKE_OVER;
            loop {
                engine.shared.world.clock.sleep(wait).await;
                if engine.is_in_hand(session).await {
                    break;
                }
                drop(engine.send(session, Missing::Refuse, Message::Touch).await);
                wait = (wait * 2).min(PURSUIT_MAX);
            }
            engine.pursued.remove(&session);
        }));
    }

    /// Is a session here, or has it nothing to do?
    async fn is_in_hand(&self, session: SessionId) -> bool {
        let journal = &*self.shared.journal;
        let lease = journal.info(session).await.ok().flatten().and_then(|info| info.lease);
        let is_held = lease.is_some_and(|lease| lease.holder == self.shared.holder);
        if is_held && self.sessions.has(session) {
            return true;
        }
        match (budao_journal::fold(journal, session).await, journal.inbox(session).await) {
            (Ok((state, _)), _) if !is_ours(&state.settings) => true,
            (Ok((state, _)), Ok(inbox)) => {
                state.turn.is_none() && state.queue.is_empty() && inbox.is_empty()
            }
            (Err(fault), _) => fault.kind() == Kind::UnknownSession,
            (_, Err(_)) => false,
        }
    }

    async fn is_ours(&self, session: SessionId) -> Result<bool, Fault> {
        let (state, _) = budao_journal::fold(&*self.shared.journal, session).await?;
        Ok(is_ours(&state.settings))
    }

    /// Lets turns finish for up to `patience`, then ends them. When this returns no CLI is left.
    pub async fn shutdown(&self, patience: Duration) {
        let handles = self.sessions.all();
        let mut stopped = Vec::new();
        for handle in handles {
            let (reply, done) = oneshot::channel();
            if handle.send(Message::Stop { patience, reply }).await.is_ok() {
                stopped.push(async move {
                    drop(done.await);
                    handle.closed().await;
                });
            }
        }
        let bound = patience + self.shared.limits.kill_grace * 2 + Duration::from_secs(5);
        tokio::select! {
            biased;
            _ = futures::future::join_all(stopped) => {}
            () = self.shared.world.clock.sleep(bound) => {
                tracing::warn!("some sessions did not stop in time");
            }
        }
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

    /// Another process writes the session: its inbox is the way in. If that process is gone, the session is
    /// taken over as soon as its lease has run out.
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
        loop {
            let clock = &*self.shared.world.clock;
            if let Some(answer) = handed.answer(journal, clock, TAKE_OVER).await? {
                return Ok(answer);
            }
            self.send(session, Missing::Refuse, Message::Touch).await?;
        }
    }
}

#[async_trait]
impl Engine for Claude {
    async fn open(&self, opening: Opening) -> Result<SessionId, Fault> {
        let session = opening.session.unwrap_or_else(|| SessionId(self.shared.world.uuid()));
        let Opening { mut settings, origin, .. } = opening;
        check_settings(&settings)?;
        settings.labels.insert(ENGINE_LABEL.to_owned(), ENGINE_NAME.to_owned());
        let (reply, opened) = oneshot::channel();
        let message = Message::Open { settings: Box::new(settings), origin, reply };
        self.send(session, Missing::Create, message).await?;
        opened.await.map_err(|_| gone(session))??;
        if self.shared.ahead {
            self.send(session, Missing::Refuse, Message::Warm).await?;
        }
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
        let records = batches.flat_map(|batch| {
            let records: Vec<Result<Record, Fault>> = match batch {
                Ok(batch) => batch.iter().map(Stored::record).collect(),
                Err(fault) => vec![Err(fault)],
            };
            futures::stream::iter(records)
        });
        Ok(records.boxed())
    }
}

/// Is a session with these settings one of this engine's?
pub(crate) fn is_ours(settings: &Settings) -> bool {
    settings.labels.get(ENGINE_LABEL).is_some_and(|name| name == ENGINE_NAME)
}
