//! What is asked of the engine for one session: in order, one at a time.
//!
//! A cancel that came after a prompt reaches the engine after it, and one that came before it, before.

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

/// One thing to ask.
#[derive(Debug)]
pub(crate) enum Job {
    /// The prompt that is being answered.
    Message {
        command: CommandId,
        ask: CommandBody,
    },
    /// Take a message back that its prompt no longer waits for.
    Withdraw {
        message: CommandId,
    },
    Cancel,
    Decide {
        ask: CommandBody,
    },
    Settings {
        change: SettingsChange,
        reply: SettingsResponder,
        made: Option<Box<Settings>>,
    },
    /// End the session; afterwards it is let go.
    Close,
    /// Have the session taken up, so that what is unfinished goes on.
    Resume,
}

/// Who wants to know that a setting was changed.
#[derive(Debug)]
pub(crate) enum SettingsResponder {
    None,
    Mode(Responder<SetSessionModeResponse>),
    Option(Responder<SetSessionConfigOptionResponse>),
}

/// Who wants to know that the session was let go.
#[derive(Debug)]
pub(crate) enum LeaveResponder {
    Close(Responder<CloseSessionResponse>),
    Delete(Responder<DeleteSessionResponse>),
}

type PendingAnswer = BoxFuture<'static, Result<Answer, Fault>>;

#[derive(Default)]
pub(crate) struct JobQueue {
    waiting: VecDeque<Job>,
    doing: Option<(Job, PendingAnswer)>,
}

impl JobQueue {
    pub(crate) fn push(&mut self, job: Job) {
        self.waiting.push_back(job);
    }

    /// The next one, if none is being done.
    pub(crate) fn ready(&mut self) -> Option<Job> {
        if self.doing.is_some() { None } else { self.waiting.pop_front() }
    }

    /// This one is being done.
    pub(crate) fn start(&mut self, job: Job, asking: PendingAnswer) {
        self.doing = Some((job, asking));
    }

    /// What waits is no longer wanted.
    pub(crate) fn forget_waiting(&mut self) {
        self.waiting.clear();
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.doing.is_none() && self.waiting.is_empty()
    }

    /// Waits until the one that is being done is done.
    pub(crate) async fn done(&mut self) -> (Job, Result<Answer, Fault>) {
        let answer = poll_fn(|context| match &mut self.doing {
            Some((_, asking)) => asking.as_mut().poll(context),
            None => Poll::Pending,
        })
        .await;
        let (job, _) = self.doing.take().expect("only what is being done gets done");
        (job, answer)
    }
}
