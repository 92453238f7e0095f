//! The prompts of one session: one is answered, the others wait here.
//!
//! They wait here and not in the engine, so that one of them can be withdrawn without a trace.

use std::{collections::VecDeque, future::poll_fn, task::Poll};

use agent_client_protocol::v1::{Responder, schema::PromptResponse};
use budao_core::{
    event::{CommandId, TurnNumber},
    message::Block,
    time::Timestamp,
    trace::Trace,
};
use futures::future::BoxFuture;

/// A prompt that has no answer yet.
pub(crate) struct Prompt {
    /// Counts the prompts of the connection.
    pub(crate) number: u64,
    pub(crate) content: Vec<Block>,
    pub(crate) command: CommandId,
    pub(crate) trace: Trace,
    pub(crate) responder: Responder<PromptResponse>,
    /// Completes when the editor takes the request back.
    withdrawn: Option<BoxFuture<'static, ()>>,
    pub(crate) since: Timestamp,
    /// The editor asked for it to be stopped.
    pub(crate) cancelled: bool,
    /// The turn that answers it, once it began.
    pub(crate) turn: Option<TurnNumber>,
    /// Updates sent before it began.
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
        let cancellation = responder.cancellation();
        let withdrawn: BoxFuture<'static, ()> =
            Box::pin(async move { cancellation.cancelled().await });
        Self {
            number,
            content,
            command,
            trace,
            responder,
            withdrawn: Some(withdrawn),
            since,
            cancelled: false,
            turn: None,
            updates_before: 0,
        }
    }

    fn poll_withdrawn(&mut self, context: &mut std::task::Context<'_>) -> bool {
        let Some(withdrawn) = &mut self.withdrawn else { return false };
        let is_withdrawn = withdrawn.as_mut().poll(context).is_ready();
        if is_withdrawn {
            self.withdrawn = None;
        }
        is_withdrawn
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct Prompts {
    pub(crate) active: Option<Prompt>,
    pub(crate) waiting: VecDeque<Prompt>,
}

impl Prompts {
    /// Waits until the editor takes one back; its number.
    pub(crate) async fn withdrawn(&mut self) -> u64 {
        poll_fn(|context| {
            let mut all = self.active.iter_mut().chain(&mut self.waiting);
            match all.find_map(|prompt| prompt.poll_withdrawn(context).then_some(prompt.number)) {
                Some(number) => Poll::Ready(number),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Takes one out that waits.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Prompt> {
        let at = self.waiting.iter().position(|prompt| prompt.number == number)?;
        self.waiting.remove(at)
    }

    pub(crate) fn is_active(&self, number: u64) -> bool {
        self.active.as_ref().is_some_and(|prompt| prompt.number == number)
    }
}
