//! The MCP servers that run here, and the one table by which their tools are listed and called.

use std::sync::Arc;

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    seams::World,
};
use budao_mcp::{Server, State};
use budao_tools::Tool;
use serde_json::{Value, json};

use super::{
    inputs::{self, Values},
    settings::{McpServer, Settings, ToolMeta},
};
use crate::wire::identity::exposed_name;

/// The servers of a computer.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) settings: Settings,
    running: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    /// Its place in the settings.
    index: usize,
    server: Result<Server, Fault>,
}

/// A tool that can be called.
#[derive(Clone, Debug)]
pub(super) struct Offered {
    pub(super) exposed: String,
    pub(super) bundle_id: String,
    pub(super) called: String,
    pub(super) meta: ToolMeta,
    pub(super) tool: Arc<dyn Tool>,
}

impl Offer {
    /// Starts every server that is not disabled, and waits for none of them.
    pub(super) async fn start(
        settings: Settings,
        values: &dyn Values,
        world: &World,
        limits: &Arc<Limits>,
    ) -> Self {
        let mut running = Vec::new();
        for (index, server) in settings.servers.iter().enumerate() {
            if server.described.disabled {
                continue;
            }
            let config = inputs::resolve(&settings, server, values).await;
            let server = config.and_then(|config| Server::open(config, world, limits));
            running.push(Running { index, server });
        }
        Self { settings, running }
    }

    pub(super) fn servers(&self) -> impl Iterator<Item = &Server> {
        self.running.iter().filter_map(|running| running.server.as_ref().ok())
    }

    /// What each server is up to, for the operator.
    pub(super) fn states(&self) -> Vec<(String, State)> {
        let state = |running: &Running| match &running.server {
            Ok(server) => server.state(),
            Err(fault) => State::Down { fault: fault.clone(), again_in: None },
        };
        self.running
            .iter()
            .map(|running| (self.of(running).bundle_id.clone(), state(running)))
            .collect()
    }

    fn of(&self, running: &Running) -> &McpServer {
        &self.settings.servers[running.index]
    }

    /// Every tool there is, and whether it is forbidden.
    fn all(&self) -> Vec<(Offered, bool)> {
        let mut all: Vec<(Offered, bool)> = Vec::new();
        for running in &self.running {
            let Ok(server) = &running.server else { continue };
            let McpServer { bundle_id, described, .. } = self.of(running);
            for (called, tool) in server.named_tools() {
                let meta = described.meta_of(&called);
                let exposed = exposed_name(bundle_id, meta.alias.as_deref().unwrap_or(&called));
                let own = exposed_name(bundle_id, &called);
                let is_named = |name: &String| *name == called || *name == exposed || *name == own;
                let is_forbidden = described.forbidden_tools.iter().any(is_named);
                if all.iter().any(|(other, _)| other.exposed == exposed) {
                    tracing::warn!(tool = exposed, "two tools have this name; the first is kept");
                    continue;
                }
                let bundle_id = bundle_id.clone();
                all.push((Offered { exposed, bundle_id, called, meta, tool }, is_forbidden));
            }
        }
        all
    }

    /// The tools that are offered, as an agent sees them.
    pub(super) fn listed(&self) -> Vec<Value> {
        let offered = self.all().into_iter().filter(|(_, is_forbidden)| !is_forbidden);
        offered.map(|(offered, _)| shown(&offered)).collect()
    }

    /// The tool of this name.
    ///
    /// # Errors
    /// If there is none, it is forbidden, or its server is not there.
    pub(super) fn find(&self, exposed: &str) -> Result<Offered, Fault> {
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
        let owner = self.settings.servers.iter().find(|server| {
            exposed.strip_prefix(&server.bundle_id).is_some_and(|rest| rest.starts_with("__"))
        });
        if let Some(owner) = owner {
            let id = owner.bundle_id.clone();
            if owner.described.disabled {
                return Err(new(Kind::ToolDisabled).with(Fact::McpServer, id));
            }
            if let Some(down) = self.down(&id) {
                return Err(new(Kind::McpServerFailed)
                    .with(Fact::McpServer, id.clone())
                    .with(Fact::Reason, down)
                    .via("mcp_server", id));
            }
        }
        let mut names: Vec<String> =
            all.into_iter().filter(|(_, no)| !no).map(|(offered, _)| offered.exposed).collect();
        names.truncate(20);
        let fault = new(Kind::UnknownTool);
        Err(if names.is_empty() { fault } else { fault.with(Fact::Allowed, names) })
    }

    /// Why a server is not there, if it is not.
    fn down(&self, bundle_id: &str) -> Option<&'static str> {
        let running =
            self.running.iter().find(|running| self.of(running).bundle_id == bundle_id)?;
        let Ok(server) = &running.server else { return Some("it could not be started") };
        match server.state() {
            State::Ready { .. } => None,
            State::Starting => Some("it is still starting"),
            State::Down { .. } => Some("it is down and being started again"),
            State::Stopped => Some("it was stopped"),
        }
    }

    /// Is there a server of this id?
    pub(super) fn has(&self, bundle_id: &str) -> bool {
        self.settings.servers.iter().any(|server| server.bundle_id == bundle_id)
    }

    pub(super) async fn shutdown(&self) {
        futures::future::join_all(self.servers().map(Server::shutdown)).await;
    }
}

fn shown(offered: &Offered) -> Value {
    let spec = offered.tool.spec();
    let mut shown = json!({
        "name": offered.exposed, "bundle_id": offered.bundle_id,
        "description": &*spec.description, "params_schema": &*spec.schema, "return_schema": null,
    });
    if offered.meta != ToolMeta::default() {
        let text = serde_json::to_string(&offered.meta).unwrap_or_default();
        shown["meta"] = json!({ "a2c_tool_meta": text });
    }
    shown
}
