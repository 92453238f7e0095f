//! Socket.IO on Engine.IO as a [`ClientConnection`]: one namespace, events, answers, and a byte-counted queue.
//!
//! Engine.IO limits the number of queued packets, not their bytes. This file keeps a second reference to each packet;
//! the packet is written once that reference is the only one.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::{self, Write as _},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use budao_core::{Timestamp, world::World};
use bytes::Bytes;
use engineioxide::{DisconnectReason, Str, TransportType, handler::EngineIoHandler};
use futures::FutureExt as _;
use serde_json::{Value, json, value::RawValue};
use socketioxide_core::{
    Value as Data,
    packet::{Packet, PacketData},
    parser::{Parse as _, ParseConfig, ParseError, ParserState},
};
use socketioxide_parser_common::CommonParser;
use tokio::sync::{mpsc::error::TrySendError, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    Inner,
    budget::{Budget, Charge, Share},
    client_connection::{AnswerError, ClientConnection, DeliveryError, Pending, PendingText},
    handle::{ConnectRefusal, ConnectionHandler, enter},
    handshake,
    listen::{address_of, cut_of},
    rooms::Key,
};
use crate::wire::{NAMESPACE, event, passthrough, version::QUERY};

/// Time that a connection may stay outside of the namespace.
const CONNECT_MAX: Duration = Duration::from_secs(45);

/// Time that a cut connection has to read the reason.
const FAREWELL: Duration = Duration::from_secs(5);

/// An Engine.IO connection with the hub's data.
pub(super) type Engine = engineioxide::Socket<Slot>;

/// The hub's data for an Engine.IO connection.
#[derive(Default)]
pub(super) struct Slot {
    session: Mutex<Option<Arc<HubSession>>>,
    parser: ParserState,
    /// Ends the TCP connection under a WebSocket, even if the peer does not read.
    cut: Mutex<Option<CancellationToken>>,
    /// Whether the answer to a wrong token is still to be sent. Until then further tokens are not looked at.
    is_refusing: AtomicBool,
}

/// A client that has joined the namespace.
pub(super) struct HubSession {
    handler: ConnectionHandler,
    connection: Arc<Connection>,
}

impl HubSession {
    pub(super) fn key(&self) -> Key {
        self.handler.key
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    pub(super) fn session(&self) -> Option<Arc<HubSession>> {
        lock(&self.session).clone()
    }

    /// Sets the token of the TCP connection that the transport uses now.
    pub(super) fn cut_with(&self, token: CancellationToken) {
        *lock(&self.cut) = Some(token);
    }
}

/// Handles the packets that Engine.IO receives.
#[derive(Clone, Debug)]
pub(super) struct Handler(pub(super) Arc<Inner>);

impl EngineIoHandler for Handler {
    type Data = Slot;

    fn on_connect(self: Arc<Self>, engine: Arc<Engine>) {
        if engine.transport_type() == TransportType::Websocket
            && let Some(token) = cut_of(&engine.req_parts.extensions)
        {
            engine.data.cut_with(token);
        }
        self.0.engines().insert(engine.id.to_string(), Arc::downgrade(&engine));
        self.0.watch_queues();
        expect_namespace(&self.0.world, &engine);
    }

    fn on_disconnect(&self, engine: Arc<Engine>, _: DisconnectReason) {
        self.0.engines().remove(engine.id.as_str());
        end_session(&engine);
    }

    fn on_message(self: &Arc<Self>, text: Str, engine: Arc<Engine>) {
        let config = ParseConfig::default();
        self.take(CommonParser.decode_str(&config, &engine.data.parser, text), &engine);
    }

    fn on_binary(self: &Arc<Self>, bytes: Bytes, engine: Arc<Engine>) {
        let config = ParseConfig::default();
        self.take(CommonParser.decode_bin(&config, &engine.data.parser, bytes), &engine);
    }
}

/// Closes a connection that does not join the namespace within [`CONNECT_MAX`].
fn expect_namespace(world: &World, engine: &Arc<Engine>) {
    let (weak, timeout) = (Arc::downgrade(engine), world.clock.sleep(CONNECT_MAX));
    world.spawn.spawn(Box::pin(async move {
        timeout.await;
        if let Some(engine) = weak.upgrade().filter(|engine| engine.data.session().is_none()) {
            engine.close(DisconnectReason::TransportClose);
        }
    }));
}

/// Ends the session of a client that left the namespace or disconnected.
fn end_session(engine: &Engine) {
    let session = lock(&engine.data.session).take();
    if let Some(session) = session {
        session.connection.end();
        session.handler.leave();
    }
}

impl Handler {
    fn take(&self, packet: Result<Packet, ParseError>, engine: &Arc<Engine>) {
        let packet = match packet {
            Ok(packet) => packet,
            Err(ParseError::NeedsMoreBinaryData) => return,
            Err(error) => {
                tracing::debug!(%error, "packet unreadable");
                return engine.close(DisconnectReason::PacketParsingError);
            }
        };
        if &*packet.ns != NAMESPACE {
            if matches!(packet.inner, PacketData::Connect(_)) {
                refuse(engine, &packet.ns, "Invalid namespace", &self.0.other_namespace());
            }
            return;
        }
        let session = engine.data.session();
        match (packet.inner, session) {
            (PacketData::Connect(auth), None) => self.greet(engine, auth.as_ref()),
            (PacketData::Disconnect, Some(_)) => {
                end_session(engine);
                expect_namespace(&self.0.world, engine);
            }
            (
                PacketData::Event(Data::Str(text, attachments), id)
                | PacketData::BinaryEvent(Data::Str(text, attachments), id),
                Some(session),
            ) => {
                let connection = Arc::clone(&session.connection) as Arc<dyn ClientConnection>;
                session.handler.handle_event(connection, &text, attachments.is_some(), id);
            }
            (PacketData::EventAck(Data::Str(text, _), id), Some(session)) => {
                session.connection.answered(id, passthrough::first(&text));
            }
            (PacketData::BinaryAck(_, id), Some(session)) => {
                session.connection.answered(id, Err("an answer with attachments".into()));
            }
            _ => {}
        }
    }

    /// Refuses a client. The answer to a wrong token takes its time.
    fn refuse_later(&self, engine: &Arc<Engine>, refusal: ConnectRefusal) {
        let address = address_of(&engine.req_parts.extensions);
        let delay = refusal.is_wrong_token.then(|| self.0.guess_delay(address));
        let Some(delay) = delay.filter(|delay| !delay.is_zero()) else {
            return refuse(engine, NAMESPACE, &refusal.message, &refusal.error);
        };
        engine.data.is_refusing.store(true, Ordering::Relaxed);
        let (engine, pause) = (Arc::downgrade(engine), self.0.world.clock.sleep(delay));
        self.0.world.spawn.spawn(Box::pin(async move {
            pause.await;
            let Some(engine) = engine.upgrade() else { return };
            refuse(&engine, NAMESPACE, &refusal.message, &refusal.error);
            engine.data.is_refusing.store(false, Ordering::Relaxed);
        }));
    }

    /// Admits a client to the namespace, or refuses it with a reason.
    fn greet(&self, engine: &Arc<Engine>, auth: Option<&Data>) {
        if engine.data.is_refusing.load(Ordering::Relaxed) {
            return;
        }
        let auth = match auth {
            Some(Data::Str(text, _)) => serde_json::from_str::<Value>(text).ok(),
            _ => None,
        };
        let version = handshake::value(engine.req_parts.uri.query().unwrap_or_default(), QUERY);
        let connection = Arc::new(Connection::new(&self.0, engine));
        let entered =
            enter(&self.0, connection.key, Arc::clone(&connection) as _, auth.as_ref(), version);
        match entered {
            Ok(handler) => {
                let sid = json!({ "sid": handler.sid });
                *lock(&engine.data.session) = Some(Arc::new(HubSession { handler, connection }));
                let _ = engine.emit(format!("0{NAMESPACE},{sid}"));
            }
            Err(refusal) => self.refuse_later(engine, refusal),
        }
    }
}

fn refuse(engine: &Engine, namespace: &str, message: &str, error: &Value) {
    let refusal = json!({ "message": message, "data": error });
    let text =
        if namespace == "/" { format!("4{refusal}") } else { format!("4{namespace},{refusal}") };
    // A client that cannot receive the reason is refused all the same.
    let _ = engine.emit(text);
}

/// A computer's answer as JSON text; `None` for null.
type Answer = Result<Option<Box<RawValue>>, String>;

/// A client's connection, as the hub uses it.
pub(super) struct Connection {
    key: Key,
    engine: Weak<Engine>,
    budget: Budget,
    world: World,
    is_ended: AtomicBool,
    ids: AtomicI64,
    pending: Arc<Mutex<PendingRequests>>,
    queue: Mutex<Queue>,
}

/// Packets that the transport has not yet written, oldest first.
#[derive(Default)]
struct Queue {
    packets: VecDeque<(Bytes, Charge)>,
    /// The time at which the current oldest packet became the oldest.
    since: Timestamp,
}

impl Queue {
    fn sweep(&mut self, now: Timestamp) {
        while self.packets.front().is_some_and(|(packet, _)| packet.is_unique()) {
            self.packets.pop_front();
            self.since = now;
        }
    }

    fn push(&mut self, packet: Bytes, charge: Charge, now: Timestamp) {
        if self.packets.is_empty() {
            self.since = now;
        }
        self.packets.push_back((packet, charge));
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Requests that wait for an answer, by acknowledgement id.
type PendingRequests = BTreeMap<i64, oneshot::Sender<Answer>>;

/// Removes a request from the table when its caller stops waiting.
struct PendingRequestGuard {
    pending: Arc<Mutex<PendingRequests>>,
    id: i64,
}

impl Drop for PendingRequestGuard {
    fn drop(&mut self) {
        lock(&self.pending).remove(&self.id);
    }
}

impl Connection {
    fn new(hub: &Inner, engine: &Arc<Engine>) -> Self {
        Self {
            key: hub.next_key(),
            engine: Arc::downgrade(engine),
            budget: hub.budget.clone(),
            world: hub.world.clone(),
            is_ended: AtomicBool::new(false),
            ids: AtomicI64::new(0),
            pending: Arc::default(),
            queue: Mutex::default(),
        }
    }

    /// Ends all sending and fails the requests that wait for an answer.
    fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
        lock(&self.pending).clear();
    }

    fn answered(&self, id: i64, answer: Answer) {
        if let Some(pending) = lock(&self.pending).remove(&id) {
            let _ = pending.send(answer);
        }
    }

    fn engine(&self) -> Option<Arc<Engine>> {
        self.engine.upgrade().filter(|engine| !engine.is_closed())
    }

    fn send(&self, text: String, share: Share) -> Result<(), DeliveryError> {
        let open = self.engine().filter(|_| !self.is_ended.load(Ordering::Relaxed));
        let Some(engine) = open else {
            return Err(DeliveryError::Disconnected("the connection is closed".into()));
        };
        let packet = Str::from(text);
        let copy = Bytes::from(packet.clone());
        let now = self.world.clock.now();
        let mut queue = lock(&self.queue);
        queue.sweep(now);
        let charge =
            self.budget.take(self.key, copy.len(), share).map_err(|_| DeliveryError::Full)?;
        match engine.emit(packet) {
            Ok(()) => queue.push(copy, charge, now),
            Err(TrySendError::Full(_)) => return Err(DeliveryError::Full),
            Err(TrySendError::Closed(_)) => {
                return Err(DeliveryError::Disconnected("the connection is closed".into()));
            }
        }
        Ok(())
    }

    fn ask_with(
        &self,
        event: &str,
        payload: &str,
        timeout: Duration,
    ) -> Result<PendingText, DeliveryError> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        // Registered before the request is sent, because the answer may be fast.
        lock(&self.pending).insert(id, sender);
        let guard = PendingRequestGuard { pending: Arc::clone(&self.pending), id };
        self.send(format!("2{NAMESPACE},{id}[\"{event}\",{payload}]"), Share::Half)?;
        let late = self.world.clock.sleep(timeout);
        Ok(Box::pin(async move {
            let _place = guard;
            tokio::select! {
                biased;
                answer = answer => match answer {
                    Ok(Ok(text)) => Ok(text),
                    Ok(Err(cause)) => Err(AnswerError::Malformed(cause.into())),
                    Err(_) => Err(AnswerError::Disconnected),
                },
                () = late => Err(AnswerError::TimedOut),
            }
        }))
    }
}

impl ClientConnection for Connection {
    fn is_open(&self) -> bool {
        !self.is_ended.load(Ordering::Relaxed) && self.engine().is_some()
    }

    fn is_gone(&self) -> bool {
        self.engine().is_none()
    }

    fn close(self: Arc<Self>) {
        let Some(engine) = self.engine() else { return };
        let _ = engine.emit(format!("1{NAMESPACE},"));
        end_session(&engine);
        expect_namespace(&self.world, &engine);
    }

    fn cut(self: Arc<Self>, notice: &Value) {
        self.budget.close(self.key);
        let Some(engine) = self.engine() else { return };
        let _ = engine.emit(format!("2{NAMESPACE},[\"{}\",{notice}]", event::CLOSED));
        let _ = engine.emit(format!("1{NAMESPACE},"));
        end_session(&engine);
        engine.close(DisconnectReason::ClosingServer);
        let Some(token) = lock(&engine.data.cut).take() else { return };
        let timeout = self.world.clock.sleep(FAREWELL);
        self.world.spawn.spawn(Box::pin(async move {
            timeout.await;
            token.cancel();
        }));
    }

    fn sweep(&self) -> Option<Timestamp> {
        let mut queue = lock(&self.queue);
        queue.sweep(self.world.clock.now());
        (!queue.packets.is_empty()).then_some(queue.since)
    }

    fn notify(&self, event: &'static str, payload: &Value) -> Result<(), DeliveryError> {
        self.send(format!("2{NAMESPACE},[\"{event}\",{payload}]"), Share::Whole)
    }

    fn ask(
        &self,
        event: &'static str,
        payload: &Value,
        timeout: Duration,
    ) -> Result<Pending, DeliveryError> {
        let answer = self.ask_with(event, &payload.to_string(), timeout)?;
        let value = |text: Option<Box<RawValue>>| -> Result<Value, AnswerError> {
            text.map_or(Ok(Value::Null), |text| Ok(serde_json::from_str(text.get())?))
        };
        Ok(answer.map(move |answer| answer.and_then(value)).boxed())
    }

    fn answer(self: Arc<Self>, id: i64, args: &[Value]) -> Result<(), DeliveryError> {
        let mut text = format!("3{NAMESPACE},{id}[");
        for (index, value) in args.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let _ = write!(text, "{comma}{value}");
        }
        text.push(']');
        self.send(text, Share::Whole)
    }

    fn ask_text(
        &self,
        event: &'static str,
        text: &RawValue,
        timeout: Duration,
    ) -> Result<PendingText, DeliveryError> {
        self.ask_with(event, text.get(), timeout)
    }

    fn answer_text(self: Arc<Self>, id: i64, text: &RawValue) -> Result<(), DeliveryError> {
        self.send(format!("3{NAMESPACE},{id}[{}]", text.get()), Share::Whole)
    }
}
