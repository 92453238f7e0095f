//! Being in a room: connected, joined, and back again after a loss. The same for agents and computers.
//!
//! The hub may still hold the place of a connection that was lost. Whoever was in the room before tries until it is
//! free; whoever was never in is told at once.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    retry::RetryPolicy,
    world::World,
};
use budao_socketio::{Auth, Client, Config as Dial, Error, Event, Events, Payload, Reply};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::{
    answer_reader,
    wire::{Dialect, NAMESPACE, PROTOCOL, Role, event::NotificationEvent, version},
};

/// Things heard and not yet taken.
const HEARD_MAX: usize = 256;

/// Where to go and as whom.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// The hub's address.
    pub url: String,
    /// The room.
    pub room: String,
    /// Our name there.
    pub name: String,
    /// What the hub wants to be shown.
    pub token: Option<SecretString>,
    /// How the protocol is spoken.
    pub dialect: Dialect,
    /// How long a question other than a tool call may take.
    pub question: Duration,
    /// How patiently to connect and to join again.
    pub reconnect: RetryPolicy,
}

impl MemberConfig {
    /// With the usual patience.
    #[must_use]
    pub fn new(url: &str, room: &str, name: &str) -> Self {
        let reconnect =
            RetryPolicy { tries: u32::MAX, max: Duration::from_secs(15), ..RetryPolicy::default() };
        Self {
            url: url.into(),
            room: room.into(),
            name: name.into(),
            token: None,
            dialect: Dialect::V04,
            question: Duration::from_secs(30),
            reconnect,
        }
    }
}

/// A member's handle. Clones are the same one; when the last is gone, it leaves.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    client: Client,
    presence: watch::Receiver<Presence>,
    place: Arc<MemberConfig>,
    role: Role,
    wanted: TargetRoom,
}

/// The room to be in, which may change while we are connected; none after leaving.
#[derive(Clone, Debug)]
pub(crate) struct TargetRoom(Arc<Mutex<Option<String>>>);

impl TargetRoom {
    pub(crate) fn get(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, room: Option<String>) -> Option<String> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), room)
    }
}

/// Are we in the room?
#[derive(Clone, Debug, PartialEq)]
enum Presence {
    /// Not now; being worked on.
    Outside,
    /// Yes.
    Inside,
    /// Never again.
    Ended(Fault),
}

/// What is heard, in order.
#[derive(Debug)]
pub(crate) enum RoomMessage {
    /// We are in the room again.
    Rejoined,
    /// The connection is gone.
    Disconnected(Fault),
    /// Something was said to us.
    Event(String, Payload, Option<Reply>),
}

impl Membership {
    /// Waits until we are in the room.
    pub(crate) async fn inside(&self) -> Result<(), Fault> {
        let mut presence = self.presence.clone();
        let arrived = presence.wait_for(|presence| *presence != Presence::Outside).await;
        match arrived.map(|presence| presence.clone()) {
            Ok(Presence::Ended(fault)) => Err(fault),
            Err(_) => Err(Fault::new(Kind::ConnectionLost, Operation::RelayCall)),
            Ok(_) => Ok(()),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Waits until there is no way back, and says why.
    pub(crate) async fn ended(&self) -> Fault {
        let mut presence = self.presence.clone();
        let ended = presence.wait_for(|presence| matches!(presence, Presence::Ended(_))).await;
        match ended.map(|presence| presence.clone()) {
            Ok(Presence::Ended(fault)) => fault,
            _ => Fault::new(Kind::ConnectionLost, Operation::Connect),
        }
    }

    /// The room we want to be in.
    pub(crate) fn wanted(&self) -> &TargetRoom {
        &self.wanted
    }

    /// Goes to a room, out of the one we are in. A refusal leaves everything as it was.
    pub(crate) async fn join(&self, room: &str) -> Result<(), Fault> {
        let before = self.wanted.replace(Some(room.to_owned()));
        let joined = join(&self.client, &self.place, room, self.role).await;
        if joined.is_err() {
            self.wanted.replace(before);
        }
        joined
    }

    /// Leaves the room and stays connected; a new connection does not go back there.
    pub(crate) async fn leave(&self) -> Result<(), Fault> {
        let Some(room) = self.wanted.replace(None) else { return Ok(()) };
        let wish = Payload::of(json!({ "office_id": room }));
        let answer =
            self.client.call(NotificationEvent::Leave.into(), wish, self.place.question).await;
        let answer = answer.map_err(|error| error.to_fault())?;
        check_answer(&answer, Operation::LeaveRoom, &self.place)
    }

    pub(crate) fn close(&self) {
        self.client.close();
    }
}

/// Connects and joins.
pub(crate) async fn enter(
    place: MemberConfig,
    role: Role,
    world: World,
) -> Result<(Membership, mpsc::Receiver<RoomMessage>), Fault> {
    let connected = Client::connect(dial(&place)?, world.clone()).await;
    let (client, events) = connected.map_err(|error| refused(&error))?;
    join(&client, &place, &place.room, role).await?;
    let wanted = TargetRoom(Arc::new(Mutex::new(Some(place.room.clone()))));
    let place = Arc::new(place);
    let (presence, seen) = watch::channel(Presence::Inside);
    let (heard, receiver) = mpsc::channel(HEARD_MAX);
    let keeper = MembershipTask {
        place: place.clone(),
        role,
        wanted: wanted.clone(),
        world: world.clone(),
        client: client.clone(),
        heard,
        presence,
    };
    world.spawn.spawn(Box::pin(keeper.run(events)));
    Ok((Membership { client, presence: seen, place, role, wanted }, receiver))
}

fn dial(place: &MemberConfig) -> Result<Dial, Fault> {
    let mut dial = Dial::new(&place.url).map_err(|error| error.to_fault())?;
    if place.dialect == Dialect::V04 {
        dial = dial.query(version::QUERY, &PROTOCOL.to_string());
    }
    let auth = match &place.token {
        Some(token) => Auth::Fixed(json!({ "token": token.expose_secret() })),
        None => Auth::None,
    };
    // A hub that restarts may end namespaces politely; that is no reason to stay away.
    Ok(dial.namespace(NAMESPACE).with_auth(auth).reconnect(place.reconnect).reconnect_after_kick())
}

/// A refused connection. The version's own code is in the body of the answer.
fn refused(error: &Error) -> Fault {
    let Error::Http(refusal) = error else { return error.to_fault() };
    let body: Value = serde_json::from_str(&refusal.body).unwrap_or_default();
    if body.get("code").and_then(Value::as_u64) != Some(4008) {
        return error.to_fault();
    }
    let supported = body.get("server_version").and_then(Value::as_str).unwrap_or("unknown");
    Fault::new(Kind::VersionMismatch, Operation::Connect)
        .with(Fact::Version, PROTOCOL.to_string())
        .with(Fact::Supported, vec![supported.to_owned()])
}

async fn join(client: &Client, place: &MemberConfig, room: &str, role: Role) -> Result<(), Fault> {
    let wish = json!({ "role": role, "name": place.name, "office_id": room });
    let answer =
        client.call(NotificationEvent::Join.into(), Payload::of(wish), place.question).await;
    let answer = answer.map_err(|error| error.to_fault())?;
    check_answer(&answer, Operation::JoinRoom, place)
}

/// What a hub says to coming and going: yes, or no with words and perhaps an error.
fn check_answer(answer: &Payload, operation: Operation, place: &MemberConfig) -> Result<(), Fault> {
    if answer.first() == &Value::Bool(true) {
        return Ok(());
    }
    let about = answer_reader::AnswerContext {
        agent: &place.name,
        ..answer_reader::AnswerContext::default()
    };
    let error = answer.args().get(2).cloned().unwrap_or_default();
    Err(answer_reader::fault_of(&error, operation, &about).unwrap_or_else(|| {
        let words = answer.args().get(1).and_then(Value::as_str).unwrap_or("no reason given");
        Fault::new(Kind::NotAllowed, operation).with_cause(words)
    }))
}

/// Keeps us in the room and hands out what is heard there.
struct MembershipTask {
    place: Arc<MemberConfig>,
    role: Role,
    wanted: TargetRoom,
    world: World,
    client: Client,
    heard: mpsc::Sender<RoomMessage>,
    presence: watch::Sender<Presence>,
}

impl MembershipTask {
    async fn run(self, mut events: Events) {
        let mut is_first = true;
        loop {
            let event = tokio::select! {
                biased;
                () = self.presence.closed() => return self.client.close(),
                event = events.next() => event,
            };
            match event {
                // The first connection was joined by whoever made it.
                Some(Event::Connected { .. }) if is_first => is_first = false,
                Some(Event::Connected { .. }) => {
                    if let Err(fault) = self.rejoin().await {
                        return self.end(fault).await;
                    }
                }
                Some(Event::Disconnected { error, retry_in }) => {
                    let fault = refused(&error);
                    if retry_in.is_none() {
                        return self.end(fault).await;
                    }
                    self.presence.send_replace(Presence::Outside);
                    self.tell(RoomMessage::Disconnected(fault)).await;
                }
                Some(Event::Message { name, payload, reply, .. }) => {
                    self.tell(RoomMessage::Event(name, payload, reply)).await;
                }
                None => {
                    return self.end(Fault::new(Kind::ConnectionLost, Operation::Connect)).await;
                }
            }
        }
    }

    async fn end(&self, fault: Fault) {
        self.presence.send_replace(Presence::Ended(fault.clone()));
        self.tell(RoomMessage::Disconnected(fault)).await;
        self.client.close();
    }

    /// Joins again. A place that is taken may be taken by our own past.
    async fn rejoin(&self) -> Result<(), Fault> {
        let mut attempt = 0;
        loop {
            // Whoever left stays outside, connected or not.
            let Some(room) = self.wanted.get() else { return Ok(()) };
            match join(&self.client, &self.place, &room, self.role).await {
                Ok(()) => {
                    self.presence.send_replace(Presence::Inside);
                    self.tell(RoomMessage::Rejoined).await;
                    return Ok(());
                }
                // Lost again: the next connection joins.
                Err(fault) if fault.kind() == Kind::ConnectionLost => return Ok(()),
                Err(fault) => {
                    attempt += 1;
                    let may_pass = matches!(
                        fault.kind(),
                        Kind::RoomFull | Kind::NotAllowed | Kind::RequestTimedOut
                    );
                    if !may_pass || attempt >= self.place.reconnect.tries {
                        return Err(fault);
                    }
                    let wait = self.place.reconnect.delay(attempt, self.world.jitter());
                    self.world.clock.sleep(wait).await;
                }
            }
        }
    }

    async fn tell(&self, heard: RoomMessage) {
        // Nobody listening is fine.
        let _ = self.heard.send(heard).await;
    }
}
