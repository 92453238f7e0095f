//! The command inbox: durable commands from any process, handled by the session's lease holder.

use std::fmt;

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, CommandId, SessionId},
    fault::Fault,
};

use crate::implement::notifier::Subscription;

/// Commands on their way to the lease holder of a session, and their answers. Engines use it.
#[async_trait]
pub trait Inbox: Send + Sync + fmt::Debug {
    /// Makes a command durable and wakes the lease holder.
    ///
    /// # Errors
    /// `unknown_session`; `command_repeated` when the id was used for another command; `limit_reached` when too many
    /// commands are pending.
    async fn submit(&self, session: SessionId, command: Command) -> Result<SubmitOutcome, Fault>;

    /// Ensures that a command never takes effect, even if a writer has already read it. An existing answer stands and
    /// is returned. Otherwise the command is rejected with `fault`, even if it was never submitted; a writer that then
    /// tries to handle it fails to append (`command_repeated`).
    ///
    /// # Errors
    /// `unknown_session`; `command_repeated` when the id was used for another command; when the journal fails.
    async fn withdraw(
        &self,
        session: SessionId,
        command: Command,
        fault: Fault,
    ) -> Result<Answer, Fault>;

    /// The commands without an answer, in order of submission.
    ///
    /// # Errors
    /// `unknown_session`, or when the journal fails.
    async fn inbox(&self, session: SessionId) -> Result<Vec<Command>, Fault>;

    /// The answer to a command; `None` if it is pending or was never submitted.
    ///
    /// # Errors
    /// `unknown_session`, or when the journal fails.
    async fn answer(&self, session: SessionId, id: &CommandId) -> Result<Option<Answer>, Fault>;

    /// Those of these commands that have an answer. A journal whose reads are round trips overrides this with a single one.
    ///
    /// # Errors
    /// `unknown_session`, or when the journal fails.
    async fn answered(
        &self,
        session: SessionId,
        ids: &[CommandId],
    ) -> Result<Vec<CommandId>, Fault> {
        let mut answered = Vec::new();
        for id in ids {
            if self.answer(session, id).await?.is_some() {
                answered.push(id.clone());
            }
        }
        Ok(answered)
    }

    /// Waits for the answer to a command, from this or another process. There is no timeout: the caller sets one.
    ///
    /// # Errors
    /// `unknown_session`; `bad_request` if the command was never submitted; when the journal fails.
    async fn await_answer(&self, session: SessionId, id: &CommandId) -> Result<Answer, Fault>;

    /// Subscribes to the inbox of a session: wakes when this or another process may have submitted a command.
    fn watch(&self, session: SessionId) -> ChangeWatch;
}

/// The state of a command after [`Inbox::submit`].
#[derive(Clone, Debug, PartialEq)]
pub enum SubmitOutcome {
    /// The command is durable and pending.
    New,
    /// The command was submitted before and is still pending.
    Pending,
    /// The command was submitted before and has this answer.
    Answered(Answer),
}

/// Wakes its owner when a command may have arrived. It may wake without a command, but never misses one.
#[derive(Debug)]
pub struct ChangeWatch(Subscription);

impl ChangeWatch {
    /// Watches the inbox through a subscription of a journal's notifier.
    #[must_use]
    pub fn new(subscription: Subscription) -> Self {
        Self(subscription)
    }

    /// Waits until a command may have arrived since the last call, or since the watch was created.
    pub async fn wait_for_change(&mut self) {
        self.0.wait_for_inbox_change().await;
    }
}
