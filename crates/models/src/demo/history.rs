//! What the history shows: the task, and what has come of it so far.

use budao_core::message::{Block, Message, ModelRequest, Role, ToolUse, text_of};
use serde_json::Value;

/// One call and its result.
#[derive(Clone, Debug)]
pub(super) struct DemoCall<'a> {
    pub(super) used: &'a ToolUse,
    /// What came back, as JSON; text that is none is a string.
    pub(super) result: Value,
    pub(super) failed: bool,
}

impl DemoCall<'_> {
    /// The error in one line.
    pub(super) fn error(&self) -> &str {
        self.result["error"].as_str().or_else(|| self.result.as_str()).unwrap_or("?")
    }
}

/// The turn a request belongs to.
#[derive(Debug)]
pub(super) struct DemoTurn<'a> {
    /// What the user wants.
    pub(super) text: &'a str,
    /// Its calls so far.
    pub(super) calls: Vec<DemoCall<'a>>,
    /// Has no call ever been made in this session?
    pub(super) first_of_session: bool,
}

/// How far a turn has got.
#[derive(Debug)]
pub(super) struct TurnProgress<'a> {
    /// Goals that are reached: calls that worked.
    pub(super) done: usize,
    /// What they gave.
    pub(super) results: Vec<Value>,
    /// The tries for the next goal that failed, oldest first.
    pub(super) failed: &'a [DemoCall<'a>],
}

impl<'a> DemoTurn<'a> {
    pub(super) fn of(request: &'a ModelRequest) -> Self {
        let messages = &request.messages;
        let asked = messages.iter().rposition(|message| !user_text(message).is_empty());
        let since = asked.map_or(0, |at| at + 1);
        let uses = |messages: &'a [Message]| {
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

/// The last thing a person said in a message, if one did.
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

fn result_of<'a>(messages: &'a [Message], used: &ToolUse) -> Option<(bool, &'a str)> {
    messages.iter().flat_map(|message| &message.content).find_map(|block| match block {
        Block::ToolResult { call, is_error, content } if *call == used.id => {
            Some((*is_error, content.as_str()))
        }
        _ => None,
    })
}

/// What a success carries.
fn data(result: &Value) -> Value {
    result.get("data").unwrap_or(result).clone()
}
