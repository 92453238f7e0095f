//! The commands of the editor to one session, in order of arrival.
//!
//! A command that arrives while the session is being loaded or left waits here, so that it sees the result.

use std::{collections::VecDeque, sync::Arc};

use agent_client_protocol::{
    Error,
    v1::{
        Responder,
        schema::{SetSessionConfigOptionResponse, SetSessionModeResponse},
    },
};
use budao_core::event::SessionId;
use tokio::sync::mpsc;

use super::SessionStart;
use crate::{
    command_queue::LeaveResponder,
    editor_sessions::{EditorSessions, MAILBOX_CAPACITY},
    prompts::Prompt,
    request_handler::respond,
};

/// A command of the editor to a session.
#[derive(Debug)]
pub(crate) enum EditorCommand {
    Begin(Box<SessionStart>),
    Prompt(Box<Prompt>),
    Cancel,
    SetMode { mode: String, reply: Responder<SetSessionModeResponse> },
    SetOption { option: String, value: String, reply: Responder<SetSessionConfigOptionResponse> },
    Leave(LeaveResponder),
}

impl EditorCommand {
    /// Whether the command can be handled while the session is not open.
    pub(super) fn opens_or_deletes(&self) -> bool {
        matches!(self, Self::Begin(_) | Self::Leave(LeaveResponder::Delete(_)))
    }

    /// Answers the command's request with an error. A cancel has no request.
    pub(crate) fn refuse(self, error: Error) {
        match self {
            Self::Begin(begin) => begin.reply.refuse(error),
            Self::Prompt(prompt) => respond!(prompt.responder, Err(error)),
            Self::Cancel => {}
            Self::SetMode { reply, .. } => respond!(reply, Err(error)),
            Self::SetOption { reply, .. } => respond!(reply, Err(error)),
            Self::Leave(LeaveResponder::Close(reply)) => respond!(reply, Err(error)),
            Self::Leave(LeaveResponder::Delete(reply)) => respond!(reply, Err(error)),
        }
    }
}

/// The receiving end of a session task's commands.
#[derive(Debug)]
pub(crate) struct Mailbox {
    registry: Arc<EditorSessions>,
    session: SessionId,
    receiver: mpsc::Receiver<EditorCommand>,
    /// Commands that wait until the session has been loaded or left; at most [`MAILBOX_CAPACITY`].
    deferred: VecDeque<EditorCommand>,
}

impl Mailbox {
    pub(crate) fn new(
        registry: Arc<EditorSessions>,
        session: SessionId,
        receiver: mpsc::Receiver<EditorCommand>,
    ) -> Self {
        Self { registry, session, receiver, deferred: VecDeque::new() }
    }

    /// The next command from the editor; `None` once it has disconnected.
    pub(super) async fn receive(&mut self) -> Option<EditorCommand> {
        self.receiver.recv().await
    }

    /// Defers a command. Above the bound it is dropped, which answers its request with an error.
    pub(super) fn defer(&mut self, command: EditorCommand) {
        if self.deferred.len() < MAILBOX_CAPACITY {
            self.deferred.push_back(command);
        } else {
            tracing::warn!(
                limit = MAILBOX_CAPACITY,
                limit_name = "acp_mailbox",
                "command dropped: deferred queue full"
            );
        }
    }

    pub(super) fn next_deferred(&mut self) -> Option<EditorCommand> {
        self.deferred.pop_front()
    }

    pub(super) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Removes all prompts that wait here, in order.
    pub(super) fn take_prompts(&mut self) -> Vec<Prompt> {
        let (mut prompts, mut others) = (Vec::new(), VecDeque::new());
        for command in std::mem::take(&mut self.deferred) {
            match command {
                EditorCommand::Prompt(prompt) => prompts.push(*prompt),
                other => others.push_back(other),
            }
        }
        self.deferred = others;
        prompts
    }

    /// Unregisters the task if no command waits for it. Returns true if the task is to end.
    pub(super) fn end_if_idle(&self) -> bool {
        self.deferred.is_empty() && self.registry.remove_if_idle(self.session, &self.receiver)
    }
}
