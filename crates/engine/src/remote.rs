//! Commands for a session that another process writes: they go through the journal's inbox.
//!
//! A command whose sender gets a failure is withdrawn from the inbox, so that it never takes effect later.

use std::time::Duration;

use budao_core::{
    event::{Answer, Command, CommandId, SessionId},
    fault::{Fact, Fault, Kind, Operation},
    world::Clock,
};
use budao_journal::{Journal, SubmitOutcome};

/// How long the other process may take to answer a command.
pub const REMOTE_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A command in the inbox of a session that another process writes.
#[derive(Debug)]
pub struct RemoteCommand {
    session: SessionId,
    command: Command,
    waited: Duration,
}

/// The state of a command after [`submit_remote`].
#[derive(Debug)]
pub enum RemoteSubmission {
    /// The command was answered before.
    Answered(Answer),
    /// The command waits in the inbox.
    Pending(Box<RemoteCommand>),
}

/// Puts a command into the inbox. Returns the answer if the command was answered before.
///
/// # Errors
/// When the command could not be made durable. It is withdrawn, because a failed sync may still have written it.
pub async fn submit_remote(
    journal: &dyn Journal,
    session: SessionId,
    command: Command,
) -> Result<RemoteSubmission, Fault> {
    match journal.submit(session, command.clone()).await {
        Ok(SubmitOutcome::Answered(answer)) => Ok(RemoteSubmission::Answered(answer)),
        Ok(SubmitOutcome::New | SubmitOutcome::Pending) => {
            let waited = Duration::ZERO;
            let pending = Box::new(RemoteCommand { session, command, waited });
            Ok(RemoteSubmission::Pending(pending))
        }
        Err(fault) => {
            withdraw(journal, session, command, fault).await.map(RemoteSubmission::Answered)
        }
    }
}

impl RemoteCommand {
    /// Waits up to `wait` for the answer; `None` when it has not arrived yet.
    ///
    /// # Errors
    /// `request_timed_out` when the waits add up to [`REMOTE_ANSWER_TIMEOUT`]; the command is withdrawn.
    pub async fn wait(
        &mut self,
        journal: &dyn Journal,
        clock: &dyn Clock,
        wait: Duration,
    ) -> Result<Option<Answer>, Fault> {
        let wait = wait.min(REMOTE_ANSWER_TIMEOUT);
        tokio::select! {
            biased;
            answer = journal.await_answer(self.session, &self.command.id) => match answer {
                Ok(answer) => return Ok(Some(answer)),
                Err(fault) => return self.withdraw(journal, fault).await.map(Some),
            },
            () = clock.sleep(wait) => self.waited += wait,
        }
        if self.waited < REMOTE_ANSWER_TIMEOUT {
            return Ok(None);
        }
        let fault = Fault::new(Kind::RequestTimedOut, Operation::SubmitCommand)
            .with(Fact::CommandId, self.command.id.to_string())
            .with(Fact::TimeoutMs, REMOTE_ANSWER_TIMEOUT)
            .with(Fact::ElapsedMs, REMOTE_ANSWER_TIMEOUT);
        self.withdraw(journal, fault).await.map(Some)
    }

    async fn withdraw(&self, journal: &dyn Journal, fault: Fault) -> Result<Answer, Fault> {
        withdraw(journal, self.session, self.command.clone(), fault).await
    }
}

/// Withdraws a command whose sender is about to be told the fault. If it was answered after all, that answer counts.
async fn withdraw(
    journal: &dyn Journal,
    session: SessionId,
    command: Command,
    fault: Fault,
) -> Result<Answer, Fault> {
    if matches!(fault.kind(), Kind::UnknownSession | Kind::CommandRepeated | Kind::LimitReached) {
        return Err(fault);
    }
    let id = command.id.clone();
    match journal.withdraw(session, command, fault.clone()).await {
        Ok(Answer::Rejected { fault: rejected }) if rejected == fault => Err(fault),
        Ok(answer) => Ok(answer),
        Err(error) => {
            tracing::error!(%session, command = %id, fault = %error, "command withdrawal failed");
            Err(fault)
        }
    }
}

/// Checks a fault of a session's own task against the journal: a failed sync may still have written the answer.
///
/// # Errors
/// The fault, unless the journal has an answer to the command.
pub async fn confirm_failure(
    journal: &dyn Journal,
    session: SessionId,
    id: &CommandId,
    fault: Fault,
) -> Result<Answer, Fault> {
    // The id is known for another command: the answer in the journal is not this command's.
    if fault.kind() == Kind::CommandRepeated {
        return Err(fault);
    }
    match journal.answer(session, id).await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) | Err(_) => Err(fault),
    }
}
