//! The facade's two nouns: an [`Agent`] is a way to open sessions, a [`Session`] is one of them.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use budao_core::{
    Fault, Kind, Record,
    engine::{Engine, Opening},
    event::{
        Answer, Ask, CommandId, Decision, Event, Origin, QuestionId, Seq, SessionId, Settings,
    },
    fault::{Fact, Operation},
    limits::Limits,
    message::{Block, Message},
    seams::World,
    session,
    tool::Permissions,
};
use budao_journal::{Append, Entry, Journal, LeaseRequest, Memory, Missing, PageLimits};
use budao_models::Model;
use budao_tools::{Tool, Toolbox, hooks::Hooks, pool::Pool};
use futures::{FutureExt, Stream, StreamExt, stream};

use crate::{
    Builder, ModelHook, OneModel, Runtime, TurnResult,
    channel::{CallSnapshot, Channel, ChannelEvent, Envelope, Projector},
    world,
};

/// Records copied in one append when a session is forked.
const FORK_PAGE: usize = 1_000;

/// Opens sessions that all have the same model, tools and permissions.
#[derive(Clone, Debug)]
pub struct Agent {
    runtime: Runtime,
    settings: Settings,
}

/// Puts an agent together. What is required is in the constructor, what is optional has a method.
#[derive(Debug)]
pub struct AgentBuilder {
    model: Arc<dyn Model>,
    tools: Vec<Arc<dyn Tool>>,
    journal: Option<Arc<dyn Journal>>,
    hooks: Hooks,
    model_hooks: Vec<Arc<dyn ModelHook>>,
    limits: Limits,
    world: World,
    pool: Option<Arc<Pool>>,
    settings: Settings,
}

impl Agent {
    /// An agent on this model. Without more it has no tools, asks before it writes or executes, and keeps
    /// its sessions in memory.
    pub fn builder(model: impl Model + 'static) -> AgentBuilder {
        AgentBuilder {
            settings: Settings { model: model.name().to_owned(), ..Settings::default() },
            model: Arc::new(model),
            tools: Vec::new(),
            journal: None,
            hooks: Hooks::default(),
            model_hooks: Vec::new(),
            limits: Limits::default(),
            world: world::real(),
            pool: None,
        }
    }

    /// Opens a session.
    ///
    /// # Errors
    /// When the journal fails or there are too many sessions.
    pub async fn session(&self) -> Result<Session, Fault> {
        let opening = Opening { settings: self.settings.clone(), ..Opening::default() };
        let id = self.runtime.open(opening).await?;
        Ok(Session { runtime: self.runtime.clone(), id })
    }

    /// Takes a session up again; whatever is unfinished in it goes on.
    ///
    /// # Errors
    /// When there is no such session.
    pub async fn resume(&self, id: SessionId) -> Result<Session, Fault> {
        self.runtime.state(id).await?;
        self.runtime.touch(id);
        Ok(Session { runtime: self.runtime.clone(), id })
    }

    /// The engine underneath.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

impl AgentBuilder {
    /// Adds a tool.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Adds several tools: the built-in ones, those of an MCP server.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// Keeps sessions there.
    #[must_use]
    pub fn journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Standing instructions.
    #[must_use]
    pub fn system(mut self, text: impl Into<Arc<str>>) -> Self {
        self.settings.system = Some(text.into());
        self
    }

    /// Who may call what.
    #[must_use]
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.settings.permissions = permissions;
        self
    }

    /// The language people are spoken to in.
    #[must_use]
    pub fn language(mut self, language: budao_core::Lang) -> Self {
        self.settings.language = language;
        self
    }

    /// Hooks and guards around calls.
    #[must_use]
    pub fn hooks(mut self, hooks: Hooks) -> Self {
        self.hooks = hooks;
        self
    }

    /// Adds a hook around the model. Hooks are asked and told in the order they are added.
    #[must_use]
    pub fn model_hook(mut self, hook: impl ModelHook) -> Self {
        self.model_hooks.push(Arc::new(hook));
        self
    }

    /// Other bounds.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Where calls run. Without one, apart from everything, on threads of their own.
    #[must_use]
    pub fn pool(mut self, pool: Arc<Pool>) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Another world: for tests.
    #[must_use]
    pub fn world(mut self, world: World) -> Self {
        self.world = world;
        self
    }

    /// Puts it together.
    ///
    /// # Errors
    /// When a tool's name or schema is refused, or a bound makes no sense.
    pub fn build(self) -> Result<Agent, Fault> {
        let mut toolbox = Toolbox::builder();
        if let Some(pool) = self.pool {
            toolbox = toolbox.pool(pool);
        }
        for tool in self.tools {
            toolbox = toolbox.add_shared(tool)?;
        }
        let (world, limits) = (self.world, self.limits);
        let journal =
            self.journal.unwrap_or_else(|| Arc::new(Memory::new(world.clone(), limits.clone())));
        let models = Arc::new(OneModel(self.model));
        let mut runtime = Builder::new(journal, models, Arc::new(toolbox.build()))
            .world(world)
            .limits(limits)
            .hooks(self.hooks);
        for hook in self.model_hooks {
            runtime = runtime.model_hook(hook);
        }
        let runtime = runtime.build()?;
        Ok(Agent { runtime, settings: self.settings })
    }
}

/// One session. Clones are cheap and are the same session.
#[derive(Clone, Debug)]
pub struct Session {
    runtime: Runtime,
    id: SessionId,
}

impl Session {
    /// Its id: enough to resume it.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Sends words and waits for the answer, or until a person must decide.
    ///
    /// # Errors
    /// When the message was not accepted. A failed turn is an `Ok` whose result says so.
    pub async fn run(&self, text: &str) -> Result<TurnResult, Fault> {
        self.runtime.run(self.id, text).await
    }

    /// Has a question planned, its tasks solved side by side, and the results put together.
    ///
    /// # Errors
    /// When it was not accepted. A run that failed is an `Ok` whose result says so.
    pub async fn plan(&self, question: &str) -> Result<TurnResult, Fault> {
        self.runtime.plan(self.id, question, false).await
    }

    /// Has given tasks solved side by side and the results put together, without a planner.
    ///
    /// # Errors
    /// When they are no plan.
    pub async fn solve(
        &self,
        question: &str,
        tasks: serde_json::Value,
    ) -> Result<TurnResult, Fault> {
        self.runtime.solve(self.id, question, tasks).await
    }

    /// Sends words without waiting. They are durable and will be answered.
    ///
    /// # Errors
    /// When the message was not accepted.
    pub async fn send(&self, text: &str) -> Result<CommandId, Fault> {
        let content = vec![Block::Text(text.to_owned())];
        let command = self.runtime.command("user", Ask::Message { content });
        let id = command.id.clone();
        accepted(self.runtime.submit(self.id, command).await?).map(|_| id)
    }

    /// Waits for the answer to a message that was sent.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn wait(&self, message: &CommandId) -> Result<TurnResult, Fault> {
        self.runtime.wait_for(self.id, message, 0).await
    }

    /// Stops the turn; does nothing when none is running.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn cancel(&self) -> Result<(), Fault> {
        self.ask(Ask::Cancel { reason: None }).await
    }

    /// Answers a question.
    ///
    /// # Errors
    /// When it is not pending any more.
    pub async fn decide(
        &self,
        question: &QuestionId,
        decision: Decision,
        note: Option<&str>,
    ) -> Result<(), Fault> {
        let (question, note) = (question.clone(), note.map(str::to_owned));
        let (arguments, digest) = (None, None);
        self.ask(Ask::Decide { question, decision, note, arguments, digest }).await
    }

    async fn ask(&self, ask: Ask) -> Result<(), Fault> {
        let command = self.runtime.command("user", ask);
        accepted(self.runtime.submit(self.id, command).await?).map(drop)
    }

    /// The session as it is now.
    ///
    /// # Errors
    /// When its records cannot be read.
    pub async fn state(&self) -> Result<session::Session, Fault> {
        self.runtime.state(self.id).await
    }

    /// Events after a bookmark's position, then live ones, in one order over the wanted channels.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn events(
        &self,
        channels: &[Channel],
        since: Seq,
    ) -> Result<impl Stream<Item = Result<Envelope, Fault>> + Send + use<>, Fault> {
        let lang = self.state().await?.settings.language;
        let records = self.runtime.follow(self.id, 0).await?;
        let wanted = channels.to_vec();
        // The fold starts at the first record, so that snapshots of calls are whole after any bookmark.
        let events = records.scan(Projector::new(lang), move |projector, record| {
            let events = match record {
                Ok(record) => shown(projector.project(&record), &record, &wanted, since),
                Err(fault) => vec![Err(fault)],
            };
            futures::future::ready(Some(stream::iter(events)))
        });
        Ok(events.flatten())
    }

    /// Events of one type, taken apart: `pick` says which, and what of them is wanted.
    ///
    /// ```no_run
    /// # use budao_runtime::{Session, channel::ChannelEvent};
    /// # async fn errors(session: Session) -> Result<(), budao_core::Fault> {
    /// let errors = session
    ///     .select(0, |event| match event {
    ///         ChannelEvent::ToolError { call, error } => Some((call.name, error)),
    ///         _ => None,
    ///     })
    ///     .await?;
    /// # drop(errors);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn select<T: Send, F>(
        &self,
        since: Seq,
        pick: F,
    ) -> Result<impl Stream<Item = Result<T, Fault>> + Send + use<T, F>, Fault>
    where
        F: Fn(ChannelEvent) -> Option<T> + Send + 'static,
    {
        let all = [Channel::Progress, Channel::Control, Channel::Monitor];
        let events = self.events(&all, since).await?;
        Ok(events.filter_map(move |event| {
            let picked = match event {
                Ok(envelope) => pick(envelope.event).map(Ok),
                Err(fault) => Some(Err(fault)),
            };
            futures::future::ready(picked)
        }))
    }

    /// Calls `listener` with every event. A listener that panics or takes too long is reported in the
    /// log and called again with the next event; it cannot touch the session. Ends when dropped.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn listen<F, R>(
        &self,
        channels: &[Channel],
        since: Seq,
        listener: F,
    ) -> Result<Listening, Fault>
    where
        F: Fn(Envelope) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send,
    {
        let events = self.events(channels, since).await?;
        let stop = tokio_util::sync::CancellationToken::new();
        let (world, limit) = (self.runtime.world().clone(), self.runtime.limits().hook);
        let (session, clock) = (self.id, Arc::clone(&world.clock));
        let hearing = async move {
            futures::pin_mut!(events);
            while let Some(Ok(event)) = events.next().await {
                let heard = AssertUnwindSafe(async { listener(event).await }).catch_unwind();
                let why = tokio::select! {
                    biased;
                    heard = heard => heard.is_err().then_some("it panicked"),
                    () = clock.sleep(limit) => Some("it took too long"),
                };
                if let Some(reason) = why {
                    let fault = Fault::new(Kind::ListenerFailed, Operation::NotifyListener)
                        .with(Fact::Reason, reason);
                    tracing::warn!(%session, %fault, "a listener failed");
                }
            }
        };
        let stopped = stop.clone();
        world.spawn.spawn(Box::pin(async move {
            stopped.run_until_cancelled(hearing).await;
        }));
        Ok(Listening(stop.drop_guard()))
    }

    /// The whole conversation, error results included, whatever was compacted since.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn messages(&self) -> Result<Vec<Message>, Fault> {
        let mut session = session::Session::default();
        for record in self.records(Seq::MAX).await? {
            if !matches!(record.event, Event::HistoryCompacted { .. }) {
                session.apply_record(&record);
            }
        }
        Ok(Arc::unwrap_or_clone(session.history))
    }

    /// Every finished call with its audit trail, oldest first.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn calls(&self) -> Result<Vec<CallSnapshot>, Fault> {
        let lang = self.state().await?.settings.language;
        let mut projector = Projector::auditing(lang);
        for record in self.records(Seq::MAX).await? {
            drop(projector.project(&record));
        }
        Ok(projector.into_calls())
    }

    /// A new session that shares the history up to a position. It must lie between turns; without one,
    /// it is the end of the last turn.
    ///
    /// # Errors
    /// When a turn is running there, or the journal fails.
    pub async fn fork(&self, at: Option<Seq>) -> Result<Self, Fault> {
        let records = self.records(at.unwrap_or(Seq::MAX)).await?;
        let records = until_safe(records, at)?;
        let journal = Arc::clone(self.runtime.journal());
        let id = SessionId(self.runtime.world().uuid());
        let request = LeaseRequest {
            session: id,
            holder: format!("fork-{id}"),
            ttl: Duration::from_secs(60),
            missing: Missing::Create,
            instead_of: None,
        };
        let lease = journal.take_lease(request).await?;
        let mut head = 0;
        for page in copies(self.id, records).chunks(FORK_PAGE) {
            let append = Append::new(&lease, head, page.to_vec());
            head = journal.append(append).await.map_err(|error| error.into_fault(id))?;
        }
        journal.release(&lease).await?;
        Ok(Self { runtime: self.runtime.clone(), id })
    }

    async fn records(&self, until: Seq) -> Result<Vec<Record>, Fault> {
        let mut records: Vec<Record> = Vec::new();
        loop {
            let after = records.last().map_or(0, |record| record.seq);
            let page = self.runtime.journal().read(self.id, after, PageLimits::default()).await?;
            if page.records.is_empty() {
                return Ok(records);
            }
            for stored in page.records {
                if stored.seq > until {
                    return Ok(records);
                }
                records.push(stored.record()?);
            }
        }
    }
}

/// A listener that is being called. Dropping it ends that.
#[derive(Debug)]
pub struct Listening(
    #[expect(dead_code, reason = "held for its drop")] tokio_util::sync::DropGuard,
);

fn accepted(answer: Answer) -> Result<Seq, Fault> {
    match answer {
        Answer::Accepted { at } => Ok(at),
        Answer::Rejected { fault } => Err(fault),
    }
}

fn shown(
    events: Vec<Envelope>,
    record: &Record,
    wanted: &[Channel],
    since: Seq,
) -> Vec<Result<Envelope, Fault>> {
    if record.seq <= since {
        return Vec::new();
    }
    events.into_iter().filter(|event| wanted.contains(&event.channel)).map(Ok).collect()
}

/// The records up to the last place between turns, or exactly up to the place asked for.
fn until_safe(mut records: Vec<Record>, at: Option<Seq>) -> Result<Vec<Record>, Fault> {
    let mut state = session::Session::default();
    let mut safe = 0;
    for (index, record) in records.iter().enumerate() {
        state.apply_record(record);
        if state.turn.is_none() && state.queue.is_empty() {
            safe = index + 1;
        }
    }
    if at.is_some() && safe != records.len() {
        return Err(Fault::new(Kind::ConstraintViolated, Operation::OpenSession)
            .with(Fact::Field, "at")
            .with(Fact::Constraint, "at lies between turns")
            .with(Fact::ProvidedValue, serde_json::json!(at)));
    }
    records.truncate(safe);
    Ok(records)
}

fn copies(parent: SessionId, records: Vec<Record>) -> Vec<Entry> {
    let at = records.last().map_or(0, |record| record.seq);
    let copy = |record: Record| {
        let event = match record.event {
            Event::SessionOpened { settings, .. } => {
                Event::SessionOpened { settings, origin: Some(Origin::Fork { parent, at }) }
            }
            event => event,
        };
        Entry { at: record.at, trace: record.trace, turn: record.turn, event }
    };
    records.into_iter().map(copy).collect()
}
