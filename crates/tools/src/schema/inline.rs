//! Inlines `$ref` in a schema, because many providers do not support references well.
//!
//! A schema that refers to itself, or would grow past its size limit, keeps its references; the validator supports
//! both forms.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{SCHEMA_BYTES_MAX, walk};

/// Keywords next to a `$ref` that annotate the location without constraining it.
const REMARKS: &[&str] = &[
    "$comment",
    "default",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
];

/// The schema without references; unchanged if inlining is not possible.
pub(super) fn inline(schema: Value) -> Result<Value, String> {
    let (mut refers, mut anchored) = (false, false);
    walk::each(&schema, &mut |map| {
        refers |= map.contains_key("$ref");
        anchored |= ["$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"]
            .iter()
            .any(|keyword| map.contains_key(*keyword));
    });
    if !refers && !anchored {
        return Ok(without_parts(schema));
    }
    if anchored {
        return Ok(schema);
    }
    let mut work = Inliner { root: &schema, open: Vec::new(), nodes_left: SCHEMA_BYTES_MAX / 16 };
    match work.copy(&schema) {
        Ok(flat) if still_refers(&flat) => Ok(schema),
        Ok(flat) => Ok(without_parts(flat)),
        Err(InlineError::Kept) => Ok(schema),
        Err(InlineError::Unknown(target)) => Err(format!("`$ref` leads nowhere: {target}")),
    }
}

/// True if references remain: a property named `const` or `default` is copied without inlining.
fn still_refers(schema: &Value) -> bool {
    let mut refers = false;
    walk::each(schema, &mut |map| refers |= map.contains_key("$ref"));
    refers
}

fn without_parts(mut schema: Value) -> Value {
    if let Value::Object(map) = &mut schema {
        map.remove("$defs");
        map.remove("definitions");
    }
    schema
}

/// Follows a local reference to its target.
pub(crate) fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut at = schema;
    // A longer chain of references is taken for a cycle.
    for _ in 0..16 {
        let target = at.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'));
        match target.and_then(|pointer| root.pointer(&percent_decoded(pointer))) {
            Some(next) => at = next,
            None => break,
        }
    }
    at
}

pub(super) fn percent_decoded(pointer: &str) -> Cow<'_, str> {
    if !pointer.contains('%') {
        return Cow::Borrowed(pointer);
    }
    let decode = |part: &str| {
        let byte = part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok())?;
        byte.is_ascii().then(|| format!("{}{}", char::from(byte), &part[2..]))
    };
    let mut parts = pointer.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        decoded.push_str(&decode(part).unwrap_or_else(|| format!("%{part}")));
    }
    Cow::Owned(decoded)
}

enum InlineError {
    /// The schema refers to itself or would grow too large, so references are kept.
    Kept,
    Unknown(String),
}

struct Inliner<'a> {
    root: &'a Value,
    /// The references being inlined, outermost first; used to detect cycles.
    open: Vec<&'a str>,
    nodes_left: usize,
}

impl<'a> Inliner<'a> {
    fn copy(&mut self, value: &'a Value) -> Result<Value, InlineError> {
        self.nodes_left = self.nodes_left.checked_sub(1).ok_or(InlineError::Kept)?;
        match value {
            Value::Object(map) => match map.get("$ref") {
                Some(Value::String(target)) => self.follow(target, map),
                _ => Ok(Value::Object(self.copy_map(map)?)),
            },
            Value::Array(items) => Ok(Value::Array(
                items.iter().map(|item| self.copy(item)).collect::<Result<_, _>>()?,
            )),
            scalar => Ok(scalar.clone()),
        }
    }

    fn copy_map(&mut self, map: &'a Map<String, Value>) -> Result<Map<String, Value>, InlineError> {
        let mut copy = Map::new();
        for (key, value) in map {
            let value = if is_value(key) { value.clone() } else { self.copy(value)? };
            copy.insert(key.clone(), value);
        }
        Ok(copy)
    }

    fn follow(
        &mut self,
        target: &'a str,
        map: &'a Map<String, Value>,
    ) -> Result<Value, InlineError> {
        if self.open.contains(&target) {
            return Err(InlineError::Kept);
        }
        let pointer = target.strip_prefix('#').unwrap_or(target);
        let found = self.root.pointer(&percent_decoded(pointer));
        let found = found.ok_or_else(|| InlineError::Unknown(target.to_owned()))?;
        self.open.push(target);
        let part = self.copy(found)?;
        self.open.pop();
        let siblings: Vec<_> = map.iter().filter(|(key, _)| *key != "$ref").collect();
        if siblings.iter().all(|(key, _)| REMARKS.contains(&key.as_str())) {
            return Ok(match part {
                Value::Object(mut part) => {
                    part.extend(
                        siblings.into_iter().map(|(key, value)| (key.clone(), value.clone())),
                    );
                    Value::Object(part)
                }
                truth => truth,
            });
        }
        let mut both = Map::new();
        for (key, value) in siblings {
            let value = if is_value(key) { value.clone() } else { self.copy(value)? };
            both.insert(key.clone(), value);
        }
        let mut all = vec![part];
        if let Some(Value::Array(more)) = both.remove("allOf") {
            all.extend(more);
        }
        both.insert("allOf".into(), Value::Array(all));
        Ok(Value::Object(both))
    }
}

/// True for keywords whose content is a value, not a schema.
pub(super) fn is_value(keyword: &str) -> bool {
    matches!(keyword, "const" | "default" | "enum" | "examples")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_are_put_in_place_with_the_remarks_beside_them() {
        let schema = json!({
            "type": "object",
            "properties": { "a": { "$ref": "#/$defs/A", "description": "mine" } },
            "$defs": { "A": { "$ref": "#/$defs/B" }, "B": { "type": "string", "description": "its" } },
        });
        let flat = inline(schema).unwrap();
        assert_eq!(
            flat,
            json!({
                "type": "object",
                "properties": { "a": { "type": "string", "description": "mine" } },
            })
        );
    }

    #[test]
    fn rules_beside_a_reference_still_rule() {
        let schema = json!({
            "properties": { "a": { "$ref": "#/$defs/A", "maxLength": 3 } },
            "$defs": { "A": { "minLength": 2 } },
        });
        let flat = inline(schema).unwrap();
        assert_eq!(
            flat["properties"]["a"],
            json!({ "maxLength": 3, "allOf": [{ "minLength": 2 }] })
        );
    }

    #[test]
    fn a_schema_that_refers_to_itself_keeps_its_references() {
        let schema = json!({
            "properties": { "tree": { "$ref": "#/$defs/Node" } },
            "$defs": { "Node": { "properties": { "kids": { "items": { "$ref": "#/$defs/Node" } } } } },
        });
        assert_eq!(inline(schema.clone()).unwrap(), schema);
    }

    #[test]
    fn a_small_schema_cannot_be_made_huge() {
        // Goal: parts that each refer twice to the next one must not grow exponentially.
        let mut defs = Map::new();
        for number in 0..24 {
            let next = json!({ "$ref": format!("#/$defs/p{}", number + 1) });
            defs.insert(format!("p{number}"), json!({ "properties": { "a": next, "b": next } }));
        }
        defs.insert("p24".into(), json!({ "type": "string" }));
        let schema = json!({ "properties": { "x": { "$ref": "#/$defs/p0" } }, "$defs": defs });
        assert_eq!(inline(schema.clone()).unwrap(), schema);
    }

    #[test]
    fn names_with_slashes_and_percents_are_found() {
        let root = json!({ "$defs": { "a/b c": { "type": "string" } } });
        let reference = json!({ "$ref": "#/$defs/a~1b%20c" });
        assert_eq!(resolve(&root, &reference), &json!({ "type": "string" }));
    }
}
