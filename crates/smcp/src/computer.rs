//! The side that has the tools: MCP servers behind one connection to a hub.
//!
//! It offers their tools, their resources and windows, skills, and data in pieces both ways. Everything it has comes
//! and goes while it runs, and the room is told.

mod blob;
mod call;
mod confirm;
mod desktop;
mod documents;
mod history;
mod inputs;
mod notifications;
#[doc(hidden)]
pub mod probe;
mod result_limits;
mod settings;
mod skills;
mod state;
mod tool_servers;
mod upload;

use std::{path::PathBuf, sync::Arc, time::Duration};

use budao_core::{fault::Fault, limits::Limits, world::World};
use budao_mcp::{ServerHandle, ServerState};
use budao_socketio::Payload;
use serde_json::{Value, json};
use tokio::sync::mpsc;

pub use blob::BlobBounds;
pub use confirm::{Confirmation, Confirmer, NoConfirmer, Question};
pub use history::CallRecord;
pub use inputs::ValueSource;
pub use settings::{
    Input, InputKind, McpServer, PickOption, ServerFields, Settings, ToolMeta, variable,
};
pub use upload::UploadBounds;

use crate::{
    membership::{self, MemberConfig, Membership, RoomMessage},
    wire::{
        Role,
        event::{self, NotificationEvent, RequestEvent},
    },
};
use call::Caller;
use state::ComputerState;
use tool_servers::ToolServers;

/// Where to go, as whom, and how careful to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// The hub, the room, our name and token.
    pub place: MemberConfig,
    /// Calls that may run at once.
    pub calls_max: usize,
    /// Bytes of an answer. What is more goes aside as data in pieces, or is refused with its size.
    pub result_bytes_max: usize,
    /// Bytes of a picture or a file that may stand in an answer as it is.
    pub inline_bytes_max: usize,
    /// Bytes of one piece of data.
    pub chunk_bytes_max: usize,
    /// How much of results is kept to be fetched.
    pub kept: BlobBounds,
    /// Bytes of a file of a skill.
    pub file_bytes_max: u64,
    /// Calls that are remembered.
    pub history_max: usize,
    /// How long a question to an MCP server may take, other than a call.
    pub question: Duration,
    /// Who is asked before a tool runs that is not applied by itself.
    pub confirm: Arc<dyn Confirmer>,
    /// The folder with skills, one in each of its folders.
    pub skills: Option<PathBuf>,
    /// The folder for data that agents send. Without one nothing is taken.
    pub landing: Option<PathBuf>,
    /// The folder with documents that are shown as pages, in the first draft of the protocol.
    pub documents: Option<PathBuf>,
    /// What its documents are called after, in their addresses.
    pub documents_host: String,
    /// How much they may send.
    pub upload: UploadBounds,
}

impl Config {
    /// With the usual bounds, nobody to ask, no skills, and no folder to write to.
    #[must_use]
    pub fn new(place: MemberConfig) -> Self {
        Self {
            place,
            calls_max: 64,
            result_bytes_max: 768 * 1024,
            inline_bytes_max: 32 * 1024,
            chunk_bytes_max: 256 * 1024,
            kept: BlobBounds::default(),
            file_bytes_max: 100 << 20,
            history_max: 200,
            question: Duration::from_secs(20),
            confirm: Arc::new(NoConfirmer),
            skills: None,
            landing: None,
            documents: None,
            documents_host: "local.documents".into(),
            upload: UploadBounds::default(),
        }
    }
}

/// A computer in its room.
#[derive(Debug)]
pub struct Computer {
    desk: Arc<ComputerState>,
    membership: Membership,
}

impl Computer {
    /// Starts the servers, connects and joins. Servers that are not ready yet add their tools when they are.
    ///
    /// # Errors
    /// If the hub cannot be reached, or refuses us, or there is no folder of documents where one should be.
    pub async fn start(
        config: Config,
        settings: Settings,
        values: &dyn ValueSource,
        world: World,
    ) -> Result<Self, Fault> {
        let limits = Arc::new(Limits::default());
        let shelf = ComputerState::shelf(&config)?;
        let offer = ToolServers::new(settings);
        for id in offer.enabled() {
            if let Err(fault) = offer.start(&id, values, &world, &limits).await {
                tracing::warn!(server = id, %fault, "a server cannot be started");
            }
        }
        let joined = membership::enter(config.place.clone(), Role::Computer, world.clone()).await;
        let (membership, heard) = match joined {
            Ok(joined) => joined,
            Err(fault) => {
                offer.shutdown().await;
                return Err(fault);
            }
        };
        let desk = Arc::new(ComputerState::new(config, offer, shelf, limits, world.clone()));
        world.spawn.spawn(Box::pin(answer(desk.clone(), heard)));
        let computer = Self { desk, membership };
        for (_, server) in computer.desk.offer.servers() {
            computer.follow(server);
        }
        if computer.desk.shelf.is_some() {
            let watching = documents::watch(computer.desk.clone(), computer.membership.clone());
            world.spawn.spawn(Box::pin(watching));
        }
        Ok(computer)
    }

    fn follow(&self, server: Arc<ServerHandle>) {
        let following = notifications::follow(self.desk.clone(), self.membership.clone(), server);
        self.desk.world.spawn.spawn(Box::pin(following));
    }

    /// What each MCP server is up to.
    #[must_use]
    pub fn states(&self) -> Vec<(String, ServerState)> {
        self.desk.offer.states()
    }

    /// The tools that are offered, as an agent sees them.
    #[must_use]
    pub fn tools(&self) -> Vec<Value> {
        self.desk.offer.listed()
    }

    /// The last calls, oldest first, without secrets.
    #[must_use]
    pub fn history(&self) -> Vec<CallRecord> {
        self.desk.history.all()
    }

    /// The room we are in or on the way to.
    #[must_use]
    pub fn room(&self) -> Option<String> {
        self.membership.wanted().get()
    }

    /// Adds a server, in the place of one of the same id, and starts it; its id.
    ///
    /// # Errors
    /// If it cannot work. If only its start failed, it is there all the same.
    pub async fn add(&self, server: &Value, values: &dyn ValueSource) -> Result<String, Fault> {
        let id = self.desk.offer.add(server)?;
        self.desk.offer.stop(&id).await?;
        notifications::tell(&self.desk, &self.membership, NotificationEvent::UpdateConfig).await;
        if self.desk.offer.enabled().contains(&id) {
            self.start_server(&id, values).await?;
        }
        Ok(id)
    }

    /// Ends a server and forgets it.
    ///
    /// # Errors
    /// If there is no such server.
    pub async fn remove(&self, bundle_id: &str) -> Result<(), Fault> {
        self.desk.offer.stop(bundle_id).await?;
        self.desk.offer.remove(bundle_id);
        notifications::tell(&self.desk, &self.membership, NotificationEvent::UpdateConfig).await;
        Ok(())
    }

    /// Starts a server that was stopped, or tries one that is down at once.
    ///
    /// # Errors
    /// If there is no such server, or it cannot be started like this.
    pub async fn start_server(
        &self,
        bundle_id: &str,
        values: &dyn ValueSource,
    ) -> Result<(), Fault> {
        let desk = &self.desk;
        let did_run = desk.offer.server(bundle_id).is_some();
        let server = desk.offer.start(bundle_id, values, &desk.world, &desk.limits).await?;
        desk.learn();
        if !did_run {
            self.follow(server);
        }
        Ok(())
    }

    /// Ends a server. It can be started again.
    ///
    /// # Errors
    /// If there is no such server.
    pub async fn stop_server(&self, bundle_id: &str) -> Result<(), Fault> {
        self.desk.offer.stop(bundle_id).await
    }

    /// Calls a tool for whoever has the computer, who is not asked.
    ///
    /// # Errors
    /// As an agent would be told.
    pub async fn call(&self, tool: &str, params: Value, timeout: Duration) -> Result<Value, Fault> {
        let req_id = self.desk.world.trace().to_string();
        let request = json!({
            "req_id": req_id, "tool_name": tool, "params": params, "timeout": timeout.as_secs(),
        });
        let result = self.desk.call(&request, &req_id, Caller::Owner).await;
        result.map_err(|fault| self.desk.finish(fault, RequestEvent::ToolCall.into(), &req_id))
    }

    /// Goes to another room. What was for the old one is forgotten, and its calls end.
    ///
    /// # Errors
    /// If the hub refuses; we stay where we were.
    pub async fn join(&self, room: &str) -> Result<(), Fault> {
        let before = self.room();
        self.membership.join(room).await?;
        if before.as_deref() != Some(room) {
            self.desk.leave_room().await;
        }
        Ok(())
    }

    /// Leaves the room and stays connected.
    ///
    /// # Errors
    /// If the hub does not say so.
    pub async fn leave(&self) -> Result<(), Fault> {
        let left = self.membership.leave().await;
        self.desk.leave_room().await;
        left
    }

    /// Waits until the connection is gone for good, and says why.
    pub async fn ended(&self) -> Fault {
        self.membership.ended().await
    }

    /// Leaves, and ends the servers.
    pub async fn shutdown(&self) {
        self.membership.close();
        self.desk.leave_room().await;
        self.desk.offer.shutdown().await;
    }
}

/// Answers questions until there is nobody left who could ask.
async fn answer(desk: Arc<ComputerState>, mut heard: mpsc::Receiver<RoomMessage>) {
    while let Some(heard) = heard.recv().await {
        let (name, payload, reply) = match heard {
            RoomMessage::Event(name, payload, reply) => (name, payload, reply),
            // In its order: what is heard after it came over another connection.
            RoomMessage::Disconnected(_) => {
                desk.lose_line();
                continue;
            }
            RoomMessage::Rejoined => continue,
        };
        if name == event::CANCELLED {
            desk.cancel(payload.first());
        }
        let Some(reply) = reply else { continue };
        let desk = desk.clone();
        let spawn = desk.world.spawn.clone();
        let mut answering = Box::pin(async move {
            let said = desk.said(&name, payload.into_first()).await;
            if let Err(error) = reply.send(Payload::of(said)).await {
                tracing::warn!(%error, event = name, "an answer could not be sent");
            }
        });
        // Begun here: a call is entered before the next line is read, so a cancel right behind it finds it.
        if futures::poll!(&mut answering).is_pending() {
            spawn.spawn(answering);
        }
    }
}
