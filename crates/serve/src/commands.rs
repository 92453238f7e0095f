//! What a client's request asks of a session, and what else its answer says.

use budao_core::{event::Ask, message::text_of};
use serde_json::{Map, Value, json};

use crate::{card::Card, inbound::Request};

/// The command a request stands for; none when the gateway itself answers it.
pub(crate) fn ask_of(request: Request, card: &Card) -> Option<Ask> {
    Some(match request {
        Request::Message { content, plan } => match plan.or(card.plan) {
            Some(plan) => Ask::Plan { question: text_of(&content), confirm: plan.confirm },
            None => Ask::Message { content },
        },
        Request::SolveTasks { question, tasks } => Ask::Solve { question, tasks },
        Request::Response { question, decision, note, arguments, digest } => {
            Ask::Decide { question, decision, note, arguments, digest }
        }
        Request::Cancel { reason } => Ask::Cancel { reason },
        Request::CancelTask { task } => Ask::CancelTask { task },
        Request::RestartTask { task } => Ask::RestartTask { task },
        Request::CancelPlan => Ask::CancelPlan,
        Request::Replan { question } => Ask::Replan { question },
        Request::CloseSession => Ask::Close,
        Request::CreateSession(_)
        | Request::Ack(_)
        | Request::RequestState
        | Request::ReconnectWithState { .. }
        | Request::Reconnect { .. } => return None,
    })
}

/// What the answer to a request says besides that it was accepted.
pub(crate) fn more_of(request: &Request) -> Map<String, Value> {
    let more = match request {
        Request::CancelTask { task } | Request::RestartTask { task } => {
            json!({ "task_id": task })
        }
        Request::Response { question, .. } => json!({ "step_id": question }),
        _ => json!({}),
    };
    match more {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}
