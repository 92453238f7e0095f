//! Decides whether a session's task loads its session again after the writer stopped.

use std::{any::Any, time::Duration};

use budao_core::{
    event::SessionId,
    fault::{Category, Fact, Fault, Kind, Operation},
    retry::RetryPolicy,
};

use crate::{batch::TaskRefusal, writer::task_gone};

/// Loads of one session task, the first included, before it abandons a session that fails.
const LOADS_MAX: u32 = 5;

/// The reason for which a writer stopped.
#[derive(Debug)]
pub enum WriterExit {
    /// The session was idle for long enough.
    Idle,
    /// The factory waits on behalf of the turn, at most this long.
    Suspended(Duration),
    /// The host shuts down.
    Stopped,
    /// Another writer holds the lease.
    Fenced,
    /// The journal failed, or the session's code panicked.
    Failed(Fault),
}

/// The next action of a session's task after its writer stopped.
#[derive(Debug)]
pub enum RestartDecision {
    /// Load the session again after this wait.
    Restart(Duration),
    /// End. Messages that are still queued go to the next task, or are refused.
    End(Result<(), TaskRefusal>),
    /// End although work may be unfinished; the host polls the session until it is loaded again or finished.
    Abandon(Fault),
}

/// Counts the restarts of one session's task.
#[derive(Debug)]
pub struct RestartPolicy {
    session: SessionId,
    attempt: u32,
    abort_fault: Option<Fault>,
}

impl RestartPolicy {
    /// A policy with no restart counted.
    #[must_use]
    pub fn new(session: SessionId) -> Self {
        Self { session, attempt: 0, abort_fault: None }
    }

    /// Takes the fault with which the restarted session ends its turn: the journal had no space left. `None` after the
    /// first call.
    pub fn take_abort_fault(&mut self) -> Option<Fault> {
        self.abort_fault.take()
    }

    /// Decides after a writer stopped; `Err` is a panic of the session's code.
    pub fn decide(
        &mut self,
        exit: Result<WriterExit, Box<dyn Any + Send>>,
        retry: &RetryPolicy,
    ) -> RestartDecision {
        self.attempt += 1;
        match exit.unwrap_or_else(|_| WriterExit::Failed(panic_fault(self.session))) {
            // The journal works; a command turned out to be a repetition, so the batch is void.
            WriterExit::Failed(fault) if fault.kind() == Kind::CommandRepeated => {
                self.attempt = 0;
                RestartDecision::Restart(Duration::ZERO)
            }
            // Another engine runs the session: a restart cannot help.
            WriterExit::Failed(fault) if fault.kind() == Kind::WrongEngine => {
                RestartDecision::End(Err(fault.into()))
            }
            WriterExit::Failed(fault) if self.attempt < LOADS_MAX && is_transient(&fault) => {
                tracing::error!(session = %self.session, %fault, "session failed, reloading");
                self.abort_fault = (fault.row().category == Category::Resource).then_some(fault);
                RestartDecision::Restart(retry.delay(self.attempt, 0.0))
            }
            WriterExit::Failed(fault) => RestartDecision::Abandon(fault),
            WriterExit::Fenced => RestartDecision::End(Err(TaskRefusal::UseInbox)),
            WriterExit::Idle | WriterExit::Suspended(_) => RestartDecision::End(Ok(())),
            WriterExit::Stopped => RestartDecision::End(Err(task_gone(self.session).into())),
        }
    }
}

/// Whether loading the session again, or repeating the append, can succeed.
pub(crate) fn is_transient(fault: &Fault) -> bool {
    !matches!(
        fault.kind(),
        Kind::UnknownSession | Kind::JournalDamaged | Kind::JournalNewer | Kind::JournalOutdated
    )
}

fn panic_fault(session: SessionId) -> Fault {
    Fault::new(Kind::Bug, Operation::RunTurn)
        .with(Fact::Session, session.to_string())
        .with_cause("the code that runs the session panicked")
}
