//! Events of a relayed agent that only its front end understands: shared state, activities and custom events.

use serde_json::{Map, Value, json};

/// The longest id or name in such an event, in characters.
const NAME_CHARS: usize = 200;
/// The largest integer that a client reads exactly.
const SAFE_INTEGER: u64 = (1 << 53) - 1;

/// The event with the fields that the protocol has for it. `None` for another event, and for one that the client would
/// refuse: that would end the client's run.
pub(super) fn forwardable(event: &Value) -> Option<Value> {
    let kind = event["type"].as_str()?;
    let mut fields = match kind {
        "STATE_SNAPSHOT" => {
            let state = event.get("snapshot").filter(|state| !state.is_null());
            json!({ "snapshot": state.cloned().unwrap_or_else(|| json!({})) })
        }
        "STATE_DELTA" => json!({ "delta": read_patch(&event["delta"])? }),
        "ACTIVITY_SNAPSHOT" => {
            let (id, activity) = read_activity(event)?;
            let content = event["content"].as_object()?;
            let replace = event["replace"].as_bool().unwrap_or(true);
            json!({ "messageId": id, "activityType": activity, "content": content, "replace": replace })
        }
        "ACTIVITY_DELTA" => {
            let (id, activity) = read_activity(event)?;
            let patch = read_patch(&event["patch"])?;
            json!({ "messageId": id, "activityType": activity, "patch": patch })
        }
        "CUSTOM" => {
            // Names of the gateway are its own, and an interrupt in LangGraph's older form becomes an interrupt.
            let name = read_name(&event["name"]).filter(|name| !name.starts_with("budao."))?;
            if name == "on_interrupt" {
                return None;
            }
            json!({ "name": name, "value": event["value"] })
        }
        _ => return None,
    };
    fields["type"] = kind.into();
    if let Some(at) = event["timestamp"].as_u64().filter(|at| *at <= SAFE_INTEGER) {
        fields["timestamp"] = at.into();
    }
    if let Some(metadata) = event["metadata"].as_object() {
        fields["metadata"] = metadata.clone().into();
    }
    Some(fields)
}

/// A name or an id that is neither empty nor too long.
pub(super) fn read_name(value: &Value) -> Option<&str> {
    value.as_str().filter(|name| !name.is_empty() && name.chars().nth(NAME_CHARS).is_none())
}

/// The id and the type of an activity. Ids of answers are the gateway's own.
fn read_activity(event: &Value) -> Option<(&str, &str)> {
    let id = read_name(&event["messageId"]).filter(|id| !id.starts_with("turn-"))?;
    Some((id, read_name(&event["activityType"])?))
}

/// The operations of a patch, without fields that they do not have.
fn read_patch(patch: &Value) -> Option<Vec<Value>> {
    patch.as_array()?.iter().map(read_operation).collect()
}

fn read_operation(operation: &Value) -> Option<Value> {
    let pointer = |name: &str| operation[name].as_str().filter(|path| is_pointer(path));
    let op = operation["op"].as_str()?;
    let mut read = Map::new();
    read.insert("op".to_owned(), op.into());
    read.insert("path".to_owned(), pointer("path")?.into());
    match op {
        "add" | "replace" | "test" => {
            read.insert("value".to_owned(), operation.get("value")?.clone());
        }
        "move" | "copy" => {
            read.insert("from".to_owned(), pointer("from")?.into());
        }
        "remove" => {}
        _ => return None,
    }
    Some(Value::Object(read))
}

/// Whether a text is a JSON pointer (RFC 6901).
fn is_pointer(text: &str) -> bool {
    let is_escaped = |part: &str| part.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    text.is_empty() || (text.starts_with('/') && is_escaped(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_the_client_would_refuse_is_not_forwarded() {
        let patch = |operation: Value| json!({ "type": "STATE_DELTA", "delta": [operation] });
        for bad in [
            json!({ "type": "STATE_DELTA" }),
            patch(json!({ "op": "add", "path": "a", "value": 1 })),
            patch(json!({ "op": "add", "path": "/a~2", "value": 1 })),
            patch(json!({ "op": "add", "path": "/a" })),
            patch(json!({ "op": "move", "path": "/a" })),
            patch(json!({ "op": "grow", "path": "/a" })),
            json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "t", "content": [] }),
            json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": null, "activityType": "t", "content": {} }),
            json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": "turn-1.1", "activityType": "t", "content": {} }),
            json!({ "type": "CUSTOM", "value": 1 }),
            json!({ "type": "CUSTOM", "name": "budao.system.fault", "value": 1 }),
            json!({ "type": "CUSTOM", "name": "x".repeat(201), "value": 1 }),
            json!({ "type": "RUN_FINISHED" }),
            json!(7),
        ] {
            assert_eq!(forwardable(&bad), None, "{bad}");
        }
        let event = json!({
            "type": "CUSTOM", "name": "progress", "value": null, "timestamp": null, "metadata": null,
            "subagentRunId": null, "extra": 1,
        });
        let clean = json!({ "type": "CUSTOM", "name": "progress", "value": null });
        assert_eq!(forwardable(&event), Some(clean));
    }
}
