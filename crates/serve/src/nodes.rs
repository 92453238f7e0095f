//! This server as one of several on a journal: its beat, take-over from servers that are gone, and job leases.
//!
//! A [`Node`] beats every [`NODE_BEAT`], or every [`IDLE_BEAT`] without sessions and observers, and reads the other
//! nodes every half second. When a node is gone, drains or has left, its unfinished sessions are taken over here, each
//! first by the node that a hash of its id selects.

mod census;
mod jobs;
mod view;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use budao_core::{Fault, Timestamp, engine::Engine, event::SessionId, world::World};
use budao_journal::{Cluster, NODE_BEAT, NodeBeat, NodeInfo, NodeStatus};
use tokio::sync::watch;

pub use self::{
    census::{LocalLiveness, NodeCensus},
    view::NodeView,
};
use crate::server::Server;

/// The time between two reads of the other nodes.
const ROUND_INTERVAL: Duration = Duration::from_millis(500);
/// The time between two beats of a node without sessions and observers: no other node would take anything over from it, and
/// an idle server on a file writes less. Others still know it as alive.
const IDLE_BEAT: Duration = Duration::from_secs(6);
/// The row of a node that is gone is removed after this time.
const REMOVE_AFTER: Duration = Duration::from_secs(600);
/// The time between two searches for sessions without a writer, while no node ends.
const SEARCH_INTERVAL: Duration = Duration::from_secs(2);
/// The node of rank `n` waits for `n` searches, at most this many, so that one node tries first.
const RANK_MAX: usize = 4;
/// The most sessions whose observers one beat reports.
const OBSERVERS_PER_BEAT: usize = 2_000;

/// Returns the connections of clients and the CPU time used so far.
type LoadProbe = Box<dyn Fn() -> NodeLoad + Send + Sync>;

/// The connections and the CPU time that a node reports with its beats.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeLoad {
    /// Open connections of clients.
    pub connections: u64,
    /// CPU time that the process has used.
    pub cpu: Duration,
}

/// One server of a journal.
pub struct Node {
    cluster: Arc<dyn Cluster>,
    census: Arc<NodeCensus>,
    world: World,
    state: Mutex<NodeState>,
    observed_elsewhere: watch::Sender<BTreeSet<SessionId>>,
}

struct NodeState {
    status: NodeStatus,
    probe: Option<LoadProbe>,
    last_load: Option<(Timestamp, Duration)>,
    /// Sessions that clients of this node observe.
    observed: BTreeSet<SessionId>,
    /// Sessions that the journal may hold as observed here.
    reported: BTreeSet<SessionId>,
    /// Sessions that the journal certainly holds as observed here.
    confirmed: BTreeSet<SessionId>,
    beat_at: Option<Timestamp>,
    searched_at: Option<Timestamp>,
    /// Nodes that ended or drained at the last search.
    ending: BTreeSet<String>,
    known: BTreeSet<String>,
    /// Sessions without a writer in the last searches, and how often each was seen.
    seen: std::collections::BTreeMap<SessionId, usize>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("holder", &self.census.holder()).finish_non_exhaustive()
    }
}

impl Node {
    /// A node that has not beaten yet.
    #[must_use]
    pub fn new(
        cluster: Arc<dyn Cluster>,
        census: Arc<NodeCensus>,
        world: World,
        status: NodeStatus,
    ) -> Arc<Self> {
        let state = NodeState {
            status,
            probe: None,
            last_load: None,
            observed: BTreeSet::new(),
            reported: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            beat_at: None,
            searched_at: None,
            ending: BTreeSet::new(),
            known: BTreeSet::new(),
            seen: std::collections::BTreeMap::new(),
        };
        let (observed_elsewhere, _) = watch::channel(BTreeSet::new());
        Arc::new(Self { cluster, census, world, state: Mutex::new(state), observed_elsewhere })
    }

    /// The name under which this server takes leases.
    #[must_use]
    pub fn holder(&self) -> &str {
        self.census.holder()
    }

    /// The nodes as last read.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeInfo> {
        self.census.nodes()
    }

    pub(crate) fn cluster(&self) -> &dyn Cluster {
        &*self.cluster
    }

    pub(crate) fn set_probe(&self, probe: LoadProbe) {
        self.state().probe = Some(probe);
    }

    /// Reports the first observer of a session, or the departure of the last one, with the next beat.
    pub(crate) fn set_observed(&self, session: SessionId, is_observed: bool) {
        let mut state = self.state();
        match is_observed {
            true => state.observed.insert(session),
            false => state.observed.remove(&session),
        };
    }

    /// Whether clients of another living node observe a session that this node writes.
    pub(crate) fn is_observed_elsewhere(&self, session: SessionId) -> bool {
        self.observed_elsewhere.borrow().contains(&session)
    }

    /// The sessions of this node that clients of other nodes observe.
    pub(crate) fn observed_elsewhere(&self) -> watch::Receiver<BTreeSet<SessionId>> {
        self.observed_elsewhere.subscribe()
    }

    /// Beats and reads the other nodes once. A server calls it before it recovers its sessions.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn join(&self, engine: &dyn Engine) -> Result<(), Fault> {
        self.beat(engine).await?;
        self.read_census().await
    }

    /// Beats, reads the other nodes and takes over sessions, until the task is dropped.
    pub async fn run(self: Arc<Self>, engine: Arc<dyn Engine>) {
        let mut is_failing = false;
        loop {
            self.world.clock.sleep(ROUND_INTERVAL).await;
            let round = self.run_round(&*engine).await;
            if let Err(fault) = &round
                && !is_failing
            {
                tracing::warn!(%fault, "coordination with other nodes failed");
            }
            is_failing = round.is_err();
        }
    }

    async fn run_round(&self, engine: &dyn Engine) -> Result<(), Fault> {
        let now = self.world.clock.now();
        let pause = if self.is_idle(engine) { IDLE_BEAT } else { NODE_BEAT };
        let is_due = self.state().beat_at.is_none_or(|at| now < at || now.since(at) >= pause);
        if is_due {
            self.beat(engine).await?;
        }
        self.read_census().await?;
        self.forget_gone().await?;
        let limit = self.state().status.session_limit;
        let has_room = limit == 0 || (engine.loaded() as u64) < limit;
        if has_room && self.is_search_due(self.world.clock.now()) {
            self.take_over(engine).await?;
        }
        Ok(())
    }

    /// Whether no session is loaded, none was at the last beat, and no client observes one.
    fn is_idle(&self, engine: &dyn Engine) -> bool {
        let state = self.state();
        let was_idle = state.status.sessions == 0 && state.reported.is_empty();
        was_idle && state.observed.is_empty() && engine.loaded() == 0
    }

    /// Removes the rows of nodes that have been gone for long.
    async fn forget_gone(&self) -> Result<(), Fault> {
        let is_old = |node: &NodeInfo| node.silent_for >= REMOVE_AFTER;
        for node in self.nodes().into_iter().filter(is_old) {
            if self.census.is_dead(&node.holder) {
                self.cluster.leave(&node.holder).await?;
            }
        }
        Ok(())
    }

    /// Announces that this node stops: others prepare to take its sessions. It goes on to beat.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn drain(&self, engine: &dyn Engine) -> Result<(), Fault> {
        self.state().status.is_draining = true;
        self.beat(engine).await
    }

    /// Removes this node from the list, after its leases have been released.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn leave(&self) -> Result<(), Fault> {
        self.cluster.leave(self.holder()).await
    }

    async fn beat(&self, engine: &dyn Engine) -> Result<(), Fault> {
        let now = self.world.clock.now();
        let beat = self.next_beat(engine, now);
        let (joined, left) = (beat.joined.clone(), beat.left.clone());
        let was_known = self.cluster.beat(beat).await?;
        let mut state = self.state();
        let is_first = state.beat_at.is_none();
        state.beat_at = Some(now);
        if was_known || is_first {
            state.confirmed.extend(joined);
            for session in left {
                state.confirmed.remove(&session);
                state.reported.remove(&session);
            }
        } else {
            // The row was forgotten meanwhile, with the observed sessions.
            state.confirmed.clear();
            state.reported.clear();
        }
        Ok(())
    }

    /// Builds the next beat. Its sessions are added to `reported`, because a beat that fails may still have been stored.
    fn next_beat(&self, engine: &dyn Engine, now: Timestamp) -> NodeBeat {
        let mut state = self.state();
        state.measure(now);
        state.status.sessions = engine.loaded() as u64;
        let joined: Vec<SessionId> =
            state.observed.difference(&state.confirmed).take(OBSERVERS_PER_BEAT).copied().collect();
        let left: Vec<SessionId> =
            state.reported.difference(&state.observed).take(OBSERVERS_PER_BEAT).copied().collect();
        state.reported.extend(&joined);
        NodeBeat { holder: self.holder().to_owned(), status: state.status.clone(), joined, left }
    }

    async fn read_census(&self) -> Result<(), Fault> {
        let census = self.cluster.census(self.holder()).await?;
        self.census.update(census.nodes, self.world.clock.now());
        let observed: BTreeSet<SessionId> = census.observed.into_iter().collect();
        self.observed_elsewhere.send_if_modified(|before| {
            let is_changed = *before != observed;
            *before = observed;
            is_changed
        });
        Ok(())
    }

    /// Whether to search for orphaned sessions: a node ended, drains or has left, or [`SEARCH_INTERVAL`] has passed.
    fn is_search_due(&self, now: Timestamp) -> bool {
        let dead = self.census.dead_holders();
        let nodes = self.census.nodes();
        let mut state = self.state();
        if state.status.is_draining {
            return false;
        }
        let ids: BTreeSet<String> = nodes.iter().map(|node| node.holder.clone()).collect();
        let has_left = !state.known.is_subset(&ids);
        let ending: BTreeSet<String> = nodes
            .iter()
            .filter(|node| node.holder != self.holder() && node.status.is_draining)
            .map(|node| node.holder.clone())
            .chain(dead)
            .collect();
        let is_new = !ending.is_subset(&state.ending);
        let is_draining = nodes
            .iter()
            .any(|node| node.holder != self.holder() && node.status.is_draining && !node.is_gone());
        let is_due =
            state.searched_at.is_none_or(|at| now < at || now.since(at) >= SEARCH_INTERVAL);
        let has_waiting = !state.seen.is_empty();
        (state.known, state.ending) = (ids, ending);
        let must = has_left || is_new || is_draining || is_due || has_waiting;
        if must {
            state.searched_at = Some(now);
        }
        must
    }

    /// Touches the unfinished sessions without a writer for which this node's rank is due.
    async fn take_over(&self, engine: &dyn Engine) -> Result<(), Fault> {
        let dead = self.census.dead_holders();
        let seen = Mutex::new(std::mem::take(&mut self.state().seen));
        let next = Mutex::new(std::collections::BTreeMap::new());
        let wants = |session: SessionId| {
            let before = lock(&seen).get(&session).copied().unwrap_or(0);
            let is_turn = before >= self.census.rank(session).min(RANK_MAX);
            if !is_turn {
                lock(&next).insert(session, before + 1);
            }
            is_turn
        };
        let taken = engine.take_over(&dead, &wants).await;
        self.state().seen = next.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let taken = taken?;
        if taken > 0 {
            tracing::info!(sessions = taken, ?dead, "sessions taken over");
            metrics::counter!("budao_sessions_taken_over_total").increment(taken as u64);
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, NodeState> {
        lock(&self.state)
    }
}

/// Lets the node report the load of its server.
pub(crate) fn report_load(server: &Arc<Server>) {
    let Some(node) = &server.config.node else { return };
    let server = Arc::downgrade(server);
    node.set_probe(Box::new(move || {
        let connections =
            server.upgrade().map_or(0, |server| server.admission.connections() as u64);
        NodeLoad { connections, cpu: cpu_time() }
    }));
}

/// Exchanges open calls of workers with the other servers until this one stops.
pub(crate) async fn exchange_calls(server: Arc<Server>) {
    let (Some(node), Some(workers)) = (&server.config.node, &server.config.workers) else { return };
    loop {
        tokio::select! {
            biased;
            () = server.stopping.cancelled() => return,
            () = server.world.clock.sleep(ROUND_INTERVAL) => {}
        }
        let others = node.nodes().into_iter();
        let others = others.filter(|other| other.holder != node.holder() && !other.is_gone());
        let peers: Vec<String> = others.map(|other| other.holder).collect();
        if let Err(fault) = workers.exchange(node.holder(), &peers, &*server.engine).await {
            tracing::warn!(%fault, "exchanging calls of workers failed");
        }
    }
}

/// CPU time of this process; 0 if unknown.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks =
        fields.split_whitespace().skip(11).take(2).filter_map(|text| text.parse::<u64>().ok());
    // A tick is a hundredth of a second on Linux.
    Duration::from_millis(ticks.sum::<u64>().saturating_mul(10))
}

impl NodeState {
    fn measure(&mut self, now: Timestamp) {
        let Some(load) = self.probe.as_ref().map(|probe| probe()) else { return };
        self.status.connections = load.connections;
        if let Some((at, cpu)) = self.last_load {
            let passed = now.since(at).as_micros().max(1);
            let used = load.cpu.saturating_sub(cpu).as_micros().saturating_mul(1_000);
            self.status.cpu_permille = u64::try_from(used / passed).unwrap_or(u64::MAX);
        }
        self.last_load = Some((now, load.cpu));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while holding this")
}
