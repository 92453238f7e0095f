//! The computer: the member of a room that offers tools, from MCP servers behind one connection to a hub.
//!
//! It also offers their resources and windows, skills, documents, and data transfer in chunks both ways. Servers can
//! be added and removed at run time; the computer notifies the room of every change.

mod blob;
mod call;
mod confirm;
mod desktop;
mod documents;
mod history;
mod inputs;
mod notifications;
#[cfg(feature = "probe")]
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
use budao_mcp::{ProcessVariables, ServerHandle, ServerState};
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

/// The configuration of a computer.
#[derive(Clone, Debug)]
pub struct Config {
    /// Hub address, room, name and token.
    pub member: MemberConfig,
    /// Calls that may run at once. Default 64.
    pub calls_max: usize,
    /// Bytes of an answer. Default 768 KiB. Parts of a larger one become blobs; if that is not enough, it is refused.
    pub result_bytes_max: usize,
    /// Bytes of an image or a file that stays inside an answer. Default 32 KiB.
    pub inline_bytes_max: usize,
    /// Bytes of one chunk of a blob. Default 256 KiB.
    pub chunk_bytes_max: usize,
    /// Limits for stored results that agents have yet to fetch.
    pub blob_bounds: BlobBounds,
    /// Bytes of one file of a skill. Default 100 MiB.
    pub file_bytes_max: u64,
    /// Calls that the history keeps. Default 200.
    pub history_max: usize,
    /// Time limit of a request to an MCP server other than a call. Default 20 s.
    pub question: Duration,
    /// Confirms calls of tools without `auto_apply`.
    pub confirm: Arc<dyn Confirmer>,
    /// The folder with skills, one subfolder each; `None` for no skills of this machine.
    pub skills: Option<PathBuf>,
    /// The folder for uploads from agents; `None` refuses all uploads.
    pub upload_folder: Option<PathBuf>,
    /// The folder with documents, for the first draft of the protocol only.
    pub documents: Option<PathBuf>,
    /// The host part of the documents' `dpe://` addresses. Default `local.documents`.
    pub documents_host: String,
    /// Limits for uploads from agents.
    pub upload: UploadBounds,
    /// The variables that MCP servers may inherit. Default none.
    pub variables: ProcessVariables,
}

impl Config {
    /// A configuration with default limits, no confirmer, no skills, no documents and no uploads.
    #[must_use]
    pub fn new(member: MemberConfig) -> Self {
        Self {
            member,
            calls_max: 64,
            result_bytes_max: 768 * 1024,
            inline_bytes_max: 32 * 1024,
            chunk_bytes_max: 256 * 1024,
            blob_bounds: BlobBounds::default(),
            file_bytes_max: 100 << 20,
            history_max: 200,
            question: Duration::from_secs(20),
            confirm: Arc::new(NoConfirmer),
            skills: None,
            upload_folder: None,
            documents: None,
            documents_host: "local.documents".into(),
            upload: UploadBounds::default(),
            variables: ProcessVariables::default(),
        }
    }
}

/// A computer in its room. Its methods are for the owner of the machine, not for agents.
#[derive(Debug)]
pub struct Computer {
    computer_state: Arc<ComputerState>,
    membership: Membership,
}

impl Computer {
    /// Starts the MCP servers, connects and joins. The tools of a server that starts slowly are added later.
    ///
    /// # Errors
    /// If the hub cannot be reached or refuses the connection, or the folder of documents does not exist.
    pub async fn start(
        config: Config,
        settings: Settings,
        values: &dyn ValueSource,
        world: World,
    ) -> Result<Self, Fault> {
        let limits = Arc::new(Limits::default());
        let documents_folder = ComputerState::documents_folder(&config)?;
        let offer = ToolServers::new(settings);
        for id in offer.enabled() {
            if let Err(fault) = offer.start(&id, values, &config.variables, &world, &limits).await {
                tracing::warn!(server = id, %fault, "starting server failed");
            }
        }
        let joined = membership::enter(config.member.clone(), Role::Computer, world.clone()).await;
        let (membership, messages) = match joined {
            Ok(joined) => joined,
            Err(fault) => {
                offer.shutdown().await;
                return Err(fault);
            }
        };
        let computer_state =
            Arc::new(ComputerState::new(config, offer, documents_folder, limits, world.clone()));
        world.spawn.spawn(Box::pin(answer(computer_state.clone(), messages)));
        let computer = Self { computer_state, membership };
        for (_, server) in computer.computer_state.offer.servers() {
            computer.follow(server);
        }
        if computer.computer_state.documents_folder.is_some() {
            let watching =
                documents::watch(computer.computer_state.clone(), computer.membership.clone());
            world.spawn.spawn(Box::pin(watching));
        }
        Ok(computer)
    }

    fn follow(&self, server: Arc<ServerHandle>) {
        let following =
            notifications::follow(self.computer_state.clone(), self.membership.clone(), server);
        self.computer_state.world.spawn.spawn(Box::pin(following));
    }

    /// The state of each MCP server, by id.
    #[must_use]
    pub fn states(&self) -> Vec<(String, ServerState)> {
        self.computer_state.offer.states()
    }

    /// The tools that are offered, in the form that agents receive.
    #[must_use]
    pub fn tools(&self) -> Vec<Value> {
        self.computer_state.offer.listed()
    }

    /// The latest calls, oldest first, with scrubbed arguments.
    #[must_use]
    pub fn history(&self) -> Vec<CallRecord> {
        self.computer_state.history.all()
    }

    /// The room that the computer is in or reconnects to; `None` after [`Computer::leave`].
    #[must_use]
    pub fn room(&self) -> Option<String> {
        self.membership.target_room().get()
    }

    /// Adds a server, or replaces the one with the same id, and starts it. Returns its id.
    ///
    /// # Errors
    /// If the settings are invalid, or the start failed. After a failed start the server stays in the settings.
    pub async fn add(&self, server: &Value, values: &dyn ValueSource) -> Result<String, Fault> {
        let id = self.computer_state.offer.add(server)?;
        self.computer_state.offer.stop(&id).await?;
        notifications::send(
            &self.computer_state,
            &self.membership,
            NotificationEvent::UpdateConfig,
        )
        .await;
        if self.computer_state.offer.enabled().contains(&id) {
            self.start_server(&id, values).await?;
        }
        Ok(id)
    }

    /// Stops a server and removes it from the settings.
    ///
    /// # Errors
    /// If no server has this id.
    pub async fn remove(&self, bundle_id: &str) -> Result<(), Fault> {
        self.computer_state.offer.stop(bundle_id).await?;
        self.computer_state.offer.remove(bundle_id);
        notifications::send(
            &self.computer_state,
            &self.membership,
            NotificationEvent::UpdateConfig,
        )
        .await;
        Ok(())
    }

    /// Starts a stopped server, or retries a server that is down without waiting for its backoff.
    ///
    /// # Errors
    /// If no server has this id, or its settings cannot be resolved.
    pub async fn start_server(
        &self,
        bundle_id: &str,
        values: &dyn ValueSource,
    ) -> Result<(), Fault> {
        let computer_state = &self.computer_state;
        let did_run = computer_state.offer.server(bundle_id).is_some();
        let server = computer_state
            .offer
            .start(
                bundle_id,
                values,
                &computer_state.config.variables,
                &computer_state.world,
                &computer_state.limits,
            )
            .await?;
        computer_state.learn();
        if !did_run {
            self.follow(server);
        }
        Ok(())
    }

    /// Stops a server. It stays in the settings and can be started again.
    ///
    /// # Errors
    /// If no server has this id.
    pub async fn stop_server(&self, bundle_id: &str) -> Result<(), Fault> {
        self.computer_state.offer.stop(bundle_id).await
    }

    /// Calls a tool on behalf of the owner, without confirmation.
    ///
    /// # Errors
    /// The same faults that an agent gets.
    pub async fn call(&self, tool: &str, params: Value, timeout: Duration) -> Result<Value, Fault> {
        let req_id = self.computer_state.world.trace().to_string();
        let request = json!({
            "req_id": req_id, "tool_name": tool, "params": params, "timeout": timeout.as_secs(),
        });
        let result = self.computer_state.call(&request, &req_id, Caller::Owner).await;
        result.map_err(|fault| {
            self.computer_state.finish(fault, RequestEvent::ToolCall.into(), &req_id)
        })
    }

    /// Moves to another room. Running calls end, and stored results and uploads for the old room are dropped.
    ///
    /// # Errors
    /// If the hub refuses. The computer stays in its room.
    pub async fn join(&self, room: &str) -> Result<(), Fault> {
        let before = self.room();
        self.membership.join(room).await?;
        if before.as_deref() != Some(room) {
            self.computer_state.leave_room().await;
        }
        Ok(())
    }

    /// Leaves the room and stays connected.
    ///
    /// # Errors
    /// If the hub does not confirm it.
    pub async fn leave(&self) -> Result<(), Fault> {
        let left = self.membership.leave().await;
        self.computer_state.leave_room().await;
        left
    }

    /// Waits until the connection has ended for good and returns the reason.
    pub async fn ended(&self) -> Fault {
        self.membership.ended().await
    }

    /// Leaves the room, closes the connection and stops the servers.
    pub async fn shutdown(&self) {
        self.membership.close();
        self.computer_state.leave_room().await;
        self.computer_state.offer.shutdown().await;
    }
}

/// Answers requests until the connection has ended.
async fn answer(computer_state: Arc<ComputerState>, mut messages: mpsc::Receiver<RoomMessage>) {
    while let Some(messages) = messages.recv().await {
        let (name, payload, reply) = match messages {
            RoomMessage::Event(name, payload, reply) => (name, payload, reply),
            // Handled in order: later messages belong to another connection.
            RoomMessage::Disconnected(_) => {
                computer_state.lose_line();
                continue;
            }
            RoomMessage::Rejoined => continue,
        };
        if name == event::CANCELLED {
            computer_state.cancel(payload.first());
        }
        let Some(reply) = reply else { continue };
        let computer_state = computer_state.clone();
        let spawn = computer_state.world.spawn.clone();
        let mut answering = Box::pin(async move {
            let response = computer_state.handle_request(&name, payload.into_first()).await;
            if let Err(error) = reply.send(Payload::of(response)).await {
                tracing::warn!(%error, event = name, "sending answer failed");
            }
        });
        // Polled once here, so that a call is registered before a cancel in the next message is read.
        if futures::poll!(&mut answering).is_pending() {
            spawn.spawn(answering);
        }
    }
}
