//! The side that asks: one connection, one room, and every call with an end.

mod blob;
mod source;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation, Progress},
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

/// How long the hub waits beyond a call's timeout, and a little more for the way.
const SLACK: Duration = Duration::from_secs(10);

/// News that nobody took in time are dropped beyond this many.
const NEWS_MAX: usize = 256;

/// Where to go, as whom, and how patient to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// The hub, the room, our name and token.
    pub place: MemberConfig,
    /// How long to wait for a cancelled call to say so itself.
    pub grace: Duration,
}

impl Config {
    /// With the usual patience.
    #[must_use]
    pub fn new(place: MemberConfig) -> Self {
        Self { place, grace: Duration::from_secs(2) }
    }
}

/// An agent in its room. Clones are the same one; when the last is gone, it leaves.
#[derive(Clone, Debug)]
pub struct Agent(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: Config,
    world: World,
    membership: Membership,
    news: broadcast::Sender<RoomEvent>,
}

/// Something that happened in the room.
#[derive(Clone, Debug, PartialEq)]
pub enum RoomEvent {
    /// We are in the room, for the first time or again.
    Joined,
    /// The connection is gone.
    Disconnected(Fault),
    /// Somebody came.
    MemberJoined(Role, String),
    /// Somebody left.
    MemberLeft(Role, String),
    /// A computer's tools changed.
    ToolsChanged(String),
    /// Something else of a computer changed: the event, and the computer.
    ContentChanged(String, String),
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
        let entered = membership::enter(config.place.clone(), Role::Agent, world.clone()).await;
        let (membership, heard) = entered?;
        let (news, _) = broadcast::channel(NEWS_MAX);
        world.spawn.spawn(Box::pin(spread(heard, news.clone())));
        Ok(Self(Arc::new(Inner { config, world, membership, news })))
    }

    /// Our name and room.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// What happens in the room from now on.
    #[must_use]
    pub fn news(&self) -> broadcast::Receiver<RoomEvent> {
        self.0.news.subscribe()
    }

    /// Who is in the room.
    ///
    /// # Errors
    /// If the hub does not say.
    pub async fn members(&self) -> Result<Vec<Member>, Fault> {
        let mut request = self.request(&self.new_id());
        request.insert("office_id".into(), self.0.config.place.room.clone().into());
        let answer = self
            .exchange(
                NotificationEvent::List.into(),
                request,
                self.0.config.place.question,
                &not_sent(),
            )
            .await?;
        let answer =
            answer_reader::checked(answer, Operation::DiscoverTools, &AnswerContext::default())?;
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
        let answer = self.ask(RequestEvent::GetTools, computer, Map::new()).await?;
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
        ask: RequestEvent,
        computer: &str,
        more: Map<String, Value>,
    ) -> Result<Value, Fault> {
        let req_id = self.new_id();
        let mut request = self.request(&req_id);
        request.insert("computer".into(), computer.into());
        request.extend(more);
        let question = self.0.config.place.question + SLACK;
        let answer = self.exchange(ask.into(), request, question, &not_sent()).await;
        let answer = answer.map_err(Fault::from);
        let about = AnswerContext { computer, tool: "", agent: &self.0.config.place.name };
        let traced = |fault: Fault| fault.with_trace(trace_of(&req_id));
        answer
            .and_then(|answer| answer_reader::checked(answer, Operation::DiscoverTools, &about))
            .map_err(traced)
    }

    /// Calls a tool: its answer as the computer gave it, errors included as faults. What did not fit into the answer is
    /// fetched and put back.
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
        let is_sent = AtomicBool::new(false);
        let asked =
            self.exchange(RequestEvent::ToolCall.into(), request, call.timeout + SLACK, &is_sent);
        let mut asked = Box::pin(asked);
        let clock = &self.0.world.clock;
        let ended = tokio::select! {
            biased;
            answer = &mut asked => Some(answer),
            () = cancel.cancelled() => None,
            () = clock.sleep(call.timeout) => None,
        };
        let answer = match ended {
            Some(answer) => answer.map_err(|unanswered| unanswered.of(&call)),
            None => tokio::select! {
                biased;
                answer = &mut asked => answer.map_err(|unanswered| unanswered.of(&call)),
                () = self.cancel_and_wait(&req_id) => {
                    let fault = over(&call, cancel);
                    let may_have_begun = is_sent.load(Ordering::Relaxed);
                    Err(if may_have_begun { fault.unconfirmed() } else { fault.not_started() })
                }
            },
        };
        let about = AnswerContext {
            computer: &call.computer,
            tool: &call.tool,
            agent: &self.0.config.place.name,
        };
        let answer =
            answer.and_then(|answer| answer_reader::checked(answer, Operation::ToolCall, &about));
        let answer = answer.map_err(|fault| {
            match fault.kind() {
                // It was cancelled because its time was over, and that is what counts.
                Kind::Cancelled if !cancel.is_cancelled() => {
                    let late = over(&call, cancel).via("computer", call.computer.clone());
                    match fault.progress() {
                        Progress::Unconfirmed => late.unconfirmed(),
                        Progress::NotBegun => late.not_started(),
                        Progress::Ended => late,
                    }
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

    /// Tells the hub that a call is not wanted any more, and completes when its own word about that is overdue.
    async fn cancel_and_wait(&self, req_id: &str) {
        let gone = json!({ "agent": self.0.config.place.name, "req_id": req_id });
        let told = async {
            let _ = self
                .0
                .membership
                .client()
                .emit(NotificationEvent::Cancel.into(), Payload::of(gone))
                .await;
            std::future::pending::<()>().await;
        };
        // A hub that takes nothing does not hold the caller longer than one that says nothing.
        tokio::select! {
            biased;
            () = told => {}
            () = self.0.world.clock.sleep(self.0.config.grace) => {}
        }
    }

    fn new_id(&self) -> String {
        self.0.world.trace().to_string()
    }

    fn request(&self, req_id: &str) -> Map<String, Value> {
        let mut request = Map::new();
        request.insert("agent".into(), self.0.config.place.name.clone().into());
        request.insert("req_id".into(), req_id.into());
        request
    }

    /// One question and its answer. Waits until we are in the room; all of it within `limit`. From the moment `is_sent` is
    /// true the other side may have the question.
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

    fn garbled(&self, who: &str, error: &serde_json::Error) -> Fault {
        Fault::new(Kind::PeerFailed, Operation::DiscoverTools)
            .with(Fact::Computer, who.to_owned())
            .caused_by(error)
    }
}

/// Why there is no answer, and whether the question may have been heard all the same.
struct CallFailure {
    fault: Fault,
    may_be_heard: bool,
}

impl From<&Error> for CallFailure {
    fn from(error: &Error) -> Self {
        // What is refused before it is sent says so by another name.
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
    /// What a caller of a tool is told: a lost line is mended and asked again, a tool that may have run is not.
    fn of(self, call: &Call) -> Fault {
        match self.fault.kind() {
            _ if !self.may_be_heard => self.fault,
            // The protocol has a code for it, which stays.
            Kind::RequestTimedOut => {
                let fault = self.fault.with(Fact::ToolName, call.tool.clone());
                fault.unconfirmed().via("computer", call.computer.clone())
            }
            _ => unknown(call, &self.fault),
        }
    }
}

/// For questions that may be asked again in any case.
fn not_sent() -> AtomicBool {
    AtomicBool::new(false)
}

/// A call that a computer may have begun, and nobody can say how it ended.
fn unknown(call: &Call, why: &Fault) -> Fault {
    let fault = Fault::new(Kind::OutcomeUnknown, Operation::ToolCall)
        .with(Fact::ToolName, call.tool.clone())
        .with_cause(why.to_string());
    fault.via("computer", call.computer.clone())
}

/// Why a call was told to stop. Whether it did is for the caller to add.
fn over(call: &Call, cancel: &CancellationToken) -> Fault {
    if cancel.is_cancelled() {
        return Fault::new(Kind::Cancelled, Operation::ToolCall)
            .with(Fact::ToolName, call.tool.clone());
    }
    Fault::new(Kind::DeadlinePassed, Operation::ToolCall)
        .with(Fact::TimeoutMs, call.timeout)
        .with(Fact::ToolName, call.tool.clone())
}

/// Hands what is heard to everybody who listens, until there is nothing more to hear.
async fn spread(mut heard: mpsc::Receiver<RoomMessage>, news: broadcast::Sender<RoomEvent>) {
    while let Some(heard) = heard.recv().await {
        let told = match heard {
            RoomMessage::Rejoined => Some(RoomEvent::Joined),
            RoomMessage::Disconnected(fault) => Some(RoomEvent::Disconnected(fault)),
            RoomMessage::Event(name, payload, _) => parse_event(&name, payload.first()),
        };
        if let Some(told) = told {
            // Nobody listening is fine.
            let _ = news.send(told);
        }
    }
}

/// What a notification says.
fn parse_event(name: &str, payload: &Value) -> Option<RoomEvent> {
    let text = |field: &str| payload.get(field).and_then(Value::as_str).map(str::to_owned);
    let who = || {
        let agent = || text("agent").map(|name| (Role::Agent, name));
        text("computer").map(|name| (Role::Computer, name)).or_else(agent)
    };
    match name {
        "notify:enter_office" => who().map(|(role, name)| RoomEvent::MemberJoined(role, name)),
        "notify:leave_office" => who().map(|(role, name)| RoomEvent::MemberLeft(role, name)),
        "notify:update_tool_list" | "notify:update_config" => {
            text("computer").map(RoomEvent::ToolsChanged)
        }
        other => {
            text("computer").map(|computer| RoomEvent::ContentChanged(other.to_owned(), computer))
        }
    }
}
