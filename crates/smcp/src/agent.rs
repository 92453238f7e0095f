//! The agent: the member of a room that calls tools. It has one connection and one room, and every call ends.

mod blob;
mod source;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    world::World,
};
use budao_socketio::{Error, Payload};
use serde_json::{Map, Value, json};
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

pub use source::{RemoteTools, tool_name};

use crate::{
    answer_reader::{self, AnswerContext},
    membership::{self, MemberConfig, Membership, RoomMessage},
    wire::{
        Role,
        event::{NotificationEvent, RequestEvent},
        trace_of,
    },
};

/// Added to a call's timeout: the hub's own grace of 5 s, and time for the network.
const SLACK: Duration = Duration::from_secs(10);

/// Capacity of the event channel; a receiver that falls further behind loses the oldest events.
const EVENTS_MAX: usize = 256;

/// The configuration of an agent.
#[derive(Clone, Debug)]
pub struct Config {
    /// Hub address, room, name and token.
    pub member: MemberConfig,
    /// Time that a cancelled call has to report its own end. Default 2 s.
    pub grace: Duration,
}

impl Config {
    /// A configuration with a grace of 2 s.
    #[must_use]
    pub fn new(member: MemberConfig) -> Self {
        Self { member, grace: Duration::from_secs(2) }
    }
}

/// An agent in its room. Clones share one connection; the agent leaves when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Agent(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    world: World,
    membership: Membership,
    events: broadcast::Sender<RoomEvent>,
}

/// A change in the room or of the connection to the hub.
#[derive(Clone, Debug, PartialEq)]
pub enum RoomEvent {
    /// The agent is in the room, for the first time or after a reconnection.
    Joined,
    /// The connection to the hub was lost.
    Disconnected(Fault),
    /// A member with this role and name joined the room.
    MemberJoined(Role, String),
    /// A member with this role and name left the room.
    MemberLeft(Role, String),
    /// The tools of the computer with this name changed.
    ToolsChanged(String),
    /// Other content of a computer changed: the event's name, then the computer's name.
    ContentChanged(String, String),
}

/// A tool call to one computer.
#[derive(Clone, Debug)]
pub struct Call {
    /// The computer's name in the room.
    pub computer: String,
    /// The exposed name of the tool, as in [`RemoteTool::name`].
    pub tool: String,
    /// The tool's arguments, a JSON object.
    pub params: Value,
    /// The call's deadline: whole seconds, from 1 to 3600.
    pub timeout: Duration,
    /// The request id, unique among this agent's calls; the trace is derived from it. `None` generates one.
    pub req_id: Option<String>,
}

/// A member of the room, as the hub lists it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub struct Member {
    /// The member's name, unique for its role in the room.
    pub name: String,
    /// Agent or computer.
    pub role: Role,
}

/// A tool of a computer, as the computer describes it.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
pub struct RemoteTool {
    /// The exposed name, to be used in [`Call::tool`].
    pub name: String,
    /// The id of the MCP server that has the tool; empty if the computer does not say.
    #[serde(default)]
    pub bundle_id: String,
    /// The tool's description for the model.
    #[serde(default)]
    pub description: Option<String>,
    /// The JSON schema of the arguments.
    pub params_schema: Value,
    /// Further data of the computer, passed on unchanged.
    #[serde(default)]
    pub meta: Option<Value>,
}

/// The tools of a computer, and the state of its MCP servers.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolListing {
    /// The tools that can be called now.
    pub tools: Vec<RemoteTool>,
    /// `starting`, `ready`, `down` or `stopped` by the server's id; `None` if the computer or its hub does not tell.
    pub servers: Option<BTreeMap<String, String>>,
}

impl Agent {
    /// Connects to the hub and joins the room.
    ///
    /// # Errors
    /// If the hub cannot be reached, or refuses the connection or the room.
    pub async fn connect(config: Config, world: World) -> Result<Self, Fault> {
        let entered = membership::enter(config.member.clone(), Role::Agent, world.clone()).await;
        let (membership, messages) = entered?;
        let (events, _) = broadcast::channel(EVENTS_MAX);
        world.spawn.spawn(Box::pin(publish_events(messages, events.clone())));
        Ok(Self(Arc::new(Inner { config, world, membership, events })))
    }

    /// The configuration this agent was started with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// Subscribes to the events of the room from now on.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<RoomEvent> {
        self.0.events.subscribe()
    }

    /// Asks the hub for the members of the room.
    ///
    /// # Errors
    /// If the hub does not answer, or its answer cannot be read.
    pub async fn members(&self) -> Result<Vec<Member>, Fault> {
        let mut request = self.request(&self.new_id());
        request.insert("office_id".into(), self.0.config.member.room.clone().into());
        let answer = self
            .exchange(
                NotificationEvent::List.into(),
                request,
                self.0.config.member.question,
                &not_sent(),
            )
            .await?;
        let answer =
            answer_reader::checked(answer, Operation::DiscoverTools, &AnswerContext::default())?;
        let sessions = answer.get("sessions").cloned().unwrap_or_default();
        serde_json::from_value(sessions).map_err(|error| self.garbled("the hub", &error))
    }

    /// The names of the computers in the room.
    ///
    /// # Errors
    /// The same faults as [`Agent::members`].
    pub async fn computers(&self) -> Result<Vec<String>, Fault> {
        let members = self.members().await?;
        let computers = members.into_iter().filter(|member| member.role == Role::Computer);
        Ok(computers.map(|member| member.name).collect())
    }

    /// Asks a computer for its tools. A tool description that cannot be read is skipped.
    ///
    /// # Errors
    /// If the computer does not answer, or answers with an error.
    pub async fn tools(&self, computer: &str) -> Result<Vec<RemoteTool>, Fault> {
        self.tool_listing(computer).await.map(|listing| listing.tools)
    }

    /// Like [`Agent::tools`], with the state of the computer's MCP servers.
    ///
    /// # Errors
    /// The same faults as [`Agent::tools`].
    pub async fn tool_listing(&self, computer: &str) -> Result<ToolListing, Fault> {
        let answer = self.ask(RequestEvent::GetTools, computer, Map::new()).await?;
        let Some(Value::Array(tools)) = answer.get("tools").cloned() else {
            return Err(Fault::new(Kind::PeerFailed, Operation::DiscoverTools)
                .with(Fact::Computer, computer.to_owned()));
        };
        let readable = tools.into_iter().filter_map(|tool| {
            serde_json::from_value(tool)
                .inspect_err(|error| tracing::warn!(computer, %error, "skipping unreadable tool"))
                .ok()
        });
        let servers = answer.get("servers").cloned().unwrap_or_default();
        Ok(ToolListing {
            tools: readable.collect(),
            servers: serde_json::from_value(servers).unwrap_or_default(),
        })
    }

    /// Sends a computer a request other than a tool call.
    ///
    /// # Errors
    /// If the computer does not answer, or answers with an error.
    pub async fn ask(
        &self,
        ask: RequestEvent,
        computer: &str,
        more: Map<String, Value>,
    ) -> Result<Value, Fault> {
        let req_id = self.new_id();
        let mut request = self.request(&req_id);
        request.insert("computer".into(), computer.into());
        request.extend(more);
        let question = self.0.config.member.question + SLACK;
        let answer = self.exchange(ask.into(), request, question, &not_sent()).await;
        let answer = answer.map_err(Fault::from);
        let context = AnswerContext { computer, tool: "", agent: &self.0.config.member.name };
        let traced = |fault: Fault| fault.with_trace(trace_of(&req_id));
        answer
            .and_then(|answer| answer_reader::checked(answer, Operation::DiscoverTools, &context))
            .map_err(traced)
    }

    /// Calls a tool and returns the computer's result. Parts that did not fit into the answer are fetched.
    ///
    /// When the timeout passes or `cancel` completes, the agent cancels the call and waits [`Config::grace`].
    ///
    /// # Errors
    /// If the call failed, with the code that the hub or the computer gave.
    pub async fn call(&self, call: Call, cancel: &CancellationToken) -> Result<Value, Fault> {
        let req_id = call.req_id.clone().unwrap_or_else(|| self.new_id());
        let mut request = self.request(&req_id);
        request.insert("computer".into(), call.computer.clone().into());
        request.insert("tool_name".into(), call.tool.clone().into());
        request.insert("params".into(), call.params.clone());
        request.insert("timeout".into(), call.timeout.as_secs().into());
        let is_sent = AtomicBool::new(false);
        let pending_answer =
            self.exchange(RequestEvent::ToolCall.into(), request, call.timeout + SLACK, &is_sent);
        let mut pending_answer = Box::pin(pending_answer);
        let clock = &self.0.world.clock;
        let ended = tokio::select! {
            biased;
            answer = &mut pending_answer => Some(answer),
            () = cancel.cancelled() => None,
            () = clock.sleep(call.timeout) => None,
        };
        let answer = match ended {
            Some(answer) => answer.map_err(|unanswered| unanswered.of(&call)),
            None => tokio::select! {
                biased;
                answer = &mut pending_answer => answer.map_err(|unanswered| unanswered.of(&call)),
                () = self.cancel_and_wait(&req_id) => {
                    let fault = over(&call, cancel);
                    let may_have_begun = is_sent.load(Ordering::Relaxed);
                    Err(if may_have_begun { fault.unconfirmed() } else { fault.not_started() })
                }
            },
        };
        let context = AnswerContext {
            computer: &call.computer,
            tool: &call.tool,
            agent: &self.0.config.member.name,
        };
        let answer =
            answer.and_then(|answer| answer_reader::checked(answer, Operation::ToolCall, &context));
        let answer = answer.map_err(|fault| {
            match fault.kind() {
                // The agent cancelled the call because its deadline passed, so the fault is the deadline's.
                Kind::Cancelled if !cancel.is_cancelled() => {
                    let late = over(&call, cancel).via("computer", call.computer.clone());
                    late.with_progress(fault.progress())
                }
                _ => fault,
            }
        });
        let mut answer = answer.map_err(|fault| fault.with_trace(trace_of(&req_id)))?;
        tokio::select! {
            biased;
            () = self.restore(&call.computer, &mut answer) => {}
            () = cancel.cancelled() => {}
            () = clock.sleep(blob::FETCH_LIMIT) => {}
        }
        Ok(answer)
    }

    /// Asks the hub to cancel a call and completes after the grace period.
    async fn cancel_and_wait(&self, req_id: &str) {
        let gone = json!({ "agent": self.0.config.member.name, "req_id": req_id });
        let room_event = async {
            let _ = self
                .0
                .membership
                .client()
                .emit(NotificationEvent::Cancel.into(), Payload::of(gone))
                .await;
            std::future::pending::<()>().await;
        };
        // The grace period also bounds the wait for a hub that accepts no data.
        tokio::select! {
            biased;
            () = room_event => {}
            () = self.0.world.clock.sleep(self.0.config.grace) => {}
        }
    }

    fn new_id(&self) -> String {
        self.0.world.trace().to_string()
    }

    fn request(&self, req_id: &str) -> Map<String, Value> {
        let mut request = Map::new();
        request.insert("agent".into(), self.0.config.member.name.clone().into());
        request.insert("req_id".into(), req_id.into());
        request
    }

    /// Sends one request and waits for its answer, after the agent is in the room; `limit` covers all of it. Once
    /// `is_sent` is true, the other side may have received the request.
    async fn exchange(
        &self,
        event: &'static str,
        request: Map<String, Value>,
        limit: Duration,
        is_sent: &AtomicBool,
    ) -> Result<Value, CallFailure> {
        let exchange = async {
            let inside = self.0.membership.inside().await;
            inside.map_err(|fault| CallFailure { fault, may_be_heard: false })?;
            is_sent.store(true, Ordering::Relaxed);
            let payload = Payload::of(Value::Object(request));
            let answer = self.0.membership.client().call(event, payload, limit).await;
            answer.map(Payload::into_first).map_err(|error| CallFailure::from(&error))
        };
        tokio::select! {
            biased;
            answer = exchange => answer,
            () = self.0.world.clock.sleep(limit) => {
                let fault = Fault::new(Kind::RequestTimedOut, Operation::RelayCall)
                    .with(Fact::TimeoutMs, limit)
                    .with(Fact::Service, "smcp");
                Err(CallFailure { fault, may_be_heard: is_sent.load(Ordering::Relaxed) })
            }
        }
    }

    fn garbled(&self, computer: &str, error: &serde_json::Error) -> Fault {
        Fault::new(Kind::PeerFailed, Operation::DiscoverTools)
            .with(Fact::Computer, computer.to_owned())
            .caused_by(error)
    }
}

/// The fault of a request without an answer, and whether the other side may have received the request.
struct CallFailure {
    fault: Fault,
    may_be_heard: bool,
}

impl From<&Error> for CallFailure {
    fn from(error: &Error) -> Self {
        // The other errors are raised before the request is sent.
        let may_be_heard = matches!(
            error,
            Error::Lost(_) | Error::Kicked { .. } | Error::Closed | Error::TimedOut(_)
        );
        Self { fault: error.to_fault(), may_be_heard }
    }
}

impl From<CallFailure> for Fault {
    fn from(unanswered: CallFailure) -> Self {
        unanswered.fault
    }
}

impl CallFailure {
    /// The fault for a tool call. An unsent request keeps its own fault; a tool that may have run is not retried.
    fn of(self, call: &Call) -> Fault {
        match self.fault.kind() {
            _ if !self.may_be_heard => self.fault,
            // A timeout keeps its kind, because the protocol has a code for it.
            Kind::RequestTimedOut => {
                let fault = self.fault.with(Fact::ToolName, call.tool.clone());
                fault.unconfirmed().via("computer", call.computer.clone())
            }
            _ => unknown(call, &self.fault),
        }
    }
}

/// A flag for requests that are safe to repeat; its value is not read.
fn not_sent() -> AtomicBool {
    AtomicBool::new(false)
}

/// The fault for a call that a computer may have begun and whose outcome is unknown.
fn unknown(call: &Call, cause: &Fault) -> Fault {
    let fault = Fault::new(Kind::OutcomeUnknown, Operation::ToolCall)
        .with(Fact::ToolName, call.tool.clone())
        .with_cause(cause.to_string());
    fault.via("computer", call.computer.clone())
}

/// The fault for a cancelled or late call. The caller adds whether the tool may have run.
fn over(call: &Call, cancel: &CancellationToken) -> Fault {
    if cancel.is_cancelled() {
        return Fault::new(Kind::Cancelled, Operation::ToolCall)
            .with(Fact::ToolName, call.tool.clone());
    }
    Fault::new(Kind::DeadlinePassed, Operation::ToolCall)
        .with(Fact::TimeoutMs, call.timeout)
        .with(Fact::ToolName, call.tool.clone())
}

/// Forwards room messages to all subscribers until the connection has ended.
async fn publish_events(
    mut messages: mpsc::Receiver<RoomMessage>,
    events: broadcast::Sender<RoomEvent>,
) {
    while let Some(messages) = messages.recv().await {
        let room_event = match messages {
            RoomMessage::Rejoined => Some(RoomEvent::Joined),
            RoomMessage::Disconnected(fault) => Some(RoomEvent::Disconnected(fault)),
            RoomMessage::Event(name, payload, _) => parse_event(&name, payload.first()),
        };
        if let Some(room_event) = room_event {
            // Sending fails only without subscribers.
            let _ = events.send(room_event);
        }
    }
}

/// Parses a notification; `None` if it is unknown or malformed.
fn parse_event(name: &str, payload: &Value) -> Option<RoomEvent> {
    let text = |field: &str| payload.get(field).and_then(Value::as_str).map(str::to_owned);
    let member = || {
        let agent = || text("agent").map(|name| (Role::Agent, name));
        text("computer").map(|name| (Role::Computer, name)).or_else(agent)
    };
    match name {
        "notify:enter_office" => member().map(|(role, name)| RoomEvent::MemberJoined(role, name)),
        "notify:leave_office" => member().map(|(role, name)| RoomEvent::MemberLeft(role, name)),
        "notify:update_tool_list" | "notify:update_config" => {
            text("computer").map(RoomEvent::ToolsChanged)
        }
        other => {
            text("computer").map(|computer| RoomEvent::ContentChanged(other.to_owned(), computer))
        }
    }
}
