//! The builder of a [`Runtime`] and the traits that it takes: models, tools, clean-up.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    event::{SessionId, Settings},
    fault::{Fact, Fault, Kind, NodeIdentity, Operation},
    limits::Limits,
    message::CallId,
    remote::{RemoteCall, ToolRoute},
    world::World,
};
use budao_engine::{HolderLiveness, HostConfig, UnknownLiveness};
use budao_journal::Journal;
use budao_models::Model;
use budao_scrub::Scrubber;
use budao_tools::{Toolbox, hooks::Hooks, policy::Policy, pool::Pool};

use crate::{
    ModelHook, Runtime, Stages, SubAgents, gates::Gates, model_hooks::ModelHooks,
    observers::Observers, runtime::RuntimeShared,
};

/// Resolves the model name in a session's settings.
pub trait ModelSource: Send + Sync + fmt::Debug {
    /// Returns the model of that name. Called for each model request.
    ///
    /// # Errors
    /// There is no such model, or its configuration is unusable.
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, Fault>;
}

/// Serves one model under every name.
#[derive(Debug)]
pub struct OneModel(pub Arc<dyn Model>);

impl ModelSource for OneModel {
    fn model(&self, _name: &str) -> Result<Arc<dyn Model>, Fault> {
        Ok(Arc::clone(&self.0))
    }
}

/// Serves each model of a list under its own name.
#[derive(Debug)]
pub struct ModelList(pub Vec<Arc<dyn Model>>);

impl ModelSource for ModelList {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, Fault> {
        let found = self.0.iter().find(|model| model.name() == name);
        found.cloned().ok_or_else(|| {
            Fault::new(Kind::UnknownModel, Operation::OpenSession)
                .with(Fact::Model, name.to_owned())
                .with(
                    Fact::Allowed,
                    self.0.iter().map(|model| model.name().to_owned()).collect::<Vec<_>>(),
                )
        })
    }
}

/// Provides the tools of a session.
#[async_trait]
pub trait ToolSource: Send + Sync + fmt::Debug {
    /// Returns the tools of a session. The runtime calls it when the session is loaded, when its settings
    /// change, and before a step if `generation` has changed. Unless `is_quick`, a call that exceeds
    /// `limits.tool_deadline` fails the turn, even if it blocks its thread.
    ///
    /// # Errors
    /// The tools are unavailable; the turn fails with this fault.
    async fn toolbox(&self, session: SessionId, settings: &Settings) -> Result<Toolbox, Fault>;

    /// Does `toolbox` answer without waiting? If so, it runs outside the pool and without a time limit.
    fn is_quick(&self) -> bool {
        false
    }

    /// Called when a session ended, to release resources of its tools. A later message re-opens the session.
    async fn session_ended(&self, session: SessionId) {
        let _ = session;
    }

    /// Returns a toolbox with the version of a worker's tool that a started call was checked against, also if the
    /// worker offers another version by now. `None` if the source does not know it.
    async fn routed(
        &self,
        session: SessionId,
        settings: &Settings,
        tool: &str,
        route: &ToolRoute,
    ) -> Result<Option<Toolbox>, Fault> {
        let _ = (session, settings, tool, route);
        Ok(None)
    }

    /// Called with the durable state of a worker's call: before its work starts, and after each claim and report.
    fn call_changed(&self, session: SessionId, call: &CallId, attempt: u32, remote: &RemoteCall) {
        let _ = (session, call, attempt, remote);
    }

    /// A number that changes whenever a tool is added or removed.
    fn generation(&self) -> u64 {
        0
    }
}

#[async_trait]
impl ToolSource for Toolbox {
    async fn toolbox(&self, _session: SessionId, _settings: &Settings) -> Result<Toolbox, Fault> {
        Ok(self.clone())
    }

    fn is_quick(&self) -> bool {
        true
    }
}

/// Frees space when the disk, memory or a quota is full. Runs once, before one more attempt.
#[async_trait]
pub trait CleanUp: Send + Sync + fmt::Debug {
    /// Frees space, best effort. It continues in the background if it exceeds `limits.lease_renewal`.
    async fn clean_up(&self);
}

/// Builds a [`Runtime`].
#[derive(Debug)]
pub struct Builder {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) models: Arc<dyn ModelSource>,
    pub(crate) tools: Arc<dyn ToolSource>,
    pub(crate) hooks: Hooks,
    pub(crate) model_hooks: ModelHooks,
    pub(crate) world: World,
    pub(crate) limits: Limits,
    pub(crate) scrubber: Scrubber,
    pub(crate) clean_ups: Vec<Arc<dyn CleanUp>>,
    pub(crate) holder: Option<String>,
    pub(crate) liveness: Arc<dyn HolderLiveness>,
    pub(crate) idle_keep: Duration,
    pub(crate) places: Vec<String>,
    pub(crate) server: Option<Arc<NodeIdentity>>,
    pub(crate) stages: Stages,
    pub(crate) sub_agents: Option<SubAgents>,
    pub(crate) pool: Option<Arc<Pool>>,
    pub(crate) policy: Option<Arc<dyn Policy>>,
}

impl Builder {
    /// Starts a builder with the three parts that have no default.
    #[must_use]
    pub fn new(
        journal: Arc<dyn Journal>,
        models: Arc<dyn ModelSource>,
        tools: Arc<dyn ToolSource>,
    ) -> Self {
        Self {
            journal,
            models,
            tools,
            hooks: Hooks::default(),
            model_hooks: ModelHooks::default(),
            world: crate::world::system(),
            limits: Limits::default(),
            scrubber: Scrubber::new(),
            clean_ups: Vec::new(),
            holder: None,
            liveness: Arc::new(UnknownLiveness),
            idle_keep: Duration::from_secs(5),
            places: Vec::new(),
            server: None,
            stages: Stages::default(),
            sub_agents: None,
            pool: None,
            policy: None,
        }
    }

    /// Replaces clock, entropy, spawning and spans, for tests and simulation.
    #[must_use]
    pub fn world(mut self, world: World) -> Self {
        self.world = world;
        self
    }

    /// Replaces the default limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Replaces the hooks and guards that run before and after each call.
    #[must_use]
    pub fn hooks(mut self, hooks: Hooks) -> Self {
        self.hooks = hooks;
        self
    }

    /// Adds a hook around model requests. Hooks run in the order in which they were added.
    #[must_use]
    pub fn model_hook(mut self, hook: Arc<dyn ModelHook>) -> Self {
        self.model_hooks.add(hook);
        self
    }

    /// Sets the scrubber that knows this process's secrets. By default it knows none.
    #[must_use]
    pub fn scrubber(mut self, scrubber: Scrubber) -> Self {
        self.scrubber = scrubber;
        self
    }

    /// Adds a clean-up that runs when space is exhausted.
    #[must_use]
    pub fn clean_up(mut self, clean_up: Arc<dyn CleanUp>) -> Self {
        self.clean_ups.push(clean_up);
        self
    }

    /// Sets the name under which this process takes leases; a random UUID by default.
    #[must_use]
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// Sets how the host learns that another lease holder has died. By default it waits for the lease to expire.
    #[must_use]
    pub fn liveness(mut self, liveness: Arc<dyn HolderLiveness>) -> Self {
        self.liveness = liveness;
        self
    }

    /// Sets the places whose files this process has; sessions bound to another place run elsewhere. None by default.
    #[must_use]
    pub fn places(mut self, places: Vec<String>) -> Self {
        self.places = places;
        self
    }

    /// Sets the server that recorded faults name. By default they name none.
    #[must_use]
    pub fn server(mut self, server: NodeIdentity) -> Self {
        self.server = Some(Arc::new(server));
        self
    }

    /// Sets how long an idle session stays in memory; 5 s by default.
    #[must_use]
    pub fn idle_keep(mut self, keep: Duration) -> Self {
        self.idle_keep = keep;
        self
    }

    /// Sets the models, tools and limits of pipeline children.
    #[must_use]
    pub fn stages(mut self, stages: Stages) -> Self {
        self.stages = stages;
        self
    }

    /// Offers every session the tool `task_run`, which delegates work to a child session.
    #[must_use]
    pub fn sub_agents(mut self, sub_agents: SubAgents) -> Self {
        self.sub_agents = Some(sub_agents);
        self
    }

    /// Sets the pool on which model hooks and slow tool sources run. By default they run on threads of their own.
    #[must_use]
    pub fn pool(mut self, pool: Arc<Pool>) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Sets the policy for calls that a session's permissions allow or ask about. It cannot lift a denial.
    #[must_use]
    pub fn policy(mut self, policy: Arc<dyn Policy>) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Builds the runtime; it loads no session yet.
    ///
    /// # Errors
    /// `configuration_wrong`: a limit is 0 where at least 1 is required.
    pub fn build(self) -> Result<Runtime, Fault> {
        check_limits(&self.limits)?;
        self.limits.gate.check()?;
        let holder = self.holder.unwrap_or_else(|| self.world.uuid().to_string());
        let limits = Arc::new(self.limits);
        let gates = Gates::new(self.world.clone(), limits.gate.clone());
        let host = HostConfig {
            journal: Arc::clone(&self.journal),
            world: self.world.clone(),
            limits: Arc::clone(&limits),
            holder,
            liveness: self.liveness,
            idle_keep: self.idle_keep,
            places: self.places,
        };
        let shared = RuntimeShared {
            journal: self.journal,
            models: self.models,
            tools: self.tools,
            hooks: self.hooks,
            model_hooks: self.model_hooks,
            world: self.world,
            limits,
            scrubber: self.scrubber,
            server: self.server,
            clean_ups: self.clean_ups,
            gates,
            observers: Observers::default(),
            stages: self.stages,
            sub_agents: self.sub_agents,
            pool: self.pool.unwrap_or_else(|| Arc::new(Pool::threads())),
            policy: self.policy,
        };
        Ok(Runtime::new(host, shared))
    }
}

fn check_limits(limits: &Limits) -> Result<(), Fault> {
    let positive = [
        ("steps", u64::from(limits.steps)),
        ("failures_in_a_row", u64::from(limits.failures_in_a_row)),
        ("identical_invalid_calls", u64::from(limits.identical_invalid_calls)),
        ("parallel_calls", limits.parallel_calls as u64),
        ("retry.tries", u64::from(limits.retry.tries)),
        ("sessions", limits.sessions as u64),
    ];
    for (name, value) in positive {
        if value == 0 {
            return Err(Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
                .with(Fact::ConfigKey, format!("limits.{name}"))
                .with(Fact::Expected, "at least 1")
                .with(Fact::Received, "0"));
        }
    }
    Ok(())
}
