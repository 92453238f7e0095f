//! The prompts of a server: list them, and get one filled in.

use std::time::Duration;

use budao_core::fault::{Fact, Fault, Kind, Operation};
use rmcp::model::{GetPromptRequestParams, GetPromptResponse, JsonObject, PaginatedRequestParams};
use serde_json::Value;

use crate::{
    error::{FaultContext, ServerError},
    server::{ServerHandle, ServerShared},
};

/// The most pages of prompts that are listed.
const PAGES_MAX: usize = 20;

/// The most prompts of one server.
const PROMPTS_MAX: usize = 500;

impl ServerHandle {
    /// Whether the server offers prompts; `None` while it is down.
    #[must_use]
    pub fn has_prompts(&self) -> Option<bool> {
        self.shared.connection().map(|_| self.shared.has_prompts())
    }

    /// Lists the prompts of the server in the protocol's JSON.
    ///
    /// # Errors
    /// If the server is down, has no prompts, or does not answer within `limit`.
    pub async fn prompts(&self, limit: Duration) -> Result<Vec<Value>, Fault> {
        self.shared.prompts(limit).await
    }

    /// Gets a prompt with its arguments filled in, in the protocol's JSON: a description and messages.
    ///
    /// # Errors
    /// If the server is down, does not have the prompt, or does not answer within `limit`.
    pub async fn prompt(
        &self,
        name: &str,
        arguments: Option<JsonObject>,
        limit: Duration,
    ) -> Result<Value, Fault> {
        self.shared.prompt(name, arguments, limit).await
    }
}

impl ServerShared {
    /// Whether the connected server has prompts.
    pub(crate) fn has_prompts(&self) -> bool {
        let info = self.connection().and_then(|connection| connection.peer.peer_info());
        info.is_some_and(|info| info.capabilities.prompts.is_some())
    }

    fn require_prompts(&self) -> Result<(), Fault> {
        match self.has_prompts() {
            true => Ok(()),
            false => Err(FaultContext::bare(&self.name, Operation::ReadDocument)
                .fault(Kind::CapabilityUnsupported)
                .with(Fact::Capability, "prompts")
                .via("mcp_server", &*self.name)),
        }
    }

    pub(crate) async fn prompts(&self, limit: Duration) -> Result<Vec<Value>, Fault> {
        let connection = self.connected()?;
        self.require_prompts()?;
        let request = async {
            let (mut prompts, mut cursor) = (Vec::new(), None);
            for _ in 0..PAGES_MAX {
                let params = PaginatedRequestParams::default().with_cursor(cursor);
                let page = connection.peer.list_prompts(Some(params)).await?;
                prompts.extend(page.prompts);
                cursor = page.next_cursor;
                if cursor.is_none() || prompts.len() >= PROMPTS_MAX {
                    break;
                }
            }
            let to_json = |it| serde_json::to_value(it).unwrap_or_default();
            Ok(prompts.into_iter().take(PROMPTS_MAX).map(to_json).collect())
        };
        self.with_time_limit(&connection, limit, request).await
    }

    pub(crate) async fn prompt(
        &self,
        name: &str,
        arguments: Option<JsonObject>,
        limit: Duration,
    ) -> Result<Value, Fault> {
        let connection = self.connected()?;
        self.require_prompts()?;
        let request = async {
            let mut params = GetPromptRequestParams::new(name);
            params.arguments = arguments;
            match connection.peer.get_prompt_once(params).await? {
                GetPromptResponse::Complete(prompt) => {
                    Ok(serde_json::to_value(prompt).unwrap_or_default())
                }
                _ => {
                    Err(ServerError::Unsupported("the server wants input before it gives a prompt"))
                }
            }
        };
        self.with_time_limit(&connection, limit, request).await
    }
}
