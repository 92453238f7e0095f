//! The engine: what every gateway knows, and all it knows.
//!
//! An engine runs sessions. It is asked by commands and heard through records; nothing else crosses.

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::{
    event::{Answer, Command, Origin, Record, Seq, SessionId, Settings},
    fault::Fault,
};

/// What a new session is opened with.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// The id to use; a new one if none.
    pub session: Option<SessionId>,
    /// What it is set to.
    pub settings: Settings,
    /// Where it comes from, if not from a person.
    pub origin: Option<Origin>,
}

/// Runs sessions.
#[async_trait]
pub trait Engine: Send + Sync + std::fmt::Debug {
    /// Opens a session. When this returns, it is durable.
    ///
    /// # Errors
    /// When the settings are wrong, there are too many sessions, or the journal fails.
    async fn open(&self, opening: Opening) -> Result<SessionId, Fault>;

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
}
