//! Who is asked before a tool runs that is not applied by itself.

use std::fmt;

use async_trait::async_trait;
use serde_json::{Value, json};

/// Decides whether a tool may run.
#[async_trait]
pub trait Confirmer: Send + Sync + fmt::Debug {
    /// Asks. The call's own deadline ends the question, too.
    async fn confirm(&self, question: &Question<'_>) -> Confirmation;
}

/// What came of a question. Everything but a yes is a no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// It may run.
    Yes,
    /// It may not, with the words of whoever said so, if there were any.
    No(Option<String>),
    /// Nobody could be asked, or what came back was no answer, with the reason.
    Unanswered(String),
}

impl Confirmation {
    /// Why the tool does not run; nothing if it does.
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

/// A tool that wants to run.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The request.
    pub req_id: &'a str,
    /// The MCP server.
    pub bundle_id: &'a str,
    /// The tool.
    pub tool: &'a str,
    /// Its arguments.
    pub params: &'a Value,
}

impl Question<'_> {
    /// For programs that are asked.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "req_id": self.req_id, "mcp_server": self.bundle_id,
            "tool": self.tool, "params": self.params,
        })
    }
}

/// Nobody can be asked.
#[derive(Clone, Copy, Debug)]
pub struct NoConfirmer;

#[async_trait]
impl Confirmer for NoConfirmer {
    async fn confirm(&self, _: &Question<'_>) -> Confirmation {
        Confirmation::Unanswered("nobody at the computer could be asked".to_owned())
    }
}
