//! Parses the frames of workers: offers, claims, progress and results.

use budao_core::{
    Fault,
    event::SessionId,
    fault::Fact,
    message::CallId,
    remote::{OfferedTool, WorkerError, WorkerProgress, WorkerReport},
};
use budao_remote::{DeclaredCall, Reconciliation, WorkerOffer};
use serde_json::{Map, Value};

use super::{
    ClaimRef, Request, WorkerResult,
    fields::{self, Fields},
};

/// Calls that a process holds at the same time unless it says otherwise.
const DEFAULT_CAPACITY: usize = 16;
/// Maximum characters of a worker's name, which is shown to people and models.
const NAME_CHARS: usize = 64;
/// Maximum bytes of the id of a process.
const ID_BYTES: usize = 128;
/// Maximum characters of an error's sentence and of one line of advice.
const SENTENCE_CHARS: usize = 2_000;
/// Maximum characters of a foreign error, for the operator.
const DETAIL_CHARS: usize = 16_000;
/// Maximum lines of advice in an error.
const ADVICE_LINES_MAX: usize = 6;
/// Maximum calls that a process lists as held.
const HOLDING_MAX: usize = 1024;

fn content<'a>(frame: &Fields<'a>) -> Result<Fields<'a>, Fault> {
    frame.object("content")?.ok_or_else(|| fields::missing_fault("content", "an object"))
}

pub(super) fn read_offer(frame: &Fields<'_>) -> Result<Request, Fault> {
    let content = content(frame)?;
    let worker = content.required_text("worker", "the name of the worker")?;
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || sign == '_' || sign == '-';
    if worker.is_empty() || worker.len() > NAME_CHARS || !worker.chars().all(is_plain) {
        let rule = "1 to 64 letters, digits, `_` and `-`";
        return Err(fields::constraint_fault("content.worker", rule, worker));
    }
    let capacity = content.integer("capacity")?;
    let listed =
        content.get("tools").ok_or_else(|| fields::missing_fault("content.tools", "a list"))?;
    let items = listed
        .as_array()
        .ok_or_else(|| fields::wrong_type_fault("content.tools", "a list of tools", listed))?;
    let tools = items.iter().enumerate().map(|(index, item)| read_tool(index, item));
    Ok(Request::OfferTools(Box::new(WorkerOffer {
        worker: worker.to_owned(),
        worker_id: read_worker_id(&content)?,
        capacity: capacity.map_or(DEFAULT_CAPACITY, |it| usize::try_from(it).unwrap_or(usize::MAX)),
        tools: tools.collect::<Result<_, Fault>>()?,
        holding: read_holding(content.get("holding"))?,
    })))
}

fn read_worker_id(content: &Fields<'_>) -> Result<String, Fault> {
    let id = content.required_text("worker_id", "the id of the process")?;
    if id.is_empty() || id.len() > ID_BYTES || id.chars().any(char::is_control) {
        let rule = "1 to 128 bytes, no control characters";
        return Err(fields::constraint_fault("content.worker_id", rule, id));
    }
    Ok(id.to_owned())
}

/// One offered tool. Unknown fields are ignored, known fields must have the right type.
fn read_tool(index: usize, item: &Value) -> Result<OfferedTool, Fault> {
    let path = |name: &str| match name {
        "" => format!("content.tools[{index}]"),
        name => format!("content.tools[{index}].{name}"),
    };
    let map =
        item.as_object().ok_or_else(|| fields::wrong_type_fault(&path(""), "an object", item))?;
    let get = |name: &str| map.get(name).filter(|value| !value.is_null());
    let text = |name: &str| match get(name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(fields::wrong_type_fault(&path(name), "text", other)),
        None => Err(fields::missing_fault(&path(name), "text")),
    };
    let flag = |name: &str| match get(name) {
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(fields::wrong_type_fault(&path(name), "true or false", other)),
        None => Ok(false),
    };
    let read_integer =
        |name: &str| get(name).map(|it| fields::integer(&path(name), it)).transpose();
    let parameters = match get("parameters") {
        Some(schema @ Value::Object(_)) => schema.clone(),
        Some(other) => {
            return Err(fields::wrong_type_fault(&path("parameters"), "a schema", other));
        }
        None => return Err(fields::missing_fault(&path("parameters"), "a schema")),
    };
    Ok(OfferedTool {
        name: text("name")?,
        description: text("description")?,
        parameters,
        read_only: flag("read_only")?,
        idempotent: flag("idempotent")?,
        confirm: flag("confirm")?,
        reconcile: flag("reconcile")?,
        deadline_ms: read_integer("deadline_ms")?,
        wait_ms: read_integer("wait_ms")?,
    })
}

fn read_holding(listed: Option<&Value>) -> Result<Vec<DeclaredCall>, Fault> {
    let Some(listed) = listed else { return Ok(Vec::new()) };
    let expected = "a list of objects with `session_id`, `step_id` and `attempt`";
    let wrong = || fields::wrong_type_fault("content.holding", expected, listed);
    let items = listed.as_array().filter(|items| items.len() <= HOLDING_MAX).ok_or_else(wrong)?;
    let one = |item: &Value| {
        let text = |name: &str| item.get(name).and_then(Value::as_str);
        Some(DeclaredCall {
            session: text("session_id")?.parse::<SessionId>().ok()?,
            call: CallId::from(text("step_id")?),
            attempt: parse_attempt(item.get("attempt")?)?,
        })
    };
    items.iter().map(|item| one(item).ok_or_else(wrong)).collect()
}

fn parse_attempt(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|attempt| u32::try_from(attempt).ok())
}

pub(super) fn read_claim(frame: &Fields<'_>) -> Result<ClaimRef, Fault> {
    let content = content(frame)?;
    let step = match frame.text("step_id")? {
        Some(step) => step,
        None => content.required_text("step_id", "the `step_id` of the call")?,
    };
    let attempt = content.integer("attempt")?.unwrap_or(1);
    let attempt = u32::try_from(attempt).unwrap_or(u32::MAX);
    Ok(ClaimRef { call: CallId::from(step), attempt, worker_id: read_worker_id(&content)? })
}

pub(super) fn read_output(frame: &Fields<'_>) -> Result<Request, Fault> {
    let claim = read_claim(frame)?;
    let delta = content(frame)?.required_text("delta", "text")?.to_owned();
    Ok(Request::ToolOutput { claim, delta })
}

pub(super) fn read_drain(frame: &Fields<'_>) -> Result<Request, Fault> {
    Ok(Request::DrainWorker { worker_id: read_worker_id(&content(frame)?)? })
}

pub(super) fn read_result(frame: &Fields<'_>) -> Result<Request, Fault> {
    let claim = read_claim(frame)?;
    let map = frame.get("content").and_then(Value::as_object);
    let map = map.ok_or_else(|| fields::missing_fault("content", "an object"))?;
    let fields = Fields::nested(map, "content");
    let result = match (fields.text("reconciliation")?, map.get("result"), fields.get("error")) {
        (Some(found), result, None) => {
            WorkerResult::Reconciliation(read_reconciliation(found, result.cloned())?)
        }
        (None, Some(result), None) => {
            WorkerResult::Report(WorkerReport::Done { result: result.clone() })
        }
        (None, None, Some(Value::Object(error))) => {
            WorkerResult::Report(WorkerReport::Failed(read_failure(error)?))
        }
        (None, None, Some(other)) => {
            return Err(fields::wrong_type_fault("content.error", "an object", other));
        }
        (None, None, None) => {
            return Err(fields::missing_fault("content.result", "a result or an error"));
        }
        _ => {
            let rule = "a result has either `result` or `error`";
            return Err(fields::constraint_fault("content.result", rule, "both"));
        }
    };
    Ok(Request::ToolResult { claim, result: Box::new(result) })
}

fn read_reconciliation(found: &str, result: Option<Value>) -> Result<Reconciliation, Fault> {
    const FOUND: [&str; 3] = ["happened", "did_not_happen", "cannot_tell"];
    match found {
        "happened" => Ok(Reconciliation::Happened(result.unwrap_or_default())),
        "did_not_happen" => Ok(Reconciliation::DidNotHappen),
        "cannot_tell" => Ok(Reconciliation::CannotTell),
        other => {
            let rule = format!("reconciliation is one of {}", FOUND.join(", "));
            Err(fields::constraint_fault("content.reconciliation", &rule, other)
                .with(Fact::Allowed, FOUND.map(str::to_owned).to_vec()))
        }
    }
}

fn read_failure(error: &Map<String, Value>) -> Result<WorkerError, Fault> {
    let text = |name: &str, most: usize| match error.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(crate::texts::cut(text, most).into_owned())),
        Some(other) => {
            Err(fields::wrong_type_fault(&format!("content.error.{name}"), "text", other))
        }
    };
    let advice = match error.get("advice") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(line)) => vec![line.as_str()],
        Some(Value::Array(lines)) => lines.iter().filter_map(Value::as_str).collect(),
        Some(other) => {
            return Err(fields::wrong_type_fault("content.error.advice", "texts", other));
        }
    };
    let advice = advice.into_iter().take(ADVICE_LINES_MAX);
    let progress = match text("progress", NAME_CHARS)? {
        None => None,
        Some(name) => Some(name.parse::<WorkerProgress>().map_err(|_| {
            let rule = "progress is one of not_begun, ended, unconfirmed, done";
            fields::constraint_fault("content.error.progress", rule, &name)
        })?),
    };
    Ok(WorkerError {
        message: text("message", SENTENCE_CHARS)?.filter(|text| !text.trim().is_empty()),
        advice: advice.map(|line| crate::texts::cut(line, SENTENCE_CHARS).into_owned()).collect(),
        data: error.get("data").filter(|data| !data.is_null()).cloned(),
        progress,
        detail: text("detail", DETAIL_CHARS)?,
    })
}
