//! The queue of commands to the engine for one session: in order, one at a time.
//!
//! A cancel and a prompt reach the engine in the order in which the editor sent them.

use std::{collections::VecDeque, future::poll_fn, task::Poll};

use agent_client_protocol::v1::{
    Responder,
    schema::{
        CloseSessionResponse, DeleteSessionResponse, SetSessionConfigOptionResponse,
        SetSessionModeResponse,
    },
};
use budao_core::{
    event::{Answer, CommandBody, CommandId, Settings},
    fault::Fault,
};
use futures::future::BoxFuture;

use crate::editor_options::SettingsChange;

/// One command to the engine.
#[derive(Debug)]
pub(crate) enum QueuedCommand {
    /// Submit the active prompt.
    Message {
        command: CommandId,
        body: CommandBody,
    },
    /// Withdraw a message whose prompt has already been answered.
    Withdraw {
        message: CommandId,
    },
    Cancel,
    Decide {
        body: CommandBody,
    },
    Settings {
        change: SettingsChange,
        reply: SettingsResponder,
        new_settings: Option<Box<Settings>>,
    },
    /// End the session; afterwards its task ends.
    Close,
    /// Load the session, so that unfinished work continues.
    Resume,
}

/// The request that waits for a change of settings.
#[derive(Debug)]
pub(crate) enum SettingsResponder {
    None,
    Mode(Responder<SetSessionModeResponse>),
    Option(Responder<SetSessionConfigOptionResponse>),
}

/// The request that waits for the end of the session's task.
#[derive(Debug)]
pub(crate) enum LeaveResponder {
    Close(Responder<CloseSessionResponse>),
    Delete(Responder<DeleteSessionResponse>),
}

type PendingAnswer = BoxFuture<'static, Result<Answer, Fault>>;

#[derive(Default)]
pub(crate) struct CommandQueue {
    waiting: VecDeque<QueuedCommand>,
    running: Option<(QueuedCommand, PendingAnswer)>,
}

impl CommandQueue {
    pub(crate) fn push(&mut self, queued: QueuedCommand) {
        self.waiting.push_back(queued);
    }

    /// Takes the next command unless one is running.
    pub(crate) fn take_next(&mut self) -> Option<QueuedCommand> {
        if self.running.is_some() { None } else { self.waiting.pop_front() }
    }

    /// Sets the running command and the future of its answer.
    pub(crate) fn start(&mut self, queued: QueuedCommand, asking: PendingAnswer) {
        self.running = Some((queued, asking));
    }

    /// Drops all waiting commands.
    pub(crate) fn drop_waiting(&mut self) {
        self.waiting.clear();
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_none() && self.waiting.is_empty()
    }

    /// Waits for the answer to the running command; never completes if none runs.
    pub(crate) async fn wait_for_answer(&mut self) -> (QueuedCommand, Result<Answer, Fault>) {
        let answer = poll_fn(|context| match &mut self.running {
            Some((_, asking)) => asking.as_mut().poll(context),
            None => Poll::Pending,
        })
        .await;
        let (queued, _) = self.running.take().expect("a command is running");
        (queued, answer)
    }
}
