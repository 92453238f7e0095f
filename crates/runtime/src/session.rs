//! The facade's [`Session`]: commands to one session and reads of its state.

use std::sync::Arc;

use budao_core::{
    Fault, Kind,
    engine::Engine,
    event::{Answer, CommandBody, CommandId, QuestionId, Seq, SessionId, Settings},
    message::Block,
    session,
};
use budao_journal::Journal;
use budao_tools::typed::schema_of;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::{
    Runtime, TurnResult,
    agent::Approver,
    question::{Question, QuestionReply},
};

/// One session. A clone is cheap and refers to the same session.
#[derive(Clone, Debug)]
pub struct Session {
    pub(crate) runtime: Runtime,
    pub(crate) id: SessionId,
    pub(crate) approver: Option<Approver>,
}

impl Session {
    /// Id of the session; sufficient to resume it.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The journal that stores the session.
    #[must_use]
    pub fn journal(&self) -> &Arc<dyn Journal> {
        self.runtime.journal()
    }

    /// Sends a message and waits until the turn ends or waits for a person. A callback of the agent
    /// ([`AgentBuilder::approve`](crate::AgentBuilder::approve)) takes the person's place.
    ///
    /// # Errors
    /// The message was rejected. A failed turn is an `Ok` with its fault.
    pub async fn run(&self, text: &str) -> Result<TurnResult, Fault> {
        self.turn(CommandBody::Message { content: vec![Block::Text(text.to_owned())] }).await
    }

    /// Sends a message and returns its answer as a value: the model answers with JSON that fits the schema of `T`. An
    /// answer that does not fit goes back to the model with the reasons.
    ///
    /// # Errors
    /// The fault of a turn that did not end with an answer: it failed, was cancelled or waits for a person.
    pub async fn run_typed<T: JsonSchema + DeserializeOwned>(
        &self,
        text: &str,
    ) -> Result<T, Fault> {
        let before = self.state().await?.settings;
        let schema = Some(Arc::new(schema_of::<T>()));
        let shaped = Settings { answer_schema: schema, ..before.clone() };
        self.ask(settings_command(shaped.clone(), before.clone())).await?;
        let result = self.run(text).await;
        self.ask(settings_command(before, shaped)).await?;
        result?.answer()
    }

    /// Continues the last turn, which failed, from where it stood, and waits until it ends or waits for a person. Calls
    /// that ended are not made again; tries, patience and limits start anew.
    ///
    /// # Errors
    /// The last turn did not fail, or the journal fails. A turn that fails again is an `Ok` with its fault.
    pub async fn retry(&self) -> Result<TurnResult, Fault> {
        self.turn(CommandBody::Retry { turn: None }).await
    }

    /// Plans a question, solves its tasks in parallel and aggregates the results. The plan is not put to a person.
    ///
    /// # Errors
    /// The command was rejected. A failed run is an `Ok` with its fault.
    pub async fn plan(&self, question: &str) -> Result<TurnResult, Fault> {
        self.turn(CommandBody::Plan { question: question.to_owned(), confirm: false }).await
    }

    /// Solves the given tasks in parallel and aggregates the results, without a planner.
    ///
    /// # Errors
    /// `tasks` is not a valid plan.
    pub async fn solve(
        &self,
        question: &str,
        tasks: serde_json::Value,
    ) -> Result<TurnResult, Fault> {
        self.turn(CommandBody::Solve { question: question.to_owned(), tasks }).await
    }

    /// Sends a message without waiting for its turn. On return the message is durable.
    ///
    /// # Errors
    /// The message was rejected.
    pub async fn send(&self, text: &str) -> Result<CommandId, Fault> {
        let content = vec![Block::Text(text.to_owned())];
        let command = self.runtime.command("user", CommandBody::Message { content });
        let id = command.id.clone();
        accepted_position(self.runtime.submit(self.id, command).await?).map(|_| id)
    }

    /// Waits for the turn that answers a sent message.
    ///
    /// # Errors
    /// The records cannot be read.
    pub async fn wait(&self, message: &CommandId) -> Result<TurnResult, Fault> {
        loop {
            let result = self.runtime.wait(self.id, message).await?;
            if !self.settle(&result).await? {
                return Ok(result);
            }
        }
    }

    /// Submits a command that starts a turn, and waits for the turn's end.
    async fn turn(&self, body: CommandBody) -> Result<TurnResult, Fault> {
        let command = self.runtime.command("user", body);
        let id = command.id.clone();
        let at = accepted_position(self.runtime.submit(self.id, command).await?)?;
        loop {
            let result = self.runtime.wait_for(self.id, &id, at).await?;
            if !self.settle(&result).await? {
                return Ok(result);
            }
        }
    }

    /// Answers the open questions of a result by the agent's callback; false if there are none or no callback.
    async fn settle(&self, result: &TurnResult) -> Result<bool, Fault> {
        let Some(Approver(decide)) = self.approver.as_ref().filter(|_| !result.pending.is_empty())
        else {
            return Ok(false);
        };
        for question in &result.pending {
            match self.decide(question, decide(question.clone()).await).await {
                // Someone else answered, or it expired: the turn has moved on.
                Err(fault) if fault.kind() == Kind::QuestionNotOpen => {}
                settled => settled?,
            }
        }
        Ok(true)
    }

    /// Cancels the running turn; does nothing if there is none.
    ///
    /// # Errors
    /// The journal fails.
    pub async fn cancel(&self) -> Result<(), Fault> {
        self.ask(CommandBody::Cancel { reason: None }).await
    }

    /// Cancels the running turn and ends the session. A later message re-opens it.
    ///
    /// # Errors
    /// The journal fails.
    pub async fn close(&self) -> Result<(), Fault> {
        self.ask(CommandBody::Close).await
    }

    /// Answers a question. The decision applies only to the tool and arguments that the question showed.
    ///
    /// # Errors
    /// The question is no longer open, or its arguments have changed.
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

    /// Returns an open question by its id; `None` if it is not open.
    ///
    /// # Errors
    /// The records cannot be read.
    pub async fn question(&self, id: &QuestionId) -> Result<Option<Question>, Fault> {
        let open = Question::open_in(&self.state().await?);
        Ok(open.into_iter().find(|question| question.id == *id))
    }

    async fn ask(&self, body: CommandBody) -> Result<(), Fault> {
        let command = self.runtime.command("user", body);
        accepted_position(self.runtime.submit(self.id, command).await?).map(drop)
    }

    /// Folds the session's current state from its records.
    ///
    /// # Errors
    /// The records cannot be read.
    pub async fn state(&self) -> Result<session::Session, Fault> {
        self.runtime.state(self.id).await
    }
}

fn accepted_position(answer: Answer) -> Result<Seq, Fault> {
    match answer {
        Answer::Accepted { at } => Ok(at),
        Answer::Rejected { fault } => Err(fault),
    }
}

/// The command that changes `before` to `settings`.
fn settings_command(settings: Settings, before: Settings) -> CommandBody {
    CommandBody::Settings { settings: Box::new(settings), before: Some(Box::new(before)) }
}
