//! The membership of a room, for agents and computers: connects, joins, and rejoins after a loss.
//!
//! The hub may still hold the place of a lost connection. A member that was in the room retries until the place is
//! free; a first join fails at once.

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

/// Capacity of the channel of received messages.
const MESSAGES_MAX: usize = 256;

/// The hub, the room and the name of a member.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// The hub's URL, `http`, `https`, `ws` or `wss`.
    pub url: String,
    /// The name of the room to join.
    pub room: String,
    /// The member's own name in the room.
    pub name: String,
    /// The token for the hub; `None` for a hub without authentication.
    pub token: Option<SecretString>,
    /// The protocol version to speak. Default 0.4.
    pub dialect: Dialect,
    /// Time limit of a request other than a tool call. Default 30 s.
    pub question: Duration,
    /// Backoff for reconnecting and rejoining. Default: no limit on tries, at most 15 s between them.
    pub reconnect: RetryPolicy,
}

impl MemberConfig {
    /// A configuration without a token and with default time limits.
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

/// A member's handle. Clones share one connection; the member leaves when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    client: Client,
    presence: watch::Receiver<Presence>,
    config: Arc<MemberConfig>,
    role: Role,
    target_room: TargetRoom,
}

/// The room that the member should be in; `None` after leaving. It may change while connected.
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

/// The state of the membership.
#[derive(Clone, Debug, PartialEq)]
enum Presence {
    /// Not in the room; the task reconnects or rejoins.
    Outside,
    /// The hub has accepted the join.
    Inside,
    /// Ended for good, with the reason.
    Ended(Fault),
}

/// A message to the owner of the membership, in order of arrival.
#[derive(Debug)]
pub(crate) enum RoomMessage {
    /// The member is in the room again after a reconnection.
    Rejoined,
    /// The connection was lost, or the membership has ended.
    Disconnected(Fault),
    /// An event from the hub: its name, its payload, and a reply handle if it expects an answer.
    Event(String, Payload, Option<Reply>),
}

impl Membership {
    /// Waits until the member is in the room. Fails if the membership has ended.
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

    /// Waits until the membership has ended for good and returns the reason.
    pub(crate) async fn ended(&self) -> Fault {
        let mut presence = self.presence.clone();
        let ended = presence.wait_for(|presence| matches!(presence, Presence::Ended(_))).await;
        match ended.map(|presence| presence.clone()) {
            Ok(Presence::Ended(fault)) => fault,
            _ => Fault::new(Kind::ConnectionLost, Operation::Connect),
        }
    }

    /// The room that the member should be in.
    pub(crate) fn target_room(&self) -> &TargetRoom {
        &self.target_room
    }

    /// Moves to another room. If the hub refuses, the member stays in its room.
    pub(crate) async fn join(&self, room: &str) -> Result<(), Fault> {
        let before = self.target_room.replace(Some(room.to_owned()));
        let joined = join(&self.client, &self.config, room, self.role).await;
        if joined.is_err() {
            self.target_room.replace(before);
        }
        joined
    }

    /// Leaves the room and stays connected. A reconnection does not rejoin.
    pub(crate) async fn leave(&self) -> Result<(), Fault> {
        let Some(room) = self.target_room.replace(None) else { return Ok(()) };
        let request = Payload::of(json!({ "office_id": room, "error_details": true }));
        let answer =
            self.client.call(NotificationEvent::Leave.into(), request, self.config.question).await;
        let answer = answer.map_err(|error| error.to_fault())?;
        check_answer(&answer, Operation::LeaveRoom, &self.config)
    }

    pub(crate) fn close(&self) {
        self.client.close();
    }
}

/// Connects and joins.
pub(crate) async fn enter(
    config: MemberConfig,
    role: Role,
    world: World,
) -> Result<(Membership, mpsc::Receiver<RoomMessage>), Fault> {
    let connected = Client::connect(dial(&config)?, world.clone()).await;
    let (client, events) = connected.map_err(|error| refused(&error, &config))?;
    join(&client, &config, &config.room, role).await?;
    let target_room = TargetRoom(Arc::new(Mutex::new(Some(config.room.clone()))));
    let config = Arc::new(config);
    let (presence, seen) = watch::channel(Presence::Inside);
    let (messages, receiver) = mpsc::channel(MESSAGES_MAX);
    let keeper = MembershipTask {
        config: config.clone(),
        role,
        target_room: target_room.clone(),
        world: world.clone(),
        client: client.clone(),
        messages,
        presence,
    };
    world.spawn.spawn(Box::pin(keeper.run(events)));
    Ok((Membership { client, presence: seen, config, role, target_room }, receiver))
}

fn dial(config: &MemberConfig) -> Result<Dial, Fault> {
    let mut dial = Dial::new(&config.url).map_err(|error| error.to_fault())?;
    if config.dialect == Dialect::V04 {
        dial = dial.query(version::QUERY, &PROTOCOL.to_string());
    }
    let auth = match &config.token {
        Some(token) => Auth::Fixed(json!({ "token": token.expose_secret() })),
        None => Auth::None,
    };
    // A hub that restarts may disconnect namespaces; the member reconnects.
    Ok(dial.namespace(NAMESPACE).with_auth(auth).reconnect(config.reconnect).reconnect_after_kick())
}

/// The fault for a refused connection. The body of a version refusal carries the protocol's own code.
fn refused(error: &Error, config: &MemberConfig) -> Fault {
    let Error::Http(refusal) = error else {
        return error.to_fault().with(Fact::Host, host_of(&config.url));
    };
    let body: Value = serde_json::from_str(&refusal.body).unwrap_or_default();
    if body.get("code").and_then(Value::as_u64) != Some(4008) {
        return error.to_fault();
    }
    let supported = body.get("server_version").and_then(Value::as_str).unwrap_or("unknown");
    Fault::new(Kind::VersionMismatch, Operation::Connect)
        .with(Fact::Version, PROTOCOL.to_string())
        .with(Fact::Supported, vec![supported.to_owned()])
}

/// Host and port of a URL, without scheme, user information and path.
fn host_of(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default().to_owned()
}

async fn join(client: &Client, config: &MemberConfig, room: &str, role: Role) -> Result<(), Fault> {
    let request = json!({
        "role": role, "name": config.name, "office_id": room, "error_details": true,
    });
    let answer =
        client.call(NotificationEvent::Join.into(), Payload::of(request), config.question).await;
    let answer = answer.map_err(|error| error.to_fault())?;
    check_answer(&answer, Operation::JoinRoom, config)
}

/// Checks the answer to a join or leave: `true`, or `false` with a text, and the error that `error_details` asks for.
fn check_answer(
    answer: &Payload,
    operation: Operation,
    config: &MemberConfig,
) -> Result<(), Fault> {
    if answer.first() == &Value::Bool(true) {
        return Ok(());
    }
    let context = answer_reader::AnswerContext {
        agent: &config.name,
        ..answer_reader::AnswerContext::default()
    };
    let error = answer.args().get(2).cloned().unwrap_or_default();
    Err(answer_reader::fault_of(&error, operation, &context).unwrap_or_else(|| {
        let reason = answer.args().get(1).and_then(Value::as_str).unwrap_or("no reason given");
        Fault::new(Kind::NotAllowed, operation).with_cause(reason)
    }))
}

/// The task that keeps the member in its room and forwards messages.
struct MembershipTask {
    config: Arc<MemberConfig>,
    role: Role,
    target_room: TargetRoom,
    world: World,
    client: Client,
    messages: mpsc::Sender<RoomMessage>,
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
                // `enter` has already joined on the first connection.
                Some(Event::Connected { .. }) if is_first => is_first = false,
                Some(Event::Connected { .. }) => {
                    if let Err(fault) = self.rejoin().await {
                        return self.end(fault).await;
                    }
                }
                Some(Event::Disconnected { error, retry_in }) => {
                    let fault = refused(&error, &self.config);
                    if retry_in.is_none() {
                        return self.end(fault).await;
                    }
                    self.presence.send_replace(Presence::Outside);
                    self.deliver(RoomMessage::Disconnected(fault)).await;
                }
                Some(Event::Message { name, payload, reply, .. }) => {
                    self.deliver(RoomMessage::Event(name, payload, reply)).await;
                }
                None => {
                    return self.end(Fault::new(Kind::ConnectionLost, Operation::Connect)).await;
                }
            }
        }
    }

    async fn end(&self, fault: Fault) {
        self.presence.send_replace(Presence::Ended(fault.clone()));
        self.deliver(RoomMessage::Disconnected(fault)).await;
        self.client.close();
    }

    /// Joins again. The hub may still hold the place of the member's earlier connection, so a refusal is retried.
    async fn rejoin(&self) -> Result<(), Fault> {
        let mut attempt = 0;
        loop {
            // After a leave there is no room to rejoin.
            let Some(room) = self.target_room.get() else { return Ok(()) };
            match join(&self.client, &self.config, &room, self.role).await {
                Ok(()) => {
                    self.presence.send_replace(Presence::Inside);
                    self.deliver(RoomMessage::Rejoined).await;
                    return Ok(());
                }
                // The next connection joins.
                Err(fault) if fault.kind() == Kind::ConnectionLost => return Ok(()),
                Err(fault) => {
                    attempt += 1;
                    let may_pass = matches!(
                        fault.kind(),
                        Kind::RoomFull | Kind::NotAllowed | Kind::RequestTimedOut
                    );
                    if !may_pass || attempt >= self.config.reconnect.tries {
                        return Err(fault);
                    }
                    let wait = self.config.reconnect.delay(attempt, self.world.jitter());
                    self.world.clock.sleep(wait).await;
                }
            }
        }
    }

    async fn deliver(&self, messages: RoomMessage) {
        // Sending fails only if the owner dropped its receiver.
        let _ = self.messages.send(messages).await;
    }
}
