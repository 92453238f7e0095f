//! Limits on references in a schema. A schema that applies itself to the same value never ends and would overflow the
//! validator's stack; the standard forbids it, but a tool server may still send one. Chains of references and rules
//! that multiply through references are bounded too.
//!
//! Recursion into parts of a value is fine, because values are finite. For recursive schemas with several branches,
//! the cost of each call is estimated ([`weigh`]).

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::inline::{is_value, percent_decoded};

/// Keywords whose schemas apply to the same value: a single schema, a list, or a map by name.
const ONE: &[&str] = &["not", "if", "then", "else"];
const LIST: &[&str] = &["allOf", "anyOf", "oneOf"];
const NAMED: &[&str] = &["dependentSchemas", "dependencies"];

/// Maximum chain of schemas that apply to one value.
const CHAIN_MAX: usize = 64;
/// Maximum rules that apply to one value, counted along all paths.
const RULES_MAX: usize = 20_000;
/// Maximum nesting of schemas and their containers, with references followed.
const NESTED_MAX: usize = 600;
/// Maximum number of subschemas with their own `$id` that are searched.
const ROOTS_MAX: usize = 64;
/// Maximum validator steps for one call, if references are kept.
const STEPS_MAX: usize = 200_000;

/// Refuses a schema that applies itself to the same value, or that exceeds a limit.
pub(super) fn refuse(schema: &Value) -> Result<(), String> {
    let mut all = Vec::new();
    collect(schema, &mut all);
    let refers = |map: &&Map<String, Value>| REFERENCES.iter().any(|word| map.contains_key(*word));
    if !all.iter().any(refers) {
        return Ok(());
    }
    let index = Index::new(&all);
    let (mut nested, mut known) = (HashMap::new(), HashMap::new());
    for map in &all {
        walk(map, Traversal::AllNested, &index, &mut nested)?;
        walk(map, Traversal::SameValue, &index, &mut known)?;
    }
    Ok(())
}

/// True if the schema keeps references, so that each call must be weighed.
pub(super) fn refers(schema: &Value) -> bool {
    let mut all = Vec::new();
    collect(schema, &mut all);
    all.iter().any(|map| REFERENCES.iter().any(|word| map.contains_key(*word)))
}

/// True if validating this value stays within the step limit. Counts the steps and stops at the limit.
pub(super) fn weigh(schema: &Value, value: &Value) -> bool {
    let mut all = Vec::new();
    collect(schema, &mut all);
    let (index, mut left) = (Index::new(&all), STEPS_MAX);
    all.first().is_none_or(|root| step(root, value, &index, &mut left))
}

/// Counts the steps for one schema on one value and its parts. False when the limit is reached.
fn step<'a>(
    map: &'a Map<String, Value>,
    value: &Value,
    index: &Index<'a>,
    left: &mut usize,
) -> bool {
    let Some(less) = left.checked_sub(1) else { return false };
    *left = less;
    if !on_the_spot(map, index).into_iter().all(|next| step(next, value, index, left)) {
        return false;
    }
    let parts = |keyword: &str, part: &Value, left: &mut usize| {
        let inner: Vec<&Map<String, Value>> = match map.get(keyword) {
            Some(Value::Object(inner)) => vec![inner],
            Some(Value::Array(inner)) => inner.iter().filter_map(Value::as_object).collect(),
            _ => Vec::new(),
        };
        inner.into_iter().all(|inner| step(inner, part, index, left))
    };
    let named = |keyword: &str, name: Option<&str>, part: &Value, left: &mut usize| {
        let Some(Value::Object(named)) = map.get(keyword) else { return true };
        let mut inner = named.iter().filter(|(key, _)| name.is_none_or(|name| name == *key));
        inner.all(|(_, inner)| inner.as_object().is_none_or(|inner| step(inner, part, index, left)))
    };
    match value {
        Value::Object(fields) => fields.iter().all(|(name, part)| {
            named("properties", Some(name), part, left)
                && named("patternProperties", None, part, left)
                && ["additionalProperties", "unevaluatedProperties"]
                    .iter()
                    .all(|keyword| parts(keyword, part, left))
        }),
        Value::Array(items) => items.iter().all(|part| {
            ["items", "prefixItems", "additionalItems", "contains", "unevaluatedItems"]
                .iter()
                .all(|keyword| parts(keyword, part, left))
        }),
        _ => true,
    }
}

const REFERENCES: &[&str] = &["$ref", "$dynamicRef", "$recursiveRef"];

/// The state of a schema during the walk: being visited, or done with its counts for one value.
#[derive(Clone, Copy)]
enum VisitState {
    Open,
    Done { chain: usize, rules: usize },
}

/// Collects every object that may be a schema. Recursion is safe, because the depth was checked before.
fn collect<'a>(value: &'a Value, all: &mut Vec<&'a Map<String, Value>>) {
    match value {
        Value::Object(map) => {
            all.push(map);
            map.iter().filter(|(key, _)| !is_value(key)).for_each(|(_, value)| collect(value, all));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, all)),
        _ => {}
    }
}

/// The relation between schemas that a walk follows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Traversal {
    /// Schemas that apply to the same value. Cycles are an error.
    SameValue,
    /// Also all nested schemas, as a compiler visits them. Cycles are allowed, since recursive schemas have them.
    AllNested,
}

/// Walks schemas depth first, without recursion. An error if a limit is exceeded or a forbidden cycle is found.
fn walk<'a>(
    from: &'a Map<String, Value>,
    way: Traversal,
    index: &Index<'a>,
    known: &mut HashMap<usize, VisitState>,
) -> Result<(), String> {
    let id = |map: &Map<String, Value>| std::ptr::from_ref(map).addr();
    let next_of = |map: &'a Map<String, Value>| match way {
        Traversal::SameValue => on_the_spot(map, index),
        Traversal::AllNested => anywhere(map, index),
    };
    let mut stack = vec![(from, false)];
    while let Some((map, is_left)) = stack.pop() {
        if is_left {
            let (mut chain, mut rules) = (0, 1_usize);
            for next in next_of(map) {
                if let Some(VisitState::Done { chain: longest, rules: more }) = known.get(&id(next))
                {
                    chain = chain.max(*longest);
                    rules = rules.saturating_add(*more);
                }
            }
            within(way, chain, rules)?;
            known.insert(id(map), VisitState::Done { chain: chain + 1, rules });
            continue;
        }
        // The same schema may be on the stack twice.
        if known.contains_key(&id(map)) {
            continue;
        }
        known.insert(id(map), VisitState::Open);
        stack.push((map, true));
        for next in next_of(map) {
            match known.get(&id(next)) {
                Some(VisitState::Open) if way == Traversal::SameValue => {
                    return Err("it applies itself to the same value again and again".into());
                }
                Some(_) => {}
                None => stack.push((next, false)),
            }
        }
    }
    Ok(())
}

fn within(way: Traversal, chain: usize, rules: usize) -> Result<(), String> {
    match way {
        Traversal::SameValue if chain >= CHAIN_MAX || rules > RULES_MAX => {
            Err("its references come to too many rules for one value".into())
        }
        Traversal::AllNested if chain >= NESTED_MAX => {
            Err(format!("its references lead deeper than {NESTED_MAX} levels"))
        }
        Traversal::SameValue | Traversal::AllNested => Ok(()),
    }
}

/// Every schema nested in this one or referenced by it.
fn anywhere<'a>(map: &'a Map<String, Value>, index: &Index<'a>) -> Vec<&'a Map<String, Value>> {
    let mut next = Vec::new();
    for (keyword, value) in map.iter().filter(|(keyword, _)| !is_value(keyword)) {
        match value {
            Value::Object(inner) => next.push(inner),
            Value::Array(items) => next.extend(items.iter().filter_map(Value::as_object)),
            Value::String(target) if REFERENCES.contains(&keyword.as_str()) => {
                next.extend(index.targets_of(target));
            }
            _ => {}
        }
    }
    next
}

/// The schemas that apply to the same value as this one.
fn on_the_spot<'a>(map: &'a Map<String, Value>, index: &Index<'a>) -> Vec<&'a Map<String, Value>> {
    let mut next = Vec::new();
    for (keyword, value) in map {
        let keyword = keyword.as_str();
        match value {
            Value::Object(inner) if ONE.contains(&keyword) => next.push(inner),
            Value::Array(items) if LIST.contains(&keyword) => {
                next.extend(items.iter().filter_map(Value::as_object));
            }
            Value::Object(named) if NAMED.contains(&keyword) => {
                next.extend(named.values().filter_map(Value::as_object));
            }
            Value::String(target) if REFERENCES.contains(&keyword) => {
                next.extend(index.targets_of(target));
            }
            _ => {}
        }
    }
    next
}

/// Possible targets of references: the whole schema, every subschema with its own `$id`, and anchors by name.
struct Index<'a> {
    roots: Vec<&'a Map<String, Value>>,
    anchors: HashMap<&'a str, Vec<&'a Map<String, Value>>>,
}

impl<'a> Index<'a> {
    fn new(all: &[&'a Map<String, Value>]) -> Self {
        let mut index = Self { roots: Vec::new(), anchors: HashMap::new() };
        for (at, map) in all.iter().enumerate() {
            if at == 0 || map.contains_key("$id") {
                index.roots.push(map);
            }
            for word in ["$anchor", "$dynamicAnchor"] {
                if let Some(name) = map.get(word).and_then(Value::as_str) {
                    index.anchors.entry(name).or_default().push(map);
                }
            }
        }
        index.roots.truncate(ROOTS_MAX);
        index
    }

    /// The possible targets of a reference: a pointer from any root, or an anchor.
    fn targets_of(&self, target: &str) -> Vec<&'a Map<String, Value>> {
        let Some(target) = target.strip_prefix('#') else { return Vec::new() };
        let pointer = percent_decoded(target);
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return self.anchors.get(&*pointer).cloned().unwrap_or_default();
        }
        self.roots.iter().filter_map(|root| pointed(root, &pointer)).collect()
    }
}

fn pointed<'a>(root: &'a Map<String, Value>, pointer: &str) -> Option<&'a Map<String, Value>> {
    let Some(rest) = pointer.strip_prefix('/') else { return Some(root) };
    let (first, rest) =
        rest.split_once('/').map_or((rest, None), |(first, rest)| (first, Some(rest)));
    let found = root.get(&first.replace("~1", "/").replace("~0", "~"))?;
    match rest {
        Some(rest) => found.pointer(&format!("/{rest}"))?.as_object(),
        None => found.as_object(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_that_applies_itself_to_the_same_value_is_refused() {
        for schema in [
            json!({"allOf": [{"$ref": "#"}]}),
            json!({"anyOf": [{"type": "object"}, {"$ref": "#"}]}),
            json!({"not": {"$ref": "#"}}),
            json!({"if": {"$ref": "#"}, "then": {}}),
            json!({"dependentSchemas": {"a": {"$ref": "#"}}}),
            json!({"properties": {"a": {"$ref": "#/properties/a"}}}),
            json!({"properties": {"a": {"oneOf": [{"$ref": "#/properties/a"}]}}}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}}),
            json!({"properties": {"a": {"$anchor": "x", "allOf": [{"$ref": "#x"}]}}}),
            json!({"$dynamicAnchor": "x", "allOf": [{"$dynamicRef": "#x"}]}),
            json!({"$recursiveRef": "#"}),
            json!({"properties": {"a": {"$id": "http://x/y", "allOf": [{"$ref": "#"}]}}}),
            json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"$ref": "#/$defs/a~1b"}}}),
        ] {
            assert!(refuse(&schema).is_err(), "{schema}");
        }
    }

    #[test]
    fn a_schema_that_goes_on_to_a_part_of_the_value_is_fine() {
        for schema in [
            json!({"properties": {"a": {"$ref": "#"}}}),
            json!({"items": {"$ref": "#"}, "additionalProperties": {"$ref": "#"}}),
            json!({"$ref": "#/$defs/n", "$defs": {"n": {"properties": {"kids": {"items": {"$ref": "#/$defs/n"}}}}}}),
            json!({"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#/$defs/b"}]}, "b": {}}}),
            json!({"properties": {"a": {"default": {"$ref": "#/properties/a/default"}}}}),
            json!({"properties": {"allOf": {"$ref": "#"}, "$ref": {"type": "string"}}}),
        ] {
            assert_eq!(refuse(&schema), Ok(()), "{schema}");
        }
    }

    fn chained(length: usize, link: impl Fn(Value) -> Value) -> Value {
        let mut defs = Map::new();
        for number in 0..length {
            defs.insert(
                format!("d{number}"),
                link(json!({"$ref": format!("#/$defs/d{}", number + 1)})),
            );
        }
        defs.insert(format!("d{length}"), json!({"type": "string"}));
        json!({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})
    }

    #[test]
    fn references_that_lead_too_far_are_refused() {
        assert_eq!(refuse(&chained(20, |next| next)), Ok(()));
        for length in [100, 6_000] {
            assert!(refuse(&chained(length, |next| next)).is_err());
        }
        assert!(refuse(&chained(6_000, |next| json!({"properties": {"a": next}}))).is_err());
        for keyword in ["allOf", "anyOf", "oneOf"] {
            assert_eq!(refuse(&chained(6, |next| json!({keyword: [next, next]}))), Ok(()));
            assert!(refuse(&chained(30, |next| json!({keyword: [next, next]}))).is_err());
        }
    }

    /// Goal: the cost of a deep value on a recursive schema with branches is noticed before validation.
    #[test]
    fn a_deep_value_on_a_tree_with_branches_is_too_much_and_an_honest_one_is_not() {
        let any = json!({"$ref": "#/$defs/n"});
        let tree = json!({
            "properties": {"a": any},
            "$defs": {"n": {"type": "object", "additionalProperties": {"anyOf": [any, any, any]}}},
        });
        let deep = |depth| (0..depth).fold(json!(1), |inner, _| json!({"a": inner}));
        assert!(weigh(&tree, &deep(6)));
        assert!(!weigh(&tree, &deep(40)));
        let plain = json!({
            "properties": {"a": any},
            "$defs": {"n": {"anyOf": [
                {"type": "string"},
                {"type": "array", "items": any},
                {"type": "object", "additionalProperties": any},
            ]}},
        });
        assert!(weigh(&plain, &deep(60)), "what is one thing or another goes down one way");
    }
}
