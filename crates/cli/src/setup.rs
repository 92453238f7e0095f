//! Builds the runtime with its journal, models and tools, as the command line and the configuration say.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    engine::Engine as _,
    event::{SessionId, Settings},
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    message::CallId,
    remote::{RemoteCall, ToolRoute},
    tool,
    world::World,
};
use budao_journal::{Access, Admin, Backends, Inspection, Journal, Retention};
use budao_mcp::{LoginStore, ServerEnvironment, ServerSet, ServerStore};
use budao_models::{Keys, Model, Models, Vendor};
use budao_remote::{Workers, WorkersConfig};
use budao_runtime::{Builder, CleanUp, ModelSource, Runtime, ToolSource};
use budao_scrub::Scrubber;
use budao_tools::{
    Toolbox,
    builtin::{self, Environment, Workspace},
    launch,
    pool::Pool,
};

use crate::{
    acp::EditorServers,
    config::{Config, ModelsConfig},
    lease_holder, postgres,
    smcp::JoinedRooms,
    traces,
};

/// Time a start waits for MCP servers that were asked for by name; slower ones join later.
const SERVERS_READY: Duration = Duration::from_secs(15);

/// Time a start waits for all other MCP servers.
const OTHERS_READY: Duration = Duration::from_secs(5);

/// The file in the state directory with what is remembered of MCP servers.
const SERVERS_FILE: &str = "mcp-servers.json";
/// The file of the logins to MCP servers, in the state directory.
const LOGINS_FILE: &str = "mcp-logins.json";

/// Age after which finished sessions are removed when the disk is full.
const SESSIONS_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Names of this program's own tools; no worker may offer them.
const OWN_TOOLS: [&str; 5] = ["fs_*", "bash_*", "todo_*", "task_run", "mcp__*"];

/// Maximum models kept open; beyond it the cache is cleared.
const MODELS_OPEN: usize = 64;

/// The journal that `--journal` names. A command that uses one flattens this into its arguments.
///
/// The option itself is global and stands in `Cli`; this reads its value and adds no option of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct JournalArgs {
    pub(crate) journal: Option<String>,
    access: Access,
}

/// The id of the global option.
const JOURNAL: &str = "journal";

impl clap::FromArgMatches for JournalArgs {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let mut read = Self::default();
        read.update_from_arg_matches(matches)?;
        Ok(read)
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        self.journal = matches.get_one::<String>(JOURNAL).cloned();
        Ok(())
    }
}

impl clap::Args for JournalArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

impl JournalArgs {
    /// For a command that changes a journal and never creates one.
    pub(crate) fn existing(&self) -> Self {
        Self { access: Access::Existing, ..self.clone() }
    }

    /// For a command that reads a journal and never creates one.
    pub(crate) fn to_read(&self) -> Self {
        Self { access: Access::ReadOnly, ..self.clone() }
    }

    /// URL of the journal: `--journal`, else a file in the state directory. Creates nothing.
    pub(crate) fn url(&self) -> Result<String, Fault> {
        match &self.journal {
            Some(url) => Ok(url.clone()),
            None => Ok(default_file()?.display().to_string()),
        }
    }

    /// What the URL leads to, after a check that a journal exists or can be created there. Create files beside the
    /// journal only after this check.
    pub(crate) async fn inspect(&self) -> Result<Inspection, Fault> {
        self.create_default_directory()?;
        let url = self.url()?;
        backends().of(&url)?.inspect(&url).await
    }

    /// Creates the directory of the default file; a directory named by the user is never created.
    fn create_default_directory(&self) -> Result<(), Fault> {
        if self.journal.is_some() {
            return Ok(());
        }
        let file = default_file()?;
        let Some(directory) = file.parent() else { return Ok(()) };
        std::fs::create_dir_all(directory).map_err(|error| {
            Fault::new(Kind::FilePermission, Operation::OpenJournal)
                .with(Fact::Path, directory.display().to_string())
                .caused_by(&error)
        })
    }

    /// Opens the journal with the access the command asked for. A command that only reads opens it for writing where
    /// permitted, so that the session lists are up to date.
    pub(crate) async fn open(&self, world: &World) -> Result<Arc<dyn Journal>, Fault> {
        let (url, backends) = (self.url()?, backends());
        match self.access {
            Access::Create => {
                self.create_default_directory()?;
                backends.open(&url, Access::Create, world.clone()).await
            }
            Access::Existing => backends.open(&url, Access::Existing, world.clone()).await,
            Access::ReadOnly => match backends.open(&url, Access::Existing, world.clone()).await {
                Err(fault)
                    if matches!(fault.kind(), Kind::JournalOfOtherUser | Kind::JournalReadOnly) =>
                {
                    backends.open(&url, Access::ReadOnly, world.clone()).await
                }
                opened => opened,
            },
        }
    }
}

/// Leases on a database: longer than on a file, since each renewal is a row written. Beats of nodes find dead holders.
const DATABASE_LEASE: Duration = Duration::from_secs(60);
const DATABASE_LEASE_RENEWAL: Duration = Duration::from_secs(20);

/// Sets the lease times that fit the journal, unless they were configured.
pub(crate) fn set_lease_times(journal: &dyn Journal, limits: &mut Limits) {
    let default = Limits::default();
    let is_configured =
        (limits.lease, limits.lease_renewal) != (default.lease, default.lease_renewal);
    if journal.kind() == "postgres" && !is_configured {
        (limits.lease, limits.lease_renewal) = (DATABASE_LEASE, DATABASE_LEASE_RENEWAL);
    }
}

/// The kinds of journal that every command accepts.
pub(crate) fn backends() -> Backends {
    Backends::embedded().with(postgres::backend())
}

/// A journal's URL for people: without a password and the parameters that may name files.
pub(crate) fn url_without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    match rest.rsplit_once('@') {
        Some((login, place)) => {
            let user = login.split_once(':').map_or(login, |(user, _)| user);
            format!("{scheme}://{user}@{place}")
        }
        None => format!("{scheme}://{rest}"),
    }
}

/// The journal that commands use unless `--journal` names another.
fn default_file() -> Result<PathBuf, Fault> {
    let directory = state_directory().ok_or_else(|| {
        Fault::new(Kind::ConfigurationWrong, Operation::OpenJournal)
            .with(Fact::ConfigKey, "--journal")
            .with(Fact::Expected, "a file, since there is no home directory")
            .with(Fact::Received, "nothing")
    })?;
    Ok(directory.join("journal.db"))
}

/// `$XDG_STATE_HOME/budao`, else `~/.local/state/budao`.
pub(crate) fn state_directory() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = set("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".local/state")))?;
    Some(base.join("budao"))
}

/// What all MCP servers of this process share. What is remembered of them is in the state directory, if there is one.
pub(crate) fn server_environment(
    world: &World,
    limits: &Arc<Limits>,
    logins: Option<&Path>,
) -> Result<ServerEnvironment, Fault> {
    let variables = std::env::vars_os().collect();
    let mut environment = ServerEnvironment::new(&variables, world, limits);
    if let Some(directory) = state_directory() {
        environment.store = Arc::new(ServerStore::open(directory.join(SERVERS_FILE))?);
    }
    let own = || state_directory().map(|directory| directory.join(LOGINS_FILE));
    if let Some(file) = logins.map(Path::to_owned).or_else(own) {
        environment.logins = Some(Arc::new(LoginStore::open(file)?));
    }
    Ok(environment)
}

/// The native runtime with the tool servers, shells and rooms it uses.
pub(crate) struct Application {
    pub(crate) runtime: Runtime,
    tools: Arc<SessionTools>,
    shells: builtin::Shells,
    /// The configured MCP servers.
    pub(crate) servers: Arc<ServerSet>,
    /// MCP servers that an editor configured.
    pub(crate) editor_servers: Arc<EditorServers>,
    /// SMCP rooms whose computers' tools are offered.
    pub(crate) rooms: Arc<JoinedRooms>,
    /// Programs that connect and offer tools.
    pub(crate) workers: Workers,
    /// MCP servers and rooms that have not started yet, with the reason.
    pub(crate) missing: Vec<(String, Fault)>,
}

impl Application {
    /// Checks that every name and pattern of `--tools` fits a tool, unless more tools may come: servers and rooms may
    /// still be starting.
    ///
    /// # Errors
    /// `configuration_wrong` with the name, and the nearest tool if one is near.
    pub(crate) async fn check_tools(&self, settings: &Settings) -> Result<(), Fault> {
        let Some(offered) = settings.tools.as_ref().filter(|_| self.missing.is_empty()) else {
            return Ok(());
        };
        let all = Settings { tools: None, ..settings.clone() };
        let toolbox = self.tools.toolbox(SessionId(uuid::Uuid::nil()), &all).await?;
        let specs = toolbox.specs();
        let names = || specs.iter().map(|spec| &*spec.name).chain(["task_run"]);
        let is_known = |pattern: &&String| names().any(|name| tool::matches(pattern, name));
        let Some(unknown) = offered.iter().find(|pattern| !is_known(pattern)) else {
            return Ok(());
        };
        let received: String = unknown.chars().take(40).collect();
        let expected = format!("the name of a tool or a `prefix*`, and `{received}` is none");
        let expected = match budao_tools::suggestions::nearest(unknown, names()) {
            Some(near) => format!("{expected}, perhaps `{near}`"),
            None => expected,
        };
        Err(Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
            .with(Fact::ConfigKey, "--tools")
            .with(Fact::Expected, expected)
            .with(Fact::Received, received))
    }

    /// Parks running turns and ends shells and tool servers.
    pub(crate) async fn close(&self) {
        self.runtime.shutdown(Duration::ZERO).await;
        self.shells.end_all().await;
        self.servers.shutdown().await;
        self.editor_servers.shutdown().await;
    }
}

/// Builds the runtime and waits up to [`SERVERS_READY`] for MCP servers.
pub(crate) async fn assemble(journal: &JournalArgs, config: Config) -> Result<Application, Fault> {
    assemble_within(journal, config, SERVERS_READY).await
}

/// Builds the runtime and waits up to `ready` for MCP servers.
pub(crate) async fn assemble_within(
    journal: &JournalArgs,
    config: Config,
    ready: Duration,
) -> Result<Application, Fault> {
    let world = traces::world();
    let Config {
        mut limits,
        models: ModelsConfig { text_only, .. },
        mcp,
        mcp_logins,
        smcp,
        log,
        places,
        port,
        serve,
        ..
    } = config;
    let worker_limits = serve.workers;
    let text_only = text_only.iter().map(|name| Models::parse_spec(name));
    let text_only = text_only.collect::<Result<_, Fault>>()?;
    log.start("off")?;
    let mcp_secrets: Vec<String> =
        mcp.iter().flat_map(|server| server.secrets().map(str::to_owned)).collect();
    let journal = journal.open(&world).await?;
    set_lease_times(&*journal, &mut limits);
    let environment = server_environment(&world, &Arc::new(limits.clone()), mcp_logins.as_deref())?;
    let required: Vec<String> =
        mcp.iter().filter(|server| server.required).map(|server| server.name.clone()).collect();
    let servers = Arc::new(ServerSet::open_in(mcp, &environment)?);
    let (_, mut missing) = tokio::join!(
        servers.ready(&world, ready.min(OTHERS_READY)),
        servers.ready_for(&world, ready, |name| required.iter().any(|known| known == name)),
    );
    let editor_servers = Arc::new(EditorServers::new(environment, Arc::clone(&servers)));
    let (keys, mut secrets) = keys();
    secrets.extend(mcp_secrets);
    secrets.extend(JoinedRooms::secrets(&smcp));
    let (rooms, absent) = JoinedRooms::join(smcp, &world).await;
    missing.extend(absent);
    let rooms = Arc::new(rooms);
    let scrubber = Scrubber::with_secrets(secrets);
    let models = Models::new(world.clone(), Arc::new(limits.clone()), keys).text_only(text_only);
    let options = builtin::BuiltinOptions {
        launcher: launch::installed(),
        environment: Environment::filtered(std::env::vars_os(), &[]),
        ..builtin::BuiltinOptions::default()
    };
    let shells = options.shells.clone();
    let workers = Workers::new(WorkersConfig {
        world: world.clone(),
        limits: worker_limits,
        store: Some(Arc::clone(&journal) as _),
        reserved: OWN_TOOLS.map(str::to_owned).to_vec(),
    });
    let tools = Arc::new(SessionTools {
        options,
        pool: Arc::new(Pool::threads()),
        scrubber: scrubber.clone(),
        servers: Arc::clone(&servers),
        editor_servers: Arc::clone(&editor_servers),
        rooms: Arc::clone(&rooms),
        workers: workers.clone(),
    });
    let retains = SessionReclaimer { journal: Arc::clone(&journal) as _, age: SESSIONS_KEPT };
    let runtime = Builder::new(
        journal,
        Arc::new(ModelRegistry { models, open: Mutex::default() }),
        Arc::clone(&tools) as _,
    )
    .clean_up(Arc::new(retains))
    .world(world)
    .limits(limits)
    .scrubber(scrubber)
    .holder(lease_holder::name())
    .liveness(Arc::new(lease_holder::KnownHolders))
    .places(places)
    .server(lease_holder::node_identity(port))
    .build()?;
    Ok(Application { runtime, tools, shells, servers, editor_servers, rooms, workers, missing })
}

/// Frees disk space: removes sessions that ended long ago, with their kept outputs.
#[derive(Debug)]
struct SessionReclaimer {
    journal: Arc<dyn Admin>,
    age: Duration,
}

#[async_trait]
impl CleanUp for SessionReclaimer {
    async fn clean_up(&self) {
        let retention = Retention { session_age: Some(self.age), ..Retention::default() };
        match self.journal.retain(retention).await {
            Ok(removed) => tracing::info!(?removed, "old sessions removed"),
            Err(fault) => tracing::warn!(%fault, "removing old sessions failed"),
        }
    }
}

/// The API keys in the environment, and their values for the scrubber.
pub(crate) fn keys() -> (Keys, Vec<String>) {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let secrets = Vendor::ALL.into_iter().filter_map(|vendor| set(vendor.key_setting())).collect();
    let keys = Keys::read(set);
    (keys, secrets)
}

/// Opens models by the specification in a session's settings.
#[derive(Debug)]
struct ModelRegistry {
    models: Models,
    /// Open models. They are reused, because a model keeps its connections and a script its position.
    open: Mutex<HashMap<String, Arc<dyn Model>>>,
}

impl ModelSource for ModelRegistry {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, Fault> {
        let mut open = self.open.lock().expect("no code panics while holding this");
        if let Some(model) = open.get(name) {
            return Ok(Arc::clone(model));
        }
        let model = self.models.open(&Models::parse_spec(name)?)?;
        if open.len() >= MODELS_OPEN {
            open.clear();
        }
        open.insert(name.to_owned(), Arc::clone(&model));
        Ok(model)
    }
}

/// The built-in tools in the session's workspace, plus the tools of MCP servers and rooms.
#[derive(Debug)]
struct SessionTools {
    options: builtin::BuiltinOptions,
    pool: Arc<Pool>,
    scrubber: Scrubber,
    servers: Arc<ServerSet>,
    editor_servers: Arc<EditorServers>,
    rooms: Arc<JoinedRooms>,
    workers: Workers,
}

#[async_trait]
impl ToolSource for SessionTools {
    async fn toolbox(&self, session: SessionId, settings: &Settings) -> Result<Toolbox, Fault> {
        let mut toolbox =
            Toolbox::builder().pool(Arc::clone(&self.pool)).scrubber(self.scrubber.clone());
        if let Some(workspace) = &settings.workspace {
            let documents = self.editor_servers.documents(session);
            let workspace = Workspace::open(workspace)?.with_documents(documents);
            let tools = builtin::tools(&workspace, &self.options);
            for tool in tools.into_iter().chain(builtin::timer_tools()) {
                toolbox = toolbox.add_shared(tool)?;
            }
        }
        let toolbox = self.editor_servers.offer(session, &self.servers.offer(&toolbox.build())?);
        self.workers.add_tools(settings, self.rooms.offer(toolbox)).await
    }

    async fn routed(
        &self,
        _session: SessionId,
        settings: &Settings,
        tool: &str,
        route: &ToolRoute,
    ) -> Result<Option<Toolbox>, Fault> {
        self.workers.routed(settings, tool, route).await
    }

    fn call_changed(&self, session: SessionId, call: &CallId, attempt: u32, remote: &RemoteCall) {
        self.workers.call_changed(session, call, attempt, remote);
    }

    async fn session_ended(&self, session: SessionId) {
        self.options.shells.end_session(session).await;
    }

    fn generation(&self) -> u64 {
        let moved = self.servers.generation() + self.editor_servers.generation();
        moved.wrapping_add(self.rooms.generation()).wrapping_add(self.workers.generation())
    }
}
