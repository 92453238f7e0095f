//! Derives a structure from a schema.
//!
//! A keyword that is not known here makes the types it may constrain undecided, never accepted.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{
    ArrayStructure, EXACT_MAX, LINEAR_MAX, MixedStructure, NumberRange, ObjectStructure,
    PropertyName, PropertyStructure, Structure, TextStructure,
};

/// Listed texts above which a list is left to the validator.
const LISTED_MAX: usize = 64;

/// Keywords that constrain nothing.
const REMARKS: &[&str] = &[
    "$comment",
    "$defs",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "readOnly",
    "title",
    "writeOnly",
];

impl Structure {
    /// The structure of a schema of draft 2020-12. Recursion is safe, because the schema's depth was checked before.
    pub(in crate::schema) fn of(schema: &Value) -> Self {
        match schema {
            Value::Bool(true) => Self::Any,
            Value::Object(map) if map.keys().all(|keyword| is_remark(keyword)) => Self::Any,
            Value::Object(map) => read_rules(map).map_or(Self::Undecided, simplify),
            _ => Self::Undecided,
        }
    }

    /// True if no value is accepted.
    pub(in crate::schema) fn is_undecided(&self) -> bool {
        matches!(self, Self::Undecided)
    }
}

fn is_remark(keyword: &str) -> bool {
    REMARKS.contains(&keyword) || keyword.starts_with("x-")
}

/// The structure of a schema with rules; `None` if a rule is unknown or malformed.
fn read_rules(map: &Map<String, Value>) -> Option<MixedStructure> {
    let mut structure = MixedStructure {
        null: true,
        boolean: true,
        number: Some(NumberRange::default()),
        text: Some(TextStructure::default()),
        object: read_object(map),
        array: read_array(map),
        alternatives: Vec::new(),
    };
    for (keyword, value) in map.iter().filter(|(keyword, _)| !is_remark(keyword)) {
        apply_rule(&mut structure, keyword, value)?;
    }
    Some(structure)
}

/// Applies a keyword. Those of objects and arrays were read together before.
fn apply_rule(structure: &mut MixedStructure, keyword: &str, value: &Value) -> Option<()> {
    match keyword {
        "type" => apply_types(structure, value)?,
        "enum" => restrict_to(structure, value.as_array()?.iter().collect()),
        "const" => restrict_to(structure, vec![value]),
        "oneOf" => restrict_to(structure, collect_distinct_texts(value.as_array()?)?),
        "anyOf" => structure.alternatives = value.as_array()?.iter().map(Structure::of).collect(),
        "minimum" | "maximum" => apply_bound(structure, keyword, value),
        "minLength" | "maxLength" => apply_length(structure, keyword, parse_count(value)?),
        "multipleOf" | "exclusiveMinimum" | "exclusiveMaximum" => structure.number = None,
        "pattern" | "format" | "contentEncoding" | "contentMediaType" => structure.text = None,
        "properties"
        | "required"
        | "additionalProperties"
        | "minProperties"
        | "maxProperties"
        | "items"
        | "minItems"
        | "maxItems" => {}
        _ => return None,
    }
    Some(())
}

fn apply_types(structure: &mut MixedStructure, value: &Value) -> Option<()> {
    let names: HashSet<&str> = match value {
        Value::String(name) => [name.as_str()].into(),
        Value::Array(names) => names.iter().map(Value::as_str).collect::<Option<_>>()?,
        _ => return None,
    };
    let has = |name: &str| names.contains(name);
    structure.null &= has("null");
    structure.boolean &= has("boolean");
    structure.text = structure.text.take().filter(|_| has("string"));
    structure.object = structure.object.take().filter(|_| has("object"));
    structure.array = structure.array.take().filter(|_| has("array"));
    structure.number = structure.number.take().filter(|_| has("number") || has("integer"));
    if let Some(number) = structure.number.as_mut().filter(|_| !has("number")) {
        number.integers_only = true;
    }
    Some(())
}

/// Accepts listed texts and a listed `null` only.
fn restrict_to(structure: &mut MixedStructure, values: Vec<&Value>) {
    structure.null &= values.contains(&&Value::Null);
    structure.boolean = false;
    (structure.number, structure.object, structure.array) = (None, None, None);
    let Some(text) = &mut structure.text else { return };
    let mut listed: Vec<String> =
        values.into_iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if let Some(before) = &text.listed {
        listed.retain(|one| before.contains(one));
    }
    // A long list is not searched from end to end; the validator has an index.
    structure.text = (listed.len() <= LISTED_MAX)
        .then(|| TextStructure { listed: Some(listed), ..std::mem::take(text) });
}

/// The texts of alternatives that each list texts, if no text is in two of them.
fn collect_distinct_texts(branches: &[Value]) -> Option<Vec<&Value>> {
    let mut all = Vec::new();
    for branch in branches {
        let map = branch.as_object()?;
        let is_known = |keyword: &String| matches!(keyword.as_str(), "const" | "enum" | "type");
        if !map.keys().all(|keyword| is_remark(keyword) || is_known(keyword))
            || map.get("type").is_some_and(|name| name != "string")
        {
            return None;
        }
        match (map.get("const"), map.get("enum")) {
            (Some(text), None) => all.push(text),
            (None, Some(Value::Array(texts))) => all.extend(texts),
            _ => return None,
        }
    }
    let mut seen = HashSet::new();
    let is_distinct = all.iter().all(|text| text.as_str().is_some_and(|text| seen.insert(text)));
    is_distinct.then_some(all)
}

fn apply_bound(structure: &mut MixedStructure, keyword: &str, value: &Value) {
    let whole = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
    #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
    let whole = whole.or_else(|| {
        let float = value.as_f64()?;
        #[expect(clippy::cast_precision_loss, reason = "a power of two is exact")]
        let is_exact = float.fract() == 0.0 && float.abs() <= EXACT_MAX as f64;
        is_exact.then_some(float as i128)
    });
    match (&mut structure.number, whole) {
        (Some(range), Some(low)) if keyword == "minimum" => range.low = Some(low),
        (Some(range), Some(high)) => range.high = Some(high),
        (number, _) => *number = None,
    }
}

fn apply_length(structure: &mut MixedStructure, keyword: &str, count: usize) {
    match &mut structure.text {
        Some(text) if keyword == "minLength" => text.chars_min = count,
        Some(text) => text.chars_max = Some(count),
        None => {}
    }
}

fn parse_count(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok().filter(|count| *count <= usize::MAX / 8)
}

/// The bounds of a size, both inclusive.
fn read_size(map: &Map<String, Value>, least: &str, most: &str) -> Option<(usize, usize)> {
    let of = |keyword: &str, absent: usize| map.get(keyword).map_or(Some(absent), parse_count);
    Some((of(least, 0)?, of(most, usize::MAX)?))
}

fn read_array(map: &Map<String, Value>) -> Option<ArrayStructure> {
    let (least, most) = read_size(map, "minItems", "maxItems")?;
    Some(ArrayStructure {
        items: map.get("items").map_or(Structure::Any, Structure::of),
        least,
        most,
    })
}

/// The structure of the objects; `None` if it is malformed or if a required part is undecided.
fn read_object(map: &Map<String, Value>) -> Option<ObjectStructure> {
    let (least, most) = read_size(map, "minProperties", "maxProperties")?;
    let others = match map.get("additionalProperties") {
        None => Some(Structure::Any),
        Some(Value::Bool(false)) => None,
        Some(schema) => Some(Structure::of(schema)),
    };
    let mut required: HashSet<&str> = match map.get("required") {
        None => HashSet::new(),
        Some(names) => names.as_array()?.iter().map(Value::as_str).collect::<Option<_>>()?,
    };
    let count = required.len();
    let mut properties = Vec::new();
    for (name, schema) in map.get("properties").map_or(Some(&Map::new()), Value::as_object)? {
        let (is_required, structure) = (required.remove(name.as_str()), Structure::of(schema));
        if is_required && structure.is_undecided() {
            return None;
        }
        properties.push(PropertyStructure {
            name: PropertyName::new(name),
            is_required,
            structure,
        });
    }
    // A required key without a property of its own.
    if !required.is_empty() {
        return None;
    }
    let mut sorted: Vec<usize> = (0..properties.len()).collect();
    sorted.sort_by_key(|at| properties[*at].name.as_str());
    if properties.len() <= LINEAR_MAX {
        sorted.clear();
    }
    Some(ObjectStructure { properties, sorted, required: count, others, least, most })
}

/// The same structure in a form that is checked faster, if it has one type.
fn simplify(mut structure: MixedStructure) -> Structure {
    let others = (
        structure.null,
        structure.boolean,
        structure.number.is_some(),
        structure.text.is_some(),
        structure.object.is_some(),
        structure.array.is_some(),
    );
    if !structure.alternatives.is_empty() {
        return Structure::Mixed(Box::new(structure));
    }
    let is_plain =
        |range: &NumberRange| range.integers_only && range.low.is_none() && range.high.is_none();
    match others {
        (false, false, false, false, false, false) => Structure::Undecided,
        (false, true, false, false, false, false) => Structure::Boolean,
        (false, false, true, false, false, false)
            if structure.number.as_ref().is_some_and(is_plain) =>
        {
            Structure::Integer
        }
        (false, false, false, true, false, false)
            if structure.text.as_ref().is_some_and(TextStructure::is_free) =>
        {
            Structure::Text
        }
        (false, false, false, false, true, false) => match structure.object.take() {
            Some(object) => Structure::Object(Box::new(object)),
            None => Structure::Undecided,
        },
        (false, false, false, false, false, true) => match structure.array.take() {
            Some(array) => Structure::Array(Box::new(array)),
            None => Structure::Undecided,
        },
        _ => Structure::Mixed(Box::new(structure)),
    }
}
