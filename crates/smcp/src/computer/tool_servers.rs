//! The MCP servers of a computer, and the table by which their tools are listed and called.
//!
//! Servers can be added and removed at run time. Readers get the state of that moment; the lock is never held while
//! waiting for a server.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    world::World,
};
use budao_mcp::{ProcessVariables, ServerHandle, ServerState};
use budao_tools::{Tool, suggestions};
use serde_json::{Value, json};

use super::{
    inputs::{self, ValueSource},
    settings::{McpServer, Settings, ToolMeta},
    skills::SkillSource,
};
use crate::wire::identity::exposed_name;

/// The MCP servers of a computer.
#[derive(Debug)]
pub(super) struct ToolServers {
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    settings: Settings,
    /// The servers that run or should run, by id.
    running: Vec<RunningServer>,
    /// Secret values for the scrubber.
    secrets: Vec<String>,
}

#[derive(Clone, Debug)]
struct RunningServer {
    bundle_id: String,
    server: Result<Arc<ServerHandle>, Fault>,
}

/// A tool that can be called.
#[derive(Clone, Debug)]
pub(super) struct OfferedTool {
    pub(super) exposed: String,
    pub(super) bundle_id: String,
    pub(super) called: String,
    pub(super) meta: ToolMeta,
    pub(super) tool: Arc<dyn Tool>,
}

impl ToolServers {
    pub(super) fn new(settings: Settings) -> Self {
        let table = Table { settings, running: Vec::new(), secrets: Vec::new() };
        Self { table: Mutex::new(table) }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ids of the servers that are not disabled.
    pub(super) fn enabled(&self) -> Vec<String> {
        let table = self.lock();
        let enabled = table.settings.servers.iter().filter(|server| !server.described.disabled);
        enabled.map(|server| server.bundle_id.clone()).collect()
    }

    /// Starts a server without waiting until it is ready. A server that is down is retried at once.
    ///
    /// # Errors
    /// If no server has this id, or its configuration is invalid.
    pub(super) async fn start(
        &self,
        bundle_id: &str,
        values: &dyn ValueSource,
        variables: &ProcessVariables,
        world: &World,
        limits: &Arc<Limits>,
    ) -> Result<Arc<ServerHandle>, Fault> {
        let (settings, known) = {
            let table = self.lock();
            let known = table.settings.server(bundle_id).cloned();
            (table.settings.clone(), known.ok_or_else(|| unknown(bundle_id))?)
        };
        if let Some(server) = self.server(bundle_id) {
            server.restart();
            return Ok(server);
        }
        let resolved = inputs::resolve(&settings, &known, values).await;
        let opened = match resolved {
            Ok(resolved) => {
                self.lock().secrets.extend(resolved.secrets);
                ServerHandle::open(resolved.config, variables, world, limits).map(Arc::new)
            }
            Err(fault) => Err(fault),
        };
        let mut table = self.lock();
        table.running.retain(|running| running.bundle_id != bundle_id);
        let server = opened.clone();
        table.running.push(RunningServer { bundle_id: bundle_id.to_owned(), server });
        opened
    }

    /// Stops a server. It stays in the settings.
    ///
    /// # Errors
    /// If no server has this id.
    pub(super) async fn stop(&self, bundle_id: &str) -> Result<(), Fault> {
        let stopped = {
            let mut table = self.lock();
            if table.settings.server(bundle_id).is_none() {
                return Err(unknown(bundle_id));
            }
            let found = table.running.iter().position(|running| running.bundle_id == bundle_id);
            found.map(|index| table.running.remove(index))
        };
        if let Some(RunningServer { server: Ok(server), .. }) = stopped {
            server.shutdown().await;
        }
        Ok(())
    }

    /// Adds a server to the settings, or replaces the one with the same id, which must be stopped.
    ///
    /// # Errors
    /// If the server's settings are invalid.
    pub(super) fn add(&self, raw: &Value) -> Result<String, Fault> {
        self.lock().settings.put(raw)
    }

    /// Removes a server from the settings. It must be stopped.
    pub(super) fn remove(&self, bundle_id: &str) {
        self.lock().settings.servers.retain(|server| server.bundle_id != bundle_id);
    }

    /// The settings as an agent may see them.
    pub(super) fn to_json(&self) -> Value {
        self.lock().settings.to_json()
    }

    pub(super) fn secrets(&self) -> Vec<String> {
        self.lock().secrets.clone()
    }

    /// A server that runs or is being restarted.
    pub(super) fn server(&self, bundle_id: &str) -> Option<Arc<ServerHandle>> {
        let table = self.lock();
        let running = table.running.iter().find(|running| running.bundle_id == bundle_id)?;
        running.server.as_ref().ok().cloned()
    }

    /// All servers that run or are being restarted, in their order.
    pub(super) fn servers(&self) -> Vec<(String, Arc<ServerHandle>)> {
        let table = self.lock();
        let running = table.running.iter();
        running
            .filter_map(|it| Some((it.bundle_id.clone(), it.server.as_ref().ok()?.clone())))
            .collect()
    }

    /// The servers that may publish skills.
    pub(super) fn sources(&self) -> Vec<SkillSource> {
        let is_local = |id: &str| {
            self.lock().settings.server(id).is_some_and(|it| it.described.transport == "stdio")
        };
        let servers = self.servers().into_iter();
        servers
            .map(|(bundle_id, server)| SkillSource {
                is_local: is_local(&bundle_id),
                bundle_id,
                server,
            })
            .collect()
    }

    /// The state of each server, for the operator. Disabled servers are reported as stopped.
    pub(super) fn states(&self) -> Vec<(String, ServerState)> {
        let table = self.lock();
        let state = |id: &str| match table.running.iter().find(|it| it.bundle_id == id) {
            Some(RunningServer { server: Ok(server), .. }) => server.state(),
            Some(RunningServer { server: Err(fault), .. }) => {
                ServerState::Down { fault: fault.clone(), again_in: None }
            }
            None => ServerState::Stopped,
        };
        let servers = table.settings.servers.iter();
        servers.map(|it| (it.bundle_id.clone(), state(&it.bundle_id))).collect()
    }

    /// The state of each enabled server by its id, for agents: a list of tools is complete once none is starting.
    pub(super) fn state_names(&self) -> BTreeMap<String, &'static str> {
        let enabled = self.enabled();
        let states = self.states().into_iter().filter(|(id, _)| enabled.contains(id));
        let name = |state: &ServerState| match state {
            ServerState::Starting => "starting",
            ServerState::Ready { .. } => "ready",
            ServerState::Down { .. } => "down",
            ServerState::Stopped => "stopped",
        };
        states.map(|(id, state)| (id, name(&state))).collect()
    }

    /// All tools of all servers, and whether each is forbidden.
    fn all(&self) -> Vec<(OfferedTool, bool)> {
        let table = self.lock();
        let mut all: Vec<(OfferedTool, bool)> = Vec::new();
        for known in &table.settings.servers {
            let running = table.running.iter().find(|it| it.bundle_id == known.bundle_id);
            let Some(RunningServer { server: Ok(server), .. }) = running else { continue };
            let McpServer { bundle_id, described, .. } = known;
            for (called, tool) in server.named_tools() {
                let meta = described.meta_of(&called);
                let exposed = exposed_name(bundle_id, meta.alias.as_deref().unwrap_or(&called));
                let own = exposed_name(bundle_id, &called);
                let is_named = |name: &String| *name == called || *name == exposed || *name == own;
                let is_forbidden = described.forbidden_tools.iter().any(is_named);
                if all.iter().any(|(other, _)| other.exposed == exposed) {
                    tracing::warn!(tool = exposed, "skipping duplicate tool");
                    continue;
                }
                let bundle_id = bundle_id.clone();
                all.push((OfferedTool { exposed, bundle_id, called, meta, tool }, is_forbidden));
            }
        }
        all
    }

    /// The tools that are offered, as an agent receives them.
    pub(super) fn listed(&self) -> Vec<Value> {
        let offered = self.all().into_iter().filter(|(_, is_forbidden)| !is_forbidden);
        offered.map(|(offered, _)| to_json(&offered)).collect()
    }

    /// Finds a tool by its exposed name.
    ///
    /// # Errors
    /// If no tool has this name, it is forbidden, or its server is not running.
    pub(super) fn find(&self, exposed: &str) -> Result<OfferedTool, Fault> {
        let new =
            |kind| Fault::new(kind, Operation::ToolCall).with(Fact::ToolName, exposed.to_owned());
        let all = self.all();
        match all.iter().find(|(offered, _)| offered.exposed == exposed) {
            Some((offered, false)) => return Ok(offered.clone()),
            Some((offered, true)) => {
                return Err(
                    new(Kind::ToolDisabled).with(Fact::McpServer, offered.bundle_id.clone())
                );
            }
            None => {}
        }
        if let Some(fault) = self.absent(exposed) {
            return Err(fault.with(Fact::ToolName, exposed.to_owned()));
        }
        let mut names: Vec<String> =
            all.into_iter().filter(|(_, no)| !no).map(|(offered, _)| offered.exposed).collect();
        let nearest = suggestions::ranked(exposed, names.iter().map(String::as_str));
        let nearest: Vec<String> = nearest.into_iter().take(3).map(str::to_owned).collect();
        names.truncate(20);
        let mut fault = new(Kind::UnknownTool);
        if !nearest.is_empty() {
            fault = fault.with(Fact::Nearest, nearest);
        }
        Err(if names.is_empty() { fault } else { fault.with(Fact::Allowed, names) })
    }

    /// The fault for a tool whose server is not running; `None` if it is running or unknown.
    fn absent(&self, exposed: &str) -> Option<Fault> {
        let table = self.lock();
        let owner = table.settings.servers.iter().find(|server| {
            exposed.strip_prefix(&server.bundle_id).is_some_and(|rest| rest.starts_with("__"))
        })?;
        let id = owner.bundle_id.clone();
        if owner.described.disabled {
            let fault = Fault::new(Kind::ToolDisabled, Operation::ToolCall)
                .with(Fact::ToolName, exposed.to_owned());
            return Some(fault.with(Fact::McpServer, id));
        }
        let running = table.running.iter().find(|running| running.bundle_id == id);
        let state = match running {
            Some(RunningServer { server: Ok(server), .. }) => server.state(),
            Some(RunningServer { server: Err(fault), .. }) => {
                ServerState::Down { fault: fault.clone(), again_in: None }
            }
            None => ServerState::Stopped,
        };
        let why = match state {
            ServerState::Ready { .. } => return None,
            ServerState::Starting => "it is still starting",
            // A missing sign-in keeps its own fault, because the user can fix it.
            ServerState::Down { fault, .. } if is_sign_in(&fault) => return Some(fault),
            ServerState::Down { again_in: None, .. } => "it could not be started",
            ServerState::Down { .. } => "it is down and being started again",
            ServerState::Stopped => "it was stopped",
        };
        let fault = Fault::new(Kind::McpServerFailed, Operation::ToolCall);
        let fault = fault.with(Fact::McpServer, id.clone()).with(Fact::Reason, why);
        Some(fault.via("mcp_server", id))
    }

    /// Finds a running server by its id.
    ///
    /// # Errors
    /// If no server has this id, or it is not running.
    pub(super) fn running_server(&self, bundle_id: &str) -> Result<Arc<ServerHandle>, Fault> {
        let server = self.server(bundle_id).ok_or_else(|| unknown(bundle_id))?;
        match server.state() {
            ServerState::Down { fault, .. } if is_sign_in(&fault) => Err(fault),
            ServerState::Down { fault, .. } => {
                Err(unknown(bundle_id).with_cause(fault.to_string()))
            }
            _ => Ok(server),
        }
    }

    pub(super) async fn shutdown(&self) {
        let servers = self.servers();
        futures::future::join_all(servers.iter().map(|(_, server)| server.shutdown())).await;
    }
}

/// Whether the fault is a missing or refused sign-in at an upstream service.
pub(super) fn is_sign_in(fault: &Fault) -> bool {
    matches!(fault.kind(), Kind::UpstreamSignInNeeded | Kind::UpstreamSignInRefused)
}

fn unknown(bundle_id: &str) -> Fault {
    Fault::new(Kind::McpServerNotFound, Operation::RelayCall)
        .with(Fact::McpServer, bundle_id.to_owned())
}

fn to_json(offered: &OfferedTool) -> Value {
    let spec = offered.tool.spec();
    let mut rendered = json!({
        "name": offered.exposed, "bundle_id": offered.bundle_id,
        "description": &*spec.description, "params_schema": &*spec.schema, "return_schema": null,
    });
    if offered.meta != ToolMeta::default() {
        let text = serde_json::to_string(&offered.meta).unwrap_or_default();
        rendered["meta"] = json!({ "a2c_tool_meta": text });
    }
    rendered
}
