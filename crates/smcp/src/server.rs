//! The hub: rooms, routing, isolation, and exactly one answer to every question.
//!
//! Everything a client sends is looked at in the order it came, in the task that reads its connection: the rooms
//! are changed and a request is put on its way there. Only the waiting for a computer's answer happens elsewhere.
//! A request ends in one of five ways, whichever comes first: the computer answers, either side leaves the
//! room, the deadline passes, or the hub shuts down.

mod access;
mod budget;
pub mod client_connection;
mod handle;
mod handshake;
mod listen;
mod relay;
pub mod rooms;
mod send;
mod socket;
pub mod stats;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, Once, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::Router;
use budao_core::{
    fault::{Fault, Kind, Operation},
    scrub::Scrubber,
    world::World,
};
use engineioxide::{config::EngineIoConfig, service::EngineIoService};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use access::{Access, Token};
pub use handle::ConnectionHandler;
pub use rooms::{AgentSnapshot, ComputerSnapshot, CrossRoomVisibility, RoomSnapshot};
pub use stats::Snapshot;

use crate::wire::{Dialect, error};
use budget::{Budget, Over};
use client_connection::ClientConnection;
use rooms::{Key, KnownTools, Rooms};
use stats::Stats;

/// How a hub behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// How the protocol is spoken.
    pub dialect: Dialect,
    /// Who may connect.
    pub access: Access,
    /// What a caller learns about other rooms.
    pub elsewhere: CrossRoomVisibility,
    /// How a WebSocket of another version is turned away.
    pub refusal: VersionRejection,
    /// The bounds.
    pub limits: Limits,
}

/// How a WebSocket handshake of another version is turned away. Polling always gets the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VersionRejection {
    /// With the same answer as polling: status 400, the body and the header.
    #[default]
    Body,
    /// With a connection that is closed at once, code 4900: for lines on which the body of a refused upgrade gets lost, and
    /// for browsers, which do not show it. The client asks by polling what was wrong.
    Close,
}

/// The hub's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once.
    pub connections_max: usize,
    /// Calls of one agent under way at once.
    pub calls_max: usize,
    /// Bytes of a request.
    pub request_bytes_max: usize,
    /// Bytes of a computer's answer.
    pub answer_bytes_max: usize,
    /// Bytes of anything; more costs the connection, after an answer that says so. Twice as much is not even read.
    pub frame_bytes_max: usize,
    /// Packets waiting for one connection.
    pub queue_max: usize,
    /// Bytes waiting for one connection. A connection that reaches it is closed; questions to it are refused from half of it.
    pub queue_bytes_max: usize,
    /// Bytes waiting for all connections together. When it is reached the slowest connection is closed.
    pub queue_bytes_total_max: usize,
    /// What a relay waits beyond a call's own timeout.
    pub grace: Duration,
    /// How long a question other than a tool call may take.
    pub question: Duration,
    /// How long a late answer is watched for, to be counted.
    pub late_watch: Duration,
    /// How long a connection may take nothing of what waits for it before it is closed.
    pub send: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            calls_max: 1024,
            request_bytes_max: 1 << 20,
            // Below what the client library of the Python agents takes.
            answer_bytes_max: 3 << 20,
            frame_bytes_max: 8 << 20,
            queue_max: 4096,
            queue_bytes_max: 64 << 20,
            queue_bytes_total_max: 256 << 20,
            grace: Duration::from_secs(5),
            question: Duration::from_secs(30),
            late_watch: Duration::from_secs(60),
            send: Duration::from_secs(30),
        }
    }
}

/// A hub. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Hub(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) world: World,
    pub(crate) scrubber: Scrubber,
    pub(crate) stats: Stats,
    pub(crate) closing: CancellationToken,
    budget: Budget,
    state: Mutex<State>,
    keys: AtomicU64,
    /// Connections of Engine.IO by their id.
    engines: Mutex<BTreeMap<String, Weak<socket::Engine>>>,
    watching: Once,
}

/// Between two looks at the queues.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// What is shared by all connections. Locked for moments, never across a wait.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) rooms: Rooms,
    pub(crate) lines: BTreeMap<Key, Arc<dyn ClientConnection>>,
    known: KnownTools,
    /// Tool calls under way, by agent and request id.
    pub(crate) calls: BTreeMap<(Key, String), Key>,
    /// Those of them whose computer's queue is full, with what gives them up.
    pub(crate) unsent: BTreeMap<(Key, String), CancellationToken>,
}

impl Inner {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn next_key(&self) -> Key {
        self.keys.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn engines(&self) -> MutexGuard<'_, BTreeMap<String, Weak<socket::Engine>>> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lines(&self) -> Vec<(Key, Arc<dyn ClientConnection>)> {
        self.state().lines.iter().map(|(key, line)| (*key, Arc::clone(line))).collect()
    }

    /// Lets every queue drop what has been written.
    fn sweep_queues(&self) {
        for (_, line) in self.lines() {
            line.sweep();
        }
    }

    /// From now on looks at the queues again and again, and closes connections that take nothing.
    fn watch_queues(self: &Arc<Self>) {
        self.watching.call_once(|| {
            let (hub, clock) = (Arc::downgrade(self), Arc::clone(&self.world.clock));
            self.world.spawn.spawn(Box::pin(async move {
                loop {
                    clock.sleep(SWEEP_PAUSE).await;
                    let Some(hub) = hub.upgrade() else { return };
                    hub.close_stalled();
                }
            }));
        });
    }

    fn close_stalled(self: &Arc<Self>) {
        let (now, limit) = (self.world.clock.now(), self.config.limits.send);
        for (key, line) in self.lines() {
            if line.sweep().is_some_and(|since| now.since(since) >= limit) {
                send::cut(self, key, &line, Over::Time(limit));
            }
        }
    }
}

impl Hub {
    /// A hub that serves nobody yet.
    #[must_use]
    pub fn new(config: Config, world: World) -> Self {
        let closing = CancellationToken::new();
        let rooms = Rooms::new(config.elsewhere, closing.clone());
        let secrets = config.access.secrets();
        Self(Arc::new(Inner {
            scrubber: Scrubber::with_secrets(secrets),
            budget: Budget::new(config.limits.queue_bytes_max, config.limits.queue_bytes_total_max),
            config,
            world,
            stats: Stats::default(),
            closing,
            state: Mutex::new(State {
                rooms,
                lines: BTreeMap::new(),
                known: KnownTools::default(),
                calls: BTreeMap::new(),
                unsent: BTreeMap::new(),
            }),
            keys: AtomicU64::new(0),
            engines: Mutex::default(),
            watching: Once::new(),
        }))
    }

    /// What to mount: Socket.IO on `/socket.io/`, counters on `/smcp/stats` and `/smcp/metrics`.
    ///
    /// To be called once; a second router would serve the same rooms over another set of connections.
    pub fn router(&self) -> Router {
        let limits = self.0.config.limits;
        let config = EngineIoConfig::builder()
            .req_path(handshake::PATH)
            .max_buffer_size(limits.queue_max)
            .max_payload(limits.frame_bytes_max as u64)
            // The transport cuts without a word. So it takes more than we do, and we say why.
            .ws_max_message_size(limits.frame_bytes_max * 2)
            .ws_max_frame_size(limits.frame_bytes_max * 2)
            .build();
        let handler = Arc::new(socket::Handler(self.0.clone()));
        handshake::routes(self.0.clone(), EngineIoService::with_config(handler, config))
            .layer(axum::middleware::from_fn_with_state(self.0.clone(), handshake::gate))
    }

    /// Lets a client in on a line that somebody brings: the router does this for every connection of Socket.IO.
    ///
    /// # Errors
    /// If it may not connect; what it is to be told.
    pub fn enter(
        &self,
        line: Arc<dyn ClientConnection>,
        auth: Option<&Value>,
        version: Option<String>,
    ) -> Result<ConnectionHandler, String> {
        handle::enter(&self.0, self.0.next_key(), line, auth, version)
    }

    /// The counters now.
    #[must_use]
    pub fn stats(&self) -> Snapshot {
        self.0.snapshot()
    }

    /// Serves until `shutdown` completes, then ends what is under way with a fault, and every connection.
    ///
    /// # Errors
    /// If listening fails.
    pub async fn serve(
        self,
        listener: tokio::net::TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        let router = self.router();
        let hub = self.clone();
        let ended = async move {
            shutdown.await;
            hub.close().await;
        };
        // Behind the hub's own watch over its queues, which says why.
        let limit = self.0.config.limits.send + SWEEP_PAUSE * 5;
        let listener = listen::Guarded::new(listener, &self.0.world.clock, limit);
        let service = router.into_make_service_with_connect_info::<listen::Cut>();
        axum::serve(listener, service).with_graceful_shutdown(ended).await
    }

    /// Ends what is under way with a fault, and then every connection.
    pub async fn close(&self) {
        self.0.closing.cancel();
        let is_idle = async {
            while !self.0.state().calls.is_empty() {
                self.0.world.clock.sleep(Duration::from_millis(5)).await;
            }
            // What was just answered is still to be written.
            self.0.world.clock.sleep(Duration::from_millis(50)).await;
        };
        tokio::select! {
            biased;
            () = is_idle => {}
            () = self.0.world.clock.sleep(Duration::from_secs(2)) => {}
        }
        let why = self.0.finish(Fault::new(Kind::ShuttingDown, Operation::RelayCall), "");
        let why = error::flat(&why, self.0.config.dialect);
        let lines = self.0.lines();
        for (_, line) in &lines {
            Arc::clone(line).cut(&why);
        }
        let are_gone = async {
            while !lines.iter().all(|(_, line)| line.is_gone()) {
                self.0.world.clock.sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            biased;
            () = are_gone => {}
            () = self.0.world.clock.sleep(Duration::from_secs(2)) => {}
        }
    }
}

impl Inner {
    pub(crate) fn snapshot(&self) -> Snapshot {
        let (counts, calls_under_way, present) = {
            let state = self.state();
            let present = state.rooms.present(&state.known, &state.calls);
            (state.rooms.count(), state.calls.len(), present)
        };
        let mut snapshot = self.stats.snapshot();
        (snapshot.connections, snapshot.rooms, snapshot.computers) = counts;
        (snapshot.calls_under_way, snapshot.present) = (calls_under_way, present);
        snapshot.queued_bytes = self.budget.bytes();
        snapshot
    }
}
