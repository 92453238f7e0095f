//! The other servers of the journal as this process last read them: alive, draining or gone.
//!
//! A server is judged only while the journal answers this process: after an outage of the database every server is
//! silent, and none of them is gone.

use std::{
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use budao_core::{event::SessionId, time::Timestamp};
use budao_journal::{NODE_TIMEOUT, NodeInfo};

/// A longer pause between two reads means that the journal did not answer, or that this process was frozen.
const READ_PAUSE_MAX: Duration = Duration::from_secs(4);

/// Tells whether a holder was a process of this machine that has ended; `false` when in doubt.
pub type LocalLiveness = fn(&str) -> bool;

/// The nodes of a journal as last read, and the processes of this machine.
#[derive(Debug)]
pub struct NodeCensus {
    holder: String,
    local: LocalLiveness,
    state: Mutex<CensusState>,
}

#[derive(Debug, Default)]
struct CensusState {
    nodes: Vec<NodeInfo>,
    read_at: Option<Timestamp>,
    /// The journal has answered without a pause since then.
    answering_since: Option<Timestamp>,
}

impl NodeCensus {
    /// A census without nodes. `holder` is the name of this process, `local` knows the processes of this machine.
    #[must_use]
    pub fn new(holder: String, local: LocalLiveness) -> Self {
        Self { holder, local, state: Mutex::default() }
    }

    /// The name under which this process takes leases.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// Replaces the list of nodes with the one that was just read.
    pub fn update(&self, nodes: Vec<NodeInfo>, now: Timestamp) {
        let mut state = self.state();
        let is_continuous =
            state.read_at.is_some_and(|last| now >= last && now.since(last) <= READ_PAUSE_MAX);
        if !is_continuous {
            state.answering_since = Some(now);
        }
        state.read_at = Some(now);
        state.nodes = nodes;
    }

    /// The nodes as last read.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeInfo> {
        self.state().nodes.clone()
    }

    /// The holders of nodes that are gone.
    #[must_use]
    pub fn dead_holders(&self) -> Vec<String> {
        let state = self.state();
        let dead = state.nodes.iter().filter(|node| self.is_gone(&state, node));
        dead.map(|node| node.holder.clone()).collect()
    }

    /// The rank of this process among the living nodes that could take a session, 0 for the first. Every node computes
    /// the same order.
    #[must_use]
    pub fn rank(&self, session: SessionId) -> usize {
        let state = self.state();
        let own = weight(session, &self.holder);
        let is_candidate = |node: &&NodeInfo| {
            node.holder != self.holder
                && !node.status.is_draining
                && !node.is_gone()
                && !(self.local)(&node.holder)
                && (node.status.session_limit == 0
                    || node.status.sessions < node.status.session_limit)
        };
        let before = |node: &&NodeInfo| weight(session, &node.holder) > own;
        state.nodes.iter().filter(is_candidate).filter(before).count()
    }

    fn is_gone(&self, state: &CensusState, node: &NodeInfo) -> bool {
        if node.holder == self.holder {
            return false;
        }
        let answers_long = match (state.answering_since, state.read_at) {
            (Some(since), Some(read_at)) => read_at.since(since) >= NODE_TIMEOUT,
            _ => false,
        };
        (self.local)(&node.holder) || (node.is_gone() && answers_long)
    }

    fn state(&self) -> MutexGuard<'_, CensusState> {
        self.state.lock().expect("no code panics while holding this")
    }

    /// Whether the process behind a holder name has died.
    #[must_use]
    pub fn is_dead(&self, holder: &str) -> bool {
        if (self.local)(holder) {
            return true;
        }
        let state = self.state();
        let mut nodes = state.nodes.iter();
        nodes.any(|node| node.holder == holder && self.is_gone(&state, node))
    }

    /// Whether the holder is a node that beats, so that its death will be noticed.
    #[must_use]
    pub fn is_alive(&self, holder: &str) -> bool {
        let state = self.state();
        let mut nodes = state.nodes.iter();
        nodes.any(|node| node.holder == holder && !node.is_gone() && !(self.local)(holder))
    }
}

/// Rendezvous hashing: the node with the greatest weight takes the session first.
fn weight(session: SessionId, holder: &str) -> u64 {
    // FNV-1a: every version and every machine computes the same order.
    let bytes = session.0.as_bytes().iter().chain(holder.as_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The last bytes of a name reach the high bits only by one more mixing.
    (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

#[cfg(test)]
mod tests {
    use budao_journal::NodeStatus;
    use uuid::Uuid;

    use super::*;

    const START: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn node(holder: &str, silent: u64) -> NodeInfo {
        let (silent_for, status) = (Duration::from_secs(silent), NodeStatus::default());
        NodeInfo { holder: holder.into(), silent_for, status }
    }

    fn census() -> NodeCensus {
        NodeCensus::new("a".into(), |_| false)
    }

    /// Reads once a second for ten seconds.
    fn read_for_long(census: &NodeCensus, nodes: &[NodeInfo]) -> Timestamp {
        let mut now = START;
        for _ in 0..10 {
            now = now.after(Duration::from_secs(1));
            census.update(nodes.to_vec(), now);
        }
        now
    }

    #[test]
    fn a_silent_node_is_gone_and_one_that_beats_is_alive() {
        let census = census();
        read_for_long(&census, &[node("a", 0), node("b", 9), node("c", 1)]);
        assert_eq!(census.dead_holders(), ["b"]);
        assert!(census.is_dead("b") && !census.is_dead("c"));
        assert!(census.is_alive("c") && !census.is_alive("b") && !census.is_alive("unknown"));
    }

    #[test]
    fn after_an_outage_of_the_journal_no_node_is_gone_for_a_while() {
        let census = census();
        let nodes = [node("a", 0), node("b", 9)];
        let mut now = read_for_long(&census, &nodes);
        now = now.after(Duration::from_secs(30));
        census.update(nodes.to_vec(), now);
        assert!(!census.is_dead("b"), "the journal has just answered again");
        for _ in 0..8 {
            now = now.after(Duration::from_secs(1));
            census.update(nodes.to_vec(), now);
        }
        assert!(census.is_dead("b"));
    }

    #[test]
    fn a_process_never_counts_itself_as_dead() {
        let census = census();
        read_for_long(&census, &[node("a", 60)]);
        assert!(!census.is_dead("a"));
        assert_eq!(census.dead_holders(), [""; 0]);
    }

    #[test]
    fn every_session_has_one_first_node_and_the_load_is_shared() {
        let nodes = [node("a", 0), node("b", 0), node("c", 0)];
        let all: Vec<NodeCensus> = ["a", "b", "c"]
            .into_iter()
            .map(|holder| NodeCensus::new(holder.into(), |_| false))
            .collect();
        for census in &all {
            census.update(nodes.to_vec(), START);
        }
        let mut first = [0; 3];
        for number in 0..300_u128 {
            let session = SessionId(Uuid::from_u128(number * 7_919));
            let mut ranks: Vec<usize> = all.iter().map(|census| census.rank(session)).collect();
            first[ranks.iter().position(|rank| *rank == 0).unwrap()] += 1;
            ranks.sort_unstable();
            assert_eq!(ranks, [0, 1, 2]);
        }
        assert!(first.iter().all(|count| *count > 50), "{first:?}");
    }

    #[test]
    fn a_draining_node_takes_no_session() {
        let census = census();
        let mut other = node("b", 0);
        other.status.is_draining = true;
        census.update(vec![node("a", 0), other], START);
        for number in 0..50_u128 {
            assert_eq!(census.rank(SessionId(Uuid::from_u128(number))), 0);
        }
    }
}
