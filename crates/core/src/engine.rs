//! The engine trait: the complete interface between engines and gateways.
//!
//! An engine runs sessions: commands go in and records come out. A gateway changes sessions through it alone; to read
//! them it has the journal's `Reader` as well.

use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;

use crate::{
    event::{Answer, Command, Origin, Record, Seq, SessionId, Settings},
    fault::{Fact, Fault, Kind, Operation},
    gate::{GateKey, GateStatus},
    retention::{Retention, RetentionReport},
};

/// Options for a new session.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// The id to use; a new one if absent.
    pub session: Option<SessionId>,
    /// All settings the session starts with.
    pub settings: Settings,
    /// The parent session; absent for a session that a person opens.
    pub origin: Option<Origin>,
}

/// Where the history of a fork ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkPoint {
    /// After the last turn that ended.
    End,
    /// After this record, which lies between turns.
    After(Seq),
    /// Before the turn that answers the message at this position.
    BeforeMessage(Seq),
}

/// A request to copy a session up to a point. The copied session stays as it is.
#[derive(Clone, Copy, Debug)]
pub struct ForkRequest {
    /// The session to copy.
    pub parent: SessionId,
    /// The id of the copy; a new one if absent.
    pub session: Option<SessionId>,
    /// Where the copy ends.
    pub point: ForkPoint,
}

/// The fault for a session that belongs to another engine.
#[must_use]
pub fn wrong_engine(session: SessionId, settings: &Settings) -> Fault {
    Fault::new(Kind::WrongEngine, Operation::OpenSession)
        .with(Fact::Session, session.to_string())
        .with(Fact::Engine, settings.engine().to_owned())
}

/// Records of one session that a process wrote: those after `after`, up to `head`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenRange {
    /// The session with these records.
    pub session: SessionId,
    /// The position before the first of them.
    pub after: Seq,
    /// The position of the last of them.
    pub head: Seq,
}

/// Selects sessions by their id.
pub type SessionChoice<'a> = &'a (dyn Fn(SessionId) -> bool + Send + Sync);

/// Runs sessions. Gateways change sessions through this interface only.
#[async_trait]
pub trait Engine: Send + Sync + std::fmt::Debug {
    /// Opens a session. The session is durable when this returns.
    ///
    /// # Errors
    /// When the settings are invalid, there are too many sessions, or the journal fails.
    async fn open(&self, opening: SessionOptions) -> Result<SessionId, Fault>;

    /// Copies a session up to a point between its turns. The copy is durable as a whole when this returns.
    ///
    /// # Errors
    /// `unsupported_operation` if the engine's sessions cannot be copied; `constraint_violated` if the point does not
    /// lie between turns; `history_gap` if retention removed records; `command_repeated` if the copy's id is in use.
    async fn fork(&self, request: ForkRequest) -> Result<SessionId, Fault> {
        let _ = request;
        Err(Fault::new(Kind::UnsupportedOperation, Operation::OpenSession)
            .with(Fact::Reason, "the engine of this session cannot fork it"))
    }

    /// Submits a command and returns its one answer. An accepted command is durable, and its effects appear as records.
    /// A repeated id gets the same answer and has no second effect.
    ///
    /// # Errors
    /// When the command could not be made durable. A repetition with the same id finds out whether it took effect.
    async fn submit(&self, session: SessionId, command: Command) -> Result<Answer, Fault>;

    /// Streams every record after `after`, then new ones as they become durable, without gaps or repetitions.
    ///
    /// # Errors
    /// When the session is unknown, or the history no longer holds records that old.
    async fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> Result<BoxStream<'static, Result<Record, Fault>>, Fault>;

    /// Loads a session, so that unfinished work in it goes on. If another process holds its lease, the engine waits
    /// until the session is finished there or the lease has run out.
    fn touch(&self, session: SessionId);

    /// Announces a gateway that reports observers: from now on, only sessions that [`Engine::set_observed`] names count
    /// as observed. Until then every session does.
    fn track_observers(&self) {}

    /// Tells the engine whether a session has observers. Engines whose turns do not wait for a service ignore it.
    fn set_observed(&self, session: SessionId, is_observed: bool) {
        let _ = (session, is_observed);
    }

    /// Whether a turn of the session waits for a service that is busy or down. Its patience ends such a wait.
    fn is_waiting(&self, session: SessionId) -> bool {
        let _ = session;
        false
    }

    /// The gates of this process and their state, for operators; empty for an engine without gates.
    fn gates(&self) -> Vec<(GateKey, GateStatus)> {
        Vec::new()
    }

    /// Touches every unfinished session of this engine and returns their number. Called when a process starts.
    ///
    /// # Errors
    /// When the journal cannot be read.
    async fn recover(&self) -> Result<usize, Fault>;

    /// Touches the unfinished sessions of this engine that nobody writes, or a `dead` holder, and that `wants` selects.
    /// Returns their number. Servers that share a journal call it again and again.
    ///
    /// # Errors
    /// When the journal cannot be read.
    async fn take_over(&self, dead: &[String], wants: SessionChoice<'_>) -> Result<usize, Fault> {
        let _ = (dead, wants);
        Ok(0)
    }

    /// The number of loaded sessions, for operators.
    fn loaded(&self) -> usize {
        0
    }

    /// What this process wrote since the last call, for metrics of this process alone. It has one caller.
    fn take_written(&self) -> Vec<WrittenRange> {
        Vec::new()
    }

    /// Removes a session with all of its records; a turn that runs in it ends. Returns whether the session existed.
    ///
    /// # Errors
    /// When the journal fails.
    async fn delete(&self, session: SessionId) -> Result<bool, Fault>;

    /// Removes sessions and records that exceed the bounds. It may be interrupted at any moment and repeated.
    ///
    /// # Errors
    /// When the journal fails.
    async fn retain(&self, retention: Retention) -> Result<RetentionReport, Fault>;

    /// Waits up to `grace` for turns to finish, then stops the rest. The next start resumes their sessions: it continues
    /// a stopped turn if the engine can, and starts with the next message if the engine ended the turn as failed. When
    /// this returns, no work of the engine runs, unless a logged bound was exceeded.
    async fn shutdown(&self, grace: Duration);
}
