//! The engine: sessions by id, loaded when touched, their CLI ended when they have been idle for long.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    engine::{Engine, Opening},
    event::{Answer, Command, Record, Seq, SessionId, Settings},
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    scrub::Scrubber,
    seams::World,
};
use budao_journal::{Journal, Missing, Stored, Submitted};
use dashmap::DashMap;
use futures::{StreamExt, stream::BoxStream};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::{
    actor::{self, Message},
    launch::Launcher,
    machine::{Patience, check_settings},
};

/// How long another process may take to answer a command it was handed.
const REMOTE_ANSWER: Duration = Duration::from_secs(30);
/// How soon a session that another process had is tried again.
const TAKE_OVER: Duration = Duration::from_secs(1);

/// The label that says which engine runs a session.
pub const ENGINE_LABEL: &str = Settings::ENGINE;
/// The label's value for sessions of this engine.
pub const ENGINE_NAME: &str = "claude";

/// Knows which holders of leases are gone, so that nobody waits for them.
pub trait Census: Send + Sync + fmt::Debug {
    /// Is whoever took leases under this name certainly gone? When in doubt, no.
    fn is_gone(&self, holder: &str) -> bool;
}

/// Knows of nobody.
#[derive(Debug)]
struct Nobody;

impl Census for Nobody {
    fn is_gone(&self, _holder: &str) -> bool {
        false
    }
}

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
            census: Arc::new(Nobody),
            idle_keep: Duration::from_secs(15 * 60),
            ahead: false,
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
}

/// The Claude CLI as an engine. Clones are cheap and are the same engine.
#[derive(Clone, Debug)]
pub struct Claude {
    pub(crate) shared: Arc<Shared>,
    pub(crate) sessions: Arc<DashMap<SessionId, mpsc::Sender<Message>>>,
}

impl Claude {
    /// An engine.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let Config { journal, world, launcher, limits, patience, scrubber, .. } = config;
        let Config { holder, census, idle_keep, ahead, .. } = config;
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
        };
        Self { shared: Arc::new(shared), sessions: Arc::default() }
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
                }
            }
        }
    }

    async fn is_ours(&self, session: SessionId) -> Result<bool, Fault> {
        let (state, _) = budao_journal::fold(&*self.shared.journal, session).await?;
        Ok(state.settings.labels.get(ENGINE_LABEL).is_some_and(|name| name == ENGINE_NAME))
    }

    /// Lets turns finish for up to `patience`, then ends them. When this returns no CLI is left.
    pub async fn shutdown(&self, patience: Duration) {
        let handles: Vec<_> = self.sessions.iter().map(|entry| entry.value().clone()).collect();
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

    fn handle(&self, session: SessionId, missing: Missing) -> mpsc::Sender<Message> {
        let start = || actor::start(self.clone(), session, missing);
        let mut entry = self.sessions.entry(session).or_insert_with(start);
        if entry.is_closed() {
            *entry = start();
        }
        entry.clone()
    }

    /// Hands a message to the session's task, loading it if need be.
    pub(crate) async fn send(
        &self,
        session: SessionId,
        missing: Missing,
        mut message: Message,
    ) -> Result<(), Fault> {
        let limit = self.shared.limits.sessions;
        if self.sessions.len() >= limit && !self.sessions.contains_key(&session) {
            return Err(Fault::new(Kind::TooManySessions, Operation::OpenSession)
                .with(Fact::Limit, limit)
                .with(Fact::LimitName, "sessions"));
        }
        // A task that is just ending closes its channel; the next one takes over.
        for _ in 0..16 {
            match self.handle(session, missing).send(message).await {
                Ok(()) => return Ok(()),
                Err(mpsc::error::SendError(back)) => message = back,
            }
            tokio::task::yield_now().await;
        }
        Err(Fault::new(Kind::SessionBusy, Operation::OpenSession)
            .with(Fact::Session, session.to_string()))
    }

    /// Another process writes the session: its inbox is the way in. If that process is gone, the session is
    /// taken over as soon as its lease has run out.
    async fn submit_elsewhere(
        &self,
        session: SessionId,
        command: Command,
    ) -> Result<Answer, Fault> {
        let id = command.id.clone();
        if let Submitted::Answered(answer) = self.shared.journal.submit(session, command).await? {
            return Ok(answer);
        }
        let clock = &self.shared.world.clock;
        let mut waited = Duration::ZERO;
        while waited < REMOTE_ANSWER {
            tokio::select! {
                biased;
                answer = self.shared.journal.await_answer(session, &id) => return answer,
                () = clock.sleep(TAKE_OVER) => waited += TAKE_OVER,
            }
            self.send(session, Missing::Refuse, Message::Touch).await?;
        }
        Err(Fault::new(Kind::RequestTimedOut, Operation::SubmitCommand)
            .with(Fact::CommandId, id.to_string())
            .with(Fact::TimeoutMs, REMOTE_ANSWER)
            .with(Fact::ElapsedMs, REMOTE_ANSWER))
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
        opened.await.map_err(|_| actor::gone(session))??;
        if self.shared.ahead {
            self.send(session, Missing::Refuse, Message::Warm).await?;
        }
        Ok(session)
    }

    async fn submit(&self, session: SessionId, command: Command) -> Result<Answer, Fault> {
        let (reply, answered) = oneshot::channel();
        let message = Message::Command { command: Box::new(command.clone()), waits: false, reply };
        self.send(session, Missing::Refuse, message).await?;
        match answered.await.map_err(|_| actor::gone(session))? {
            Err(fault) if fault.kind() == Kind::SessionBusy => {
                self.submit_elsewhere(session, command).await
            }
            answer => answer,
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
