//! A session's task before and after it has the session: taking the lease, coming back after the journal
//! failed, handing on what came in meanwhile.

#[cfg(test)]
mod tests;

use std::{panic::AssertUnwindSafe, sync::Arc};

use budao_core::{
    event::SessionId,
    fault::{Fault, Kind},
};
use budao_journal::{
    Missing,
    tenure::{After, Exit, Lives},
};
use futures::FutureExt;
use tokio::sync::mpsc;

use super::{Actor, Message};
use crate::runtime::{Runtime, Shared};

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
        let mut lives = Lives::new(self.id);
        let mut is_given_up = false;
        let end = loop {
            let life = AssertUnwindSafe(self.live(&shared, lives.halt())).catch_unwind().await;
            match lives.after(life, &shared.limits.retry) {
                After::Again(wait) => shared.world.clock.sleep(wait).await,
                After::End(end) => break end,
                After::GivenUp(fault) => {
                    is_given_up = true;
                    break Err(fault);
                }
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
        if !matches!(exit, Exit::Fenced) {
            actor.tenure.release().await;
        }
        exit
    }

    /// No longer the session's task. What came in meanwhile goes to the next one, or is refused.
    async fn leave(mut self, end: Result<(), Fault>) {
        self.runtime.sessions.leave(self.id, &self.sender);
        self.inputs.close();
        while let Some(message) = self.inputs.recv().await {
            match (message, &end) {
                (Message::Report { .. } | Message::Aside(_), _) => {}
                (Message::Stop { reply, .. }, _) => drop(reply.send(())),
                (Message::Open { reply, .. }, Err(fault)) => drop(reply.send(Err(fault.clone()))),
                (Message::Command { reply, .. }, Err(fault)) => {
                    drop(reply.send(Err(fault.clone())));
                }
                (message, Ok(())) => {
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
