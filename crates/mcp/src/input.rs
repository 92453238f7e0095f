//! Answers to what a server without a handshake asks in the middle of a call: it ends the request with its questions,
//! and the client repeats the request with the answers.
//!
//! The questions are durable before a person is asked, so a call that waits for a person survives the process. The
//! record is voided before the answers are sent: from then on the call may run.

use budao_tools::CallContext;
use rmcp::model::{InputRequest, InputRequests, InputResponses};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{elicit, error::ServerError, sampling, server::ServerShared};

/// The most questions in one answer of a server.
const QUESTIONS_MAX: usize = 32;

/// The largest state of a server that is recorded, in bytes.
const STATE_BYTES_MAX: usize = 64 * 1024;

/// What is durable of a call whose server waits for input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct InputCheckpoint {
    /// The server's own name of the tool.
    tool: String,
    /// Counts the requests for input of the call, from 1.
    pub(crate) round: u32,
    /// What the server asks.
    pub(crate) mcp_input: InputRequests,
    /// The server's own state, which it gets back with the answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
}

impl InputCheckpoint {
    pub(crate) fn new(
        tool: &str,
        round: u32,
        requests: InputRequests,
        state: Option<String>,
    ) -> Result<Self, ServerError> {
        if requests.len() > QUESTIONS_MAX {
            return Err(ServerError::Unsupported("the server asks too many questions in one call"));
        }
        if state.as_ref().is_some_and(|state| state.len() > STATE_BYTES_MAX) {
            return Err(ServerError::Unsupported("the server's state of the call is too large"));
        }
        Ok(Self { tool: tool.to_owned(), round, mcp_input: requests, state })
    }

    /// The checkpoint of an earlier attempt of this call; `None` if it did not wait for input.
    pub(crate) async fn find(context: &CallContext, tool: &str) -> Option<Self> {
        let found = context.memory.last_checkpoint().await?;
        let found: Self = serde_json::from_value(found).ok()?;
        (found.tool == tool).then_some(found)
    }

    /// Answers the questions of the server. Returns `None` if the call was stopped; an answer that a person has given
    /// is kept for the next attempt.
    pub(crate) async fn answer(
        &self,
        shared: &ServerShared,
        context: &CallContext,
    ) -> Result<Option<InputResponses>, ServerError> {
        let asks_person =
            self.mcp_input.values().any(|it| !matches!(it, InputRequest::ListRoots(_)));
        if asks_person {
            self.record(context).await;
        }
        let place = format!("round {}", self.round);
        let answers = tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Ok(None),
            answers = answer(&self.mcp_input, shared, &place, context) => answers?,
        };
        if asks_person {
            context.memory.checkpoint(json!({ "mcp_input_sent": self.round })).await;
        }
        Ok(Some(answers))
    }

    async fn record(&self, context: &CallContext) {
        let data = serde_json::to_value(self).unwrap_or_default();
        if !context.memory.checkpoint(data).await {
            tracing::warn!(session = %context.session, tool = self.tool, "question is not durable");
        }
    }
}

/// Answers all questions of a server, one after the other.
pub(crate) async fn answer(
    requests: &InputRequests,
    shared: &ServerShared,
    place: &str,
    context: &CallContext,
) -> Result<InputResponses, ServerError> {
    if requests.len() > QUESTIONS_MAX {
        return Err(ServerError::Unsupported("the server asks too many questions in one call"));
    }
    let mut answers = InputResponses::new();
    for (key, request) in requests {
        let answer = match request {
            InputRequest::Elicitation(request) => {
                let params = serde_json::to_value(&request.params).unwrap_or_default();
                let place = format!("{place} {key}");
                let answer = elicit::ask(&shared.name, &params, &place, context).await;
                serde_json::to_value(answer)
            }
            InputRequest::ListRoots(_) => Ok(shared.roots().clone()),
            InputRequest::CreateMessage(request) => {
                let place = format!("{place} {key}");
                let sampled = sampling::sample(
                    &shared.name,
                    shared.sampling,
                    &request.params,
                    &place,
                    context,
                );
                serde_json::to_value(sampled.await?)
            }
            _ => return Err(ServerError::Unsupported("the server asks for something unknown")),
        };
        answers.insert(key.clone(), answer.unwrap_or(Value::Null));
    }
    Ok(answers)
}
