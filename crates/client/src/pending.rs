//! Commands that have no answer yet. They keep their ids and their order over every reconnect.

use std::collections::BTreeMap;

use budao_core::fault::{Fault, Kind, Operation};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::{event::Event, session::Error};

/// Commands that may wait for their answers; more wait with their senders.
const ROOM: usize = 1024;

/// How a command ends.
pub(crate) type Reply = Result<Event, Error>;

#[derive(Debug)]
struct PendingCommand {
    id: String,
    frame: Value,
    reply: oneshot::Sender<Reply>,
}

/// The commands, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    next: u64,
    commands: BTreeMap<u64, PendingCommand>,
}

impl Pending {
    /// Keeps a command until it is answered.
    pub(crate) fn keep(&mut self, id: String, frame: Value, reply: oneshot::Sender<Reply>) {
        self.commands.insert(self.next, PendingCommand { id, frame, reply });
        self.next += 1;
    }

    /// Is everything answered?
    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// May one more be kept?
    pub(crate) fn has_room(&self) -> bool {
        self.commands.len() < ROOM
    }

    /// What has to be sent again, in order. Whoever no longer waits is forgotten.
    pub(crate) fn again(&mut self) -> Vec<Value> {
        self.commands.retain(|_, command| !command.reply.is_closed());
        self.commands.values().map(|command| command.frame.clone()).collect()
    }

    /// Gives an answer to the command it names.
    pub(crate) fn settle(&mut self, event: &Event) {
        let Some(id) = event.answers() else { return };
        let found = self.commands.iter().find(|(_, command)| command.id == id);
        let key = found.map(|(key, _)| *key);
        let Some(command) = key.and_then(|key| self.commands.remove(&key)) else { return };
        let reply = match event.is_refusal() {
            true => Err(Error::Rejected(Box::new(event.clone()))),
            false => Ok(event.clone()),
        };
        let _ = command.reply.send(reply);
    }

    /// Ends all of them: nobody will answer any more.
    pub(crate) fn fail(&mut self, fault: &Fault) {
        for command in std::mem::take(&mut self.commands).into_values() {
            let _ = command.reply.send(Err(Error::Fault(fault.clone())));
        }
    }
}

/// What a command is told when its session was closed under it.
pub(crate) fn closed() -> Fault {
    Fault::new(Kind::ConnectionLost, Operation::SubmitCommand)
        .with_cause("the session was closed on this side")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn notice(name: &str, id: &str) -> Event {
        Event { event: name.into(), command_id: Some(id.into()), ..Event::default() }
    }

    #[tokio::test]
    async fn what_is_unanswered_is_sent_again_in_order_and_the_rest_is_not() {
        let mut pending = Pending::default();
        let mut waiting = Vec::new();
        for id in ["a", "b", "c"] {
            let (reply, wait) = oneshot::channel();
            pending.keep(id.into(), json!(id), reply);
            waiting.push(wait);
        }
        pending.settle(&notice("system.notice", "b"));
        pending.settle(&notice("system.notice", "unknown"));
        assert_eq!(pending.again(), [json!("a"), json!("c")]);
        pending.settle(&notice("error.validation", "c"));
        assert!(waiting.remove(1).await.unwrap().is_ok());
        assert!(matches!(waiting.remove(1).await.unwrap(), Err(Error::Rejected(_))));
        drop(waiting);
        assert_eq!(pending.again(), Vec::<Value>::new());
    }
}
