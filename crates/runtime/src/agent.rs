//! The facade's [`Agent`]: opens sessions that share one model, set of tools and permissions.

use std::{fmt, sync::Arc};

use budao_core::{
    Fault,
    engine::{Engine, SessionOptions},
    event::{SessionId, Settings},
    fallback::check_models,
    limits::Limits,
    tool::Permissions,
    world::World,
};
use budao_journal::{Journal, Memory};
use budao_models::{IntoModel, Model};
use budao_tools::{Tool, Toolbox, hooks::Hooks, policy::Policy, pool::Pool};
use futures::future::BoxFuture;

use crate::{
    Builder, ModelHook, ModelList, ModelSource, OneModel, Question, QuestionReply, Runtime,
    Session, world,
};

/// Answers the questions of an agent's sessions in place of a person.
#[derive(Clone)]
pub(crate) struct Approver(
    pub(crate) Arc<dyn Fn(Question) -> BoxFuture<'static, QuestionReply> + Send + Sync>,
);

impl fmt::Debug for Approver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Approver")
    }
}

/// Opens sessions that share one model, set of tools and permissions. Clones share one engine.
#[derive(Clone, Debug)]
pub struct Agent {
    runtime: Runtime,
    settings: Settings,
    approver: Option<Approver>,
}

/// Builds an [`Agent`]. Only the model is required; every other part has a default.
#[derive(Debug)]
pub struct AgentBuilder {
    models: Vec<Arc<dyn Model>>,
    tools: Vec<Arc<dyn Tool>>,
    journal: Option<Arc<dyn Journal>>,
    hooks: Hooks,
    model_hooks: Vec<Arc<dyn ModelHook>>,
    limits: Limits,
    world: World,
    pool: Option<Arc<Pool>>,
    policy: Option<Arc<dyn Policy>>,
    approver: Option<Approver>,
    settings: Settings,
}

impl Agent {
    /// Starts a builder with this model or script. By default the agent has no tools, asks before a call writes or
    /// executes, and keeps its sessions in memory.
    pub fn builder(model: impl IntoModel) -> AgentBuilder {
        let world = world::system();
        let model = model.into_shared(&world);
        AgentBuilder {
            settings: Settings { model: model.name().to_owned(), ..Settings::default() },
            models: vec![model],
            tools: Vec::new(),
            journal: None,
            hooks: Hooks::default(),
            model_hooks: Vec::new(),
            limits: Limits::default(),
            world,
            pool: None,
            policy: None,
            approver: None,
        }
    }

    /// Opens a new session with the agent's settings.
    ///
    /// # Errors
    /// The journal fails, or the limit on loaded sessions is reached.
    pub async fn session(&self) -> Result<Session, Fault> {
        let opening =
            SessionOptions { settings: self.settings.clone(), ..SessionOptions::default() };
        let id = self.runtime.open(opening).await?;
        Ok(self.handle(id))
    }

    /// Resumes a session from the journal; an unfinished turn continues.
    ///
    /// # Errors
    /// The journal has no such session, or its records cannot be read.
    pub async fn resume(&self, id: SessionId) -> Result<Session, Fault> {
        self.runtime.state(id).await?;
        self.runtime.touch(id);
        Ok(self.handle(id))
    }

    /// The engine that runs the agent's sessions, for gateways.
    #[must_use]
    pub fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(self.runtime.clone())
    }

    /// The journal that keeps the agent's sessions.
    #[must_use]
    pub fn journal(&self) -> &Arc<dyn Journal> {
        self.runtime.journal()
    }

    fn handle(&self, id: SessionId) -> Session {
        Session { runtime: self.runtime.clone(), id, approver: self.approver.clone() }
    }
}

/// The engine of an agent, for programs that use the crates behind the facade.
pub trait AgentExt {
    /// The engine that runs the agent's sessions.
    fn runtime(&self) -> &Runtime;
}

impl AgentExt for Agent {
    fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

/// Parts of an agent whose types are in the crates behind the facade.
pub trait AgentBuilderExt: Sized {
    /// Sets the policy for calls that the permissions allow or ask about. It cannot lift a denial.
    #[must_use]
    fn policy(self, policy: impl Policy) -> Self;

    /// Replaces the hooks and guards that run before and after each call.
    #[must_use]
    fn hooks(self, hooks: Hooks) -> Self;

    /// Adds a hook around model requests. Hooks run in the order in which they were added.
    #[must_use]
    fn model_hook(self, hook: impl ModelHook) -> Self;

    /// Sets the pool on which calls and hooks run. By default they run on threads of their own.
    #[must_use]
    fn pool(self, pool: Arc<Pool>) -> Self;

    /// Replaces clock, entropy and spawning, for tests.
    #[must_use]
    fn world(self, world: World) -> Self;
}

impl AgentBuilderExt for AgentBuilder {
    fn policy(mut self, policy: impl Policy) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    fn hooks(mut self, hooks: Hooks) -> Self {
        self.hooks = hooks;
        self
    }

    fn model_hook(mut self, hook: impl ModelHook) -> Self {
        self.model_hooks.push(Arc::new(hook));
        self
    }

    fn pool(mut self, pool: Arc<Pool>) -> Self {
        self.pool = Some(pool);
        self
    }

    fn world(mut self, world: World) -> Self {
        self.world = world;
        self
    }
}

impl AgentBuilder {
    /// Adds a model to ask while the ones before it cannot be asked. Models of one agent have different names.
    #[must_use]
    pub fn fallback(mut self, model: impl IntoModel) -> Self {
        let model = model.into_shared(&self.world);
        self.settings.fallbacks.push(model.name().to_owned());
        self.models.push(model);
        self
    }

    /// Adds one tool; [`Self::build`] checks its name and schema.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Adds several tools, for example the built-in ones or those of an MCP server.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// Sets the journal that stores the sessions; in memory by default.
    #[must_use]
    pub fn journal(mut self, journal: Arc<dyn Journal>) -> Self {
        self.journal = Some(journal);
        self
    }

    /// Sets the system prompt.
    #[must_use]
    pub fn system(mut self, text: impl Into<Arc<str>>) -> Self {
        self.settings.system = Some(text.into());
        self
    }

    /// Sets the JSON Schema of the final answer of every turn; the answer's text is then JSON that fits it.
    #[must_use]
    pub fn answer_schema(mut self, schema: serde_json::Value) -> Self {
        self.settings.answer_schema = Some(Arc::new(schema));
        self
    }

    /// Sets the rules by which a call is allowed, denied or put to a person.
    #[must_use]
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.settings.permissions = permissions;
        self
    }

    /// Answers questions with a callback while a turn is waited for: [`Session::run`] and its like then return when
    /// the turn has ended. Without it they return with the open questions.
    #[must_use]
    pub fn approve<F, R>(mut self, decide: F) -> Self
    where
        F: Fn(Question) -> R + Send + Sync + 'static,
        R: Future<Output = QuestionReply> + Send + 'static,
    {
        self.approver = Some(Approver(Arc::new(move |question| Box::pin(decide(question)))));
        self
    }

    /// Sets the language of text for people.
    #[must_use]
    pub fn language(mut self, language: budao_core::Lang) -> Self {
        self.settings.language = language;
        self
    }

    /// Replaces the default limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Builds the agent and its engine.
    ///
    /// # Errors
    /// A tool's name or schema is invalid, two models have one name, a limit is 0 where at least 1 is required, or a price
    /// or a cap on spending makes no sense.
    pub fn build(self) -> Result<Agent, Fault> {
        self.limits.spending.check()?;
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
        let names: Vec<String> = self.models.iter().map(|model| model.name().to_owned()).collect();
        check_models("model", &names)?;
        let models: Arc<dyn ModelSource> = match &self.models[..] {
            [model] => Arc::new(OneModel(Arc::clone(model))),
            _ => Arc::new(ModelList(self.models)),
        };
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
        Ok(Agent { runtime, settings: self.settings, approver: self.approver })
    }
}
