//! Explains validation errors: each mismatch with the expected and the received value, most useful first.

use std::borrow::Cow;

use budao_core::fault::Mismatch;
use jsonschema::JsonType;
use serde_json::Value;

use crate::{
    schema, suggestions,
    violations::{SchemaViolation, ViolatedRule},
};

/// Maximum mismatches reported at once.
pub const MISMATCHES_MAX: usize = 16;

/// Maximum characters shown of a received value.
const RECEIVED_CHARS_MAX: usize = 80;

/// Maximum allowed values listed.
const ALLOWED_MAX: usize = 24;

/// Describes the violations, most useful first.
pub(crate) fn explain(
    root: &Value,
    arguments: &Value,
    violations: &[SchemaViolation],
) -> Vec<Mismatch> {
    let mut ranked_mismatches: Vec<(u8, Mismatch)> = Vec::new();
    for violation in violations {
        for mismatch in explain_violation(root, arguments, violation) {
            let known = ranked_mismatches.iter().any(|(_, other)| {
                other.pointer == mismatch.pointer && other.expected == mismatch.expected
            });
            if !known {
                ranked_mismatches.push((rank(violation, &mismatch), mismatch));
            }
        }
    }
    // If a value has the wrong type and is not in the list, the list of allowed values covers both.
    let listed: Vec<String> = ranked_mismatches
        .iter()
        .filter(|(_, mismatch)| matches!(&*mismatch.rule, "enum" | "const"))
        .map(|(_, mismatch)| mismatch.pointer.clone())
        .collect();
    ranked_mismatches
        .retain(|(_, mismatch)| mismatch.rule != "type" || !listed.contains(&mismatch.pointer));
    // The sort is stable: mismatches of equal rank stay in schema order.
    ranked_mismatches.sort_by_key(|(rank, _)| *rank);
    ranked_mismatches.truncate(MISMATCHES_MAX);
    ranked_mismatches.into_iter().map(|(_, mismatch)| mismatch).collect()
}

/// The reporting order: a misspelt key explains a missing one, and a wrong type explains the parts inside.
fn rank(violation: &SchemaViolation, mismatch: &Mismatch) -> u8 {
    match &violation.rule {
        ViolatedRule::Unknown(_) if mismatch.nearest.is_some() => 0,
        ViolatedRule::Required(_) => 1,
        ViolatedRule::Type(_) => 2,
        ViolatedRule::Enum(_) | ViolatedRule::Either(..) => 3,
        ViolatedRule::Other(..) => 4,
        ViolatedRule::Unknown(_) => 5,
    }
}

fn explain_violation(
    root: &Value,
    arguments: &Value,
    violation: &SchemaViolation,
) -> Vec<Mismatch> {
    let value = arguments.pointer(&violation.pointer);
    let received = value.map(short);
    let pointer = violation.pointer.clone();
    match &violation.rule {
        ViolatedRule::Required(key) => vec![required(root, arguments, violation, key)],
        ViolatedRule::Unknown(keys) => {
            keys.iter().map(|key| unknown(root, arguments, violation, key)).collect()
        }
        ViolatedRule::Type(types) => vec![Mismatch {
            pointer,
            rule: "type".into(),
            expected: format!("must be {}", of_types(types)),
            received,
            ..Mismatch::default()
        }],
        ViolatedRule::Enum(values) => vec![Mismatch {
            pointer,
            rule: if values.len() == 1 { "const".into() } else { "enum".into() },
            expected: one_of(values),
            received,
            allowed: values.iter().take(ALLOWED_MAX).cloned().collect(),
            nearest: near_value(value, values),
        }],
        ViolatedRule::Either(types, values) => vec![Mismatch {
            pointer,
            rule: "anyOf".into(),
            expected: format!(
                "must be {}, or {}",
                of_types(types),
                one_of(values).replace("must be ", "")
            ),
            received,
            allowed: values.iter().take(ALLOWED_MAX).cloned().collect(),
            nearest: near_value(value, values),
        }],
        ViolatedRule::Other(rule, text) => vec![Mismatch {
            pointer,
            rule: Cow::Borrowed(rule),
            expected: with_sample(rule, text),
            received,
            ..Mismatch::default()
        }],
    }
}

fn near_value(value: Option<&Value>, values: &[Value]) -> Option<String> {
    let text = match value? {
        Value::Array(items) if items.len() == 1 => items[0].as_str()?,
        value => value.as_str()?,
    };
    suggestions::nearest(text, values.iter().filter_map(Value::as_str)).map(str::to_owned)
}

/// The mismatch for a missing key. If a similar key was sent, it is named.
fn required(root: &Value, arguments: &Value, violation: &SchemaViolation, key: &str) -> Mismatch {
    let owner = owner(root, violation);
    let property = owner.and_then(|owner| owner.get("properties")?.get(key));
    let property = property.map(|property| schema::resolve(root, property));
    let allowed = property.and_then(|property| property.get("enum")).and_then(Value::as_array);
    let sent = arguments.pointer(&violation.pointer).and_then(Value::as_object).and_then(|map| {
        let known = owner.and_then(|owner| owner.get("properties"));
        let unknown_keys =
            map.keys().filter(|name| known.is_none_or(|known| known.get(name.as_str()).is_none()));
        suggestions::nearest(key, unknown_keys.map(String::as_str))
            .map(|name| format!("`{name}` instead"))
    });
    Mismatch {
        pointer: format!("{}/{}", violation.pointer, escaped(key)),
        rule: "required".into(),
        expected: "required".into(),
        received: sent,
        allowed: allowed
            .map(|all| all.iter().take(ALLOWED_MAX).cloned().collect())
            .unwrap_or_default(),
        nearest: None,
    }
}

fn unknown(root: &Value, arguments: &Value, violation: &SchemaViolation, key: &str) -> Mismatch {
    let sent = arguments.pointer(&violation.pointer).and_then(Value::as_object);
    let known: Vec<&str> = owner(root, violation)
        .and_then(|owner| owner.get("properties")?.as_object())
        .map(|properties| properties.keys().map(String::as_str).collect())
        .unwrap_or_default();
    // A key that was sent already cannot be the one that was meant.
    let free =
        known.iter().copied().filter(|name| sent.is_none_or(|sent| !sent.contains_key(*name)));
    let nearest = suggestions::nearest(key, free).map(str::to_owned);
    let expected = match known.as_slice() {
        [] => "unknown key; none is allowed here".into(),
        known => format!("unknown key; known are {}", listed(known)),
    };
    Mismatch {
        pointer: format!("{}/{}", violation.pointer, escaped(key)),
        rule: "additionalProperties".into(),
        expected,
        nearest,
        ..Mismatch::default()
    }
}

/// The schema object that contains the violated keyword.
fn owner<'a>(root: &'a Value, violation: &SchemaViolation) -> Option<&'a Value> {
    let (parent_pointer, _) = violation.schema.rsplit_once('/')?;
    root.pointer(parent_pointer)
}

fn listed(names: &[&str]) -> String {
    let mut text = names.iter().take(ALLOWED_MAX).copied().collect::<Vec<_>>().join(", ");
    if names.len() > ALLOWED_MAX {
        text.push_str(", …");
    }
    text
}

fn one_of(values: &[Value]) -> String {
    match values {
        [] => "has no allowed value".into(),
        [only] => format!("must be {}", short(only)),
        many => {
            let shown: Vec<String> = many.iter().take(ALLOWED_MAX).map(short).collect();
            let more = if many.len() > ALLOWED_MAX { ", …" } else { "" };
            format!("must be one of {}{more}", shown.join(", "))
        }
    }
}

fn of_types(types: &[JsonType]) -> String {
    let names: Vec<&str> = types
        .iter()
        .map(|kind| match kind {
            JsonType::Null => "null",
            JsonType::Boolean => "true or false",
            JsonType::Integer => "an integer",
            JsonType::Number => "a number",
            JsonType::String => "a string",
            JsonType::Array => "a list",
            JsonType::Object => "an object",
        })
        .collect();
    names.join(" or ")
}

/// Describes what a schema allows at a location, for example `limit must be an integer`. If the schema does not
/// describe the location, describes the nearest enclosing one.
pub(crate) fn allowed_at(root: &Value, pointer: &str) -> String {
    let (mut at, mut here) = (root, String::new());
    for part in pointer.split('/').skip(1) {
        let Some(next) = part_of(root, at, part) else { break };
        at = next;
        here = format!("{here}/{part}");
    }
    let parent_pointer = Mismatch { pointer: here, ..Mismatch::default() }.dotted();
    format!("{parent_pointer} {}", allowed(root, at))
}

/// The schema for a location, by the parts of its pointer.
pub(crate) fn schema_at<'a>(root: &'a Value, path: &[String]) -> Option<&'a Value> {
    let found = path.iter().try_fold(root, |schema, part| part_of(root, schema, part))?;
    Some(schema::resolve(root, found))
}

/// True if the schema declares this key for the object at a location.
pub(crate) fn names(root: &Value, path: &[String], key: &str) -> bool {
    let Some(schema) = schema_at(root, path) else { return false };
    let declares = |schema: &Value| {
        let schema = schema::resolve(root, schema);
        schema.get("properties").is_some_and(|properties| properties.get(key).is_some())
    };
    declares(schema) || branches(schema).any(declares)
}

/// The schema of an array item or an object's key.
fn part_of<'a>(root: &'a Value, schema: &'a Value, part: &str) -> Option<&'a Value> {
    let schema = schema::resolve(root, schema);
    let key = part.replace("~1", "/").replace("~0", "~");
    let declared = schema.get("properties").and_then(|properties| properties.get(&key));
    let item = || schema.get("items").filter(|_| part.parse::<usize>().is_ok());
    let other = || schema.get("additionalProperties").filter(|other| other.is_object());
    let direct = declared.or_else(item).or_else(other);
    direct.or_else(|| branches(schema).find_map(|branch| part_of_branch(root, branch, &key)))
}

/// Searches one level of alternatives; deeper ones are rare and not needed to describe a location.
fn part_of_branch<'a>(root: &'a Value, branch: &'a Value, key: &str) -> Option<&'a Value> {
    let branch = schema::resolve(root, branch);
    let declared = branch.get("properties").and_then(|properties| properties.get(key));
    declared.or_else(|| branch.get("items").filter(|_| key.parse::<usize>().is_ok()))
}

fn branches(schema: &Value) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf", "allOf"]
        .into_iter()
        .filter_map(|keyword| schema.get(keyword)?.as_array())
        .flatten()
}

fn allowed(root: &Value, schema: &Value) -> String {
    let schema = schema::resolve(root, schema);
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return one_of(values);
    }
    if let Some(value) = schema.get("const") {
        return one_of(std::slice::from_ref(value));
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        let names: Vec<&str> = properties.keys().map(String::as_str).collect();
        return format!("must be an object with the keys {}", listed(&names));
    }
    let named = |schema: &Value| -> Vec<String> {
        match schema::resolve(root, schema).get("type") {
            Some(Value::String(name)) => vec![name.clone()],
            Some(Value::Array(names)) => {
                names.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            _ => Vec::new(),
        }
    };
    let own = named(schema);
    let all = if own.is_empty() { branches(schema).flat_map(named).collect() } else { own };
    let mut types: Vec<JsonType> = all.iter().filter_map(|name| name.parse().ok()).collect();
    types.sort_unstable();
    types.dedup();
    if types.is_empty() {
        return "must be a JSON value: text in double quotes, a number, true, false, null, a list or an object".into();
    }
    format!("must be {}", of_types(&types))
}

/// Adds a sample value to the description of a format.
fn with_sample(rule: &str, text: &str) -> String {
    let sample = text
        .strip_prefix("must be of the format ")
        .filter(|_| rule == "format")
        .and_then(crate::example::of_format);
    match sample {
        Some(sample) => format!("{text}, such as {sample}"),
        None => text.to_owned(),
    }
}

/// The value as compact JSON, shortened.
pub(crate) fn short(value: &Value) -> String {
    // A long string is cut before serialization, because a value may have megabytes.
    let text = match value {
        Value::String(text) if text.len() > 4 * RECEIVED_CHARS_MAX => {
            let end = crate::parse::floor(text, 4 * RECEIVED_CHARS_MAX);
            Value::from(&text[..end]).to_string()
        }
        Value::Array(items) if items.len() > RECEIVED_CHARS_MAX => {
            return format!("a list of {} items", items.len());
        }
        Value::Object(map) if map.len() > RECEIVED_CHARS_MAX => {
            return format!("an object of {} keys", map.len());
        }
        Value::Array(_) | Value::Object(_) => bounded_json(value),
        scalar => scalar.to_string(),
    };
    match text.char_indices().nth(RECEIVED_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// The start of the value's JSON; serialization stops at the limit.
fn bounded_json(value: &Value) -> String {
    struct BoundedWriter(Vec<u8>);
    impl std::io::Write for BoundedWriter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if self.0.len() > 4 * RECEIVED_CHARS_MAX {
                return Err(std::io::ErrorKind::Other.into());
            }
            let taken = bytes.len().min(8 * RECEIVED_CHARS_MAX);
            self.0.extend_from_slice(&bytes[..taken]);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut enough = BoundedWriter(Vec::new());
    // The writer's own error stops the serialization.
    drop(serde_json::to_writer(&mut enough, value));
    String::from_utf8_lossy(&enough.0).into_owned()
}

/// Escapes a key for use in a JSON pointer.
pub(crate) fn escaped(key: &str) -> Cow<'_, str> {
    if key.contains(['~', '/']) {
        Cow::Owned(key.replace('~', "~0").replace('/', "~1"))
    } else {
        Cow::Borrowed(key)
    }
}
