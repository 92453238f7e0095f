//! Runs as tasks of 2026-07-28. The id of a task is the id of its run, so nothing is stored for it.

use budao_core::{
    Lang, Timestamp,
    elicitation::Elicitation,
    event::{Decision, QuestionId, QuestionPurpose},
};
use serde_json::{Map, Value, json};

use super::outcome::{RunOutcome, RunState};
use crate::{
    front_end::{RunAction, Thread},
    server::Server,
};

/// How often a client should ask for a task, in milliseconds.
const POLL_MS: u64 = 1_000;

/// A task that has begun.
pub(super) fn created_task(run: &str, now: Timestamp) -> Value {
    let mut task = task_json(run, RunState::Working, (now, now));
    task["resultType"] = "task".into();
    task
}

/// The state of a task.
pub(super) fn task_state(
    server: &Server,
    outcome: &RunOutcome,
    run: &str,
    thread: &Thread,
    lang: Lang,
) -> Value {
    let times = outcome.times.unwrap_or((server.now(), server.now()));
    let state = outcome.state();
    // A turn that failed is a result of the tool: the call succeeded.
    let shown = if state == RunState::Failed { RunState::Completed } else { state };
    let mut task = task_json(run, shown, times);
    match state {
        RunState::Completed | RunState::Failed => {
            task["result"] = outcome.to_result(server, run, thread, lang);
        }
        RunState::InputRequired => {
            let requests = outcome.questions().iter().map(|open| {
                let request = match open.elicitation() {
                    Some(asked) => forward_elicitation(&asked),
                    None => confirmation_form(&open.tool, &open.reason, &open.arguments),
                };
                (open.question.0.to_string(), request)
            });
            task["inputRequests"] = Value::Object(requests.collect::<Map<_, _>>());
        }
        RunState::Working | RunState::Cancelled => {}
    }
    task
}

fn task_json(run: &str, state: RunState, (began, changed): (Timestamp, Timestamp)) -> Value {
    json!({
        "taskId": run, "status": <&str>::from(state), "createdAt": began.to_string(),
        "lastUpdatedAt": changed.to_string(), "ttlMs": null, "pollIntervalMs": POLL_MS,
    })
}

/// A question about a call, as a form.
fn confirmation_form(tool: &str, reason: &str, arguments: &Value) -> Value {
    let message = format!("{tool} {arguments}: {reason}");
    let schema = json!({
        "type": "object",
        "properties": { "decision": { "type": "string", "enum": ["allow", "deny"] } },
        "required": ["decision"],
    });
    let params = json!({ "mode": "form", "message": message, "requestedSchema": schema });
    json!({ "method": "elicitation/create", "params": params })
}

/// A question of a tool server, passed on with its own form or address.
fn forward_elicitation(asked: &Elicitation) -> Value {
    let message = format!("{}: {}", asked.server, asked.message);
    let params = match &asked.url {
        Some(url) => {
            json!({ "mode": "url", "message": message, "url": url, "elicitationId": url })
        }
        None => json!({ "mode": "form", "message": message, "requestedSchema": asked.to_schema() }),
    };
    json!({ "method": "elicitation/create", "params": params })
}

/// The answers of a client to the questions of a task. Answers to other questions are left out.
pub(super) fn read_answers(outcome: &RunOutcome, responses: &Map<String, Value>) -> Vec<RunAction> {
    let open = outcome.questions().iter();
    let answered = open.filter_map(|open| {
        let response = responses.get(&*open.question.0)?;
        let is_accepted = response["action"] == "accept";
        let (is_allowed, arguments) = match open.purpose {
            QuestionPurpose::Elicitation => (is_accepted, response.get("content").cloned()),
            QuestionPurpose::Permission => {
                (is_accepted && response["content"]["decision"] == "allow", None)
            }
        };
        let decision = if is_allowed { Decision::Allow } else { Decision::Deny };
        let question: QuestionId = open.question.clone();
        Some(RunAction::Answer { question, decision, note: None, arguments })
    });
    answered.collect()
}
