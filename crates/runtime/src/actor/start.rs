//! A session's task before and after it has the session: taking the lease, coming back after the journal
//! failed, handing on what came in meanwhile.

use std::{panic::AssertUnwindSafe, sync::Arc};

use budao_core::{
    event::{CommandId, SessionId},
    fault::{Category, Fact, Fault, Kind, Operation},
};
use budao_journal::{Lease, LeaseRequest, Missing};
use futures::FutureExt;
use tokio::sync::mpsc;

use super::{Actor, Message, gone};
use crate::runtime::{Runtime, Shared};

/// Times a session is read back after its journal failed, before it is left for the next touch.
const REVIVALS: u32 = 5;

/// Why a task ended.
pub(super) enum Exit {
    /// Nothing to do.
    Idle,
    /// Told to.
    Stopped,
    /// Another writer has the session.
    Fenced,
    /// The journal failed.
    Failed(Fault),
}

/// A task before and after it has the session: it holds the way in, so that no message is lost between.
pub(super) struct Start {
    pub(super) runtime: Runtime,
    pub(super) id: SessionId,
    pub(super) missing: Missing,
    pub(super) sender: mpsc::Sender<Message>,
    pub(super) inputs: mpsc::Receiver<Message>,
    pub(super) lives: u32,
}

impl Start {
    pub(super) async fn run(mut self) {
        let shared = Arc::clone(&self.runtime.shared);
        let mut halt = None;
        let mut attempt = 0;
        let mut is_given_up = false;
        let end = loop {
            attempt += 1;
            let life = AssertUnwindSafe(self.live(&shared, halt.take())).catch_unwind().await;
            match life.unwrap_or_else(|_| Exit::Failed(broken(self.id))) {
                // Nothing failed: a command had come before, so what was decided is void.
                Exit::Failed(fault) if fault.kind() == Kind::CommandRepeated => attempt = 0,
                Exit::Failed(fault) if attempt < REVIVALS && is_passing(&fault) => {
                    tracing::error!(session = %self.id, %fault, "the journal failed; reading back");
                    shared.world.clock.sleep(shared.limits.retry.delay(attempt, 0.0)).await;
                    halt = (fault.row().category == Category::Resource).then_some(fault);
                }
                Exit::Failed(fault) => {
                    is_given_up = true;
                    break Err(fault);
                }
                Exit::Fenced => break Err(busy(self.id)),
                Exit::Idle => break Ok(()),
                Exit::Stopped => break Err(gone(self.id)),
            }
        };
        let (runtime, id) = (self.runtime.clone(), self.id);
        self.leave(end).await;
        if is_given_up {
            // Somebody must go on with what is unfinished, when the journal can be written again.
            runtime.pursue(id);
        }
    }

    /// Takes the lease, reads the session and runs it until there is a reason to end.
    async fn live(&mut self, shared: &Arc<Shared>, halt: Option<Fault>) -> Exit {
        self.lives += 1;
        let mut actor = match Actor::load(self, Arc::clone(shared)).await {
            Ok(actor) => actor,
            Err(fault) if fault.kind() == Kind::SessionBusy => return Exit::Fenced,
            Err(fault) => return Exit::Failed(fault),
        };
        let exit = actor.run(&mut self.inputs, halt).await.unwrap_or_else(|exit| exit);
        if !matches!(exit, Exit::Fenced)
            && let Err(fault) = shared.journal.release(&actor.lease).await
        {
            tracing::warn!(session = %self.id, %fault, "the lease was not given back");
        }
        exit
    }

    /// No longer the session's task. What came in meanwhile goes to the next one, or is refused.
    async fn leave(mut self, end: Result<(), Fault>) {
        self.runtime.sessions.remove_if(&self.id, |_, sender| sender.same_channel(&self.sender));
        self.inputs.close();
        while let Some(message) = self.inputs.recv().await {
            match (&end, message) {
                (_, Message::Report { .. } | Message::Aside(_)) => {}
                (_, Message::Stop { reply, .. }) => drop(reply.send(())),
                (Err(fault), message) => message.refuse(fault),
                (Ok(()), message) => {
                    let (runtime, id) = (self.runtime.clone(), self.id);
                    let forward = async move {
                        drop(runtime.send(id, Missing::Refuse, message).await);
                    };
                    self.runtime.shared.world.spawn.spawn(Box::pin(forward));
                }
            }
        }
    }
}

/// Becomes the session's writer: at once if its holder is known to be gone.
pub(super) async fn take_lease(
    shared: &Shared,
    session: SessionId,
    missing: Missing,
) -> Result<Lease, Fault> {
    let request = LeaseRequest {
        session,
        holder: shared.holder.clone(),
        ttl: shared.limits.lease,
        missing,
        instead_of: None,
    };
    let fault = match shared.journal.take_lease(request.clone()).await {
        Err(fault) if fault.kind() == Kind::SessionBusy => fault,
        taken => return taken,
    };
    let lease = shared.journal.info(session).await?.and_then(|info| info.lease);
    match lease {
        Some(lease) if shared.census.is_gone(&lease.holder) => {
            let request = LeaseRequest { instead_of: Some(lease.holder), ..request };
            shared.journal.take_lease(request).await
        }
        _ => Err(fault),
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

pub(super) fn repeated(session: SessionId, command: &CommandId) -> Fault {
    Fault::new(Kind::CommandRepeated, Operation::SubmitCommand)
        .with(Fact::Session, session.to_string())
        .with(Fact::CommandId, command.to_string())
}

pub(super) fn busy(session: SessionId) -> Fault {
    Fault::new(Kind::SessionBusy, Operation::OpenSession).with(Fact::Session, session.to_string())
}

impl Message {
    fn refuse(self, fault: &Fault) {
        match self {
            Self::Open { reply, .. } => drop(reply.send(Err(fault.clone()))),
            Self::Command { reply, .. } => drop(reply.send(Err(fault.clone()))),
            Self::Stop { reply, .. } => drop(reply.send(())),
            Self::Report { .. } | Self::Aside(_) => {}
        }
    }
}
