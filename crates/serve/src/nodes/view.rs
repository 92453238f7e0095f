//! A node as `/api/nodes`, `budao nodes` and `budao top` show it.

use budao_journal::NodeInfo;
use serde::{Deserialize, Serialize};

/// A server of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeView {
    /// Name under which the server takes leases.
    pub holder: String,
    /// `alive`, `draining` (it stops and hands its sessions over) or `gone` (no beat for 8 seconds).
    pub state: String,
    /// Address that the server listens on.
    pub address: String,
    /// Version of the program.
    pub version: String,
    /// Time of its start, RFC 3339 in UTC.
    pub started_at: String,
    /// Milliseconds since its last beat.
    pub silent_ms: u64,
    /// Sessions that the server has loaded.
    pub sessions: u64,
    /// The most sessions that it loads.
    pub session_limit: u64,
    /// Open connections of clients.
    pub connections: u64,
    /// CPU time of the process, in thousandths of a core.
    pub cpu_permille: u64,
    /// Names of the places whose sessions it runs, besides sessions bound to no place.
    pub places: Vec<String>,
}

impl From<&NodeInfo> for NodeView {
    fn from(node: &NodeInfo) -> Self {
        let status = &node.status;
        let state = match (node.is_gone(), status.is_draining) {
            (true, _) => "gone",
            (false, true) => "draining",
            (false, false) => "alive",
        };
        Self {
            holder: node.holder.clone(),
            state: state.to_owned(),
            address: status.address.clone(),
            version: status.version.clone(),
            started_at: status.started.to_string(),
            silent_ms: u64::try_from(node.silent_for.as_millis()).unwrap_or(u64::MAX),
            sessions: status.sessions,
            session_limit: status.session_limit,
            connections: status.connections,
            cpu_permille: status.cpu_permille,
            places: status.places.clone(),
        }
    }
}
