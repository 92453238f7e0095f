//! Texts of a model that a server asks for in the middle of a call. Off unless the server's configuration allows it.
//!
//! The text comes from a child session without tools. So it passes the gate and the caps, uses the session's model, and
//! is recorded. With [`SamplingMode::Ask`], a person sees the request first.
#![expect(deprecated, reason = "servers of today still ask for texts of a model")]

use budao_core::elicitation::{Elicitation, ElicitationAnswer};
use budao_tools::{CallContext, SampleRequest};
use rmcp::model::{
    CreateMessageRequestParams, CreateMessageResult, ErrorCode, ErrorData, Role, SamplingMessage,
    SamplingMessageContentBlock,
};
use serde::Deserialize;
use serde_json::json;

use crate::error::ServerError;

/// The longest request for a text, in bytes.
const PROMPT_BYTES_MAX: usize = 64 * 1024;

/// The code of a request that the person declined.
const DECLINED: ErrorCode = ErrorCode(-1);

/// Whether a server may ask for texts of the session's model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SamplingMode {
    /// Such requests are refused.
    #[default]
    Off,
    /// A person decides about each request.
    Ask,
    /// Requests are carried out, within the caps of the session.
    Allow,
}

/// Gets a text of the session's model for a server.
pub(crate) async fn sample(
    server: &str,
    mode: SamplingMode,
    params: &CreateMessageRequestParams,
    place: &str,
    context: &CallContext,
) -> Result<CreateMessageResult, ServerError> {
    if mode == SamplingMode::Off {
        return Err(ServerError::Unsupported(
            "the server wants a text of a model, which its configuration does not allow",
        ));
    }
    let prompt = prompt(params)?;
    if mode == SamplingMode::Ask && !is_allowed(server, params, &prompt, place, context).await {
        let refused = ErrorData::new(DECLINED, "the user declined the request", None);
        return Err(ServerError::Refused(refused));
    }
    let request = SampleRequest {
        server: server.to_owned(),
        place: place.to_owned(),
        system: params.system_prompt.clone(),
        prompt,
        max_tokens: Some(params.max_tokens).filter(|tokens| *tokens > 0),
    };
    let sample = context.memory.sample(request, &context.cancel).await;
    let sample = sample.map_err(|fault| ServerError::Wire(Box::new(fault)))?;
    let message = SamplingMessage::assistant_text(sample.text);
    let result = CreateMessageResult::new(message, sample.model);
    Ok(result.with_stop_reason(CreateMessageResult::STOP_REASON_END_TURN))
}

/// Shows a person what the server wants of the model.
async fn is_allowed(
    server: &str,
    params: &CreateMessageRequestParams,
    prompt: &str,
    place: &str,
    context: &CallContext,
) -> bool {
    let system = params.system_prompt.as_deref().map(|system| format!("[system] {system}\n\n"));
    let shown = format!("{}{prompt}", system.unwrap_or_default());
    let Ok(question) = Elicitation::form(server, &shown, &json!({ "type": "object" })) else {
        return false;
    };
    let answer = context.memory.ask_person(&question, &format!("{place} sampling")).await;
    matches!(answer, ElicitationAnswer::Accepted(_))
}

/// The messages as one text. Earlier messages are quoted with their role.
fn prompt(params: &CreateMessageRequestParams) -> Result<String, ServerError> {
    if params.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
        return Err(ServerError::Unsupported("the server wants a model to use its tools"));
    }
    let mut prompt = String::new();
    for message in &params.messages {
        let role = if message.role == Role::Assistant { "assistant" } else { "user" };
        if params.messages.len() > 1 {
            prompt.push_str(&format!("[{role}]\n"));
        }
        for block in message.content.clone().into_vec() {
            let SamplingMessageContentBlock::Text(text) = block else {
                return Err(ServerError::Unsupported("the server sends a model more than text"));
            };
            prompt.push_str(&text.text);
            prompt.push('\n');
        }
    }
    let prompt = prompt.trim_end().to_owned();
    match prompt.len() {
        0 => Err(ServerError::Unsupported("the server sends a model no text")),
        PROMPT_BYTES_MAX.. => {
            Err(ServerError::Unsupported("the server sends a model too long a text"))
        }
        _ => Ok(prompt),
    }
}
