//! The state shared by all connections and requests of a server.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::AtomicU64},
    time::Duration,
};

use budao_core::{
    Fault, Kind, Timestamp,
    engine::{Engine, SessionOptions},
    event::{Answer, Command, CommandBody, CommandId, SessionId, Settings},
    fault::{Fact, Operation},
    span::{Span, SpanOperation, code_of},
    tool::Mode,
    trace::{SpanId, Trace},
    world::World,
};
use budao_journal::{Filter, Reader, fold};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    admission::Admission,
    auth::Identity,
    config::Config,
    hub::Hubs,
    inbound::{self, MessageConfig, SessionRequest},
    origin::OriginPolicy,
    outbox::{Budget, Outbox},
    replay_scheduler::ReplayScheduler,
    session_meta::{self, SessionMetaCache},
    stats::{NodeMetrics, Stats},
};

/// The state shared by all connections and requests.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) config: Config,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) journal: Arc<dyn Reader>,
    pub(crate) world: World,
    pub(crate) hubs: Hubs,
    pub(crate) budget: Arc<Budget>,
    pub(crate) admission: Arc<Admission>,
    /// Limits the CPU share of history replays.
    pub(crate) replays: ReplayScheduler,
    pub(crate) origin_policy: OriginPolicy,
    pub(crate) session_meta: SessionMetaCache,
    pub(crate) stats: tokio::sync::Mutex<Stats>,
    /// Metrics of the records that this server wrote.
    pub(crate) node_metrics: tokio::sync::Mutex<NodeMetrics>,
    /// The result and time of the last journal probe.
    pub(crate) last_probe: tokio::sync::Mutex<Option<(Timestamp, Result<(), Fault>)>>,
    /// Sessions without an observer, and since when.
    pub(crate) unobserved: Mutex<BTreeMap<SessionId, Timestamp>>,
    /// The number of sessions per tenant; a tenant is absent until its sessions are counted.
    tenants: Mutex<BTreeMap<String, usize>>,
    pub(crate) stopping: CancellationToken,
    /// The open connections and streams.
    pub(crate) running: TaskTracker,
    /// Connections since the server started, for their numbers.
    pub(crate) connections: AtomicU64,
    pub(crate) started: Timestamp,
}

impl Server {
    pub(crate) fn new(
        config: Config,
        engine: Arc<dyn Engine>,
        journal: Arc<dyn Reader>,
        world: World,
        is_loopback: bool,
    ) -> Arc<Self> {
        engine.track_observers();
        Arc::new(Self {
            hubs: Hubs::default(),
            budget: Budget::new(config.limits.total_observer_bytes),
            admission: Admission::new(&config.limits, &world.clock),
            replays: ReplayScheduler::new(&world.clock),
            origin_policy: OriginPolicy::new(&config.origins, &config.hosts, is_loopback),
            session_meta: SessionMetaCache::default(),
            last_probe: tokio::sync::Mutex::default(),
            stats: tokio::sync::Mutex::default(),
            node_metrics: tokio::sync::Mutex::new(NodeMetrics::new(config.metrics.clone())),
            unobserved: Mutex::default(),
            tenants: Mutex::default(),
            stopping: CancellationToken::new(),
            running: TaskTracker::new(),
            connections: AtomicU64::new(0),
            started: world.clock.now(),
            config,
            engine,
            journal,
            world,
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.now().since(self.started)
    }

    pub(crate) fn outbox(&self) -> Outbox {
        Outbox::new(self.config.limits.observer_bytes, Arc::clone(&self.budget), self.now())
    }

    pub(crate) fn inbound_limits(&self) -> inbound::FrameLimits {
        inbound::FrameLimits {
            frame_bytes: self.config.shared_limits.frame_bytes,
            json_depth: self.config.shared_limits.json_depth,
            ..inbound::FrameLimits::default()
        }
    }

    /// Adds a trace to a fault and removes secrets from it, for sending it to a client.
    pub(crate) fn scrub_for_client(&self, fault: Fault, trace: Trace) -> Fault {
        let fault = fault.with_trace(trace).scrub(&self.config.scrubber);
        tracing::info!(trace = %fault.trace(), %fault, "fault sent to client");
        fault
    }

    /// Opens a session for an identity. A repeated command id returns the same session.
    pub(crate) async fn open(
        &self,
        identity: &Identity,
        creation: SessionRequest,
        command: Option<&CommandId>,
    ) -> Result<OpenedSession, Fault> {
        let settings = self.session_settings(identity, creation, command)?;
        let session = command.map(|command| session_of(identity, command));
        if let Some(session) = session
            && self.journal.info(session).await?.is_some_and(|info| info.head > 0)
        {
            return Ok(OpenedSession { session, is_new: false });
        }
        self.count_session(&identity.tenant).await?;
        let language = settings.language;
        let meta = session_meta::SessionMeta::of(&settings);
        let opening = SessionOptions { session, settings, origin: None };
        match self.engine.open(opening).await {
            Ok(session) => {
                self.session_meta.insert(session, meta);
                tracing::info!(%session, tenant = identity.tenant, ?language, "session opened");
                Ok(OpenedSession { session, is_new: true })
            }
            Err(fault) => {
                self.uncount_session(&identity.tenant);
                match session {
                    // A concurrent request with the same command id opened the session first.
                    Some(session) if fault.kind() == Kind::CommandRepeated => {
                        Ok(OpenedSession { session, is_new: false })
                    }
                    _ => Err(fault),
                }
            }
        }
    }

    /// The settings of a new session: the server's defaults with the permitted options of the request.
    fn session_settings(
        &self,
        identity: &Identity,
        creation: SessionRequest,
        command: Option<&CommandId>,
    ) -> Result<Settings, Fault> {
        let mut settings = self.config.settings.clone();
        let on_disconnect = creation.on_disconnect.unwrap_or(self.config.on_disconnect);
        settings.language = creation.language.unwrap_or(settings.language);
        settings.title = creation.title;
        if let Some(models) = creation.models {
            self.check_models(&models)?;
            settings = settings.with_models(models);
        }
        if let Some(system) = creation.system {
            settings.system = Some(system.into());
        }
        if let Some(mode) = creation.mode {
            settings.permissions.mode = stricter_mode(settings.permissions.mode, mode);
        }
        settings.tools = creation.tools.or(settings.tools);
        settings.answer_schema = creation.answer_schema.map(Arc::new).or(settings.answer_schema);
        settings.patience_ms = creation.patience_ms.or(settings.patience_ms);
        settings.max_steps = creation.max_steps.or(settings.max_steps);
        settings.labels.extend(session_meta::labels(identity));
        settings
            .labels
            .extend(creation.labels.into_iter().map(|(name, text)| (name.to_owned(), text)));
        let mut extra = |name: &str, value: Value| {
            settings.extra.insert(name.to_owned(), value);
        };
        extra(session_meta::ON_DISCONNECT, <&str>::from(on_disconnect).into());
        if let Some(plan) = creation.plan {
            extra(session_meta::PLAN, json!({ "confirm": plan.confirm }));
        }
        if let Some(command) = command {
            extra(session_meta::COMMAND, command.to_string().into());
        }
        Ok(settings)
    }

    /// Checks that a session may use these models.
    fn check_models(&self, models: &[String]) -> Result<(), Fault> {
        let allowed = self.models();
        match models.iter().find(|model| !allowed.contains(model)) {
            None => Ok(()),
            Some(model) => Err(Fault::new(Kind::UnknownModel, Operation::OpenSession)
                .with(Fact::Model, model.clone())
                .with(Fact::Allowed, allowed)
                .with(Fact::Field, "content.config.model")),
        }
    }

    /// Changes the settings of a session if a message requests that. Skips settings that already have the requested
    /// value, so a repeated message changes nothing.
    pub(crate) async fn configure(
        &self,
        session: SessionId,
        change: MessageConfig,
        by: &str,
    ) -> Result<(), Fault> {
        if change == MessageConfig::default() {
            return Ok(());
        }
        let before = fold(&*self.journal, session).await?.0.settings;
        let mut settings = before.clone();
        if let Some(models) = change.models {
            self.check_models(&models)?;
            settings = settings.with_models(models);
        }
        if let Some(schema) = change.answer_schema {
            settings.answer_schema = (!schema.is_null()).then(|| Arc::new(schema));
        }
        if settings == before {
            return Ok(());
        }
        let (settings, before) = (Box::new(settings), Some(Box::new(before)));
        let body = CommandBody::Settings { settings, before };
        let (trace, parent) = (Trace::NONE, SpanId::NONE);
        let request = CommandRequest { by: by.to_owned(), command: None, trace, parent, body };
        self.submit(session, request).await.map(drop)
    }

    /// The models that a session may use, the default first.
    pub(crate) fn models(&self) -> Vec<String> {
        let own = self.config.settings.models().map(str::to_owned);
        own.chain(self.config.models.iter().cloned()).collect()
    }

    /// Counts one more session of a tenant; `too_many_sessions` at the limit.
    pub(crate) async fn count_session(&self, tenant: &str) -> Result<(), Fault> {
        let limit = self.config.limits.tenant_sessions;
        if !self.tenants().contains_key(tenant) {
            let label = Some((session_meta::TENANT.to_owned(), Some(tenant.to_owned())));
            let filter = Filter { label, limit, ..Filter::default() };
            let existing = self.journal.sessions(filter).await?.len();
            self.tenants().entry(tenant.to_owned()).or_insert(existing);
        }
        let mut tenants = self.tenants();
        let count = tenants.entry(tenant.to_owned()).or_default();
        if *count >= limit {
            return Err(Fault::new(Kind::TooManySessions, Operation::OpenSession)
                .with(Fact::Limit, limit)
                .with(Fact::LimitName, "tenant_sessions"));
        }
        *count += 1;
        Ok(())
    }

    pub(crate) fn uncount_session(&self, tenant: &str) {
        if let Some(count) = self.tenants().get_mut(tenant) {
            *count = count.saturating_sub(1);
        }
    }

    /// Discards the counts after retention removed sessions; they are read again from the journal.
    pub(crate) fn recount_sessions(&self) {
        self.tenants().clear();
    }

    fn tenants(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, usize>> {
        self.tenants.lock().expect("no code panics while holding this")
    }

    /// Submits a command to a session. Returns the head before its effects; a rejection is an error too.
    pub(crate) async fn submit(
        &self,
        session: SessionId,
        request: CommandRequest,
    ) -> Result<u64, Fault> {
        let id = request.command.unwrap_or_else(|| CommandId::own(self.world.uuid()));
        let (began, span, name) =
            (self.now(), SpanId::of_request(session, &id), request.body.name());
        let command = Command { id, by: request.by, trace: request.trace, body: request.body };
        let taken = match self.engine.submit(session, command).await {
            Ok(Answer::Accepted { at }) => Ok(at),
            Ok(Answer::Rejected { fault }) | Err(fault) => Err(fault),
        };
        self.world.export_span(|| Span {
            trace: request.trace,
            id: span,
            parent: request.parent,
            session: Some(session),
            began,
            ended: self.now(),
            failed: taken.as_ref().err().map(code_of),
            about: SpanOperation::Request { name },
        });
        taken
    }
}

/// The stricter of two modes: a request may restrict the server's mode, never relax it.
fn stricter_mode(one: Mode, other: Mode) -> Mode {
    [Mode::Readonly, Mode::Approval]
        .into_iter()
        .find(|mode| [one, other].contains(mode))
        .unwrap_or(Mode::Auto)
}

/// A command for a session. It gets a generated id if the client gave none.
#[derive(Debug)]
pub(crate) struct CommandRequest {
    pub(crate) by: String,
    pub(crate) command: Option<CommandId>,
    pub(crate) trace: Trace,
    /// The client's span that the command belongs to.
    pub(crate) parent: SpanId,
    pub(crate) body: CommandBody,
}

/// A session that this command, or an earlier one with the same id, opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenedSession {
    pub(crate) session: SessionId,
    pub(crate) is_new: bool,
}

/// Derives a session id from an identity and a command id. Other identities get another id.
pub(crate) fn session_of(identity: &Identity, command: &CommandId) -> SessionId {
    let mut hash = Sha256::new();
    for part in ["budao session", &identity.tenant, &identity.user, &command.0] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest: [u8; 32] = hash.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    SessionId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
}
