//! The interface of servers that share a journal: nodes with their beats, observed sessions, notes.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use budao_core::{event::SessionId, fault::Fault, time::Timestamp};
use serde::{Deserialize, Serialize};

use super::UnfinishedSession;

/// The time between two beats of a node that has sessions or observers.
pub const NODE_BEAT: Duration = Duration::from_secs(2);
/// A node without a beat for this long is gone: others take its sessions.
pub const NODE_TIMEOUT: Duration = Duration::from_secs(8);
/// The time after which the journal itself removes the row of a gone node; servers remove it earlier.
pub const NODE_ROW_TTL: Duration = Duration::from_secs(3600);

/// Coordinates the servers of a journal. Times are by one clock: the database's, else that of the machine.
#[async_trait]
pub trait Cluster: Send + Sync + fmt::Debug {
    /// Records that a node is alive, with its status and the changes of the sessions that its clients observe. Returns
    /// `false` if the node was unknown; it then reports all observed sessions again.
    ///
    /// # Errors
    /// When the journal fails. The beat may have been recorded.
    async fn beat(&self, beat: NodeBeat) -> Result<bool, Fault>;

    /// Lists all nodes, and the sessions of `holder` that clients of other living nodes observe.
    ///
    /// # Errors
    /// When the journal fails.
    async fn census(&self, holder: &str) -> Result<Census, Fault>;

    /// Removes a node that ends, with its observed sessions.
    ///
    /// # Errors
    /// When the journal fails.
    async fn leave(&self, holder: &str) -> Result<(), Fault>;

    /// Lists unfinished sessions without a writer: those without a valid lease, and those of the `dead` holders. In
    /// the order of their ids, after `after`.
    ///
    /// # Errors
    /// When the journal fails.
    async fn orphaned_sessions(
        &self,
        dead: &[String],
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<UnfinishedSession>, Fault>;

    /// Reads a note: a small value that all servers share; `None` if it was never written.
    ///
    /// # Errors
    /// When the journal fails.
    async fn note(&self, name: &str) -> Result<Option<Note>, Fault>;

    /// Writes a note if its version is still `expected`; 0 means that there is no such note yet. Returns the new
    /// version, or `None` if another server was faster.
    ///
    /// # Errors
    /// When the journal fails. The note may have been written.
    async fn set_note(
        &self,
        name: &str,
        expected: u64,
        body: Vec<u8>,
    ) -> Result<Option<u64>, Fault>;
}

/// A sign of life of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBeat {
    /// The name under which the node takes leases.
    pub holder: String,
    /// The node's status, for operators.
    pub status: NodeStatus,
    /// Sessions that the node's clients observe since the last beat.
    pub joined: Vec<SessionId>,
    /// Sessions that they no longer observe.
    pub left: Vec<SessionId>,
}

/// The status that a node writes with each beat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// The version of the program.
    pub version: String,
    /// When the process started.
    pub started: Timestamp,
    /// The address that the node listens on.
    pub address: String,
    /// The names of file systems that the node serves sessions of, besides sessions bound to none.
    pub places: Vec<String>,
    /// The node stops: it takes no sessions and releases those it has.
    pub is_draining: bool,
    /// Sessions that the server has loaded.
    pub sessions: u64,
    /// The most sessions that the node loads.
    pub session_limit: u64,
    /// Open connections of clients.
    pub connections: u64,
    /// CPU time used since the last beat, in thousandths of a core.
    pub cpu_permille: u64,
}

/// A node as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// The name under which the node takes leases.
    pub holder: String,
    /// The time since its last beat.
    pub silent_for: Duration,
    /// The status in its last beat.
    pub status: NodeStatus,
}

impl NodeInfo {
    /// Whether the node has not beaten for [`NODE_TIMEOUT`].
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.silent_for >= NODE_TIMEOUT
    }
}

/// All nodes, and the sessions of one node that clients of other nodes observe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Every node that has not left, ordered by holder.
    pub nodes: Vec<NodeInfo>,
    /// Sessions whose lease the asking holder has and that clients of other living nodes observe.
    pub observed: Vec<SessionId>,
}

/// A small value with a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Grows by one with each change.
    pub version: u64,
    /// The value, in its owner's encoding.
    pub body: Vec<u8>,
}
