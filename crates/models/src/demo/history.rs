//! Reads the current task and its progress from the request's history.

use std::sync::Arc;

use budao_core::message::{Block, Message, ModelRequest, Role, ToolUse, text_of};
use serde_json::Value;

/// One tool call with its result.
#[derive(Clone, Debug)]
pub(super) struct DemoCall<'a> {
    pub(super) used: &'a ToolUse,
    /// The result as JSON; text that is not JSON becomes a string.
    pub(super) result: Value,
    pub(super) failed: bool,
}

impl DemoCall<'_> {
    /// The fault's one-line text; `?` if the result has none.
    pub(super) fn error(&self) -> &str {
        self.result["error"].as_str().or_else(|| self.result.as_str()).unwrap_or("?")
    }
}

/// The turn a request belongs to.
#[derive(Debug)]
pub(super) struct DemoTurn<'a> {
    /// The user's request, as text.
    pub(super) text: &'a str,
    /// The calls of this turn, oldest first.
    pub(super) calls: Vec<DemoCall<'a>>,
    /// True if the session has made no call before this one.
    pub(super) first_of_session: bool,
}

/// Progress of a turn towards its goals.
#[derive(Debug)]
pub(super) struct TurnProgress<'a> {
    /// Number of goals reached, which is the number of successful calls.
    pub(super) done: usize,
    /// Results of the successful calls, in order.
    pub(super) results: Vec<Value>,
    /// Failed attempts at the next goal, oldest first.
    pub(super) failed: &'a [DemoCall<'a>],
}

impl<'a> DemoTurn<'a> {
    pub(super) fn of(request: &'a ModelRequest) -> Self {
        let messages = &request.messages;
        let asked = messages.iter().rposition(|message| !user_text(message).is_empty());
        let since = asked.map_or(0, |at| at + 1);
        let uses = |messages: &'a [Arc<Message>]| {
            messages.iter().flat_map(|message| &message.content).filter_map(|block| match block {
                Block::ToolUse(used) => Some(used),
                _ => None,
            })
        };
        let calls = uses(&messages[since..])
            .filter_map(|used| {
                let (failed, content) = result_of(&messages[since..], used)?;
                let result = serde_json::from_str(content).unwrap_or_else(|_| content.into());
                Some(DemoCall { used, result, failed })
            })
            .collect();
        Self {
            text: asked.map_or("", |at| user_text(&messages[at])),
            calls,
            first_of_session: uses(messages).next().is_none(),
        }
    }

    pub(super) fn progress(&'a self) -> TurnProgress<'a> {
        let results: Vec<_> =
            self.calls.iter().filter(|call| !call.failed).map(|call| data(&call.result)).collect();
        let failed = self.calls.iter().rposition(|call| !call.failed).map_or(0, |at| at + 1);
        TurnProgress { done: results.len(), results, failed: &self.calls[failed..] }
    }
}

/// The user's last text in a message; empty if there is none.
fn user_text(message: &Message) -> &str {
    let said = match message.role {
        Role::User => message.content.iter().rev().find_map(|block| match block {
            Block::Text(text) => Some(text.as_str()),
            _ => None,
        }),
        Role::Assistant => None,
    };
    debug_assert!(said.is_none() || !text_of(&message.content).is_empty() || said == Some(""));
    said.map(str::trim).unwrap_or_default()
}

fn result_of<'a>(messages: &'a [Arc<Message>], used: &ToolUse) -> Option<(bool, &'a str)> {
    messages.iter().flat_map(|message| &message.content).find_map(|block| match block {
        Block::ToolResult { call, is_error, content } if *call == used.id => {
            Some((*is_error, content.as_str()))
        }
        _ => None,
    })
}

/// The `data` field of a successful result, or the whole result if it has none.
fn data(result: &Value) -> Value {
    result.get("data").unwrap_or(result).clone()
}
