//! What a bridge is made of.

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
use budao_journal::Journal;

use crate::editor_options::EditorOptions;

/// The bridge between one editor and an engine.
#[derive(Clone, Debug)]
pub struct Bridge {
    /// Runs the sessions.
    pub engine: Arc<dyn Engine>,
    /// Where they are kept; for lists, and to know what a session has behind it.
    pub journal: Arc<dyn Journal>,
    /// Time, chance and tasks.
    pub world: World,
    /// The bounds.
    pub limits: Limits,
    /// What the editor may choose from.
    pub offer: EditorOptions,
    /// What new sessions are set to; the editor adds its directory.
    pub settings: Settings,
    /// The language people are spoken to in.
    pub lang: Lang,
    /// How a turn that failed is told.
    pub execution_error: ExecutionError,
    /// What the engine's owner does for the editor.
    pub host: Arc<dyn Host>,
}

/// What an editor is told before anything is open: so it need not wait for a journal to be greeted.
#[derive(Clone, Debug)]
pub struct InitializeContext {
    /// What the editor may choose from.
    pub offer: EditorOptions,
    /// Time, chance and tasks.
    pub world: World,
    /// The bounds.
    pub limits: Limits,
    /// The language people are spoken to in.
    pub lang: Lang,
}

impl Bridge {
    /// What this bridge tells an editor first.
    #[must_use]
    pub fn front(&self) -> InitializeContext {
        let Self { offer, world, limits, lang, .. } = self;
        let (offer, world, limits) = (offer.clone(), world.clone(), limits.clone());
        InitializeContext { offer, world, limits, lang: *lang }
    }
}

/// How a turn that failed is told to the editor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecutionError {
    /// As a JSON-RPC error: the text stays where it is, and the editor shows what happened.
    #[default]
    Error,
    /// As the stop reason `refusal`, with a sentence before it. Some editors then delete the prompt.
    Refusal,
}

/// What the owner of an engine does for an editor.
#[async_trait]
pub trait Host: Send + Sync + fmt::Debug {
    /// Takes over the tool servers an editor brought for a session; before the session is opened or taken
    /// up. What was there for it before is replaced.
    ///
    /// # Errors
    /// When one of them is described in a way that cannot work.
    async fn tool_servers(&self, session: SessionId, servers: Vec<ToolServer>)
    -> Result<(), Fault>;

    /// The editor is done with a session: what was taken over for it can go.
    async fn forget(&self, session: SessionId);

    /// Is the engine's service signed in to, in this way?
    ///
    /// # Errors
    /// When it is not; the fault says what to do.
    async fn sign_in(&self, method: &str) -> Result<(), Fault>;
}

/// Nobody: tool servers are refused, and nothing needs signing in to.
#[derive(Clone, Copy, Debug)]
pub struct NoHost;

#[async_trait]
impl Host for NoHost {
    async fn tool_servers(&self, _: SessionId, servers: Vec<ToolServer>) -> Result<(), Fault> {
        use budao_core::fault::{Fact, Kind, Operation};
        match servers.first() {
            None => Ok(()),
            Some(server) => Err(Fault::new(Kind::McpServerNotFound, Operation::StartMcpServer)
                .with(Fact::McpServer, server.name.clone())),
        }
    }

    async fn forget(&self, _: SessionId) {}

    async fn sign_in(&self, _: &str) -> Result<(), Fault> {
        Ok(())
    }
}

/// A tool server the editor brings.
#[derive(Clone, Debug)]
pub struct ToolServer {
    /// Its name, as the editor has it.
    pub name: String,
    /// How it is reached.
    pub reach: ServerTransport,
}

/// How a tool server is reached. Values of variables and headers are secrets and are not shown.
#[derive(Clone)]
pub enum ServerTransport {
    /// A program that speaks on its standard input and output.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables it gets.
        env: Vec<(String, String)>,
    },
    /// An address that speaks streamable HTTP.
    Http {
        /// Where.
        url: String,
        /// Headers of every request.
        headers: Vec<(String, String)>,
    },
    /// An address that speaks the older protocol.
    Sse {
        /// Where.
        url: String,
        /// Headers of every request.
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
