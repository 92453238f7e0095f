//! The engine: what every gateway knows, and all it knows.
//!
//! An engine runs sessions. It is asked by commands and heard through records; nothing else crosses.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::{
    event::{Answer, Command, Origin, Record, Seq, SessionId, Settings},
    fault::{Fact, Fault, Kind, Operation},
};

/// What a new session is opened with.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// The id to use; a new one if none.
    pub session: Option<SessionId>,
    /// What it is set to.
    pub settings: Settings,
    /// Where it comes from, if not from a person.
    pub origin: Option<Origin>,
}

/// The fault that says that a session belongs to another engine.
#[must_use]
pub fn wrong_engine(session: SessionId, settings: &Settings) -> Fault {
    Fault::new(Kind::WrongEngine, Operation::OpenSession)
        .with(Fact::Session, session.to_string())
        .with(Fact::Engine, settings.engine().to_owned())
}

/// Runs sessions.
#[async_trait]
pub trait Engine: Send + Sync + std::fmt::Debug {
    /// Opens a session. When this returns, it is durable.
    ///
    /// # Errors
    /// When the settings are wrong, there are too many sessions, or the journal fails.
    async fn open(&self, opening: SessionOptions) -> Result<SessionId, Fault>;

    /// Submits a command and returns its one answer. An accepted command is durable; its effects come as
    /// records. The same id gives the same answer and has no second effect.
    ///
    /// # Errors
    /// When the command could not be made durable, so nobody knows of it.
    async fn submit(&self, session: SessionId, command: Command) -> Result<Answer, Fault>;

    /// Every record after `after`, then new ones as they become durable: no seam, no gap, no repeat.
    ///
    /// # Errors
    /// When the session is unknown or its history no longer reaches back that far.
    async fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> Result<BoxStream<'static, Result<Record, Fault>>, Fault>;

    /// Loads a session, so that unfinished work in it goes on. If another process holds its lease, the engine waits
    /// until the session is finished there or the lease has run out.
    fn touch(&self, session: SessionId);

    /// Touches every unfinished session of this engine and returns their number. Called when a process starts.
    ///
    /// # Errors
    /// When the journal cannot be read.
    async fn recover(&self) -> Result<usize, Fault>;

    /// Lets turns finish for up to `grace`, then stops what is left; the next start resumes it. When this returns,
    /// no work of the engine runs, unless a bound that is logged was exceeded.
    async fn shutdown(&self, grace: Duration);
}
