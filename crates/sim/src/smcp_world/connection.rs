//! Connections to the hub without sockets. Every message of the hub is checked before the client reads it.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use budao_smcp::{
    server::{
        ConnectionHandler,
        client_connection::{AnswerError, ClientConnection, DeliveryError, Pending},
    },
    wire::event,
};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{SmcpWorld, some_ms};
use crate::world::chance;

/// Capacity of the queue to a client, in messages.
const QUEUE: usize = 3;

/// A member of a room: the number of the room and the member's name.
#[derive(Clone, Debug)]
pub(super) struct MemberId {
    pub(super) room: usize,
    pub(super) name: String,
}

impl MemberId {
    pub(super) fn agent(room: usize) -> Self {
        Self { room, name: "bot".to_owned() }
    }

    /// The first computer of every room has the same name in all rooms; the second has a unique one.
    pub(super) fn computer(room: usize, number: usize) -> Self {
        let name = if number.is_multiple_of(2) { "pc".to_owned() } else { format!("pc-{room}") };
        Self { room, name }
    }

    pub(super) fn office(&self) -> String {
        format!("room-{}", self.room)
    }
}

/// A message from the hub to a client.
#[derive(Debug)]
pub(super) enum HubMessage {
    Event { name: &'static str, payload: Value, ack: Option<u64> },
    Answer { id: i64, args: Vec<Value> },
}

/// A message from a client to the hub.
#[derive(Debug)]
pub(super) enum MemberMessage {
    Event { name: &'static str, payload: Value, id: Option<i64> },
    Ack { ack: u64, value: Value },
}

/// The client's end of a connection.
#[derive(Debug)]
pub(super) struct MemberConnection {
    pub(super) up: mpsc::Sender<MemberMessage>,
    pub(super) from: mpsc::Receiver<HubMessage>,
}

/// The hub's end of a connection.
pub(super) struct HubConnection {
    office: Arc<SmcpWorld>,
    number: u64,
    hub: u32,
    who: MemberId,
    acks: AtomicU64,
    gone: CancellationToken,
    ends: Mutex<HubConnectionState>,
}

struct HubConnectionState {
    /// The queue to the client; `None` once the connection is closed.
    to: Option<mpsc::Sender<HubMessage>>,
    /// Requests to the client without an answer yet, by acknowledgement id.
    asked: BTreeMap<u64, (u64, oneshot::Sender<Value>)>,
    /// Events of the client that expect an answer, with the nonce of the call if it is one.
    open: BTreeMap<i64, Option<u64>>,
}

impl fmt::Debug for HubConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wire({} of {:?})", self.number, self.who)
    }
}

/// Both ends of a new connection, and the queue of the client's messages.
pub(super) fn pair(
    office: Arc<SmcpWorld>,
    number: u64,
    hub: u32,
    who: MemberId,
) -> (Arc<HubConnection>, MemberConnection, mpsc::Receiver<MemberMessage>) {
    let (to, from) = mpsc::channel(QUEUE);
    let (up, ups) = mpsc::channel(64);
    let ends = HubConnectionState { to: Some(to), asked: BTreeMap::new(), open: BTreeMap::new() };
    let wire = HubConnection {
        office,
        number,
        hub,
        who,
        acks: AtomicU64::new(0),
        gone: CancellationToken::new(),
        ends: Mutex::new(ends),
    };
    (Arc::new(wire), MemberConnection { up, from }, ups)
}

impl HubConnection {
    fn ends(&self) -> MutexGuard<'_, HubConnectionState> {
        self.ends.lock().expect("nobody panics with it")
    }

    /// Closes the connection; the client can still read messages already sent.
    pub(super) fn shut(&self) {
        let mut ends = self.ends();
        ends.to = None;
        ends.asked.clear();
        self.gone.cancel();
        self.office.book.shut(self.number);
    }

    /// Handles the client's messages in order until the connection is closed.
    pub(super) async fn read(
        self: Arc<Self>,
        desk: ConnectionHandler,
        mut ups: mpsc::Receiver<MemberMessage>,
    ) {
        let mut dice = chance(self.office.seed, &format!("wire {}", self.number));
        loop {
            let up = tokio::select! {
                biased;
                () = self.gone.cancelled() => break,
                up = ups.recv() => up,
            };
            let Some(up) = up else { break };
            tokio::time::sleep(some_ms(&mut dice, &[0, 0, 0, 1, 20, 300])).await;
            match up {
                MemberMessage::Event { name, payload, id } => self.hear(&desk, name, &payload, id),
                MemberMessage::Ack { ack, value } => self.take(ack, &value),
            }
        }
        self.shut();
        desk.leave();
    }

    fn hear(
        self: &Arc<Self>,
        desk: &ConnectionHandler,
        name: &'static str,
        payload: &Value,
        id: Option<i64>,
    ) {
        let book = &self.office.book;
        let nonce = payload["nonce"].as_u64();
        if let Some(id) = id {
            self.ends().open.insert(id, nonce);
        }
        let now = self.office.clock.elapsed();
        let taken = nonce.is_some_and(|nonce| book.hears(nonce, self.hub, self.number, now));
        let is_cancel = name == "server:tool_call_cancel";
        let req_id = payload["req_id"].as_str().unwrap_or_default();
        let meant = is_cancel.then(|| book.meant(self.number, req_id)).flatten();
        let text = serde_json::json!([name, payload]).to_string();
        desk.handle_event(Arc::clone(self) as _, &text, false, id);
        if let Some(nonce) = nonce {
            book.check_request(nonce, taken);
        }
        book.check_cancel(meant);
    }

    /// Handles a client's answer, which may refer to no request.
    fn take(&self, ack: u64, value: &Value) {
        let asked = self.ends().asked.remove(&ack);
        let Some((nonce, sender)) = asked else { return };
        if sender.send(value.clone()).is_ok() {
            self.office.book.gives(nonce, value, self.hub);
        }
    }

    fn send(&self, ends: &mut HubConnectionState, word: HubMessage) -> Result<(), DeliveryError> {
        let Some(to) = &ends.to else {
            return Err(DeliveryError::Disconnected("the line is closed".into()));
        };
        to.try_send(word).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => DeliveryError::Full,
            mpsc::error::TrySendError::Closed(_) => {
                DeliveryError::Disconnected("the line is cut".into())
            }
        })
    }

    /// Checks that a notification stays in its room, and that a cancel refers to an existing call.
    fn inspect(&self, name: &str, payload: &Value) {
        let ours = match name {
            event::CANCELLED => {
                return self.office.book.tells_cancel(payload, self.number, &self.who);
            }
            event::ENTERED | event::LEFT => payload["office_id"] == self.who.office(),
            _ => payload["computer"] == format!("pc-{}", self.who.room),
        };
        self.office.violations.expect(ours, "a room hears of itself alone", || {
            format!("{name} {payload} to {:?}", self.who)
        });
    }
}

impl ClientConnection for HubConnection {
    fn is_open(&self) -> bool {
        !self.gone.is_cancelled()
    }

    fn close(self: Arc<Self>) {
        self.shut();
    }

    fn notify(&self, name: &'static str, payload: &Value) -> Result<(), DeliveryError> {
        self.inspect(name, payload);
        let word = HubMessage::Event { name, payload: payload.clone(), ack: None };
        self.send(&mut self.ends(), word)
    }

    fn ask(
        &self,
        name: &'static str,
        payload: &Value,
        patience: Duration,
    ) -> Result<Pending, DeliveryError> {
        let ack = self.acks.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        {
            let mut ends = self.ends();
            let word = HubMessage::Event { name, payload: payload.clone(), ack: Some(ack) };
            self.send(&mut ends, word)?;
            ends.asked.insert(ack, (payload["nonce"].as_u64().unwrap_or(u64::MAX), sender));
        }
        self.office.book.asks(payload, self.number, &self.who);
        Ok(Box::pin(async move {
            match tokio::time::timeout(patience, answer).await {
                Ok(Ok(value)) => Ok(value),
                Ok(Err(_)) => Err(AnswerError::Disconnected),
                Err(_) => Err(AnswerError::TimedOut),
            }
        }))
    }

    fn answer(self: Arc<Self>, id: i64, args: &[Value]) -> Result<(), DeliveryError> {
        let mut ends = self.ends();
        let open = ends.open.get(&id).copied();
        let seen = || format!("{id} {args:?} to {:?}", self.who);
        self.office.violations.expect(open.is_some(), "an event has one answer", seen);
        if let Some(Some(nonce)) = open {
            self.office.book.answers(nonce, args, self.office.clock.elapsed());
        }
        self.send(&mut ends, HubMessage::Answer { id, args: args.to_vec() })?;
        ends.open.remove(&id);
        Ok(())
    }
}
