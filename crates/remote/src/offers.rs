//! What a worker offers: the checks of an offer, and the tools of each tenant that outlive a connection.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use budao_core::{
    event::SessionId,
    fault::{Fact, FactValue, Fault, Kind, Operation},
    message::CallId,
    remote::OfferedTool,
    time::Timestamp,
    tool,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::{WorkerLimits, limit_reached};

/// Versions of one tool that are kept: calls of an older one may still be open.
const VERSIONS: usize = 4;

/// How exactly the journal knows when a tool was last there. A tool is kept for as much longer.
pub(crate) const SEEN_INTERVAL: Duration = Duration::from_secs(15 * 60);

/// The sessions that an offer is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfferScope {
    /// All sessions of the tenant.
    Tenant,
    /// One session of the tenant.
    Session(SessionId),
}

/// A call that a process says it has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredCall {
    /// The session that made the call.
    pub session: SessionId,
    /// The id of the call in its session.
    pub call: CallId,
    /// The attempt that the process claimed.
    pub attempt: u32,
}

/// The offer of one process of a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerOffer {
    /// The name that all processes of the worker share.
    pub worker: String,
    /// The id of the process; the same on every connection of it.
    pub worker_id: String,
    /// The most calls that the process holds at the same time.
    pub capacity: usize,
    /// The tools on offer.
    pub tools: Vec<OfferedTool>,
    /// The calls that the process has claimed and not ended.
    pub holding: Vec<DeclaredCall>,
}

/// The fault of a field of an offer that breaks a rule.
pub(crate) fn violation_fault(
    field: impl Into<String>,
    rule: impl Into<String>,
    provided: &str,
) -> Fault {
    let shown: String = provided.chars().take(80).collect();
    Fault::new(Kind::ConstraintViolated, Operation::RegisterTool)
        .with(Fact::Field, field.into())
        .with(Fact::Constraint, rule.into())
        .with(Fact::ProvidedValue, FactValue::Json(Value::String(shown)))
}

/// Checks an offer by itself: names, sizes, times and schemas.
///
/// # Errors
/// The first broken rule, with the field that breaks it.
pub(crate) fn check_offer(
    offer: &WorkerOffer,
    patterns: Option<&[String]>,
    reserved: &[String],
    limits: &WorkerLimits,
) -> Result<(), Fault> {
    if offer.tools.len() > limits.worker_tools {
        return Err(limit_reached("worker_tools", limits.worker_tools));
    }
    let mut names = BTreeSet::new();
    for (index, offered) in offer.tools.iter().enumerate() {
        let field = |name: &str| format!("content.tools[{index}].{name}");
        let name = &offered.name;
        if !names.insert(name) {
            return Err(violation_fault(field("name"), "each tool is offered once", name));
        }
        if reserved.iter().any(|pattern| tool::matches(pattern, name)) {
            let rule = "the name is not one of the server's own tools";
            return Err(violation_fault(field("name"), rule, name));
        }
        let permits = |patterns: &[String]| patterns.iter().any(|it| tool::matches(it, name));
        if patterns.is_some_and(|patterns| !permits(patterns)) {
            return Err(violation_fault(field("name"), "the token may offer this name", name));
        }
        let wait_max = millis(limits.wait_max);
        for (what, ms) in [("deadline_ms", offered.deadline_ms), ("wait_ms", offered.wait_ms)] {
            if ms.is_some_and(|ms| ms > wait_max) {
                let rule = format!("{what} ≤ {wait_max}");
                return Err(violation_fault(
                    field(what),
                    rule,
                    &ms.unwrap_or_default().to_string(),
                ));
            }
        }
        check_tool(offered, limits).map_err(|fault| match fault.detail().get(Fact::Field) {
            Some(_) => fault,
            None => fault.with(Fact::Field, field("parameters")),
        })?;
    }
    Ok(())
}

/// Checks one tool as the toolbox will: its name, its size and its schema.
///
/// # Errors
/// The toolbox refuses the name or the schema, or it is too large.
pub fn check_tool(offered: &OfferedTool, limits: &WorkerLimits) -> Result<(), Fault> {
    let bytes = offered.bytes();
    if bytes > limits.tool_bytes {
        return Err(limit_reached("tool_bytes", limits.tool_bytes).with(Fact::Actual, bytes));
    }
    crate::tool::check(offered)
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A tool that a tenant's workers offer, in its versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KnownTool {
    /// The worker that offers it; no other may offer the name.
    pub(crate) worker: String,
    /// The user who offers it, as `tenant/user`.
    pub(crate) owner: String,
    /// The versions, the newest last. The model sees the newest.
    pub(crate) versions: Vec<(String, Arc<OfferedTool>)>,
    /// When a connected process last offered it, up to [`SEEN_INTERVAL`] ago.
    pub(crate) seen: Timestamp,
}

/// A tool that a connected process of this server offers to its tenant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectedTool {
    pub(crate) name: String,
    pub(crate) worker: String,
    pub(crate) owner: String,
}

impl KnownTool {
    fn see(&mut self, now: Timestamp) {
        if now.since(self.seen) >= SEEN_INTERVAL {
            self.seen = now;
        }
    }

    pub(crate) fn newest(&self) -> Option<&(String, Arc<OfferedTool>)> {
        self.versions.last()
    }

    pub(crate) fn version(&self, version: &str) -> Option<&Arc<OfferedTool>> {
        self.versions.iter().find(|(known, _)| known == version).map(|(_, tool)| tool)
    }
}

/// The tools of one tenant. They are stored in the journal, so that a restarted server knows them before the workers
/// are back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TenantTools {
    pub(crate) tools: BTreeMap<String, KnownTool>,
}

impl TenantTools {
    /// Notes that the tools of connected processes are there, and forgets those that no process offered for long.
    pub(crate) fn refresh(
        &mut self,
        connected: &BTreeSet<ConnectedTool>,
        now: Timestamp,
        limits: &WorkerLimits,
    ) {
        for tool in connected {
            if let Some(known) = self.tools.get_mut(&tool.name)
                && (&known.worker, &known.owner) == (&tool.worker, &tool.owner)
            {
                known.see(now);
            }
        }
        let kept = limits.forgotten.saturating_add(SEEN_INTERVAL);
        self.tools.retain(|_, tool| now.since(tool.seen) < kept);
    }

    /// Adds what a worker offers.
    ///
    /// # Errors
    /// Another worker or user offers the name, or a bound is reached. Some tools may have been added then.
    pub(crate) fn add(
        &mut self,
        (worker, owner): (&str, &str),
        offered: &[OfferedTool],
        now: Timestamp,
        limits: &WorkerLimits,
    ) -> Result<(), Fault> {
        for (index, offered) in offered.iter().enumerate() {
            if let Some(known) = self.tools.get(&offered.name)
                && (known.worker != worker || known.owner != owner)
            {
                let field = format!("content.tools[{index}].name");
                let rule = format!("the worker `{}` offers this name", known.worker);
                return Err(violation_fault(field, rule, &offered.name));
            }
            self.insert((worker, owner), offered, now);
        }
        if self.tools.len() > limits.tools {
            return Err(limit_reached("tenant_tools", limits.tools));
        }
        let bytes: usize = self.all().map(|tool| tool.bytes()).sum();
        if bytes > limits.tenant_bytes {
            return Err(limit_reached("tenant_tool_bytes", limits.tenant_bytes));
        }
        Ok(())
    }

    fn insert(&mut self, (worker, owner): (&str, &str), offered: &OfferedTool, now: Timestamp) {
        let version = offered.version();
        let known = self.tools.entry(offered.name.clone()).or_insert_with(|| KnownTool {
            worker: worker.to_owned(),
            owner: owner.to_owned(),
            versions: Vec::new(),
            seen: now,
        });
        let at = known.versions.iter().position(|(it, _)| *it == version);
        match at {
            Some(at) if at + 1 == known.versions.len() => known.see(now),
            _ => known.seen = now,
        }
        let entry = match at {
            Some(at) => known.versions.remove(at),
            None => (version, Arc::new(offered.clone())),
        };
        known.versions.push(entry);
        if known.versions.len() > VERSIONS {
            known.versions.remove(0);
        }
    }

    fn all(&self) -> impl Iterator<Item = &Arc<OfferedTool>> {
        self.tools.values().flat_map(|known| known.versions.iter().map(|(_, tool)| tool))
    }

    /// Whether both have the same tools in the same versions; when they were last seen does not count.
    pub(crate) fn has_same_tools(&self, other: &Self) -> bool {
        let facts = |tools: &Self| -> Vec<(String, String, Vec<String>)> {
            let of = |(name, known): (&String, &KnownTool)| {
                let versions = known.versions.iter().map(|(version, _)| version.clone()).collect();
                (name.clone(), known.worker.clone(), versions)
            };
            tools.tools.iter().map(of).collect()
        };
        facts(self) == facts(other)
    }

    /// Adds what another server stored. Of a tool that both know, the entry seen last counts.
    pub(crate) fn merge(&mut self, stored: Self) {
        for (name, tool) in stored.tools {
            match self.tools.get(&name) {
                Some(known) if known.seen >= tool.seen => {}
                _ => drop(self.tools.insert(name, tool)),
            }
        }
    }
}
