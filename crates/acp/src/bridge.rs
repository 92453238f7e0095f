//! The [`Bridge`] and its parts: the engine, the editor's options, and the host's services.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use budao_core::{
    Lang,
    engine::Engine,
    event::{SessionId, Settings},
    fault::Fault,
    limits::Limits,
    world::World,
};
use budao_journal::Reader;

use crate::{editor_files::EditorFiles, editor_options::EditorOptions};

/// The bridge between one editor and an engine.
#[derive(Clone, Debug)]
pub struct Bridge {
    /// Runs the sessions.
    pub engine: Arc<dyn Engine>,
    /// Stores the sessions; read for lists and replays.
    pub journal: Arc<dyn Reader>,
    /// Clock, entropy, spawner and span exporter.
    pub world: World,
    /// Limits of frames and messages.
    pub limits: Limits,
    /// The models, modes and commands that the editor offers to its user.
    pub editor_options: EditorOptions,
    /// Settings of new sessions; the editor adds its directories.
    pub settings: Settings,
    /// Language of text for people.
    pub lang: Lang,
    /// How a failed turn is reported to the editor.
    pub execution_error: ExecutionError,
    /// The embedding program's services: tool servers and sign-in.
    pub services: Arc<dyn EditorServices>,
}

/// The part of a bridge that `initialize` needs, so that the answer does not wait for a journal to open.
#[derive(Clone, Debug)]
pub struct InitializeContext {
    /// The models, modes and commands that the editor offers to its user.
    pub editor_options: EditorOptions,
    /// Clock, entropy, spawner and span exporter.
    pub world: World,
    /// Limits of frames and messages.
    pub limits: Limits,
    /// Language of text for people.
    pub lang: Lang,
}

impl Bridge {
    /// Copies the part of this bridge that `initialize` needs.
    #[must_use]
    pub fn initialize_context(&self) -> InitializeContext {
        let Self { editor_options, world, limits, lang, .. } = self;
        let (editor_options, world, limits) =
            (editor_options.clone(), world.clone(), limits.clone());
        InitializeContext { editor_options, world, limits, lang: *lang }
    }
}

/// How a failed turn is reported to the editor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecutionError {
    /// As a JSON-RPC error: the editor keeps the text shown so far and shows the fault.
    #[default]
    Error,
    /// As the stop reason `refusal`, preceded by a sentence. Some editors then delete the prompt.
    Refusal,
}

/// Services of the embedding program for an editor.
#[async_trait]
pub trait EditorServices: Send + Sync + fmt::Debug {
    /// Takes the tool servers that an editor configured for a session, before the session is opened or
    /// resumed. They replace those of an earlier call. Returns a fault for each server that is known to have
    /// failed, for the user to be told; the session opens without it.
    ///
    /// # Errors
    /// The description of a server is invalid.
    async fn tool_servers(
        &self,
        session: SessionId,
        servers: Vec<ToolServer>,
    ) -> Result<Vec<Fault>, Fault>;

    /// Takes the editor's files for a session, before its tool servers. By default they are not used.
    fn editor_files(&self, session: SessionId, files: EditorFiles) {
        drop((session, files));
    }

    /// Releases a session's tool servers and files; called when the editor closes or deletes the session.
    async fn forget(&self, session: SessionId);

    /// Checks that the user is signed in to the engine's service by this method.
    ///
    /// # Errors
    /// The user is not signed in; the fault says what to do.
    async fn sign_in(&self, method: &str) -> Result<(), Fault>;
}

/// A host without services: it refuses tool servers and accepts every sign-in.
#[derive(Clone, Copy, Debug)]
pub struct NoEditorServices;

#[async_trait]
impl EditorServices for NoEditorServices {
    async fn tool_servers(
        &self,
        _: SessionId,
        servers: Vec<ToolServer>,
    ) -> Result<Vec<Fault>, Fault> {
        use budao_core::fault::{Fact, Kind, Operation};
        match servers.first() {
            None => Ok(Vec::new()),
            Some(server) => Err(Fault::new(Kind::McpServerNotFound, Operation::StartMcpServer)
                .with(Fact::McpServer, server.name.clone())),
        }
    }

    async fn forget(&self, _: SessionId) {}

    async fn sign_in(&self, _: &str) -> Result<(), Fault> {
        Ok(())
    }
}

/// A tool server that the editor configured.
#[derive(Clone, Debug)]
pub struct ToolServer {
    /// Name of the server, as the editor knows it.
    pub name: String,
    /// Transport and address of the server.
    pub transport: ServerTransport,
}

/// The transport of a tool server. `Debug` omits the values of variables and headers, which are secrets.
#[derive(Clone)]
pub enum ServerTransport {
    /// A program that speaks MCP on its standard input and output.
    Stdio {
        /// Path or name of the program.
        command: String,
        /// Arguments of the program.
        args: Vec<String>,
        /// Environment variables to set: name and value.
        env: Vec<(String, String)>,
    },
    /// A server that speaks MCP over streamable HTTP.
    Http {
        /// Address of the server.
        url: String,
        /// Headers of every request: name and value.
        headers: Vec<(String, String)>,
    },
    /// A server that speaks MCP over the older HTTP with server-sent events.
    Sse {
        /// Address of the server.
        url: String,
        /// Headers of every request: name and value.
        headers: Vec<(String, String)>,
    },
}

impl fmt::Debug for ServerTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |pairs: &[(String, String)]| {
            pairs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        match self {
            Self::Stdio { command, env, .. } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("env", &names(env))
                .finish_non_exhaustive(),
            Self::Http { headers, .. } => {
                f.debug_struct("Http").field("headers", &names(headers)).finish_non_exhaustive()
            }
            Self::Sse { headers, .. } => {
                f.debug_struct("Sse").field("headers", &names(headers)).finish_non_exhaustive()
            }
        }
    }
}
