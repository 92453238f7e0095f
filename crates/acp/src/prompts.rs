//! The prompts of one session: one is active, the others wait here.
//!
//! Waiting prompts are not submitted to the engine, so that a withdrawn one leaves no record.

use std::{collections::VecDeque, future::poll_fn, task::Poll};

use agent_client_protocol::v1::{Responder, schema::PromptResponse};
use budao_core::{
    event::{CommandId, TurnNumber},
    message::Block,
    time::Timestamp,
    trace::Trace,
};
use futures::future::BoxFuture;

/// A prompt without an answer.
pub(crate) struct Prompt {
    /// Number of the prompt within the connection.
    pub(crate) number: u64,
    pub(crate) content: Vec<Block>,
    pub(crate) command: CommandId,
    pub(crate) trace: Trace,
    pub(crate) responder: Responder<PromptResponse>,
    /// Completes when the editor cancels the request.
    cancellation: Option<BoxFuture<'static, ()>>,
    pub(crate) since: Timestamp,
    /// True once the editor has asked to cancel the turn.
    pub(crate) cancelled: bool,
    /// The turn that answers the prompt; `None` before its start.
    pub(crate) turn: Option<TurnNumber>,
    /// Value of `Outbox::updates` when the prompt became active.
    pub(crate) updates_before: u64,
}

impl Prompt {
    pub(crate) fn new(
        number: u64,
        content: Vec<Block>,
        command: CommandId,
        trace: Trace,
        responder: Responder<PromptResponse>,
        since: Timestamp,
    ) -> Self {
        let handle = responder.cancellation();
        let cancellation: BoxFuture<'static, ()> =
            Box::pin(async move { handle.cancelled().await });
        Self {
            number,
            content,
            command,
            trace,
            responder,
            cancellation: Some(cancellation),
            since,
            cancelled: false,
            turn: None,
            updates_before: 0,
        }
    }

    fn poll_withdrawn(&mut self, context: &mut std::task::Context<'_>) -> bool {
        let Some(withdrawn) = &mut self.cancellation else { return false };
        let is_withdrawn = withdrawn.as_mut().poll(context).is_ready();
        if is_withdrawn {
            self.cancellation = None;
        }
        is_withdrawn
    }
}

/// All unanswered prompts of a session.
#[derive(Default)]
pub(crate) struct Prompts {
    pub(crate) active: Option<Prompt>,
    pub(crate) waiting: VecDeque<Prompt>,
}

impl Prompts {
    /// Waits until the editor cancels one of the requests, and returns its prompt's number.
    pub(crate) async fn next_withdrawn(&mut self) -> u64 {
        poll_fn(|context| {
            let mut all = self.active.iter_mut().chain(&mut self.waiting);
            match all.find_map(|prompt| prompt.poll_withdrawn(context).then_some(prompt.number)) {
                Some(number) => Poll::Ready(number),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Removes a waiting prompt; `None` if it does not wait.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Prompt> {
        let at = self.waiting.iter().position(|prompt| prompt.number == number)?;
        self.waiting.remove(at)
    }

    pub(crate) fn is_active(&self, number: u64) -> bool {
        self.active.as_ref().is_some_and(|prompt| prompt.number == number)
    }
}
