//! The side that asks: one connection, one room, and every call with an end.
//!
//! After a loss the session connects again by itself and joins its room again before anything else is asked.
//! The hub may still hold the place of the connection that was lost; then joining is tried until it is free.

mod answer;
mod source;

use std::{sync::Arc, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    retry::Policy,
    seams::World,
};
use budao_socketio::{Auth, Client, Config as Dial, Error, Event, Events, Payload};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

pub use source::{RemoteTools, tool_name};

use crate::wire::{
    Dialect, NAMESPACE, PROTOCOL, Role,
    event::{Ask, Tell},
    trace_of, version,
};

/// How long the hub waits beyond a call's timeout, and a little more for the way.
const SLACK: Duration = Duration::from_secs(10);

/// News that nobody took in time are dropped beyond this many.
const NEWS_MAX: usize = 256;

/// Where to go and as whom.
#[derive(Clone, Debug)]
pub struct Config {
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
    /// How long to wait for a cancelled call to say so itself.
    pub grace: Duration,
    /// How patiently to connect and to join again.
    pub reconnect: Policy,
}

impl Config {
    /// With the usual patience.
    #[must_use]
    pub fn new(url: &str, room: &str, name: &str) -> Self {
        let reconnect =
            Policy { tries: u32::MAX, max: Duration::from_secs(15), ..Policy::default() };
        Self {
            url: url.into(),
            room: room.into(),
            name: name.into(),
            token: None,
            dialect: Dialect::V04,
            question: Duration::from_secs(30),
            grace: Duration::from_secs(2),
            reconnect,
        }
    }
}

/// An agent in its room. Clones are the same one; when the last is gone, it leaves.
#[derive(Clone, Debug)]
pub struct Agent(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    world: World,
    client: Client,
    news: broadcast::Sender<News>,
    presence: watch::Receiver<Presence>,
}

/// Are we in the room?
#[derive(Clone, Debug, PartialEq)]
pub enum Presence {
    /// Not yet, or not any more; being worked on.
    Outside,
    /// Yes.
    Inside,
    /// Never again.
    Ended(Fault),
}

/// Something that happened in the room.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// We are in the room, for the first time or again.
    Joined,
    /// The connection is gone.
    Lost(Fault),
    /// Somebody came.
    Entered(Role, String),
    /// Somebody left.
    Left(Role, String),
    /// A computer's tools changed.
    ToolsChanged(String),
    /// Something else of a computer changed: the event, and the computer.
    Changed(String, String),
}

/// A tool call.
#[derive(Clone, Debug)]
pub struct Call {
    /// Where.
    pub computer: String,
    /// The exposed name of the tool.
    pub tool: String,
    /// Its arguments, an object.
    pub params: Value,
    /// How long it may take; whole seconds from 1 to 3600.
    pub timeout: Duration,
    /// The id of the request, unique; its trace is made from it. One is made if there is none.
    pub req_id: Option<String>,
}

/// Somebody in the room.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: Role,
}

/// A tool of a computer, as it says itself.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
pub struct RemoteTool {
    /// The exposed name: what to call.
    pub name: String,
    /// The MCP server it belongs to.
    #[serde(default)]
    pub bundle_id: String,
    /// What it does.
    #[serde(default)]
    pub description: Option<String>,
    /// What it takes.
    pub params_schema: Value,
    /// Anything else.
    #[serde(default)]
    pub meta: Option<Value>,
}

impl Agent {
    /// Connects and joins.
    ///
    /// # Errors
    /// If the hub cannot be reached, refuses us, or refuses us the room.
    pub async fn connect(config: Config, world: World) -> Result<Self, Fault> {
        let dial = dial(&config)?;
        let connected = Client::connect(dial, world.clone()).await;
        let (client, events) = connected.map_err(|error| refused(&error))?;
        join(&client, &config).await?;
        let (news, _) = broadcast::channel(NEWS_MAX);
        let (presence, seen) = watch::channel(Presence::Inside);
        let keeper = Keeper {
            config: config.clone(),
            world: world.clone(),
            client: client.clone(),
            news: news.clone(),
            presence,
        };
        world.spawn.clone().spawn(Box::pin(keeper.run(events)));
        Ok(Self(Arc::new(Inner { config, world, client, news, presence: seen })))
    }

    /// Our name and room.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// What happens in the room from now on.
    #[must_use]
    pub fn news(&self) -> broadcast::Receiver<News> {
        self.0.news.subscribe()
    }

    /// Who is in the room.
    ///
    /// # Errors
    /// If the hub does not say.
    pub async fn members(&self) -> Result<Vec<Member>, Fault> {
        let mut request = self.request(&self.new_id());
        request.insert("office_id".into(), self.0.config.room.clone().into());
        let answer = self.exchange(Tell::List.into(), request, self.0.config.question).await?;
        let answer = answer::checked(answer, Operation::DiscoverTools, &answer::About::default())?;
        let sessions = answer.get("sessions").cloned().unwrap_or_default();
        serde_json::from_value(sessions).map_err(|error| self.garbled("the hub", &error))
    }

    /// The computers in the room.
    ///
    /// # Errors
    /// As [`Agent::members`].
    pub async fn computers(&self) -> Result<Vec<String>, Fault> {
        let members = self.members().await?;
        let computers = members.into_iter().filter(|member| member.role == Role::Computer);
        Ok(computers.map(|member| member.name).collect())
    }

    /// The tools of a computer. One that cannot be read costs the others nothing.
    ///
    /// # Errors
    /// If the computer does not say.
    pub async fn tools(&self, computer: &str) -> Result<Vec<RemoteTool>, Fault> {
        let answer = self.ask(Ask::GetTools, computer, Map::new()).await?;
        let Some(Value::Array(tools)) = answer.get("tools").cloned() else {
            return Err(Fault::new(Kind::PeerFailed, Operation::DiscoverTools)
                .with(Fact::Computer, computer.to_owned()));
        };
        let readable = tools.into_iter().filter_map(|tool| {
            serde_json::from_value(tool)
                .inspect_err(|error| tracing::warn!(computer, %error, "a tool cannot be read"))
                .ok()
        });
        Ok(readable.collect())
    }

    /// Asks a computer something other than a tool call.
    ///
    /// # Errors
    /// If it does not answer, or answers with an error.
    pub async fn ask(
        &self,
        ask: Ask,
        computer: &str,
        more: Map<String, Value>,
    ) -> Result<Value, Fault> {
        let req_id = self.new_id();
        let mut request = self.request(&req_id);
        request.insert("computer".into(), computer.into());
        request.extend(more);
        let question = self.0.config.question + SLACK;
        let answer = self.exchange(ask.into(), request, question).await;
        let about = answer::About { computer, tool: "", agent: &self.0.config.name };
        let traced = |fault: Fault| fault.traced(trace_of(&req_id));
        answer
            .and_then(|answer| answer::checked(answer, Operation::DiscoverTools, &about))
            .map_err(traced)
    }

    /// Calls a tool: its answer as the computer gave it, errors included as faults.
    ///
    /// When its time is over, or `cancel` completes, the call is cancelled, and its own word about that is waited
    /// for a moment.
    ///
    /// # Errors
    /// If it failed, with the code the other side gave.
    pub async fn call(&self, call: Call, cancel: &CancellationToken) -> Result<Value, Fault> {
        let req_id = call.req_id.clone().unwrap_or_else(|| self.new_id());
        let mut request = self.request(&req_id);
        request.insert("computer".into(), call.computer.clone().into());
        request.insert("tool_name".into(), call.tool.clone().into());
        request.insert("params".into(), call.params.clone());
        request.insert("timeout".into(), call.timeout.as_secs().into());
        let mut asked =
            Box::pin(self.exchange(Ask::ToolCall.into(), request, call.timeout + SLACK));
        let clock = &self.0.world.clock;
        let ended = tokio::select! {
            biased;
            answer = &mut asked => Some(answer),
            () = cancel.cancelled() => None,
            () = clock.sleep(call.timeout) => None,
        };
        let answer = match ended {
            Some(answer) => answer,
            None => {
                let gone = json!({ "agent": self.0.config.name, "req_id": req_id });
                let _ = self.0.client.emit(Tell::Cancel.into(), Payload::of(gone)).await;
                tokio::select! {
                    biased;
                    answer = &mut asked => answer,
                    () = clock.sleep(self.0.config.grace) => Err(over(&call, cancel)),
                }
            }
        };
        let about = answer::About {
            computer: &call.computer,
            tool: &call.tool,
            agent: &self.0.config.name,
        };
        let answer = answer.and_then(|answer| answer::checked(answer, Operation::ToolCall, &about));
        let answer = answer.map_err(|fault| {
            // It was cancelled because its time was over, and that is what counts.
            let is_ours = fault.kind() == Kind::Cancelled && !cancel.is_cancelled();
            if is_ours { over(&call, cancel).via("computer", call.computer.clone()) } else { fault }
        });
        answer.map_err(|fault| fault.traced(trace_of(&req_id)))
    }

    fn new_id(&self) -> String {
        self.0.world.trace().to_string()
    }

    fn request(&self, req_id: &str) -> Map<String, Value> {
        let mut request = Map::new();
        request.insert("agent".into(), self.0.config.name.clone().into());
        request.insert("req_id".into(), req_id.into());
        request
    }

    /// One question and its answer. Waits until we are in the room; all of it within `limit`.
    async fn exchange(
        &self,
        event: &'static str,
        request: Map<String, Value>,
        limit: Duration,
    ) -> Result<Value, Fault> {
        let exchange = async {
            let mut presence = self.0.presence.clone();
            let arrived = presence.wait_for(|presence| *presence != Presence::Outside).await;
            match arrived.map(|presence| presence.clone()) {
                Ok(Presence::Ended(fault)) => return Err(fault),
                Err(_) => return Err(Fault::new(Kind::ConnectionLost, Operation::RelayCall)),
                Ok(_) => {}
            }
            let payload = Payload::of(Value::Object(request));
            let answer = self.0.client.call(event, payload, limit).await;
            answer.map(Payload::into_first).map_err(|error| error.to_fault())
        };
        tokio::select! {
            biased;
            answer = exchange => answer,
            () = self.0.world.clock.sleep(limit) => {
                Err(Fault::new(Kind::RequestTimedOut, Operation::RelayCall)
                    .with(Fact::TimeoutMs, limit)
                    .with(Fact::Service, "smcp"))
            }
        }
    }

    fn garbled(&self, who: &str, error: &serde_json::Error) -> Fault {
        Fault::new(Kind::PeerFailed, Operation::DiscoverTools)
            .with(Fact::Computer, who.to_owned())
            .caused_by(error)
    }
}

/// A call that did not even say that it was cancelled.
fn over(call: &Call, cancel: &CancellationToken) -> Fault {
    if cancel.is_cancelled() {
        return Fault::new(Kind::Cancelled, Operation::ToolCall)
            .with(Fact::ToolName, call.tool.clone());
    }
    Fault::new(Kind::DeadlinePassed, Operation::ToolCall)
        .with(Fact::TimeoutMs, call.timeout)
        .with(Fact::ToolName, call.tool.clone())
}

fn dial(config: &Config) -> Result<Dial, Fault> {
    let mut dial = Dial::new(&config.url).map_err(|error| error.to_fault())?;
    if config.dialect == Dialect::V04 {
        dial = dial.query(version::QUERY, &PROTOCOL.to_string());
    }
    let auth = match &config.token {
        Some(token) => Auth::Fixed(json!({ "token": token.expose_secret() })),
        None => Auth::None,
    };
    // A hub that restarts ends namespaces politely; that is no reason to stay away.
    Ok(dial.namespace(NAMESPACE).with_auth(auth).reconnect(config.reconnect).reconnect_after_kick())
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

async fn join(client: &Client, config: &Config) -> Result<(), Fault> {
    let wish = json!({ "role": Role::Agent, "name": config.name, "office_id": config.room });
    let answer = client.call(Tell::Join.into(), Payload::of(wish), config.question).await;
    let answer = answer.map_err(|error| error.to_fault())?;
    if answer.first() == &Value::Bool(true) {
        return Ok(());
    }
    let about = answer::About { computer: "", tool: "", agent: &config.name };
    let error = answer.args().get(2).cloned().unwrap_or_default();
    Err(answer::fault_of(&error, Operation::JoinRoom, &about).unwrap_or_else(|| {
        let words = answer.args().get(1).and_then(Value::as_str).unwrap_or("no reason given");
        Fault::new(Kind::NotAllowed, Operation::JoinRoom).because(words)
    }))
}

/// Keeps us in the room and hands out what is heard there.
struct Keeper {
    config: Config,
    world: World,
    client: Client,
    news: broadcast::Sender<News>,
    presence: watch::Sender<Presence>,
}

impl Keeper {
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
                        return self.end(fault);
                    }
                }
                Some(Event::Disconnected { error, retry_in }) => {
                    let fault = refused(&error);
                    if retry_in.is_none() {
                        return self.end(fault);
                    }
                    self.presence.send_replace(Presence::Outside);
                    self.tell(News::Lost(fault));
                }
                Some(Event::Message { name, payload, .. }) => self.hear(&name, payload.first()),
                None => return self.end(Fault::new(Kind::ConnectionLost, Operation::Connect)),
            }
        }
    }

    fn end(&self, fault: Fault) {
        self.presence.send_replace(Presence::Ended(fault.clone()));
        self.tell(News::Lost(fault));
        self.client.close();
    }

    /// Joins again. A room that is full may be full of our own past.
    async fn rejoin(&self) -> Result<(), Fault> {
        let mut attempt = 0;
        loop {
            match join(&self.client, &self.config).await {
                Ok(()) => {
                    self.presence.send_replace(Presence::Inside);
                    self.tell(News::Joined);
                    return Ok(());
                }
                Err(fault) if matches!(fault.kind(), Kind::RoomFull | Kind::RequestTimedOut) => {
                    attempt += 1;
                    if attempt >= self.config.reconnect.tries {
                        return Err(fault);
                    }
                    let wait = self.config.reconnect.delay(attempt, self.world.jitter());
                    self.world.clock.sleep(wait).await;
                }
                // Lost again: the next connection joins.
                Err(fault) if fault.kind() == Kind::ConnectionLost => return Ok(()),
                Err(fault) => return Err(fault),
            }
        }
    }

    fn hear(&self, name: &str, payload: &Value) {
        let text = |field: &str| payload.get(field).and_then(Value::as_str).map(str::to_owned);
        let who = || {
            let agent = || text("agent").map(|name| (Role::Agent, name));
            text("computer").map(|name| (Role::Computer, name)).or_else(agent)
        };
        let news = match name {
            "notify:enter_office" => who().map(|(role, name)| News::Entered(role, name)),
            "notify:leave_office" => who().map(|(role, name)| News::Left(role, name)),
            "notify:update_tool_list" | "notify:update_config" => {
                text("computer").map(News::ToolsChanged)
            }
            other => text("computer").map(|computer| News::Changed(other.to_owned(), computer)),
        };
        if let Some(news) = news {
            self.tell(news);
        }
    }

    fn tell(&self, news: News) {
        // Nobody listening is fine.
        let _ = self.news.send(news);
    }
}
