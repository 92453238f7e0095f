//! Maps a client's request to an engine command and to the extra fields of its answer.

use budao_core::{
    Event, Fault,
    event::{CommandBody, Seq, SessionId},
    message::text_of,
};
use budao_journal::{PageLimits, Reader, StoredRecord};
use serde_json::{Map, Value, json};

use crate::{inbound::Request, session_meta::SessionMeta, texts::shorten};

/// The command for a request; `None` if the gateway answers the request itself.
pub(crate) fn command_body(request: Request, meta: &SessionMeta) -> Option<CommandBody> {
    Some(match request {
        Request::Message { content, plan, .. } => match plan.or(meta.plan) {
            Some(plan) => CommandBody::Plan { question: text_of(&content), confirm: plan.confirm },
            None => CommandBody::Message { content },
        },
        Request::SolveTasks { question, tasks } => CommandBody::Solve { question, tasks },
        Request::Response { question, decision, note, arguments, digest, .. } => {
            CommandBody::Decide { question, decision, note, arguments, digest }
        }
        Request::Cancel { reason } => CommandBody::Cancel { reason },
        Request::Withdraw { message } => CommandBody::Withdraw { message },
        Request::SettleDoubt { call, settlement, note } => {
            CommandBody::SettleDoubt { call, settlement, note }
        }
        Request::SetTimer { timer, when, message } => {
            CommandBody::SetTimer { timer, when, message }
        }
        Request::CancelTimer { timer } => CommandBody::CancelTimer { timer },
        Request::Retry { turn } => CommandBody::Retry { turn },
        Request::CancelTask { task } => CommandBody::CancelTask { task },
        Request::RestartTask { task } => CommandBody::RestartTask { task },
        Request::RevokePermission { tool } => CommandBody::RevokePermission { tool },
        Request::CancelPlan => CommandBody::CancelPlan,
        Request::Replan { question } => CommandBody::Replan { question },
        Request::CloseSession => CommandBody::Close,
        Request::CreateSession(_)
        | Request::OfferTools(_)
        | Request::ToolClaim(_)
        | Request::ToolOutput { .. }
        | Request::ToolResult { .. }
        | Request::DrainWorker { .. }
        | Request::Ack(_)
        | Request::RequestState
        | Request::ReconnectWithState { .. }
        | Request::Reconnect { .. } => return None,
    })
}

/// The action-specific fields of the answer to an accepted request.
pub(crate) fn answer_fields(request: &Request) -> Map<String, Value> {
    let more = match request {
        Request::CancelTask { task } | Request::RestartTask { task } => {
            json!({ "task_id": task })
        }
        Request::Withdraw { message } => json!({ "message": message }),
        Request::RevokePermission { tool } => json!({ "tool_name": tool }),
        Request::SettleDoubt { call, .. } => json!({ "call_id": call.to_string() }),
        Request::SetTimer { timer: Some(timer), .. } | Request::CancelTimer { timer } => {
            json!({ "timer_id": timer })
        }
        Request::Response { question, .. } => json!({ "step_id": question }),
        _ => json!({}),
    };
    match more {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// The answer's fields for a replan, from the first record it caused. `in_run` if the running turn makes a new plan,
/// `restart` if a new turn starts with this question.
pub(crate) async fn replan_fields(
    journal: &dyn Reader,
    session: SessionId,
    at: Seq,
) -> Result<Map<String, Value>, Fault> {
    let page = journal.read(session, at, PageLimits { records: 1, bytes: 1 }).await?;
    let first = page.records.first().filter(|_| page.gap.is_none());
    let more = match first.map(StoredRecord::event).transpose()? {
        Some(Event::ReplanRequested { .. }) => json!({ "mode": "in_run" }),
        Some(Event::PipelineAccepted { question, .. }) => {
            json!({ "mode": "restart", "question": shorten(&question) })
        }
        _ => json!({}),
    };
    match more {
        Value::Object(fields) => Ok(fields),
        _ => Ok(Map::new()),
    }
}
