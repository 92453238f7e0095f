//! JSON that is nested too deeply to be kept: found without recursion, and made flat.
//!
//! What is kept must be readable again, and readers stop at a depth. So whatever comes from outside as a
//! value and not as text is measured before it becomes part of a record.

use serde_json::Value;

/// Beyond this a value is not even written out: writing recurses.
const WRITABLE: usize = 120;

/// Is a value nested in more than `levels` levels? A list in a list is two.
#[must_use]
pub fn is_deeper(value: &Value, levels: usize) -> bool {
    let mut left = vec![(value, 1)];
    while let Some((value, level)) = left.pop() {
        match value {
            Value::Array(_) | Value::Object(_) if level > levels => return true,
            Value::Array(items) => left.extend(items.iter().map(|item| (item, level + 1))),
            Value::Object(map) => left.extend(map.values().map(|item| (item, level + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    false
}

/// Replaces what is nested in more than `levels` levels by its JSON as text. Was there any?
pub fn flatten(value: &mut Value, levels: usize) -> bool {
    let deep = is_deeper(value, levels);
    if deep {
        flatten_below(value, levels);
    }
    deep
}

fn flatten_below(value: &mut Value, levels: usize) {
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => *value = as_text(value.take()),
        Value::Array(items) => items.iter_mut().for_each(|item| flatten_below(item, levels - 1)),
        Value::Object(map) => map.values_mut().for_each(|item| flatten_below(item, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn as_text(value: Value) -> Value {
    if is_deeper(&value, WRITABLE) {
        dismantle(value);
        return Value::String(format!("[nested in more than {WRITABLE} further levels]"));
    }
    Value::String(value.to_string())
}

/// Drops a value level by level: dropping it whole recurses.
fn dismantle(value: Value) {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(map) => left.extend(map.into_iter().map(|(_, item)| item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> Value {
        (1..levels).fold(json!([]), |inside, _| Value::Array(vec![inside]))
    }

    #[test]
    fn levels_are_counted_as_they_are_written() {
        assert!(!is_deeper(&json!(1), 0));
        assert!(is_deeper(&json!([]), 0));
        assert!(!is_deeper(&nested(64), 64));
        assert!(is_deeper(&nested(65), 64));
        assert!(is_deeper(&json!({"a": [{"b": 1}]}), 2));
    }

    #[test]
    fn what_is_too_deep_becomes_text_and_the_rest_stays() {
        let mut value = json!({"a": 1, "b": [[[2]], 3]});
        assert!(flatten(&mut value, 2));
        assert_eq!(value, json!({"a": 1, "b": ["[[2]]", 3]}));
        assert!(!flatten(&mut value, 2), "once is enough");
    }

    #[test]
    fn no_depth_overflows_the_stack() {
        let mut value = nested(100_000);
        assert!(flatten(&mut value, 64));
        assert!(!is_deeper(&value, 64));
        assert!(value.to_string().contains("further levels"));
    }
}
