//! `budao serve` as one of several servers on a journal: its node, and the key that all of them share.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use budao_core::{Fault, Kind, engine::Engine, fault::Operation};
use budao_journal::{Cluster, Journal, NodeStatus};
use budao_serve::Node;
use tokio::task::AbortHandle;

use crate::{engines::RunningEngine, lease_holder, setup::JournalArgs, traces};

/// Name of the note with the key of signed states.
const KEY_NOTE: &str = "state.key";
/// Bound for the last messages of a node that stops.
const FAREWELL: Duration = Duration::from_secs(3);

/// The node of this process, and the task that beats.
pub(super) struct RunningNode {
    pub(super) node: Arc<Node>,
    engine: Arc<dyn Engine>,
    task: AbortHandle,
}

impl RunningNode {
    /// Lists this server among the nodes of the journal and starts to beat.
    pub(super) async fn start(
        running: &RunningEngine,
        address: Option<SocketAddr>,
        session_limit: usize,
        places: Vec<String>,
    ) -> Self {
        let RunningEngine { journal, engine, .. } = running;
        let world = traces::world();
        let status = NodeStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: world.clock.now(),
            address: address.map_or_else(String::new, |address| address.to_string()),
            session_limit: session_limit as u64,
            places,
            ..NodeStatus::default()
        };
        let cluster: Arc<dyn Cluster> = Arc::clone(journal) as _;
        let node =
            Node::new(cluster, Arc::clone(lease_holder::known_nodes::census()), world, status);
        // On a full disk, for example: the server serves what it can, and beats when it can.
        if let Err(fault) = node.join(&**engine).await {
            tracing::warn!(%fault, "joining the other nodes failed");
        }
        let task = tokio::spawn(Arc::clone(&node).run(Arc::clone(engine))).abort_handle();
        Self { node, engine: Arc::clone(engine), task }
    }

    /// Announces the end, so that other nodes look for this node's sessions.
    pub(super) async fn drain(&self) {
        let draining = tokio::time::timeout(FAREWELL, self.node.drain(&*self.engine)).await;
        if let Ok(Err(fault)) = draining {
            tracing::warn!(%fault, "announcing the shutdown to other nodes failed");
        }
    }

    /// Leaves the list of nodes. Called when all leases have been released.
    pub(super) async fn leave(&self) {
        self.task.abort();
        if let Ok(Err(fault)) = tokio::time::timeout(FAREWELL, self.node.leave()).await {
            tracing::warn!(%fault, "leaving the list of nodes failed");
        }
    }
}

/// The key of a journal that is not a file: a note that the first server writes.
pub(super) async fn shared_key(
    journal: &JournalArgs,
    new_key: impl Fn() -> String,
) -> Result<String, Fault> {
    let journal = journal.open(&traces::world()).await?;
    let key = find_key(&*journal, new_key).await;
    journal.close().await;
    key
}

async fn find_key(journal: &dyn Journal, new_key: impl Fn() -> String) -> Result<String, Fault> {
    for _ in 0..2 {
        if let Some(note) = journal.note(KEY_NOTE).await? {
            return Ok(String::from_utf8_lossy(&note.body).into_owned());
        }
        let key = new_key();
        if journal.set_note(KEY_NOTE, 0, key.clone().into_bytes()).await?.is_some() {
            return Ok(key);
        }
    }
    Err(Fault::new(Kind::JournalBusy, Operation::StartServer)
        .with_cause("other servers change the key of the journal"))
}
