//! The registry of loaded sessions: the message channel of each session's task, by session id.

use std::sync::Arc;

use budao_core::{
    event::SessionId,
    fault::{Fact, Fault, Kind, Operation},
};
use dashmap::DashMap;
use tokio::sync::mpsc;

use crate::writer::session_busy;

/// Tries to reach a session's task while one task ends and the next one starts.
const SEND_TRIES: u32 = 16;

/// Channels to the tasks of loaded sessions. Clones share the same registry.
#[derive(Debug)]
pub struct SessionRegistry<M>(Arc<DashMap<SessionId, mpsc::Sender<M>>>);

impl<M> Clone for SessionRegistry<M> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<M> Default for SessionRegistry<M> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<M> SessionRegistry<M> {
    /// The number of loaded sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no session is loaded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the session is loaded and its task not ending.
    #[must_use]
    pub fn contains(&self, session: SessionId) -> bool {
        self.0.get(&session).is_some_and(|sender| !sender.is_closed())
    }

    /// The channels of all sessions, oldest session first: the map's own order is random.
    #[must_use]
    pub fn senders(&self) -> Vec<mpsc::Sender<M>> {
        let mut all: Vec<_> =
            self.0.iter().map(|entry| (*entry.key(), entry.value().clone())).collect();
        all.sort_unstable_by_key(|(session, _)| *session);
        all.into_iter().map(|(_, sender)| sender).collect()
    }

    /// The channel of a session's task; calls `start` if no task runs.
    pub fn get_or_start(
        &self,
        session: SessionId,
        start: impl Fn() -> mpsc::Sender<M>,
    ) -> mpsc::Sender<M> {
        let mut entry = self.0.entry(session).or_insert_with(&start);
        if entry.is_closed() {
            *entry = start();
        }
        entry.clone()
    }

    /// Sends a message to a session's task; calls `start` if no task runs.
    ///
    /// # Errors
    /// `too_many_sessions` above `limit`; `session_busy` when each new task ends at once.
    pub async fn send(
        &self,
        session: SessionId,
        limit: usize,
        start: impl Fn() -> mpsc::Sender<M>,
        mut message: M,
    ) -> Result<(), Fault> {
        if self.0.len() >= limit && !self.0.contains_key(&session) {
            return Err(Fault::new(Kind::TooManySessions, Operation::OpenSession)
                .with(Fact::Limit, limit)
                .with(Fact::LimitName, "sessions"));
        }
        // A task that ends closes its channel first; the next loop starts its successor.
        for _ in 0..SEND_TRIES {
            match self.get_or_start(session, &start).send(message).await {
                Ok(()) => return Ok(()),
                Err(mpsc::error::SendError(back)) => message = back,
            }
            tokio::task::yield_now().await;
        }
        Err(session_busy(session))
    }

    /// Removes a task's channel, unless a successor has replaced it.
    pub fn remove(&self, session: SessionId, task: &mpsc::Sender<M>) {
        self.0.remove_if(&session, |_, sender| sender.same_channel(task));
    }
}
