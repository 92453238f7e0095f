//! Detects and flattens JSON that is nested too deeply, with bounded recursion.
//!
//! Writing, comparing, cloning, validating and even dropping a value recurse, and a deep value overflows the stack,
//! which ends the process. The parser has a depth limit; a value built in memory has none. [`bound`] therefore limits
//! every outside value where it enters. Records have a lower limit ([`flatten`]), because readers stop at a depth of
//! their own.

use serde_json::Value;

/// The deepest value that recursive code may receive. The JSON parser's own limit is slightly higher.
pub const LEVELS_MAX: usize = 120;

/// Whether a value has more than `levels` levels of nesting, or more than [`LEVELS_MAX`]. A list in a list has two.
#[must_use]
pub fn is_deeper(value: &Value, levels: usize) -> bool {
    exceeds(value, levels.min(LEVELS_MAX))
}

/// Recurses over at most `levels` levels, so that a flat value costs no allocation.
fn exceeds(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => true,
        Value::Array(items) => items.iter().any(|item| exceeds(item, levels - 1)),
        Value::Object(map) => map.values().any(|item| exceeds(item, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Makes an outside value safe to walk, clone and drop: parts deeper than [`LEVELS_MAX`] levels become text.
pub fn bound(value: &mut Value) {
    flatten(value, LEVELS_MAX);
}

/// Replaces parts deeper than `levels` levels (at most [`LEVELS_MAX`]) with their JSON as text. Returns whether it
/// replaced any.
pub fn flatten(value: &mut Value, levels: usize) -> bool {
    let levels = levels.min(LEVELS_MAX);
    let deep = is_deeper(value, levels);
    if deep {
        flatten_below(value, levels);
    }
    deep
}

/// Recurses over at most `levels` levels.
fn flatten_below(value: &mut Value, levels: usize) {
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => *value = as_text(value.take()),
        Value::Array(items) => items.iter_mut().for_each(|item| flatten_below(item, levels - 1)),
        Value::Object(map) => map.values_mut().for_each(|item| flatten_below(item, levels - 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn as_text(value: Value) -> Value {
    if is_deeper(&value, LEVELS_MAX) {
        dismantle(value);
        return Value::String(format!("[nested in more than {LEVELS_MAX} further levels]"));
    }
    Value::String(value.to_string())
}

/// Drops a value level by level, because the ordinary drop recurses.
pub fn dismantle(value: Value) {
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
    fn values_that_are_too_deep_become_text_and_the_rest_is_unchanged() {
        let mut value = json!({"a": 1, "b": [[[2]], 3]});
        assert!(flatten(&mut value, 2));
        assert_eq!(value, json!({"a": 1, "b": ["[[2]]", 3]}));
        assert!(!flatten(&mut value, 2), "once is enough");
    }

    #[test]
    fn a_bounded_value_is_as_deep_as_recursive_code_may_meet() {
        let mut value = nested(LEVELS_MAX + 1);
        bound(&mut value);
        assert!(!is_deeper(&value, LEVELS_MAX) && is_deeper(&value, LEVELS_MAX - 1));
        let mut value = nested(1_000);
        assert!(flatten(&mut value, usize::MAX), "no caller can ask for more");
        assert!(!is_deeper(&value, LEVELS_MAX));
    }

    #[test]
    fn no_depth_overflows_the_stack() {
        let mut value = nested(1_000_000);
        assert!(flatten(&mut value, 64));
        assert!(!is_deeper(&value, 64));
        assert!(value.to_string().contains("further levels"));
    }
}
