//! Finds schemas that no value fits. Only certain contradictions count: a schema that is merely hard to satisfy passes.

use serde_json::{Map, Value};

const TYPES: [&str; 6] = ["null", "boolean", "object", "array", "number", "string"];

/// Pairs of keywords whose first value must not exceed the second, with the type that they concern.
const BOUNDS: [(&str, &str, &str); 4] = [
    ("minimum", "maximum", "number"),
    ("minLength", "maxLength", "string"),
    ("minItems", "maxItems", "array"),
    ("minProperties", "maxProperties", "object"),
];

/// Whether certainly no value fits the schema. References are not followed.
pub(super) fn admits_nothing(schema: &Value) -> bool {
    match schema {
        Value::Bool(admits) => !admits,
        Value::Object(map) => {
            let denies =
                map.get("not").is_some_and(|not| *not == Value::Bool(true) || is_empty(not));
            denies || has_no_choice(map) || types(map).is_empty() || is_contradiction(map)
        }
        _ => false,
    }
}

fn is_empty(schema: &Value) -> bool {
    schema.as_object().is_some_and(Map::is_empty)
}

fn schemas<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Vec<Value>> {
    map.get(key).and_then(Value::as_array)
}

/// Whether every alternative of the schema admits nothing, or one of its conditions does.
fn has_no_choice(map: &Map<String, Value>) -> bool {
    let none = |key: &str| schemas(map, key).is_some_and(|all| all.iter().all(admits_nothing));
    none("anyOf")
        || none("oneOf")
        || schemas(map, "allOf").is_some_and(|all| all.iter().any(admits_nothing))
}

/// The types of values that the schema may admit.
fn types(map: &Map<String, Value>) -> Vec<&'static str> {
    let named = |name: &str| if name == "integer" { "number".to_owned() } else { name.to_owned() };
    let listed: Option<Vec<String>> = match map.get("type") {
        Some(Value::String(name)) => Some(vec![named(name)]),
        Some(Value::Array(names)) => {
            Some(names.iter().filter_map(Value::as_str).map(named).collect())
        }
        _ => None,
    };
    let mut types: Vec<&'static str> = TYPES.to_vec();
    if let Some(listed) = listed {
        types.retain(|known| listed.iter().any(|name| name == known));
    }
    if let Some(values) = schemas(map, "enum") {
        types.retain(|known| values.iter().any(|value| type_of(value) == *known));
    }
    if let Some(value) = map.get("const") {
        types.retain(|known| type_of(value) == *known);
    }
    for part in schemas(map, "allOf").into_iter().flatten().filter_map(Value::as_object) {
        let allowed = self::types(part);
        types.retain(|known| allowed.contains(known));
    }
    types.retain(|known| {
        !BOUNDS.iter().any(|(least, most, of)| of == known && exceeds(map, least, most))
    });
    types
}

fn exceeds(map: &Map<String, Value>, least: &str, most: &str) -> bool {
    let number = |key: &str| map.get(key).and_then(Value::as_f64);
    number(least).zip(number(most)).is_some_and(|(least, most)| least > most)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::Number(_) => "number",
        Value::String(_) => "string",
    }
}

/// Whether the only type left needs a part that nothing fits.
fn is_contradiction(map: &Map<String, Value>) -> bool {
    match types(map)[..] {
        ["object"] => {
            let properties = map.get("properties").and_then(Value::as_object);
            let is_closed = map.get("additionalProperties") == Some(&Value::Bool(false))
                && !map.contains_key("patternProperties");
            let required = schemas(map, "required").into_iter().flatten().filter_map(Value::as_str);
            required.into_iter().any(|name| match properties.and_then(|known| known.get(name)) {
                Some(property) => admits_nothing(property),
                None => is_closed,
            })
        }
        ["array"] => {
            let needs_items =
                map.get("minItems").and_then(Value::as_u64).is_some_and(|least| least > 0);
            needs_items && map.get("items").is_some_and(admits_nothing)
        }
        _ => false,
    }
}
