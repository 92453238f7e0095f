//! The mailboxes of the session tasks. Requests of one session reach its task in the order of arrival.
//!
//! A task ends only while this registry is locked and its mailbox is empty, so no request is lost between two
//! tasks of the same session.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

use budao_core::event::SessionId;
use tokio::sync::mpsc;

use crate::editor_session::EditorCommand;

/// Capacity of a session task's mailbox.
pub(crate) const MAILBOX_CAPACITY: usize = 512;

/// The sender of each running session task.
#[derive(Debug, Default)]
pub(crate) struct EditorSessions {
    mailboxes: Mutex<BTreeMap<SessionId, mpsc::Sender<EditorCommand>>>,
}

impl EditorSessions {
    /// Passes a command to the session's task; returns it if the session has none.
    pub(crate) fn send(
        &self,
        session: SessionId,
        command: EditorCommand,
    ) -> Result<(), Box<EditorCommand>> {
        match self.lock().get(&session) {
            Some(mailbox) => try_send(mailbox, command),
            None => Err(Box::new(command)),
        }
    }

    /// Passes a command to the session's task; `start` creates the task if there is none.
    pub(crate) fn send_or_start(
        &self,
        session: SessionId,
        command: EditorCommand,
        start: impl FnOnce(mpsc::Receiver<EditorCommand>),
    ) {
        let mut mailboxes = self.lock();
        let sent = match mailboxes.get(&session) {
            Some(mailbox) => try_send(mailbox, command),
            None => Err(Box::new(command)),
        };
        let Err(command) = sent else { return };
        let (sender, mailbox) = mpsc::channel(MAILBOX_CAPACITY);
        // A new mailbox has room.
        let _ = sender.try_send(*command);
        mailboxes.insert(session, sender);
        start(mailbox);
    }

    /// Removes the session's task unless its mailbox has a command. Returns true if the task is to end.
    pub(crate) fn remove_if_idle(
        &self,
        session: SessionId,
        mailbox: &mpsc::Receiver<EditorCommand>,
    ) -> bool {
        let mut mailboxes = self.lock();
        if !mailbox.is_empty() {
            return false;
        }
        mailboxes.remove(&session);
        true
    }

    /// Closes every mailbox, which tells the tasks that the editor has disconnected.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, mpsc::Sender<EditorCommand>>> {
        self.mailboxes.lock().expect("no code panics while holding this")
    }
}

/// Passes a command to a task without waiting; returns it if the task has ended. If the mailbox is full, the
/// command is dropped, and dropping its responder answers the request with an error.
fn try_send(
    mailbox: &mpsc::Sender<EditorCommand>,
    command: EditorCommand,
) -> Result<(), Box<EditorCommand>> {
    match mailbox.try_send(command) {
        Ok(()) => Ok(()),
        Err(mpsc::error::TrySendError::Closed(command)) => Err(Box::new(command)),
        Err(mpsc::error::TrySendError::Full(_)) => {
            tracing::warn!(
                limit = MAILBOX_CAPACITY,
                limit_name = "acp_mailbox",
                "command dropped: session mailbox full"
            );
            Ok(())
        }
    }
}
