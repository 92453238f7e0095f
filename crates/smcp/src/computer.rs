//! The side that has the tools: MCP servers behind one connection to a hub.
//!
//! It offers tools. It has no windows, resources, skills or stored data to offer, and says so in the protocol's
//! words: empty lists, and for what is asked by name the code for what is not there.

mod call;
mod inputs;
mod offer;
mod settings;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    scrub::Scrubber,
    seams::World,
};
use budao_mcp::State;
use budao_socketio::Payload;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

pub use inputs::Values;
pub use settings::{Choice, Described, Input, McpServer, Settings, Sort, ToolMeta, variable};

use crate::{
    office::{self, Heard, Office, Place},
    wire::{
        Role, error,
        event::{self, Ask, Tell},
        request::Fields,
        trace_of,
    },
};
use offer::Offer;

/// Where to go, as whom, and how careful to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// The hub, the room, our name and token.
    pub place: Place,
    /// Calls that may run at once.
    pub calls_max: usize,
    /// Bytes of a result; more is refused with its size.
    pub result_bytes_max: usize,
    /// Who is asked before a tool runs that is not applied by itself.
    pub confirm: Arc<dyn Confirm>,
}

impl Config {
    /// With the usual bounds, and nobody to ask.
    #[must_use]
    pub fn new(place: Place) -> Self {
        Self { place, calls_max: 64, result_bytes_max: 2 << 20, confirm: Arc::new(Nobody) }
    }
}

/// Decides whether a tool may run.
#[async_trait]
pub trait Confirm: Send + Sync + fmt::Debug {
    /// Yes, no, or nothing when nobody could be asked.
    async fn confirm(&self, question: &Question<'_>) -> Option<bool>;
}

/// A tool that wants to run.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The request.
    pub req_id: &'a str,
    /// The MCP server.
    pub bundle_id: &'a str,
    /// The tool.
    pub tool: &'a str,
    /// Its arguments.
    pub params: &'a Value,
}

/// Nobody can be asked.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

#[async_trait]
impl Confirm for Nobody {
    async fn confirm(&self, _: &Question<'_>) -> Option<bool> {
        None
    }
}

/// A computer in its room.
#[derive(Debug)]
pub struct Computer {
    desk: Arc<Desk>,
    office: Office,
}

/// What a question is answered from.
#[derive(Debug)]
struct Desk {
    config: Config,
    world: World,
    limits: Arc<Limits>,
    scrubber: Scrubber,
    offer: Offer,
    /// Calls that run, by request.
    calls: Mutex<BTreeMap<String, CancellationToken>>,
}

impl Computer {
    /// Starts the servers, connects and joins. Servers that are not ready yet add their tools when they are.
    ///
    /// # Errors
    /// If the hub cannot be reached, or refuses us.
    pub async fn start(
        config: Config,
        settings: Settings,
        values: &dyn Values,
        world: World,
    ) -> Result<Self, Fault> {
        let limits = Arc::new(Limits::default());
        let offer = Offer::start(settings, values, &world, &limits).await;
        let joined = office::enter(config.place.clone(), Role::Computer, world.clone()).await;
        let (office, heard) = match joined {
            Ok(joined) => joined,
            Err(fault) => {
                offer.shutdown().await;
                return Err(fault);
            }
        };
        let secrets = config.place.token.iter().map(|token| token.expose_secret().to_owned());
        let desk = Arc::new(Desk {
            scrubber: Scrubber::with_secrets(secrets.collect::<Vec<_>>()),
            config,
            limits,
            offer,
            calls: Mutex::default(),
            world: world.clone(),
        });
        world.spawn.spawn(Box::pin(answer(desk.clone(), heard)));
        for server in desk.offer.servers() {
            let task = announce(desk.clone(), office.clone(), server.watch());
            world.spawn.spawn(Box::pin(task));
        }
        Ok(Self { desk, office })
    }

    /// What each MCP server is up to.
    #[must_use]
    pub fn states(&self) -> Vec<(String, State)> {
        self.desk.offer.states()
    }

    /// Waits until the connection is gone for good, and says why.
    pub async fn ended(&self) -> Fault {
        self.office.ended().await
    }

    /// Leaves, and ends the servers.
    pub async fn shutdown(&self) {
        self.office.close();
        for cancel in self.desk.calls().values() {
            cancel.cancel();
        }
        self.desk.offer.shutdown().await;
    }
}

/// Tells the room whenever tools come or go.
async fn announce(desk: Arc<Desk>, office: Office, mut changes: watch::Receiver<u64>) {
    while changes.changed().await.is_ok() {
        let news = json!({ "computer": desk.config.place.name });
        let told = office.client().emit(Tell::UpdateTools.into(), Payload::of(news)).await;
        if told.is_err() && office.client().ended().is_some() {
            return;
        }
    }
}

/// Answers questions until there is nobody left who could ask.
async fn answer(desk: Arc<Desk>, mut heard: mpsc::Receiver<Heard>) {
    while let Some(heard) = heard.recv().await {
        let Heard::Said(name, payload, reply) = heard else { continue };
        if name == event::CANCELLED {
            desk.cancel(payload.first());
        }
        let Some(reply) = reply else { continue };
        let desk = desk.clone();
        let spawn = desk.world.spawn.clone();
        spawn.spawn(Box::pin(async move {
            let said = desk.said(&name, payload.into_first()).await;
            if let Err(error) = reply.send(Payload::of(said)).await {
                tracing::warn!(%error, event = name, "an answer could not be sent");
            }
        }));
    }
}

impl Desk {
    fn calls(&self) -> MutexGuard<'_, BTreeMap<String, CancellationToken>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the call of this request; somebody else's is not ours to know.
    fn cancel(&self, payload: &Value) {
        let id = payload.get("req_id").and_then(Value::as_str).unwrap_or_default();
        if let Some(cancel) = self.calls().get(id) {
            cancel.cancel();
        }
    }

    /// The answer to a question, whatever it is.
    async fn said(&self, name: &str, request: Value) -> Value {
        let dialect = self.config.place.dialect;
        let req_id = request.get("req_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let ask = name.parse::<Ask>().ok();
        if ask == Some(Ask::ToolCall) {
            return match self.call(&request, &req_id).await {
                Ok(result) => result,
                Err(fault) => error::result(&self.finish(fault, name, &req_id), dialect),
            };
        }
        match self.question(ask, name, &request, &req_id) {
            Ok(answer) => answer,
            Err(fault) => error::flat(&self.finish(fault, name, &req_id), dialect),
        }
    }

    /// Gives a fault its trace and its hop, takes secrets out, and logs it.
    fn finish(&self, fault: Fault, event: &str, req_id: &str) -> Fault {
        let fault = if req_id.is_empty() { fault } else { fault.traced(trace_of(req_id)) };
        let fault = fault.via("computer", self.config.place.name.clone()).scrubbed(&self.scrubber);
        tracing::warn!(
            req_id, event, error_code = fault.row().smcp, error_message = %fault,
            computer = self.config.place.name, trace_id = %fault.trace(), "a question failed"
        );
        fault
    }

    fn question(
        &self,
        ask: Option<Ask>,
        name: &str,
        request: &Value,
        req_id: &str,
    ) -> Result<Value, Fault> {
        let fields = Fields::new(name, Operation::RelayCall, request)?;
        let new = |kind| Fault::new(kind, Operation::RelayCall);
        match ask {
            Some(Ask::GetTools) => Ok(json!({ "tools": self.offer.listed(), "req_id": req_id })),
            Some(Ask::GetConfig) => Ok(self.offer.settings.shown()),
            Some(Ask::GetDesktop) => Ok(json!({ "desktops": [], "req_id": req_id })),
            Some(Ask::GetSkills) => Ok(json!({ "skills": [], "req_id": req_id })),
            Some(Ask::GetResources) => {
                let server = fields.name("mcp_server")?;
                let kind = if self.offer.has(&server) {
                    Kind::CapabilityUnsupported
                } else {
                    Kind::McpServerNotFound
                };
                Err(new(kind).with(Fact::McpServer, server).with(Fact::Capability, "resources"))
            }
            Some(Ask::GetSkill) => Err(skill(&fields.name("name")?)),
            Some(Ask::GetBlob) => {
                Err(new(Kind::BlobUnavailable).with(Fact::Reason, "invalid_handle"))
            }
            Some(Ask::PutBlob) => Err(new(Kind::BlobWriteFailed).with(Fact::Reason, "forbidden")),
            _ => Err(new(Kind::UnknownEvent).with(Fact::EventName, name.to_owned())),
        }
    }
}

/// There are no skills: a name is either none, or that of something that is not here.
fn skill(name: &str) -> Fault {
    let is_segment = |part: &str| {
        let is_kebab =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=64).contains(&part.len())
            && part.bytes().all(is_kebab)
            && !part.starts_with('-')
            && !part.ends_with('-')
            && !part.contains("--")
    };
    let parts: Vec<&str> = name.split(':').collect();
    let fits = match parts.as_slice() {
        [skill] => is_segment(skill),
        [plugin, skill] => is_segment(plugin) && is_segment(skill),
        ["mcp", _, skill] => is_segment(skill),
        _ => false,
    };
    let kind = if fits { Kind::SkillNotFound } else { Kind::SkillNameInvalid };
    Fault::new(kind, Operation::ReadSkill).with(Fact::Skill, name.to_owned())
}
