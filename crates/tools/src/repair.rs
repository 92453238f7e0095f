//! Lossless repairs of arguments: fills in defaults and undoes slips that the schema makes unambiguous.
//!
//! Valid arguments are never changed. A slip is undone only where the validator found it, only if it has a single
//! reading, and only if the whole call is valid afterwards. Otherwise the fault describes the arguments as sent.

use budao_core::tool::{Repair, RepairKind};
use jsonschema::{JsonType, Validator};
use serde_json::{Map, Value};

use crate::{
    explain,
    parse::{self, ParseError},
    schema,
    tolerant::{self, Unclear},
    violations::{SchemaViolation, ViolatedRule, find_violations},
};

/// Maximum rounds; a repaired text may itself contain slips.
const ROUNDS_MAX: usize = 4;

/// Maximum repairs in one call; more are not slips.
const REPAIRS_MAX: usize = 64;

/// Characters that separate list items, or that start a list written as text.
const SEPARATORS: &[char] =
    &[',', ';', '|', '、', '，', '；', '[', ']', '{', '}', '(', ')', '"', '\''];

/// Words that mean no item or all items.
const NO_ITEM: &[&str] =
    &["-", "all", "any", "empty", "n/a", "na", "nil", "nan", "none", "null", "undefined", "*"];

/// Fills in absent arguments that have a default.
pub(crate) fn fill_defaults(root: &Value, arguments: &mut Value, repairs: &mut Vec<Repair>) {
    fill(root, root, arguments, "", repairs, 0);
}

fn fill(
    root: &Value,
    schema: &Value,
    value: &mut Value,
    pointer: &str,
    repairs: &mut Vec<Repair>,
    depth: usize,
) {
    let schema = schema::resolve(root, schema);
    if depth > schema::SCHEMA_DEPTH_MAX {
        return;
    }
    match value {
        Value::Object(map) => {
            let Some(Value::Object(properties)) = schema.get("properties") else { return };
            for (key, property) in properties {
                let pointer_to = || format!("{pointer}/{}", crate::explain::escaped(key));
                match map.get_mut(key) {
                    Some(inner) => fill(root, property, inner, &pointer_to(), repairs, depth + 1),
                    None => {
                        let property = schema::resolve(root, property);
                        if let Some(default) = property.get("default").filter(|it| !it.is_null()) {
                            map.insert(key.clone(), default.clone());
                            let kind = RepairKind::DefaultFilled;
                            repairs.push(Repair { pointer: pointer_to(), kind });
                        }
                    }
                }
            }
        }
        Value::Array(items) => {
            let Some(item @ Value::Object(_)) = schema.get("items") else { return };
            for (index, value) in items.iter_mut().enumerate() {
                fill(root, item, value, &format!("{pointer}/{index}"), repairs, depth + 1);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Undoes the slips in the arguments; `None` if the result is still invalid.
pub(crate) fn undo_slips(
    root: &Value,
    validator: &Validator,
    arguments: &Value,
    depth: usize,
) -> Option<(Value, Vec<Repair>)> {
    let mut value = arguments.clone();
    let mut repairs = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let found = find_violations(root, validator, &value);
        if found.is_empty() {
            return Some((value, repairs));
        }
        if found.len() + repairs.len() > REPAIRS_MAX {
            return None;
        }
        // From the back, so that a removal does not move locations still to be handled.
        for violation in found.iter().rev() {
            let kind = undo(root, &mut value, violation, depth)?;
            repairs.push(Repair { pointer: violation.pointer.clone(), kind });
        }
    }
    validator.is_valid(&value).then_some((value, repairs))
}

/// The value that a malformed text clearly means, or why it is unclear. `None` for texts that are not UTF-8, repeat a
/// key or are nested too deep.
pub(crate) fn malformed(
    schema: &Value,
    text: &[u8],
    broken: &ParseError,
    depth: usize,
) -> Option<Result<Value, Unclear>> {
    let ParseError::Syntax { .. } = broken else { return None };
    Some(tolerant::object(schema, std::str::from_utf8(text).ok()?, depth))
}

fn undo(
    root: &Value,
    arguments: &mut Value,
    violation: &SchemaViolation,
    depth: usize,
) -> Option<RepairKind> {
    if violation.is_tied {
        return None;
    }
    let (types, values): (&[JsonType], &[Value]) = match &violation.rule {
        ViolatedRule::Type(types) => (types, &[]),
        ViolatedRule::Enum(values) => (&[], values),
        ViolatedRule::Either(types, values) => (types, values),
        ViolatedRule::Required(_) | ViolatedRule::Unknown(_) | ViolatedRule::Other(..) => {
            return None;
        }
    };
    if arguments.pointer(&violation.pointer)?.is_null() {
        return leave_out(root, arguments, violation);
    }
    let sent = arguments.pointer(&violation.pointer)?;
    let same = sent.as_str().and_then(|text| same_but_for_case(text, values));
    let (value, kind) = match same {
        Some(value) => (value, RepairKind::EnumCase),
        None => match as_type(sent, types, depth) {
            Some(typed) => typed,
            None => (one_to_list(root, arguments, violation, types)?, RepairKind::OneToList),
        },
    };
    *arguments.pointer_mut(&violation.pointer)? = value;
    Some(kind)
}

/// Removes a `null` for an optional argument; `null` for all arguments means no arguments.
fn leave_out(
    root: &Value,
    arguments: &mut Value,
    violation: &SchemaViolation,
) -> Option<RepairKind> {
    if violation.pointer.is_empty() {
        *arguments = Value::Object(Map::new());
        return Some(RepairKind::NullToAbsent);
    }
    let (parent, key) = violation.pointer.rsplit_once('/')?;
    // From `…/properties/<key>/type`, the object's schema is three steps up, ignoring alternatives.
    let (holder, rest) = violation.schema.rsplit_once("/properties/")?;
    // A key that the schema does not declare belongs to an open map, where a `null` has a meaning.
    (rest.split('/').next() == Some(key)).then_some(())?;
    let key = key.replace("~1", "/").replace("~0", "~");
    let required = root.pointer(holder)?.get("required").and_then(Value::as_array);
    if required.is_some_and(|names| names.iter().any(|name| name == &key)) {
        return None;
    }
    arguments.pointer_mut(parent)?.as_object_mut()?.remove(&key)?;
    Some(RepairKind::NullToAbsent)
}

fn as_type(value: &Value, types: &[JsonType], depth: usize) -> Option<(Value, RepairKind)> {
    let wants = |kind| types.contains(&kind);
    if let Value::String(text) = value {
        if wants(JsonType::Integer) || wants(JsonType::Number) {
            let number = exact_number(text.trim(), !wants(JsonType::Number));
            if let Some(number) = number {
                return Some((number, RepairKind::TextToNumber));
            }
        }
        if wants(JsonType::Boolean) {
            let truth = text.trim().to_ascii_lowercase().parse::<bool>();
            if let Ok(truth) = truth {
                return Some((Value::Bool(truth), RepairKind::TextToBool));
            }
        }
        if wants(JsonType::Array) || wants(JsonType::Object) {
            let parsed = parse::strict(text.as_bytes(), depth).ok();
            let parsed =
                parsed.or_else(|| tolerant::list_or_object(text, depth)).filter(|parsed| {
                    (parsed.is_array() && wants(JsonType::Array))
                        || (parsed.is_object() && wants(JsonType::Object))
                });
            if let Some(parsed) = parsed {
                return Some((parsed, RepairKind::TextToJson));
            }
        }
    }
    None
}

/// Wraps a single value in a list if it can only be one item: not inside a list (`[1, 2]` is no matrix), not a text
/// that may name several items or none, not an object that may map several.
fn one_to_list(
    root: &Value,
    arguments: &Value,
    violation: &SchemaViolation,
    types: &[JsonType],
) -> Option<Value> {
    let (parent, _) = violation.pointer.rsplit_once('/')?;
    let is_field = arguments.pointer(parent)?.is_object();
    let only_list = types.iter().all(|it| matches!(it, JsonType::Array | JsonType::Null));
    (is_field && only_list && types.contains(&JsonType::Array)).then_some(())?;
    let sent = arguments.pointer(&violation.pointer)?;
    let is_one = match sent {
        Value::Number(_) | Value::Bool(_) => true,
        Value::String(text) => is_one_item(text),
        Value::Object(map) => {
            let (owner, _) = violation.schema.rsplit_once('/')?;
            let item = schema::resolve(root, root.pointer(owner)?.get("items")?);
            map.keys().any(|key| explain::names(item, &[], key))
        }
        Value::Null | Value::Array(_) => false,
    };
    is_one.then(|| Value::Array(vec![sent.clone()]))
}

fn is_one_item(text: &str) -> bool {
    !text.is_empty()
        && !text.contains(SEPARATORS)
        && !text.contains(char::is_whitespace)
        && !NO_ITEM.contains(&text.to_lowercase().as_str())
}

/// The number that a text spells, if the conversion is exact.
fn exact_number(text: &str, whole: bool) -> Option<Value> {
    let Value::Number(number) = parse::strict(text.as_bytes(), 1).ok()? else { return None };
    if number.is_i64() || number.is_u64() {
        return Some(Value::Number(number));
    }
    let digits = text.split(['e', 'E']).next()?.chars().filter(char::is_ascii_digit).count();
    (!whole && digits <= 15).then_some(Value::Number(number))
}

/// The only allowed value that differs from the text in case alone.
fn same_but_for_case(text: &str, values: &[Value]) -> Option<Value> {
    let wanted = text.trim().to_lowercase();
    let mut close = values
        .iter()
        .filter(|value| value.as_str().is_some_and(|value| value.to_lowercase() == wanted));
    match (close.next(), close.next()) {
        (Some(only), None) => Some(only.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn repaired(schema: &Value, arguments: &Value) -> Option<(Value, Vec<(String, RepairKind)>)> {
        let prepared = schema::prepare(schema).unwrap();
        let (value, repairs) = undo_slips(&prepared.schema, &prepared.validator, arguments, 64)?;
        let repairs = repairs.into_iter().map(|repair| (repair.pointer, repair.kind)).collect();
        Some((value, repairs))
    }

    #[expect(clippy::needless_pass_by_value, reason = "reads better at every call")]
    fn one(property: Value, sent: Value) -> Option<(Value, RepairKind)> {
        let schema = json!({ "properties": { "x": property } });
        let (mut value, repairs) = repaired(&schema, &json!({ "x": sent }))?;
        let value = value.as_object_mut()?.remove("x").unwrap_or(Value::Null);
        Some((value, repairs[0].1))
    }

    #[test]
    fn each_slip_is_undone_without_loss() {
        use RepairKind::*;
        let list = json!({ "type": "array", "items": { "type": "integer" } });
        let colour = json!({ "enum": ["red", "green"] });
        let words = json!({ "type": "array", "items": { "type": "string" } });
        let matrix = json!({ "type": "array", "items": list });
        let pairs = json!({ "type": "array", "items": { "properties": { "k": {} } } });
        for (property, sent, wanted) in [
            (json!({ "type": "integer" }), json!("5"), Some((json!(5), TextToNumber))),
            (json!({ "type": "number" }), json!("-0.25"), Some((json!(-0.25), TextToNumber))),
            (json!({ "type": "integer" }), json!("5.5"), None),
            (json!({ "type": "integer" }), json!("007"), None),
            (json!({ "type": "integer" }), json!("12345678901234567890123"), None),
            (json!({ "type": "number" }), json!("0.12345678901234567890"), None),
            (json!({ "type": "boolean" }), json!("True"), Some((json!(true), TextToBool))),
            (json!({ "type": "boolean" }), json!("yes"), None),
            (list.clone(), json!("[1, 2]"), Some((json!([1, 2]), TextToJson))),
            (list.clone(), json!(3), Some((json!([3]), OneToList))),
            (list.clone(), json!("3"), Some((json!([3]), OneToList))),
            (list.clone(), json!("1, 2"), None),
            (list, json!("(1, 2)"), None),
            (words.clone(), json!("a.txt"), Some((json!(["a.txt"]), OneToList))),
            (words.clone(), json!("a.txt, b.txt"), None),
            (words.clone(), json!("a.txt b.txt"), None),
            (words.clone(), json!("none"), None),
            (words.clone(), json!(""), None),
            (words.clone(), json!("['a', 'b']"), Some((json!(["a", "b"]), TextToJson))),
            (words, json!("['a', ...]"), None),
            (matrix.clone(), json!([1, 2]), None),
            (matrix.clone(), json!("[1, 2]"), None),
            (matrix, json!(1), None),
            (pairs.clone(), json!({"k": 1}), Some((json!([{"k": 1}]), OneToList))),
            (pairs, json!({"0": {"k": 1}}), None),
            (json!({ "type": "object" }), json!("{\"a\":1}"), Some((json!({"a": 1}), TextToJson))),
            (json!({ "type": "object" }), json!("{\"a\":1,\"a\":2}"), None),
            (json!({ "type": "string" }), json!(null), Some((json!(null), NullToAbsent))),
            (colour.clone(), json!("RED"), Some((json!("red"), EnumCase))),
            (colour, json!("blue"), None),
            (json!({ "enum": ["a", "A"] }), json!("Á"), None),
            (
                json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }),
                json!("7"),
                Some((json!(7), TextToNumber)),
            ),
        ] {
            assert_eq!(one(property.clone(), sent.clone()), wanted, "{property} {sent}");
        }
    }

    #[test]
    fn a_required_null_is_not_left_out() {
        let schema = json!({ "properties": { "x": { "type": "string" } }, "required": ["x"] });
        assert_eq!(repaired(&schema, &json!({ "x": null })), None);
    }

    #[test]
    fn a_null_in_an_open_map_is_not_left_out() {
        let schema =
            json!({ "properties": { "env": { "additionalProperties": { "type": "string" } } } });
        assert_eq!(repaired(&schema, &json!({ "env": { "A": null } })), None);
    }

    #[test]
    fn a_slip_that_two_alternatives_read_differently_stays() {
        let one =
            |kind: &str| json!({ "properties": { "x": { "type": kind } }, "required": ["x"] });
        let schema = json!({ "properties": { "a": { "anyOf": [one("integer"), one("array")] } } });
        assert_eq!(repaired(&schema, &json!({ "a": { "x": "5" } })), None);
        let schema =
            json!({ "properties": { "a": { "anyOf": [one("integer"), one("integer")] } } });
        assert!(repaired(&schema, &json!({ "a": { "x": "5" } })).is_some());
    }

    #[test]
    fn slips_inside_a_repaired_text_are_undone_too() {
        let schema = json!({
            "properties": {
                "edits": {
                    "type": "array",
                    "items": { "type": "object", "properties": { "line": { "type": "integer" } } },
                },
            },
        });
        let (value, repairs) =
            repaired(&schema, &json!({ "edits": "[{\"line\": \"4\"}]" })).unwrap();
        assert_eq!(value, json!({ "edits": [{ "line": 4 }] }));
        assert_eq!(repairs.len(), 2);
    }

    #[test]
    fn arguments_that_cannot_be_saved_are_left_as_they_were() {
        let schema = json!({
            "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
        });
        assert_eq!(repaired(&schema, &json!({ "a": "1", "b": "x" })), None);
    }

    #[test]
    fn a_malformed_text_is_read_only_when_its_meaning_is_plain() {
        let read = |text: &str| {
            let broken = parse::strict(text.as_bytes(), 64).unwrap_err();
            malformed(&json!({}), text.as_bytes(), &broken, 64).and_then(Result::ok)
        };
        assert_eq!(read("{'path': 'a', all: True,}"), Some(json!({ "path": "a", "all": true })));
        assert_eq!(read("```json\n{\"a\": 1,}\n```"), Some(json!({ "a": 1 })));
        for cut in [
            "{\"path\": \"src/ma",
            "{'path': 'src/ma",
            "{'a': {'b': 1}",
            "{'a': [1, 2",
            "{'a': 'b}",
        ] {
            assert_eq!(read(cut), None, "{cut}");
        }
        assert_eq!(read("{'a': 1, 'a': 2}"), None);
        assert_eq!(read("please read src/main.rs"), None);
    }

    #[test]
    fn defaults_are_filled_at_every_level_and_listed_as_repairs() {
        let schema = json!({
            "properties": {
                "limit": { "type": "integer", "default": 200 },
                "note": { "type": ["string", "null"], "default": null },
                "edits": { "items": { "properties": { "all": { "default": false } } } },
            },
        });
        let mut value = json!({ "edits": [{}, { "all": true }] });
        let mut repairs = Vec::new();
        fill_defaults(&schema, &mut value, &mut repairs);
        assert_eq!(value, json!({ "limit": 200, "edits": [{ "all": false }, { "all": true }] }));
        let places: Vec<_> = repairs.iter().map(|repair| repair.pointer.as_str()).collect();
        assert_eq!(places, ["/limit", "/edits/0/all"]);
    }
}
