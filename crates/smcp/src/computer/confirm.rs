//! Confirmation of tool calls whose tool does not have `auto_apply`.

use std::fmt;

use async_trait::async_trait;
use serde_json::{Value, json};

/// Decides whether a tool may run. The program that embeds the computer implements it.
#[async_trait]
pub trait Confirmer: Send + Sync + fmt::Debug {
    /// Asks for a decision. The call's deadline and its cancellation drop the future.
    async fn confirm(&self, question: &Question<'_>) -> Confirmation;
}

/// The outcome of a question. Only [`Confirmation::Yes`] lets the tool run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// The tool may run.
    Yes,
    /// The tool may not run, with the reason if one was given.
    No(Option<String>),
    /// There was no valid decision; the text says why.
    Unanswered(String),
}

impl Confirmation {
    /// The reason why the tool does not run; `None` if it may run.
    #[must_use]
    pub fn refusal(self) -> Option<String> {
        match self {
            Self::Yes => None,
            Self::No(None) => Some("the computer's owner said no".to_owned()),
            Self::No(Some(words)) => Some(format!("the computer's owner said no: {words}")),
            Self::Unanswered(why) => Some(why),
        }
    }
}

/// A tool call that needs confirmation.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The request id of the call.
    pub req_id: &'a str,
    /// The id of the MCP server that has the tool.
    pub bundle_id: &'a str,
    /// The tool, by the server's own name.
    pub tool: &'a str,
    /// The arguments of the call, unscrubbed.
    pub params: &'a Value,
}

impl Question<'_> {
    /// The question as JSON, for external programs that decide.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "req_id": self.req_id, "mcp_server": self.bundle_id,
            "tool": self.tool, "params": self.params,
        })
    }
}

/// A confirmer that never confirms: every question stays unanswered.
#[derive(Clone, Copy, Debug)]
pub struct NoConfirmer;

#[async_trait]
impl Confirmer for NoConfirmer {
    async fn confirm(&self, _: &Question<'_>) -> Confirmation {
        Confirmation::Unanswered("the user of the computer could not be asked".to_owned())
    }
}
