//! The hub: rooms, routing, isolation, and exactly one answer to every request.
//!
//! The task that reads a connection handles its messages in order: it changes the rooms and forwards requests. Only
//! the wait for a computer's answer runs in another task. A request ends with the first of five events: the computer
//! answers, either side leaves the room, the deadline passes, or the hub shuts down.

mod access;
mod budget;
pub mod client_connection;
mod guesses;
mod handle;
mod handshake;
mod listen;
mod relay;
pub mod rooms;
mod send;
mod socket;
pub mod stats;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, Once, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::Router;
use budao_core::{
    Lang,
    fault::{Fault, Kind, Operation},
    world::World,
};
use budao_scrub::Scrubber;
use engineioxide::{config::EngineIoConfig, service::EngineIoService};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use access::{Access, Token};
pub use handle::ConnectionHandler;
pub use rooms::{AgentSnapshot, ComputerSnapshot, CrossRoomVisibility, RoomSnapshot};
pub use stats::Snapshot;

use crate::wire::{Dialect, error};
use budget::{Budget, ReachedLimit};
use client_connection::ClientConnection;
use guesses::WrongTokens;
use rooms::{Key, KnownTools, Rooms};
use stats::Stats;

/// The configuration of a hub.
#[derive(Clone, Debug)]
pub struct Config {
    /// The protocol version to speak.
    pub dialect: Dialect,
    /// The clients that may connect.
    pub access: Access,
    /// Whether callers learn that a room or a computer exists in another room.
    pub cross_room: CrossRoomVisibility,
    /// The reply to a WebSocket handshake of another version.
    pub refusal: VersionRejection,
    /// The language of the texts that clients get.
    pub lang: Lang,
    /// Size, count and time limits.
    pub limits: Limits,
}

impl Config {
    /// A hub of the current protocol, in English, with the usual limits.
    #[must_use]
    pub fn new(access: Access) -> Self {
        Self {
            dialect: Dialect::V04,
            access,
            cross_room: CrossRoomVisibility::Named,
            refusal: VersionRejection::Body,
            lang: Lang::En,
            limits: Limits::default(),
        }
    }
}

/// The reply to a WebSocket handshake of an incompatible version. Polling always gets status 400 with a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VersionRejection {
    /// The same reply as for polling: status 400, the body and the header.
    #[default]
    Body,
    /// Accept the upgrade and close it with code 4900. For browsers and proxies that hide the body of a refused
    /// upgrade; the client gets the reason with a polling request.
    Close,
}

/// The limits of a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once. Default 10,000.
    pub connections_max: usize,
    /// Running calls of one agent. Default 1024.
    pub calls_max: usize,
    /// Bytes of a request. Default 1 MiB. A larger one is refused.
    pub request_bytes_max: usize,
    /// Bytes of a computer's answer. Default 3 MiB. A larger one becomes a fault.
    pub answer_bytes_max: usize,
    /// Bytes of any frame. Default 8 MiB. A larger one is refused and closes the connection; the transport rejects
    /// twice as much.
    pub frame_bytes_max: usize,
    /// Packets in the send queue of one connection. Default 4096.
    pub queue_max: usize,
    /// Bytes in the send queue of one connection. Default 64 MiB. Requests may use half; at the limit it is closed.
    pub queue_bytes_max: usize,
    /// Bytes in all send queues. Default 256 MiB. At the limit, the connection with the most is closed.
    pub queue_bytes_total_max: usize,
    /// Time that the hub waits beyond a call's own timeout. Default 5 s.
    pub grace: Duration,
    /// Time limit of a request other than a tool call. Default 30 s.
    pub question: Duration,
    /// Time after a deadline in which a late answer is still counted. Default 60 s.
    pub late_watch: Duration,
    /// Time after which a connection that accepts no queued data is closed. Default 30 s.
    pub send: Duration,
    /// Time in which the head of an HTTP request must arrive. Default 10 s. A server that the hub is mounted in has
    /// its own.
    pub request_head: Duration,
    /// Time in which the body of an HTTP request must arrive. Default 30 s.
    pub request_body: Duration,
    /// Time between two answers to wrong tokens from one address. Default 500 ms.
    pub wrong_token_pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 10_000,
            calls_max: 1024,
            request_bytes_max: 1 << 20,
            // Below the frame limit of the Python agents' client library.
            answer_bytes_max: 3 << 20,
            frame_bytes_max: 8 << 20,
            queue_max: 4096,
            queue_bytes_max: 64 << 20,
            queue_bytes_total_max: 256 << 20,
            grace: Duration::from_secs(5),
            question: Duration::from_secs(30),
            late_watch: Duration::from_secs(60),
            send: Duration::from_secs(30),
            request_head: Duration::from_secs(10),
            request_body: Duration::from_secs(30),
            wrong_token_pause: Duration::from_millis(500),
        }
    }
}

/// A hub. Clones share the same rooms and connections.
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
    /// Engine.IO connections by session id.
    engines: Mutex<BTreeMap<String, Weak<socket::Engine>>>,
    watching: Once,
    guesses: Mutex<WrongTokens>,
}

/// Interval between two checks of the send queues.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// State shared by all connections. The lock is never held across an await.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) rooms: Rooms,
    pub(crate) connections: BTreeMap<Key, Arc<dyn ClientConnection>>,
    known: KnownTools,
    /// Running tool calls: (agent, request id) to computer.
    pub(crate) calls: BTreeMap<(Key, String), Key>,
    /// The last calls of each agent that ended, oldest first: a cancel may cross its call's answer.
    pub(crate) ended: BTreeMap<Key, VecDeque<(String, Key)>>,
    /// Calls that wait for room in their computer's queue, with the token that cancels them.
    pub(crate) unsent: BTreeMap<(Key, String), CancellationToken>,
}

/// Ended calls that are remembered of one agent.
const ENDED_MAX: usize = 16;

impl State {
    /// The computer that has a call, or had it a moment ago and is still in the agent's room.
    pub(crate) fn computer_of(&self, id: &(Key, String)) -> Option<Key> {
        let ended = || self.ended.get(&id.0)?.iter().rev().find(|(req_id, _)| *req_id == id.1);
        let near = |computer: &Key| self.rooms.are_together(id.0, *computer);
        let ended = || ended().map(|(_, computer)| *computer).filter(near);
        self.calls.get(id).copied().or_else(ended)
    }

    /// Ends a call. One that was sent is remembered while its agent is connected.
    pub(crate) fn end_call(&mut self, id: &(Key, String), is_sent: bool) {
        let Some(computer) = self.calls.remove(id) else { return };
        if !is_sent || !self.connections.contains_key(&id.0) {
            return;
        }
        let ended = self.ended.entry(id.0).or_default();
        if ended.len() >= ENDED_MAX {
            ended.pop_front();
        }
        ended.push_back((id.1.clone(), computer));
    }
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

    fn connections(&self) -> Vec<(Key, Arc<dyn ClientConnection>)> {
        self.state()
            .connections
            .iter()
            .map(|(key, connection)| (*key, Arc::clone(connection)))
            .collect()
    }

    /// Releases the bytes of written packets in every queue.
    fn sweep_queues(&self) {
        for (_, connection) in self.connections() {
            connection.sweep();
        }
    }

    /// Starts the task that checks the queues every second and closes stalled connections.
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
        for (key, connection) in self.connections() {
            if connection.sweep().is_some_and(|since| now.since(since) >= limit) {
                send::cut(self, key, &connection, ReachedLimit::Time(limit));
            }
        }
    }
}

impl Hub {
    /// A hub without connections.
    #[must_use]
    pub fn new(config: Config, world: World) -> Self {
        let closing = CancellationToken::new();
        let rooms = Rooms::new(config.cross_room, closing.clone());
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
                connections: BTreeMap::new(),
                known: KnownTools::default(),
                calls: BTreeMap::new(),
                ended: BTreeMap::new(),
                unsent: BTreeMap::new(),
            }),
            keys: AtomicU64::new(0),
            engines: Mutex::default(),
            watching: Once::new(),
            guesses: Mutex::default(),
        }))
    }

    /// The routes to mount: Socket.IO on `/socket.io/`, counters on `/smcp/stats` and `/smcp/metrics`.
    ///
    /// Call it once: a second router would serve the same rooms with a separate set of connections.
    pub fn router(&self) -> Router {
        let limits = self.0.config.limits;
        let config = EngineIoConfig::builder()
            .req_path(handshake::PATH)
            .max_buffer_size(limits.queue_max)
            // The transport closes without a reason, so its limit is twice the hub's, and the hub reports the reason.
            .max_payload(limits.frame_bytes_max as u64 * 2)
            .ws_max_message_size(limits.frame_bytes_max * 2)
            .ws_max_frame_size(limits.frame_bytes_max * 2)
            .build();
        let handler = Arc::new(socket::Handler(self.0.clone()));
        handshake::routes(self.0.clone(), EngineIoService::with_config(handler, config))
            .layer(axum::middleware::from_fn_with_state(self.0.clone(), handshake::gate))
    }

    /// Admits a client on a given connection. The router calls this for every Socket.IO connection; the simulator
    /// calls it directly.
    ///
    /// # Errors
    /// If the client may not connect, with the text to send to it.
    pub fn enter(
        &self,
        connection: Arc<dyn ClientConnection>,
        auth: Option<&Value>,
        version: Option<String>,
    ) -> Result<ConnectionHandler, String> {
        let entered = handle::enter(&self.0, self.0.next_key(), connection, auth, version);
        entered.map_err(|refusal| refusal.message)
    }

    /// A copy of the counters, with the current connections and rooms.
    #[must_use]
    pub fn stats(&self) -> Snapshot {
        self.0.snapshot()
    }

    /// Serves until `shutdown` completes, then ends running requests with a fault and closes every connection. While
    /// the system gives no sockets, it waits and tries again.
    pub async fn serve(
        self,
        listener: tokio::net::TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) {
        let router = self.router();
        let hub = self.clone();
        let ended = async move {
            shutdown.await;
            hub.close().await;
        };
        listen::serve(&self.0, router, listener, ended).await;
    }

    /// Ends running requests with a fault, then closes every connection. Takes at most about 4 s.
    pub async fn close(&self) {
        self.0.closing.cancel();
        let is_idle = async {
            while !self.0.state().calls.is_empty() {
                self.0.world.clock.sleep(Duration::from_millis(5)).await;
            }
            // Time for the last answers to be written.
            self.0.world.clock.sleep(Duration::from_millis(50)).await;
        };
        tokio::select! {
            biased;
            () = is_idle => {}
            () = self.0.world.clock.sleep(Duration::from_secs(2)) => {}
        }
        let why = self.0.finish(Fault::new(Kind::ShuttingDown, Operation::RelayCall), "");
        let why = error::flat(&why, self.0.rendering());
        let connections = self.0.connections();
        for (_, connection) in &connections {
            Arc::clone(connection).cut(&why);
        }
        let are_gone = async {
            while !connections.iter().all(|(_, connection)| connection.is_gone()) {
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
