//! Visits every schema inside a schema, and skips JSON that only looks like one.
//!
//! `{"properties": {"pattern": …}}` has a property of that name, and `{"const": {"$ref": …}}` contains a value. A
//! walk over plain JSON would mistake both for keywords.

use serde_json::{Map, Value};

/// Keywords that hold one schema (or, in older drafts, a list of them).
const ONE: &[&str] = &[
    "items",
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords that hold a list of schemas.
const LIST: &[&str] = &["allOf", "anyOf", "oneOf", "prefixItems"];

/// Keywords that hold a map of schemas by name.
const NAMED: &[&str] = &[
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    "patternProperties",
    "properties",
];

/// Calls `visit` with every schema that is an object, outermost first.
pub(super) fn each(schema: &Value, visit: &mut dyn FnMut(&Map<String, Value>)) {
    if let Value::Object(map) = schema {
        each_in(map, visit);
    }
}

/// As [`each`], starting from a map.
pub(super) fn each_in(map: &Map<String, Value>, visit: &mut dyn FnMut(&Map<String, Value>)) {
    visit(map);
    for (keyword, value) in map {
        match value {
            Value::Object(_) if ONE.contains(&keyword.as_str()) => each(value, visit),
            Value::Array(items) if ONE.contains(&keyword.as_str()) || is_list(keyword) => {
                items.iter().for_each(|item| each(item, visit));
            }
            Value::Object(named) if NAMED.contains(&keyword.as_str()) => {
                named.values().for_each(|value| each(value, visit));
            }
            _ => {}
        }
    }
}

/// The first schema, outermost first, in which `find` finds something, with its JSON pointer.
pub(super) fn find<'a, T>(
    schema: &'a Value,
    pointer: &str,
    find: &dyn Fn(&'a Map<String, Value>) -> Option<T>,
) -> Option<(String, T)> {
    let map = schema.as_object()?;
    if let Some(found) = find(map) {
        return Some((pointer.to_owned(), found));
    }
    let inside = |value, pointer: String| self::find(value, &pointer, find);
    map.iter().find_map(|(keyword, value)| match value {
        Value::Object(_) if ONE.contains(&keyword.as_str()) => {
            inside(value, format!("{pointer}/{keyword}"))
        }
        Value::Array(items) if ONE.contains(&keyword.as_str()) || is_list(keyword) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| inside(item, format!("{pointer}/{keyword}/{index}")))
        }
        Value::Object(named) if NAMED.contains(&keyword.as_str()) => {
            named.iter().find_map(|(name, value)| {
                let name = name.replace('~', "~0").replace('/', "~1");
                inside(value, format!("{pointer}/{keyword}/{name}"))
            })
        }
        _ => None,
    })
}

/// As [`each`], with mutable access. Schemas that `visit` removes are not visited.
pub(super) fn each_mut(schema: &mut Value, visit: &mut dyn FnMut(&mut Map<String, Value>)) {
    let Value::Object(map) = schema else { return };
    visit(map);
    for (keyword, value) in map.iter_mut() {
        match value {
            Value::Object(_) if ONE.contains(&keyword.as_str()) => each_mut(value, visit),
            Value::Array(items) if ONE.contains(&keyword.as_str()) || is_list(keyword) => {
                items.iter_mut().for_each(|item| each_mut(item, visit));
            }
            Value::Object(named) if NAMED.contains(&keyword.as_str()) => {
                named.values_mut().for_each(|value| each_mut(value, visit));
            }
            _ => {}
        }
    }
}

fn is_list(keyword: &str) -> bool {
    LIST.contains(&keyword)
}
