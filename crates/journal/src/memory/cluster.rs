//! The nodes, observed sessions and notes of a journal in memory.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use budao_core::{event::SessionId, fault::Fault, time::Timestamp};

use super::Memory;
use crate::{
    contract::{
        Census, Cluster, NODE_ROW_TTL, NodeBeat, NodeInfo, NodeStatus, Note, UnfinishedSession,
    },
    implement::notifier::lock,
};

/// The nodes, observed sessions and notes of the journal.
#[derive(Debug, Default)]
pub(super) struct MemoryCluster {
    nodes: BTreeMap<String, (Timestamp, NodeStatus)>,
    observers: BTreeSet<(SessionId, String)>,
    notes: BTreeMap<String, Note>,
}

impl MemoryCluster {
    fn remove_forgotten(&mut self, now: Timestamp) {
        self.nodes.retain(|_, (beat, _)| now.since(*beat) < NODE_ROW_TTL);
        let nodes = &self.nodes;
        self.observers.retain(|(_, holder)| nodes.contains_key(holder));
    }

    fn nodes(&self, now: Timestamp) -> Vec<NodeInfo> {
        let info = |(holder, (beat, status)): (&String, &(Timestamp, NodeStatus))| NodeInfo {
            holder: holder.clone(),
            silent_for: now.since(*beat),
            status: status.clone(),
        };
        self.nodes.iter().map(info).collect()
    }
}

#[async_trait]
impl Cluster for Memory {
    async fn beat(&self, beat: NodeBeat) -> Result<bool, Fault> {
        let now = self.shared.world.clock.now();
        let mut cluster = lock(&self.shared.cluster);
        cluster.remove_forgotten(now);
        let before = cluster.nodes.insert(beat.holder.clone(), (now, beat.status));
        for session in beat.left {
            cluster.observers.remove(&(session, beat.holder.clone()));
        }
        for session in beat.joined {
            cluster.observers.insert((session, beat.holder.clone()));
        }
        Ok(before.is_some())
    }

    async fn census(&self, holder: &str) -> Result<Census, Fault> {
        let now = self.shared.world.clock.now();
        let (nodes, observers) = {
            let cluster = lock(&self.shared.cluster);
            (cluster.nodes(now), cluster.observers.clone())
        };
        let is_elsewhere = |by: &str| {
            by != holder && nodes.iter().any(|node| node.holder == by && !node.is_gone())
        };
        let seen: BTreeSet<SessionId> = observers
            .iter()
            .filter(|(_, by)| is_elsewhere(by))
            .map(|(session, _)| *session)
            .collect();
        let is_held = |session: &SessionId| {
            self.with_state(|state, _| state.is_held_by(*session, holder, now))
        };
        let observed = seen.into_iter().filter(is_held).collect();
        Ok(Census { nodes, observed })
    }

    async fn leave(&self, holder: &str) -> Result<(), Fault> {
        let mut cluster = lock(&self.shared.cluster);
        cluster.nodes.remove(holder);
        cluster.observers.retain(|(_, by)| by != holder);
        Ok(())
    }

    async fn orphaned_sessions(
        &self,
        dead: &[String],
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<UnfinishedSession>, Fault> {
        let nodes: Vec<String> = lock(&self.shared.cluster).nodes.keys().cloned().collect();
        self.with_state(|state, world| {
            state.orphaned_sessions(dead, &nodes, after, limit, world.clock.now())
        })
    }

    async fn note(&self, name: &str) -> Result<Option<Note>, Fault> {
        Ok(lock(&self.shared.cluster).notes.get(name).cloned())
    }

    async fn set_note(
        &self,
        name: &str,
        expected: u64,
        body: Vec<u8>,
    ) -> Result<Option<u64>, Fault> {
        let mut cluster = lock(&self.shared.cluster);
        let found = cluster.notes.get(name).map_or(0, |note| note.version);
        if found != expected {
            return Ok(None);
        }
        let version = expected + 1;
        cluster.notes.insert(name.to_owned(), Note { version, body });
        Ok(Some(version))
    }
}
