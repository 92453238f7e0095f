//! Prepares schemas at registration: checks, limits, inlines and compiles them once.
//!
//! The schema that `prepare` returns is both sent to the model and enforced. A rule that cannot be enforced (a
//! pattern that needs backtracking) is removed from both, with a warning.

mod cycles;
mod inline;
mod structure;
mod walk;

use std::panic::{AssertUnwindSafe, catch_unwind};

use budao_core::nesting;
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

pub(crate) use inline::resolve;

use self::structure::Structure;
use crate::suggestions;

/// Maximum size of a schema in bytes of JSON, before and after inlining.
pub const SCHEMA_BYTES_MAX: usize = 256 * 1024;

/// Maximum nesting of a schema, in levels of JSON.
pub const SCHEMA_DEPTH_MAX: usize = 96;

/// Maximum size of a compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// The names of types.
const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "object", "array", "null"];

/// Maximum characters shown of a foreign error's text.
const REASON_CHARS_MAX: usize = 200;

/// A schema that is checked, inlined and compiled.
#[derive(Debug)]
pub(crate) struct CompiledSchema {
    /// The schema as sent to the model and enforced.
    pub(crate) schema: Value,
    pub(crate) validator: Validator,
    /// What the validator surely accepts.
    structure: Structure,
    /// True if references were kept. The cost of validating a call is then estimated first.
    refers: bool,
    /// True if any location has a default.
    pub(crate) has_defaults: bool,
    /// Descriptions of the rules that were removed.
    pub(crate) warnings: Vec<String>,
}

impl CompiledSchema {
    /// True if validating this value is cheap enough.
    pub(crate) fn accepts(&self, value: &Value) -> bool {
        !self.refers || cycles::weigh(&self.schema, value)
    }

    /// True if the value is valid.
    pub(crate) fn is_valid(&self, value: &Value) -> bool {
        self.structure.accepts(value) || self.validator.is_valid(value)
    }

    /// True if the value is valid, cheap enough to validate, and not nested too deeply for that.
    pub(crate) fn fits(&self, value: &Value) -> bool {
        self.structure.accepts(value)
            || (!nesting::is_deeper(value, nesting::LEVELS_MAX)
                && self.accepts(value)
                && self.validator.is_valid(value))
    }
}

/// Checks and compiles the schema of a tool's arguments. The error is the reason why it cannot be used.
pub(crate) fn prepare(schema: &Value) -> Result<CompiledSchema, String> {
    check_shape(schema)?;
    let Value::Object(map) = schema else {
        return Err("the schema of a tool's arguments must be an object".into());
    };
    let mut root = arguments_are_an_object(map.clone())?;
    let draft = settle_draft(&mut root);
    let mut schema = Value::Object(root);
    refuse_remote(&schema)?;
    cycles::refuse(&schema)?;
    let mut warnings = Vec::new();
    drop_patterns(&mut schema, draft, &mut warnings);
    let schema = inline::inline(schema)?;
    let validator = compile(&schema, draft)?;
    let refers = cycles::refers(&schema);
    let mut has_defaults = false;
    walk::each(&schema, &mut |map| {
        has_defaults |= map.get("default").is_some_and(|value| !value.is_null());
    });
    // Inlined references may have made the schema deeper; the fast check is recursive.
    let structure = match draft {
        Draft::Draft202012 if within_budget(&schema).is_ok() => Structure::of(&schema),
        _ => Structure::Undecided,
    };
    Ok(CompiledSchema { schema, validator, structure, refers, has_defaults, warnings })
}

/// Checks what needs no compiler: the size and the names of types.
pub(crate) fn check_shape(schema: &Value) -> Result<(), String> {
    within_budget(schema)?;
    let Some((pointer, name)) = walk::find(schema, "", &unknown_type) else { return Ok(()) };
    let meant = match suggestions::nearest(name, TYPES.into_iter()) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("the types are {}", TYPES.join(", ")),
    };
    Err(format!("at `{pointer}/type`: there is no type `{}`; {meant}", shorten(name)))
}

/// A name in `type` that is not one of JSON Schema.
fn unknown_type(schema: &Map<String, Value>) -> Option<&str> {
    let names = match schema.get("type")? {
        Value::Array(names) => names.as_slice(),
        name => std::slice::from_ref(name),
    };
    names.iter().filter_map(Value::as_str).find(|name| !TYPES.contains(name))
}

/// Arguments are always an object: adds a missing `type`, and refuses a schema that excludes objects.
fn arguments_are_an_object(mut root: Map<String, Value>) -> Result<Map<String, Value>, String> {
    let fits = match root.get("type") {
        None => true,
        Some(Value::String(name)) => name == "object",
        Some(Value::Array(names)) => names.iter().any(|name| name == "object"),
        Some(_) => false,
    };
    if !fits {
        return Err("`type` must be `object`: a tool's arguments are an object".into());
    }
    root.insert("type".into(), "object".into());
    Ok(root)
}

/// Determines the draft. An older draft is kept only if the schema uses keywords that differ; otherwise `$schema` is
/// removed.
fn settle_draft(root: &mut Map<String, Value>) -> Draft {
    let named = match root.get("$schema") {
        Some(Value::String(uri)) => Draft::default().detect(&serde_json::json!({ "$schema": uri })),
        _ => Draft::Draft202012,
    };
    let mut differs = false;
    walk::each_in(root, &mut |map| {
        differs |= matches!(map.get("items"), Some(Value::Array(_)))
            || map.contains_key("dependencies")
            || map.contains_key("additionalItems")
            || map.get("exclusiveMinimum").is_some_and(Value::is_boolean)
            || map.get("exclusiveMaximum").is_some_and(Value::is_boolean);
    });
    if differs && !matches!(named, Draft::Unknown | Draft::Draft202012) {
        return named;
    }
    root.remove("$schema");
    Draft::Draft202012
}

fn within_budget(schema: &Value) -> Result<(), String> {
    let mut left = vec![(schema, 1_usize)];
    let mut bytes = 0_usize;
    while let Some((value, depth)) = left.pop() {
        if depth > SCHEMA_DEPTH_MAX {
            return Err(format!("it is nested deeper than {SCHEMA_DEPTH_MAX} levels"));
        }
        match value {
            Value::Object(map) => {
                bytes += map.keys().map(|key| key.len() + 4).sum::<usize>();
                left.extend(map.values().map(|value| (value, depth + 1)));
            }
            Value::Array(items) => {
                bytes += items.len();
                left.extend(items.iter().map(|value| (value, depth + 1)));
            }
            Value::String(text) => bytes += text.len() + 2,
            Value::Null | Value::Bool(_) | Value::Number(_) => bytes += 4,
        }
        if bytes > SCHEMA_BYTES_MAX {
            return Err(format!("it is larger than {SCHEMA_BYTES_MAX} bytes"));
        }
    }
    Ok(())
}

/// Refuses references that lead outside the schema; nothing is ever fetched.
fn refuse_remote(schema: &Value) -> Result<(), String> {
    let mut remote = None;
    walk::each(schema, &mut |map| {
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            if let Some(Value::String(target)) = map.get(keyword)
                && !target.starts_with('#')
            {
                remote.get_or_insert_with(|| target.clone());
            }
        }
    });
    match remote {
        None => Ok(()),
        Some(target) => Err(format!("`$ref` leads outside the schema: {}", shorten(&target))),
    }
}

/// Removes the patterns that the linear-time engine cannot run.
fn drop_patterns(schema: &mut Value, draft: Draft, warnings: &mut Vec<String>) {
    walk::each_mut(schema, &mut |map| {
        if let Some(Value::String(pattern)) = map.get("pattern")
            && !runs(pattern, draft)
        {
            warnings.push(format!("the pattern `{}` was taken out", shorten(pattern)));
            map.remove("pattern");
        }
        let Some(Value::Object(patterns)) = map.get_mut("patternProperties") else { return };
        let before = patterns.len();
        patterns.retain(|pattern, _| {
            let kept = runs(pattern, draft);
            if !kept {
                warnings.push(format!("keys like `{}` are not checked", shorten(pattern)));
            }
            kept
        });
        if patterns.len() < before {
            // Keys that only a removed pattern allowed must stay allowed.
            map.remove("additionalProperties");
            map.remove("unevaluatedProperties");
        }
    });
}

fn runs(pattern: &str, draft: Draft) -> bool {
    compile(&serde_json::json!({ "pattern": pattern }), draft).is_ok()
}

fn compile(schema: &Value, draft: Draft) -> Result<Validator, String> {
    let build = || {
        jsonschema::options()
            .with_draft(draft)
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
            .should_validate_formats(true)
            .should_ignore_unknown_formats(true)
            .build(schema)
    };
    match catch_unwind(AssertUnwindSafe(build)) {
        Ok(Ok(validator)) => Ok(validator),
        Ok(Err(error)) => {
            let instance_path = error.instance_path().as_str();
            Err(shorten(&format!("at `{instance_path}`: {error}")))
        }
        Err(_) => Err("the schema compiler failed on it".into()),
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(REASON_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(schema: &Value) -> String {
        prepare(schema).unwrap_err()
    }

    #[test]
    fn bad_schemas_are_refused_with_a_reason() {
        let mut deep = json!({ "type": "string" });
        for _ in 0..60 {
            deep = json!({ "type": "object", "properties": { "x": deep } });
        }
        let long = json!({ "type": "object", "description": "x".repeat(SCHEMA_BYTES_MAX) });
        let remote = json!({ "properties": { "a": { "$ref": "https://example.com/a.json" } } });
        let reasons: Vec<String> = [
            json!("text"),
            json!({ "type": "array" }),
            json!({ "type": "object", "properties": { "a": { "type": "undefined" } } }),
            json!({ "properties": { "a": { "minimum": "three" } } }),
            json!({ "properties": { "a": { "$ref": "#/$defs/none" } } }),
            remote,
            deep,
            long,
        ]
        .iter()
        .map(refusal)
        .collect();
        insta::assert_snapshot!(reasons.join("\n"));
    }

    #[test]
    fn unknown_keywords_and_formats_are_tolerated() {
        let schema = json!({
            "x-internal": true,
            "properties": { "a": { "type": "integer", "format": "uint32", "widget": {"pattern": 7} } },
        });
        let prepared = prepare(&schema).unwrap();
        assert!(prepared.validator.is_valid(&json!({ "a": 5 })));
        assert_eq!(prepared.schema["x-internal"], true);
    }

    #[test]
    fn a_pattern_that_backtracks_is_taken_out_of_both_forms() {
        let schema = json!({
            "properties": {
                "a": { "type": "string", "pattern": "^(?=.*\\d)x" },
                "b": { "type": "string", "pattern": "^b+$" },
                "pattern": { "type": "string" },
            },
            "patternProperties": { "(?!y)": {} },
            "additionalProperties": false,
        });
        let prepared = prepare(&schema).unwrap();
        assert_eq!(prepared.warnings.len(), 2);
        assert_eq!(prepared.schema["properties"]["a"], json!({ "type": "string" }));
        assert_eq!(prepared.schema["properties"]["b"]["pattern"], "^b+$");
        assert!(prepared.schema.get("additionalProperties").is_none());
        assert!(prepared.validator.is_valid(&json!({ "a": "anything", "z": 1 })));
        assert!(!prepared.validator.is_valid(&json!({ "b": "c" })));
    }

    #[test]
    fn an_older_draft_is_read_by_its_own_rules_only_where_they_differ() {
        let draft7 = "http://json-schema.org/draft-07/schema#";
        let same = prepare(&json!({ "$schema": draft7, "properties": { "a": {} } })).unwrap();
        assert!(same.schema.get("$schema").is_none());
        let tuple = json!({
            "$schema": draft7,
            "properties": { "a": { "items": [{ "type": "string" }], "additionalItems": false } },
        });
        let tuple = prepare(&tuple).unwrap();
        assert_eq!(tuple.schema["$schema"], draft7);
        assert!(!tuple.validator.is_valid(&json!({ "a": ["x", "y"] })));
    }

    #[test]
    fn values_that_look_like_keywords_are_left_alone() {
        let schema = json!({
            "properties": {
                "$ref": { "type": "string" },
                "a": { "const": { "$ref": "https://example.com" }, "default": { "pattern": "(?=x)" } },
            },
        });
        let prepared = prepare(&schema).unwrap();
        assert!(prepared.warnings.is_empty());
        assert_eq!(prepared.schema["properties"], schema["properties"]);
    }
}
