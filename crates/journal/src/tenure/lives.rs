//! A session's task from one reading of the session to the next: when it tries again, and what those who come
//! when it is over are told.

use std::{any::Any, time::Duration};

use budao_core::{
    event::SessionId,
    fault::{Category, Fact, Fault, Kind, Operation},
    retry::Policy,
};

use super::{busy, gone};

/// Times a session is read back after its journal failed, before it is left for the next touch.
const REVIVALS: u32 = 5;

/// Why a writer stopped.
#[derive(Debug)]
pub enum Exit {
    /// Nothing to do.
    Idle,
    /// Told to.
    Stopped,
    /// Another writer has the session.
    Fenced,
    /// The journal failed.
    Failed(Fault),
}

/// What comes after a life.
#[derive(Debug)]
pub enum After {
    /// Another one, after this wait.
    Again(Duration),
    /// Nothing. What came in meanwhile goes to whoever is next, or is refused with this.
    End(Result<(), Fault>),
    /// Nothing, although something may be unfinished.
    GivenUp(Fault),
}

/// The lives of a session's task.
#[derive(Debug)]
pub struct Lives {
    id: SessionId,
    attempt: u32,
    halt: Option<Fault>,
}

impl Lives {
    /// None so far.
    #[must_use]
    pub fn new(id: SessionId) -> Self {
        Self { id, attempt: 0, halt: None }
    }

    /// What the next life must end its turn with, if the one before had no room to.
    pub fn halt(&mut self) -> Option<Fault> {
        self.halt.take()
    }

    /// A life is over, by itself or by a panic: what comes after it?
    pub fn after(&mut self, life: Result<Exit, Box<dyn Any + Send>>, retry: &Policy) -> After {
        self.attempt += 1;
        match life.unwrap_or_else(|_| Exit::Failed(broken(self.id))) {
            // Nothing failed: a command had come before, so what was decided is void.
            Exit::Failed(fault) if fault.kind() == Kind::CommandRepeated => {
                self.attempt = 0;
                After::Again(Duration::ZERO)
            }
            // Another engine runs it: there is nothing to try again.
            Exit::Failed(fault) if fault.kind() == Kind::WrongEngine => After::End(Err(fault)),
            Exit::Failed(fault) if self.attempt < REVIVALS && is_passing(&fault) => {
                tracing::error!(session = %self.id, %fault, "the journal failed; reading back");
                self.halt = (fault.row().category == Category::Resource).then_some(fault);
                After::Again(retry.delay(self.attempt, 0.0))
            }
            Exit::Failed(fault) => After::GivenUp(fault),
            Exit::Fenced => After::End(Err(busy(self.id))),
            Exit::Idle => After::End(Ok(())),
            Exit::Stopped => After::End(Err(gone(self.id))),
        }
    }
}

/// Worth reading back and trying again.
pub(super) fn is_passing(fault: &Fault) -> bool {
    !matches!(fault.kind(), Kind::UnknownSession | Kind::JournalDamaged | Kind::JournalNewer)
}

fn broken(session: SessionId) -> Fault {
    Fault::new(Kind::Bug, Operation::RunTurn)
        .with(Fact::Session, session.to_string())
        .because("the code that runs the session panicked")
}
