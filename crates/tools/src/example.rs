//! Builds the smallest valid call from a schema.
//!
//! The example contains the required arguments and the mismatched ones, nothing more. The validator checks it,
//! because an invalid example would be worse than none.

mod pattern;

use jsonschema::Validator;
use serde_json::{Map, Number, Value, json};

use crate::{
    schema,
    violations::{SchemaViolation, ViolatedRule},
};

/// Maximum number of values generated for one example.
const VALUES_MAX: usize = 512;

/// Maximum nesting depth of an example.
const DEPTH_MAX: usize = 24;

/// A valid call that includes the locations of `violations`; `None` if none is found.
pub(crate) fn example(
    root: &Value,
    validator: &Validator,
    violations: &[SchemaViolation],
) -> Option<Value> {
    let wanted: Vec<String> = violations.iter().map(wanted).collect();
    for (samples, condition) in [
        (true, None),
        (false, None),
        (true, Some("then")),
        (true, Some("else")),
        (false, Some("then")),
    ] {
        let mut maker = ExampleBuilder {
            root,
            violations,
            wanted: &wanted,
            samples,
            condition,
            left: VALUES_MAX,
        };
        let made = maker.value(root, "", "", 0);
        if let Some(made) = made.filter(|made| validator.is_valid(made)) {
            return Some(made);
        }
    }
    // A smaller example may exist without the mismatched locations.
    if violations.is_empty() { None } else { example(root, validator, &[]) }
}

/// The location that an example must include for this violation.
fn wanted(violation: &SchemaViolation) -> String {
    match &violation.rule {
        ViolatedRule::Required(key) => {
            format!("{}/{}", violation.pointer, crate::explain::escaped(key))
        }
        ViolatedRule::Unknown(_)
        | ViolatedRule::Type(_)
        | ViolatedRule::Enum(_)
        | ViolatedRule::Either(..)
        | ViolatedRule::Other(..) => violation.pointer.clone(),
    }
}

struct ExampleBuilder<'a> {
    root: &'a Value,
    violations: &'a [SchemaViolation],
    wanted: &'a [String],
    /// Whether to use the `default` and `examples` values of the schema.
    samples: bool,
    /// The branch of `if` to follow: `then`, `else` or none.
    condition: Option<&'static str>,
    left: usize,
}

impl ExampleBuilder<'_> {
    /// Generates a value for `schema`. `at` is the schema's own pointer, `pointer` that of the value.
    fn value(&mut self, schema: &Value, at: &str, pointer: &str, depth: usize) -> Option<Value> {
        self.left = self.left.checked_sub(1)?;
        if depth > DEPTH_MAX {
            return None;
        }
        let schema = schema::resolve(self.root, schema);
        let Value::Object(map) = schema else {
            return (schema != &Value::Bool(false)).then(|| json!("text"));
        };
        if let Some(value) = map.get("const") {
            return Some(value.clone());
        }
        if let Some(Value::Array(values)) = map.get("enum") {
            return values.first().cloned();
        }
        if self.samples && !self.must_show(pointer) {
            let given = map.get("examples").and_then(Value::as_array).and_then(|all| all.first());
            if let Some(value) =
                given.or_else(|| map.get("default")).filter(|value| !value.is_null())
            {
                return Some(value.clone());
            }
        }
        if let Some((keyword, branches)) = alternatives(map) {
            return self.alternative(map, keyword, branches, at, pointer, depth);
        }
        if map.contains_key("allOf") || (map.contains_key("if") && self.condition.is_some()) {
            let merged = Value::Object(self.merged(map));
            return self.of_type(merged.as_object()?, at, pointer, depth);
        }
        self.of_type(map, at, pointer, depth)
    }

    /// True if this location, or one inside it, must be in the example.
    fn must_show(&self, pointer: &str) -> bool {
        self.wanted.iter().any(|wanted| {
            wanted
                .strip_prefix(pointer)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Generates a value for the alternative that the violations refer to, or for the first that works.
    fn alternative(
        &mut self,
        map: &Map<String, Value>,
        keyword: &str,
        branches: &[Value],
        at: &str,
        pointer: &str,
        depth: usize,
    ) -> Option<Value> {
        let violated_branch = (0..branches.len()).find(|index| {
            let prefix = format!("{at}/{keyword}/{index}/");
            self.violations.iter().any(|violation| violation.schema.starts_with(&prefix))
        });
        let order = violated_branch
            .into_iter()
            .chain((0..branches.len()).filter(|i| Some(*i) != violated_branch));
        for index in order {
            let branch = schema::resolve(self.root, &branches[index]);
            let mut both = map.clone();
            both.remove(keyword);
            if let Value::Object(branch) = branch {
                merge(&mut both, branch);
            } else if branch == &Value::Bool(false) {
                continue;
            }
            let inside = format!("{at}/{keyword}/{index}");
            if both.get("type") == Some(&json!("null")) && branches.len() > index + 1 {
                continue;
            }
            if let Some(value) = self.value(&Value::Object(both), &inside, pointer, depth + 1) {
                return Some(value);
            }
        }
        None
    }

    /// Merges `allOf` and the chosen branch of `if` into one schema.
    fn merged(&self, map: &Map<String, Value>) -> Map<String, Value> {
        let mut all = map.clone();
        let parts = all.remove("allOf");
        for part in parts.as_ref().and_then(Value::as_array).into_iter().flatten() {
            if let Value::Object(part) = schema::resolve(self.root, part) {
                let part = self.merged(part);
                merge(&mut all, &part);
            }
        }
        if let Some(side) = self.condition {
            let chosen: &[&str] = if side == "then" { &["if", "then"] } else { &["else"] };
            for keyword in chosen {
                if let Some(Value::Object(part)) = all.remove(*keyword) {
                    merge(&mut all, &part);
                }
            }
        }
        all
    }

    fn of_type(
        &mut self,
        map: &Map<String, Value>,
        at: &str,
        pointer: &str,
        depth: usize,
    ) -> Option<Value> {
        match type_of(map) {
            "object" => self.object(map, at, pointer, depth),
            "array" => self.list(map, at, pointer, depth),
            "string" => Some(Value::String(string(map)?)),
            "integer" => number(map, true),
            "number" => number(map, false),
            "boolean" => Some(Value::Bool(true)),
            _ => Some(Value::Null),
        }
    }

    fn object(
        &mut self,
        map: &Map<String, Value>,
        at: &str,
        pointer: &str,
        depth: usize,
    ) -> Option<Value> {
        let empty = Map::new();
        let properties = map.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let mut required: Vec<&str> = map
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if let Some(Value::Object(dependent)) = map.get("dependentRequired") {
            let more = dependent.iter().filter(|(key, _)| required.contains(&key.as_str()));
            let more: Vec<&str> = more
                .flat_map(|(_, keys)| {
                    keys.as_array().into_iter().flatten().filter_map(Value::as_str)
                })
                .collect();
            required.extend(more);
        }
        let least = map.get("minProperties").and_then(Value::as_u64).unwrap_or(0);
        let mut made = Map::new();
        for (key, property) in properties {
            let pointer = format!("{pointer}/{}", crate::explain::escaped(key));
            let shown = required.contains(&key.as_str()) || self.must_show(&pointer);
            if shown && property != &Value::Bool(false) {
                let at = format!("{at}/properties/{}", crate::explain::escaped(key));
                made.insert(key.clone(), self.value(property, &at, &pointer, depth + 1)?);
            }
        }
        for key in required {
            if !made.contains_key(key) {
                let free = map.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
                let at = format!("{at}/additionalProperties");
                made.insert(
                    key.to_owned(),
                    self.value(&free, &at, &format!("{pointer}/{key}"), depth + 1)?,
                );
            }
        }
        for (key, property) in properties {
            if (made.len() as u64) < least && !made.contains_key(key) {
                made.insert(key.clone(), self.value(property, at, pointer, depth + 1)?);
            }
        }
        for number in made.len() as u64..least.min(16) {
            let free = map.get("additionalProperties").cloned().unwrap_or(Value::Bool(true));
            made.insert(format!("key{number}"), self.value(&free, at, pointer, depth + 1)?);
        }
        Some(Value::Object(made))
    }

    fn list(
        &mut self,
        map: &Map<String, Value>,
        at: &str,
        pointer: &str,
        depth: usize,
    ) -> Option<Value> {
        let least = map.get("minItems").and_then(Value::as_u64).unwrap_or(0).min(64) as usize;
        let fixed = map.get("prefixItems").or_else(|| map.get("items").filter(|it| it.is_array()));
        let fixed = fixed.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let shows = self
            .wanted
            .iter()
            .any(|wanted| wanted.strip_prefix(pointer).is_some_and(|rest| rest.starts_with('/')));
        let mut made = Vec::new();
        for (index, item) in fixed.iter().enumerate() {
            made.push(self.value(item, at, &format!("{pointer}/{index}"), depth + 1)?);
        }
        let upper = map.get("maxItems").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let one =
            usize::from(shows || self.must_show(pointer)).min(usize::try_from(upper).unwrap_or(1));
        let any = Value::Bool(true);
        let item = map.get("items").filter(|items| !items.is_array()).unwrap_or(&any);
        let unique = map.get("uniqueItems") == Some(&Value::Bool(true));
        while made.len() < least.max(one) {
            // Any item may be the invalid one; the first item of the example shows all of their locations.
            let inside = self.item_shown(pointer);
            let mut value = self.value(item, &format!("{at}/items"), &inside, depth + 1)?;
            if unique && made.contains(&value) {
                value = another(schema::resolve(self.root, item), &made)?;
            }
            made.push(value);
        }
        Some(Value::Array(made))
    }

    /// The pointer of the mismatched item, so that the example includes its mismatched parts.
    fn item_shown(&self, pointer: &str) -> String {
        let index = self.wanted.iter().find_map(|wanted| {
            let rest = wanted.strip_prefix(pointer)?.strip_prefix('/')?;
            rest.split('/').next().map(str::to_owned)
        });
        format!("{pointer}/{}", index.unwrap_or_else(|| "0".into()))
    }
}

/// The alternatives of `anyOf` or `oneOf`, if there are any.
fn alternatives(map: &Map<String, Value>) -> Option<(&'static str, &[Value])> {
    ["anyOf", "oneOf"].into_iter().find_map(|keyword| {
        let branches = map.get(keyword)?.as_array()?;
        (!branches.is_empty()).then_some((keyword, branches.as_slice()))
    })
}

/// Merges `more` into `into`: combines `properties` and `required`, and overwrites other keywords.
fn merge(into: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (keyword, value) in more {
        match (into.get_mut(keyword), value) {
            (Some(Value::Object(old)), Value::Object(new)) if keyword == "properties" => {
                for (key, property) in new {
                    match (old.get_mut(key), property) {
                        (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
                        _ => {
                            old.insert(key.clone(), property.clone());
                        }
                    }
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) if keyword == "required" => {
                old.extend(new.iter().cloned());
            }
            _ => {
                into.insert(keyword.clone(), value.clone());
            }
        }
    }
}

/// The type of the value: from `type`, or inferred from the other keywords.
fn type_of(map: &Map<String, Value>) -> &str {
    match map.get("type") {
        Some(Value::String(name)) => name,
        Some(Value::Array(names)) => {
            let first = names.iter().filter_map(Value::as_str).find(|name| *name != "null");
            first.unwrap_or("null")
        }
        _ => {
            let has = |keywords: &[&str]| keywords.iter().any(|keyword| map.contains_key(*keyword));
            if has(&["properties", "required", "additionalProperties", "minProperties"]) {
                "object"
            } else if has(&["items", "prefixItems", "minItems", "uniqueItems"]) {
                "array"
            } else if has(&["minimum", "maximum", "multipleOf", "exclusiveMinimum"]) {
                "number"
            } else {
                "string"
            }
        }
    }
}

fn string(map: &Map<String, Value>) -> Option<String> {
    let least = map.get("minLength").and_then(Value::as_u64).unwrap_or(0).min(4096) as usize;
    let upper = map.get("maxLength").and_then(Value::as_u64).unwrap_or(u64::MAX);
    if let Some(Value::String(pattern)) = map.get("pattern") {
        return pattern::matching(pattern, least);
    }
    if let Some(sample) = map.get("format").and_then(Value::as_str).and_then(of_format) {
        return Some(sample.to_owned());
    }
    let mut text = String::from("text");
    while text.len() < least {
        text.push_str("text");
    }
    text.truncate(usize::try_from(upper).unwrap_or(usize::MAX).max(least).min(text.len()));
    Some(text)
}

/// A sample value for a format.
pub(crate) fn of_format(format: &str) -> Option<&'static str> {
    Some(match format {
        "date-time" => "2026-01-31T12:00:00Z",
        "date" => "2026-01-31",
        "time" => "12:00:00Z",
        "duration" => "PT1H",
        "email" | "idn-email" => "name@example.com",
        "hostname" | "idn-hostname" => "example.com",
        "ipv4" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        "uri" | "uri-reference" | "iri" | "iri-reference" | "url" => "https://example.com/page",
        "uri-template" => "https://example.com/{id}",
        "uuid" => "123e4567-e89b-42d3-a456-426614174000",
        "json-pointer" => "/a/0",
        "relative-json-pointer" => "0",
        "regex" => "^a+$",
        _ => return None,
    })
}

fn number(map: &Map<String, Value>, whole: bool) -> Option<Value> {
    let bound = |keyword: &str| map.get(keyword).and_then(Value::as_f64);
    let step = bound("multipleOf").filter(|step| *step > 0.0);
    let nudge = step.unwrap_or(if whole { 1.0 } else { 0.5 });
    let low = [bound("minimum"), bound("exclusiveMinimum").map(|low| low + nudge)];
    let high = [bound("maximum"), bound("exclusiveMaximum").map(|high| high - nudge)];
    let low = low.into_iter().flatten().reduce(f64::max);
    let high = high.into_iter().flatten().reduce(f64::min);
    let mut value = match (low, high) {
        (Some(low), _) if low > 1.0 => low,
        (_, Some(high)) if high < 1.0 => high,
        (Some(low), Some(high)) if high < low => return None,
        _ => 1.0,
    };
    if whole {
        value = if low.is_some_and(|low| value <= low) { value.ceil() } else { value.floor() };
    }
    if let Some(step) = step {
        value = (value / step).ceil() * step;
        if high.is_some_and(|high| value > high) {
            value -= step;
        }
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return Some(Value::from(value as i64));
    }
    Number::from_f64(value).map(Value::Number)
}

/// Another item for a list with `uniqueItems`.
fn another(item: &Value, taken: &[Value]) -> Option<Value> {
    if let Some(Value::Array(values)) = item.get("enum") {
        return values.iter().find(|value| !taken.contains(value)).cloned();
    }
    let count = taken.len();
    let value = match taken.last()? {
        Value::String(text) => json!(format!("{text}{count}")),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => json!(whole + 1),
            None => json!(number.as_f64()? + 1.0),
        },
        Value::Bool(value) => json!(!value),
        _ => return None,
    };
    (!taken.contains(&value)).then_some(value)
}
