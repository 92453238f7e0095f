//! The facade's [`Agent`]: a way to open sessions that all have the same model, tools and permissions.

use std::sync::Arc;

use budao_core::{
    Fault,
    engine::{Engine, SessionOptions},
    event::{SessionId, Settings},
    limits::Limits,
    tool::Permissions,
    world::World,
};
use budao_journal::{Journal, Memory};
use budao_models::Model;
use budao_tools::{Tool, Toolbox, hooks::Hooks, policy::Policy, pool::Pool};

use crate::{Builder, ModelHook, OneModel, Runtime, Session, world};

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
    policy: Option<Arc<dyn Policy>>,
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
            world: world::system(),
            pool: None,
            policy: None,
        }
    }

    /// Opens a session.
    ///
    /// # Errors
    /// When the journal fails or there are too many sessions.
    pub async fn session(&self) -> Result<Session, Fault> {
        let opening =
            SessionOptions { settings: self.settings.clone(), ..SessionOptions::default() };
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

    /// Decides about calls that the permissions allow or ask about. What they deny stays denied.
    #[must_use]
    pub fn policy(mut self, policy: impl Policy) -> Self {
        self.policy = Some(Arc::new(policy));
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

    /// Where calls and hooks run. Without one, apart from everything, on threads of their own.
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
        if let Some(pool) = &self.pool {
            toolbox = toolbox.pool(Arc::clone(pool));
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
        if let Some(pool) = self.pool {
            runtime = runtime.pool(pool);
        }
        if let Some(policy) = self.policy {
            runtime = runtime.policy(policy);
        }
        for hook in self.model_hooks {
            runtime = runtime.model_hook(hook);
        }
        let runtime = runtime.build()?;
        Ok(Agent { runtime, settings: self.settings })
    }
}
