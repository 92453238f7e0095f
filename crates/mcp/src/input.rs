//! Answers to the questions that a server asks in the middle of a call.
//!
//! No person is asked: a request for input is declined, and the person sees what the server wanted to know. Roots are
//! reported as configured. There is no answer to a request for a model's text.

use budao_tools::CallContext;
use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, InputRequest, InputRequests,
    InputResponses,
};
use serde_json::Value;

use crate::error::{ServerError, bounded};

/// The most questions in one answer of a server.
const QUESTIONS_MAX: usize = 32;

/// Answers all questions of a server.
pub(crate) fn answer(
    requests: &InputRequests,
    roots: &Value,
    context: &CallContext,
) -> Result<InputResponses, ServerError> {
    if requests.len() > QUESTIONS_MAX {
        return Err(ServerError::Unsupported("the server asks too many questions in one call"));
    }
    let mut answers = InputResponses::new();
    for (key, request) in requests {
        let answer = match request {
            InputRequest::Elicitation(request) => {
                context.notes.show(declined(&request.params));
                serde_json::to_value(ElicitResult::new(ElicitationAction::Decline))
            }
            InputRequest::ListRoots(_) => Ok(roots.clone()),
            _ => {
                return Err(ServerError::Unsupported(
                    "the server wants a text of a model in the middle of a call",
                ));
            }
        };
        answers.insert(key.clone(), answer.unwrap_or_default());
    }
    Ok(answers)
}

/// The line for people about a question that is declined. A URL is shown and never opened.
pub(crate) fn declined(params: &ElicitRequestParams) -> String {
    match params {
        ElicitRequestParams::FormElicitationParams { message, .. } => {
            format!("[input declined] {}\n", bounded(message))
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            format!("[input declined] {} ({})\n", bounded(message), bounded(url))
        }
        _ => "[input declined]\n".to_owned(),
    }
}
