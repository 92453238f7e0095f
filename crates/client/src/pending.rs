//! Commands without an answer yet. They keep their ids and their order across reconnects.

use std::collections::BTreeMap;

use budao_core::fault::{Fault, Kind, Operation};
use serde_json::Value;
use tokio::sync::oneshot;

use crate::{event::Event, session::Error};

/// Upper bound for unanswered commands; at the bound, further commands stay in the handles' channel.
const ROOM: usize = 1024;

/// The result of a command: the answering event, or why there is none.
pub(crate) type Reply = Result<Event, Error>;

#[derive(Debug)]
struct PendingCommand {
    id: String,
    frame: Value,
    reply: oneshot::Sender<Reply>,
}

/// The unanswered commands, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    next: u64,
    commands: BTreeMap<u64, PendingCommand>,
}

impl Pending {
    /// Stores a command until it is answered.
    pub(crate) fn keep(&mut self, id: String, frame: Value, reply: oneshot::Sender<Reply>) {
        self.commands.insert(self.next, PendingCommand { id, frame, reply });
        self.next += 1;
    }

    /// True if every command is answered.
    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// True if one more command fits.
    pub(crate) fn has_room(&self) -> bool {
        self.commands.len() < ROOM
    }

    /// Returns the frames to resend, oldest first. Commands whose caller stopped waiting are dropped.
    pub(crate) fn again(&mut self) -> Vec<Value> {
        self.commands.retain(|_, command| !command.reply.is_closed());
        self.commands.values().map(|command| command.frame.clone()).collect()
    }

    /// Passes an answer to the command that it names, if that command is still pending.
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

    /// Fails all pending commands with this fault.
    pub(crate) fn fail(&mut self, fault: &Fault) {
        for command in std::mem::take(&mut self.commands).into_values() {
            let _ = command.reply.send(Err(Error::Fault(fault.clone())));
        }
    }
}

/// The fault of a command whose connection task has ended.
pub(crate) fn closed_fault() -> Fault {
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
