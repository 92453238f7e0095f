//! Selects which of a server's tools are offered: those that the configuration admits and a toolbox accepts.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use budao_tools::{ReconcileRule, Tool, Toolbox};

use crate::{
    config::McpServerConfig,
    server::ServerShared,
    store::tool_digest,
    tool::{McpTool, ToolDetails},
};

/// The tools to offer, and a fault for each rejected one.
#[derive(Debug)]
pub(crate) struct OfferedTools {
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    /// The same tools with their schemas compiled.
    pub(crate) toolbox: Toolbox,
    /// The server's own tool names, in the same order as `tools`.
    pub(crate) server_tool_name: Vec<String>,
    pub(crate) refused: Vec<Fault>,
    /// The digest of each tool, and whether it differs from the approved one, by the server's own names.
    pub(crate) digests: BTreeMap<String, (String, bool)>,
}

impl Default for OfferedTools {
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            toolbox: Toolbox::builder().build(),
            server_tool_name: Vec::new(),
            refused: Vec::new(),
            digests: BTreeMap::new(),
        }
    }
}

/// Selects the tools that the configuration admits and the toolbox accepts. Two facts about the server decide how its
/// calls go on after a crash.
pub(crate) fn select(
    config: &McpServerConfig,
    shared: &Arc<ServerShared>,
    listed: Vec<rmcp::model::Tool>,
    (has_tasks, is_stateless): (bool, bool),
) -> OfferedTools {
    let (mut rules, refused) = usable_rules(config, &listed);
    let mut offered = OfferedTools { refused, ..OfferedTools::default() };
    let (approved, mut new, mut names) = (shared.approved(), Vec::new(), HashSet::new());
    let mut compiled = Vec::new();
    for tool in listed.into_iter().filter(|tool| config.takes(&tool.name)) {
        let server_tool_name = tool.name.to_string();
        let digest = tool_digest(&tool);
        let is_changed = match approved.get(&server_tool_name) {
            Some(known) => *known != digest,
            None => {
                new.push((server_tool_name.clone(), digest.clone()));
                false
            }
        };
        let details = ToolDetails {
            reconcile: rules.remove(&server_tool_name),
            changed: is_changed.then(|| digest.clone()),
            has_tasks,
            is_stateless,
        };
        let tool: Arc<dyn Tool> = Arc::new(McpTool::new(tool, config, details, shared.clone()));
        let name = tool.spec().name.clone();
        if !names.insert(name.clone()) {
            tracing::warn!(server = %config.name, tool = %name, "skipping duplicate tool");
            continue;
        }
        match Toolbox::builder().add_shared(tool.clone()) {
            Ok(one) => compiled.push(one.build()),
            Err(fault) => {
                let fault = fault.via("mcp_server", &*config.name);
                tracing::warn!(server = %config.name, %fault, "skipping tool");
                offered.refused.push(fault);
                continue;
            }
        }
        if is_changed {
            tracing::warn!(server = %config.name, tool = %name, "server changed an approved tool");
        }
        offered.digests.insert(server_tool_name.clone(), (digest, is_changed));
        offered.tools.push(tool);
        offered.server_tool_name.push(server_tool_name);
    }
    if !new.is_empty() {
        shared.remember(&new);
    }
    offered.toolbox = offered.toolbox.merge(&compiled);
    offered
}

/// The rules whose question the server can answer, and a fault for each other one. A tool whose hints say that it
/// changes something is not asked; for a tool without hints, the configuration vouches.
fn usable_rules(
    config: &McpServerConfig,
    listed: &[rmcp::model::Tool],
) -> (BTreeMap<String, ReconcileRule>, Vec<Fault>) {
    let (mut rules, mut refused) = (BTreeMap::new(), Vec::new());
    for (tool, rule) in &config.reconcile {
        let hint = |tool: &rmcp::model::Tool| tool.annotations.as_ref()?.read_only_hint;
        let asked = listed.iter().find(|listed| listed.name == rule.ask);
        if asked.is_some_and(|asked| hint(asked) != Some(false)) {
            rules.insert(tool.clone(), rule.clone());
            continue;
        }
        let fault = Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
            .with(Fact::ConfigKey, format!("mcp.reconcile.{tool}.ask"))
            .with(Fact::Expected, "a tool of the same server that only reads")
            .with(Fact::Received, rule.ask.clone())
            .via("mcp_server", &*config.name);
        tracing::warn!(server = %config.name, %fault, "skipping reconcile rule");
        refused.push(fault);
    }
    (rules, refused)
}
