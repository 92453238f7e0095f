//! What a runtime is made of.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    event::{SessionId, Settings},
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    scrub::Scrubber,
    world::World,
};
use budao_engine::{HolderLiveness, HostConfig, UnknownLiveness};
use budao_journal::Journal;
use budao_models::Model;
use budao_tools::{Toolbox, hooks::Hooks, policy::Policy, pool::Pool};

use crate::{
    ModelHook, Providers, Runtime, Stages, SubAgents, model_hooks::ModelHooks,
    runtime::RuntimeShared,
};

/// Finds the model a session is set to.
pub trait ModelSource: Send + Sync + fmt::Debug {
    /// The model of that name.
    ///
    /// # Errors
    /// When there is none, or it cannot be used as configured.
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, Fault>;
}

/// The same model whatever the name.
#[derive(Debug)]
pub struct OneModel(pub Arc<dyn Model>);

impl ModelSource for OneModel {
    fn model(&self, _name: &str) -> Result<Arc<dyn Model>, Fault> {
        Ok(Arc::clone(&self.0))
    }
}

/// Finds the tools a session may use.
#[async_trait]
pub trait ToolSource: Send + Sync + fmt::Debug {
    /// The tools of a session. Asked when it is loaded, when its settings change, and before each step
    /// if `generation` has moved. Whoever takes longer than a tool may is not waited for, even if it blocks its thread.
    ///
    /// # Errors
    /// When they cannot be had; the turn fails with it.
    async fn toolbox(&self, session: SessionId, settings: &Settings) -> Result<Toolbox, Fault>;

    /// Does it answer from what it has at hand? Then it is asked on the session's own task, with nobody between who
    /// could give up on it.
    fn is_quick(&self) -> bool {
        false
    }

    /// A session ended: what its tools left running for it can be ended. A later message re-opens it.
    async fn session_ended(&self, session: SessionId) {
        let _ = session;
    }

    /// Moves whenever tools came or went.
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

/// Frees room when the disk, memory or a quota is full. Run once, before one more try.
#[async_trait]
pub trait CleanUp: Send + Sync + fmt::Debug {
    /// Frees what can be freed.
    async fn clean_up(&self);
}

/// Puts a runtime together.
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
    pub(crate) stages: Stages,
    pub(crate) sub_agents: Option<SubAgents>,
    pub(crate) pool: Option<Arc<Pool>>,
    pub(crate) policy: Option<Arc<dyn Policy>>,
}

impl Builder {
    /// What every runtime needs.
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
            stages: Stages::default(),
            sub_agents: None,
            pool: None,
            policy: None,
        }
    }

    /// Another world: for tests and simulation.
    #[must_use]
    pub fn world(mut self, world: World) -> Self {
        self.world = world;
        self
    }

    /// Other bounds.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
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
    pub fn model_hook(mut self, hook: Arc<dyn ModelHook>) -> Self {
        self.model_hooks.add(hook);
        self
    }

    /// A scrubber that knows this process's secrets.
    #[must_use]
    pub fn scrubber(mut self, scrubber: Scrubber) -> Self {
        self.scrubber = scrubber;
        self
    }

    /// Something that can free room when there is none.
    #[must_use]
    pub fn clean_up(mut self, clean_up: Arc<dyn CleanUp>) -> Self {
        self.clean_ups.push(clean_up);
        self
    }

    /// The name this process takes leases under; made up if none.
    #[must_use]
    pub fn holder(mut self, holder: impl Into<String>) -> Self {
        self.holder = Some(holder.into());
        self
    }

    /// Knows which other lease holders have died.
    #[must_use]
    pub fn liveness(mut self, liveness: Arc<dyn HolderLiveness>) -> Self {
        self.liveness = liveness;
        self
    }

    /// How long an idle session stays in memory.
    #[must_use]
    pub fn idle_keep(mut self, keep: Duration) -> Self {
        self.idle_keep = keep;
        self
    }

    /// How the children of pipelines are set.
    #[must_use]
    pub fn stages(mut self, stages: Stages) -> Self {
        self.stages = stages;
        self
    }

    /// Offers every session the tool `task_run`, which hands work to an agent of its own.
    #[must_use]
    pub fn sub_agents(mut self, sub_agents: SubAgents) -> Self {
        self.sub_agents = Some(sub_agents);
        self
    }

    /// Where hooks around the model run. Without one, on threads of their own.
    #[must_use]
    pub fn pool(mut self, pool: Arc<Pool>) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Decides about calls that a session's permissions allow or ask about.
    #[must_use]
    pub fn policy(mut self, policy: Arc<dyn Policy>) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Puts it together.
    ///
    /// # Errors
    /// When a bound makes no sense.
    pub fn build(self) -> Result<Runtime, Fault> {
        check_limits(&self.limits)?;
        let holder = self.holder.unwrap_or_else(|| self.world.uuid().to_string());
        let limits = Arc::new(self.limits);
        let host = HostConfig {
            journal: Arc::clone(&self.journal),
            world: self.world.clone(),
            limits: Arc::clone(&limits),
            holder,
            liveness: self.liveness,
            idle_keep: self.idle_keep,
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
            clean_ups: self.clean_ups,
            providers: Providers::default(),
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
