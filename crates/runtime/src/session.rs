//! The facade's [`Session`]: what a program says to a session, and what it hears.

use std::sync::Arc;

use budao_core::{
    Fault,
    engine::Engine,
    event::{Answer, CommandBody, CommandId, QuestionId, Seq, SessionId},
    message::Block,
    session,
};
use budao_journal::Journal;

use crate::{
    Runtime, TurnResult,
    question::{Question, QuestionReply},
};

/// One session. Clones are cheap and are the same session.
#[derive(Clone, Debug)]
pub struct Session {
    pub(crate) runtime: Runtime,
    pub(crate) id: SessionId,
}

impl Session {
    /// Its id: enough to resume it.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The journal it is kept in.
    #[must_use]
    pub fn journal(&self) -> &Arc<dyn Journal> {
        self.runtime.journal()
    }

    /// Sends words and waits for the answer, or until a person must decide.
    ///
    /// # Errors
    /// When the message was not accepted. A failed turn is an `Ok` whose result says so.
    pub async fn run(&self, text: &str) -> Result<TurnResult, Fault> {
        self.runtime.run(self.id, text).await
    }

    /// Has a question planned, its tasks solved side by side, and the results put together.
    ///
    /// # Errors
    /// When it was not accepted. A run that failed is an `Ok` whose result says so.
    pub async fn plan(&self, question: &str) -> Result<TurnResult, Fault> {
        self.runtime.plan(self.id, question, false).await
    }

    /// Has given tasks solved side by side and the results put together, without a planner.
    ///
    /// # Errors
    /// When they are no plan.
    pub async fn solve(
        &self,
        question: &str,
        tasks: serde_json::Value,
    ) -> Result<TurnResult, Fault> {
        self.runtime.solve(self.id, question, tasks).await
    }

    /// Sends words without waiting. They are durable and will be answered.
    ///
    /// # Errors
    /// When the message was not accepted.
    pub async fn send(&self, text: &str) -> Result<CommandId, Fault> {
        let content = vec![Block::Text(text.to_owned())];
        let command = self.runtime.command("user", CommandBody::Message { content });
        let id = command.id.clone();
        accepted(self.runtime.submit(self.id, command).await?).map(|_| id)
    }

    /// Waits for the answer to a message that was sent.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn wait(&self, message: &CommandId) -> Result<TurnResult, Fault> {
        self.runtime.wait(self.id, message).await
    }

    /// Stops the turn; does nothing when none is running.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn cancel(&self) -> Result<(), Fault> {
        self.ask(CommandBody::Cancel { reason: None }).await
    }

    /// Ends the session, its turn first. A later message re-opens it.
    ///
    /// # Errors
    /// When the journal fails.
    pub async fn close(&self) -> Result<(), Fault> {
        self.ask(CommandBody::Close).await
    }

    /// Answers a question. The answer counts for exactly what the question showed.
    ///
    /// # Errors
    /// When it is not pending any more, or is about something else now.
    pub async fn decide(
        &self,
        question: &Question,
        reply: impl Into<QuestionReply> + Send,
    ) -> Result<(), Fault> {
        let QuestionReply { decision, note, arguments } = reply.into();
        let digest = Some(question.digest.clone());
        let question = question.id.clone();
        self.ask(CommandBody::Decide { question, decision, note, arguments, digest }).await
    }

    /// A question that waits for an answer, by its id.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn question(&self, id: &QuestionId) -> Result<Option<Question>, Fault> {
        let open = Question::open_in(&self.state().await?);
        Ok(open.into_iter().find(|question| question.id == *id))
    }

    async fn ask(&self, ask: CommandBody) -> Result<(), Fault> {
        let command = self.runtime.command("user", ask);
        accepted(self.runtime.submit(self.id, command).await?).map(drop)
    }

    /// The session as it is now.
    ///
    /// # Errors
    /// When its records cannot be read.
    pub async fn state(&self) -> Result<session::Session, Fault> {
        self.runtime.state(self.id).await
    }
}

fn accepted(answer: Answer) -> Result<Seq, Fault> {
    match answer {
        Answer::Accepted { at } => Ok(at),
        Answer::Rejected { fault } => Err(fault),
    }
}
