//! Parses a plan: JSON from a planner or a person becomes tasks or a list of mismatches.
//!
//! The parser is lenient where the meaning is clear: a list or `{"tasks": […]}`, text around the JSON, numbers as ids,
//! no ids at all, a task that is only a sentence. It is strict where the meaning is not clear: no tasks, two tasks with
//! one id, an empty task. It reports all mismatches at once. Unknown fields stay with their task. An order among tasks
//! (`dependencies`) is ignored; tasks run in parallel.

use std::collections::BTreeMap;

use budao_core::{
    event::{Task, TaskId},
    fault::{Fact, Fault, Kind, Mismatch, Operation},
    pipeline::PlanDraft,
};
use serde_json::{Map, Value, json};

/// The most tasks in one plan.
pub const TASKS_MAX: usize = 64;
/// The longest id of a task, in bytes.
pub const ID_BYTES_MAX: usize = 64;
/// The longest prompt of a task, in bytes.
pub const PROMPT_BYTES_MAX: usize = 64 * 1024;
/// The most bytes of unknown fields of one task.
pub const EXTRA_BYTES_MAX: usize = 16 * 1024;
/// The longest title, in characters; a longer one is cut.
const TITLE_CHARS_MAX: usize = 120;
/// The longest quotation in a mismatch, in characters.
const QUOTE_CHARS_MAX: usize = 120;
/// The most positions in a text that are tried as the start of the JSON.
const PLACES_MAX: usize = 32;

/// Parses a planner's answer: JSON, possibly inside a code fence or surrounded by text.
///
/// # Errors
/// `plan_coercion_failed`, with every mismatch.
pub fn read(text: &str) -> Result<PlanDraft, Fault> {
    if let Ok(value) = serde_json::from_str(text.trim()) {
        return coerce(value);
    }
    let places = text.char_indices().filter(|(_, char)| matches!(char, '{' | '['));
    let mut refused = None;
    for (place, _) in places.take(PLACES_MAX) {
        let mut values = serde_json::Deserializer::from_str(&text[place..]).into_iter::<Value>();
        let Some(Ok(value)) = values.next() else { continue };
        match coerce(value) {
            Ok(draft) => return Ok(draft),
            Err(fault) => refused = refused.or(Some(fault)),
        }
    }
    Err(refused.unwrap_or_else(|| {
        let expected = "must be JSON: a list of tasks, or an object with `tasks`";
        refuse(vec![mismatch("/plan", "type", expected, &Value::from(text))])
    }))
}

/// Converts JSON to a plan.
///
/// # Errors
/// `plan_coercion_failed`, with every mismatch.
pub fn coerce(value: Value) -> Result<PlanDraft, Fault> {
    let (tasks, summary) = extract_tasks(value)?;
    let mut wrong = Vec::new();
    if tasks.is_empty() {
        wrong.push(mismatch("/tasks", "minItems", "at least one task", &json!([])));
    }
    if tasks.len() > TASKS_MAX {
        let expected = format!("at most {TASKS_MAX} tasks");
        wrong.push(mismatch("/tasks", "maxItems", &expected, &tasks.len().into()));
    }
    let mut read = Vec::new();
    for (index, task) in tasks.into_iter().take(TASKS_MAX).enumerate() {
        match one(task, &format!("/tasks/{index}")) {
            Ok(task) => read.push(task),
            Err(mismatch) => wrong.push(*mismatch),
        }
    }
    let tasks = assign_ids(read, &mut wrong);
    if wrong.is_empty() { Ok(PlanDraft { tasks, summary }) } else { Err(refuse(wrong)) }
}

fn refuse(wrong: Vec<Mismatch>) -> Fault {
    let fault = Fault::new(Kind::PlanCoercionFailed, Operation::GeneratePlan);
    wrong.into_iter().fold(fault.with(Fact::Stage, "planning"), Fault::mismatch)
}

fn mismatch(pointer: &str, rule: &'static str, expected: &str, received: &Value) -> Mismatch {
    let received = match received {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Mismatch {
        pointer: pointer.to_owned(),
        rule: rule.into(),
        expected: expected.to_owned(),
        received: Some(shorten(&received, QUOTE_CHARS_MAX)),
        ..Mismatch::default()
    }
}

fn wrong(pointer: &str, rule: &'static str, expected: &str, received: &Value) -> Box<Mismatch> {
    Box::new(mismatch(pointer, rule, expected, received))
}

fn shorten(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Extracts the list of tasks and the summary from any accepted form.
fn extract_tasks(value: Value) -> Result<(Vec<Value>, String), Fault> {
    let mut object = match value {
        Value::Array(tasks) => return Ok((tasks, String::new())),
        Value::Object(object) => object,
        other => {
            let expected = "must be a list of tasks, or an object with `tasks`";
            return Err(refuse(vec![mismatch("/plan", "type", expected, &other)]));
        }
    };
    let summary = first_text(&mut object, &["summary", "plan_summary"]).unwrap_or_default();
    let tasks = ["tasks", "plan"].iter().find_map(|name| object.remove(*name));
    match tasks {
        Some(Value::Array(tasks)) => Ok((tasks, summary)),
        Some(one @ (Value::Object(_) | Value::String(_))) => Ok((vec![one], summary)),
        Some(other) => {
            Err(refuse(vec![mismatch("/tasks", "type", "must be a list of tasks", &other)]))
        }
        // The object is a single task.
        None if is_task(&object) => Ok((vec![Value::Object(object)], summary)),
        None => {
            let expected = "required: the list of tasks";
            Err(refuse(vec![mismatch("/tasks", "required", expected, &Value::Object(object))]))
        }
    }
}

const PROMPTS: [&str; 6] = ["prompt", "description", "objective", "instruction", "goal", "task"];
const TITLES: [&str; 2] = ["title", "name"];

fn is_task(object: &Map<String, Value>) -> bool {
    PROMPTS.iter().chain(&TITLES).any(|name| object.contains_key(*name))
}

/// A task whose id may still be missing.
struct ParsedTask {
    id: Option<String>,
    title: String,
    prompt: String,
    extra: BTreeMap<String, Value>,
    pointer: String,
}

fn one(value: Value, pointer: &str) -> Result<ParsedTask, Box<Mismatch>> {
    let mut object = match value {
        Value::Object(object) => object,
        Value::String(text) => Map::from_iter([("prompt".to_owned(), Value::String(text))]),
        other => return Err(wrong(pointer, "type", "must be an object", &other)),
    };
    let id = id_of(&mut object, pointer)?;
    let title = first_text(&mut object, &TITLES);
    let prompt = first_text(&mut object, &PROMPTS);
    let Some(prompt) = prompt.or_else(|| title.clone()) else {
        let at = format!("{pointer}/prompt");
        let expected = "required: what is to be done, as text";
        return Err(wrong(&at, "required", expected, &Value::Object(object)));
    };
    if prompt.len() > PROMPT_BYTES_MAX {
        let expected = format!("at most {PROMPT_BYTES_MAX} bytes");
        return Err(wrong(&format!("{pointer}/prompt"), "maxLength", &expected, &json!(prompt)));
    }
    let extra: BTreeMap<String, Value> = object.into_iter().collect();
    if serde_json::to_string(&extra).map_or(0, |text| text.len()) > EXTRA_BYTES_MAX {
        let expected = format!("at most {EXTRA_BYTES_MAX} bytes besides the prompt");
        return Err(wrong(pointer, "maxLength", &expected, &json!(title)));
    }
    let title = title.unwrap_or_else(|| prompt.lines().next().unwrap_or_default().to_owned());
    let title = shorten(&title, TITLE_CHARS_MAX);
    Ok(ParsedTask { id, title, prompt, extra, pointer: pointer.to_owned() })
}

/// The id as text. A number is converted; `null` counts as absent.
fn id_of(object: &mut Map<String, Value>, pointer: &str) -> Result<Option<String>, Box<Mismatch>> {
    let at = format!("{pointer}/id");
    let id = match object.remove("id").or_else(|| object.remove("task_id")) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::String(text)) => text.trim().to_owned(),
        Some(other) => return Err(wrong(&at, "type", "must be text", &other)),
    };
    match id.len() {
        0 => Ok(None),
        1..=ID_BYTES_MAX => Ok(Some(id)),
        _ => {
            let expected = format!("at most {ID_BYTES_MAX} bytes");
            Err(wrong(&at, "maxLength", &expected, &Value::String(id)))
        }
    }
}

/// Removes and returns the first of these fields that holds text.
fn first_text(object: &mut Map<String, Value>, names: &[&str]) -> Option<String> {
    let says = |name: &&&str| {
        object.get(**name).and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty())
    };
    let name = names.iter().find(says)?;
    match object.remove(*name) {
        Some(Value::String(text)) => Some(text.trim().to_owned()),
        _ => None,
    }
}

/// Gives every task without an id the next free number, and refuses duplicate ids.
fn assign_ids(unnamed: Vec<ParsedTask>, wrong: &mut Vec<Mismatch>) -> Vec<Task> {
    let given: Vec<String> = unnamed.iter().filter_map(|task| task.id.clone()).collect();
    let mut next = 0_u32;
    let mut tasks: Vec<Task> = Vec::with_capacity(unnamed.len());
    for ParsedTask { id, title, prompt, extra, pointer } in unnamed {
        let id = id.unwrap_or_else(|| {
            loop {
                next += 1;
                let free = next.to_string();
                if !given.contains(&free) {
                    break free;
                }
            }
        });
        if tasks.iter().any(|task| *task.id.0 == *id) {
            let (at, expected) = (format!("{pointer}/id"), "an id no other task has");
            wrong.push(mismatch(&at, "uniqueItems", expected, &json!(id)));
        }
        tasks.push(Task { id: TaskId(id.as_str().into()), title, prompt, extra });
    }
    tasks
}
