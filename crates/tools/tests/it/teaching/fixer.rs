//! The fixer: knows its own call and what it was told about it, and nothing else.

use serde_json::{Value, json};

/// The call with every told place mended once, or nothing if it does not know how.
pub(crate) fn fix(call: &Value, rendered: &Value) -> Option<Value> {
    let mut mended = call.clone();
    let example = rendered.get("example").unwrap_or(&Value::Null);
    let mismatches = rendered["mismatches"].as_array()?;
    // Places in a list are taken out from the back.
    for mismatch in mismatches {
        fix_one(&mut mended, mismatch, example);
    }
    Some(mended)
}

fn fix_one(call: &mut Value, mismatch: &Value, example: &Value) -> Option<()> {
    let pointer = mismatch["pointer"].as_str()?;
    let rule = mismatch["rule"].as_str()?;
    let expected = mismatch["expected"].as_str()?;
    match rule {
        "additionalProperties" => return rename_or_remove(call, pointer, mismatch),
        "false" => return remove(call, pointer).map(drop),
        "required" => {
            if call.pointer(pointer).is_none() {
                let value = allowed(mismatch).or_else(|| shown(example, pointer))?;
                insert(call, pointer, value)?;
            }
            return Some(());
        }
        _ => {}
    }
    let sent = call.pointer(pointer)?.clone();
    let value = by_rule(rule, expected, &sent, mismatch).or_else(|| shown(example, pointer));
    match value {
        Some(value) => *call.pointer_mut(pointer)? = value,
        None => drop(remove(call, pointer)?),
    }
    Some(())
}

fn by_rule(rule: &str, expected: &str, sent: &Value, mismatch: &Value) -> Option<Value> {
    let number = || -> Option<f64> { expected.rsplit(' ').find_map(|word| word.parse().ok()) };
    let count = || -> Option<usize> { expected.split(' ').find_map(|word| word.parse().ok()) };
    match rule {
        "enum" | "const" | "anyOf" => {
            let near = mismatch.get("nearest").cloned();
            near.or_else(|| allowed(mismatch))
        }
        "type" => as_told(expected, sent),
        "minimum" | "maximum" => whole(number()?),
        "maxLength" => Some(json!(sent.as_str()?.chars().take(count()?).collect::<String>())),
        "maxItems" => Some(json!(sent.as_array()?.iter().take(count()?).collect::<Vec<_>>())),
        "uniqueItems" => {
            let mut items: Vec<Value> = Vec::new();
            for item in sent.as_array()? {
                if !items.contains(item) {
                    items.push(item.clone());
                }
            }
            Some(Value::Array(items))
        }
        _ => None,
    }
}

/// The value it sent, in the type it was told.
fn as_told(expected: &str, sent: &Value) -> Option<Value> {
    let parsed = sent.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let candidates = [parsed, sent.as_array().and_then(|items| items.first().cloned())];
    candidates.into_iter().flatten().find(|value| {
        expected.split(" or ").any(|kind| match kind.trim_start_matches("must be ") {
            "an integer" => value.is_i64(),
            "a number" => value.is_number(),
            "true" | "false" => value.is_boolean(),
            "a string" => value.is_string(),
            "a list" => value.is_array(),
            "an object" => value.is_object(),
            _ => false,
        })
    })
}

fn whole(number: f64) -> Option<Value> {
    if number.fract() == 0.0 { Some(json!(number as i64)) } else { Some(json!(number)) }
}

fn allowed(mismatch: &Value) -> Option<Value> {
    mismatch.get("allowed")?.as_array()?.first().cloned()
}

/// What the example has at this place; items of a list are all like its first one that has it.
fn shown(example: &Value, pointer: &str) -> Option<Value> {
    let mut at = example;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        at = match at {
            Value::Array(items) => step
                .parse::<usize>()
                .ok()
                .and_then(|index| items.get(index))
                .or_else(|| items.first())?,
            other => other.get(&step)?,
        };
    }
    Some(at.clone())
}

fn insert(call: &mut Value, pointer: &str, value: Value) -> Option<()> {
    let (parent, key) = pointer.rsplit_once('/')?;
    let key = key.replace("~1", "/").replace("~0", "~");
    call.pointer_mut(parent)?.as_object_mut()?.insert(key, value);
    Some(())
}

fn remove(call: &mut Value, pointer: &str) -> Option<Value> {
    let (parent, key) = pointer.rsplit_once('/')?;
    match call.pointer_mut(parent)? {
        Value::Object(map) => map.remove(&key.replace("~1", "/").replace("~0", "~")),
        Value::Array(items) => {
            let index = key.parse::<usize>().ok().filter(|index| *index < items.len())?;
            Some(items.remove(index))
        }
        _ => None,
    }
}

fn rename_or_remove(call: &mut Value, pointer: &str, mismatch: &Value) -> Option<()> {
    let value = remove(call, pointer)?;
    if let Some(nearest) = mismatch.get("nearest").and_then(Value::as_str) {
        let (parent, _) = pointer.rsplit_once('/')?;
        let map = call.pointer_mut(parent)?.as_object_mut()?;
        map.entry(nearest).or_insert(value);
    }
    Some(())
}
