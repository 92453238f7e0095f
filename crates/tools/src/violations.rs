//! Converts validation errors to a flat list of locations with one violated rule each.
//!
//! If a schema has alternatives, the validator reports the errors of all of them. The list contains only those of the
//! closest alternative, which was most likely meant.

use jsonschema::{
    JsonType, ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::Value;

use crate::schema;

/// Maximum depth of nested alternatives examined.
const ALTERNATIVES_DEEP: usize = 6;

/// One location that violates the schema.
#[derive(Debug, Clone)]
pub(crate) struct SchemaViolation {
    /// JSON pointer into the arguments.
    pub(crate) pointer: String,
    /// JSON pointer into the schema, including the keyword.
    pub(crate) schema: String,
    pub(crate) rule: ViolatedRule,
    /// True if another alternative is equally close but violated elsewhere, so that the intended one is unknown.
    pub(crate) is_tied: bool,
}

/// The violated rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ViolatedRule {
    /// The type is wrong; these types are allowed.
    Type(Vec<JsonType>),
    /// This required key is missing.
    Required(String),
    /// These keys are not declared.
    Unknown(Vec<String>),
    /// The value is none of these allowed values.
    Enum(Vec<Value>),
    /// The value has none of these types and is none of these values.
    Either(Vec<JsonType>, Vec<Value>),
    /// Any other rule: its keyword, and a description.
    Other(&'static str, String),
}

/// All violations of the schema by `value`.
pub(crate) fn find_violations(
    root: &Value,
    validator: &Validator,
    value: &Value,
) -> Vec<SchemaViolation> {
    let mut found = Vec::new();
    for error in validator.iter_errors(value) {
        flatten(root, &error, 0, &mut found);
    }
    found
}

fn flatten(
    root: &Value,
    error: &ValidationError<'_>,
    deep: usize,
    found: &mut Vec<SchemaViolation>,
) {
    use ValidationErrorKind as K;
    match error.kind() {
        K::AnyOf { context } | K::OneOfNotValid { context } if deep < ALTERNATIVES_DEEP => {
            alternatives(root, error, context, deep, found);
        }
        kind => found.push(violation(error, rule(kind))),
    }
}

fn violation(error: &ValidationError<'_>, rule: ViolatedRule) -> SchemaViolation {
    SchemaViolation {
        pointer: error.instance_path().as_str().to_owned(),
        schema: error.schema_path().as_str().to_owned(),
        rule,
        is_tied: false,
    }
}

/// Reports the violations of the closest alternative. If none is closest, reports the allowed types and values.
fn alternatives(
    root: &Value,
    error: &ValidationError<'_>,
    branches: &[Vec<ValidationError<'static>>],
    deep: usize,
    found: &mut Vec<SchemaViolation>,
) {
    let here = error.instance_path().as_str();
    let mut types = Vec::new();
    let mut values = Vec::new();
    let mut rest: Vec<(Distance, Vec<SchemaViolation>)> = Vec::new();
    for (index, branch) in branches.iter().enumerate() {
        let mut violations = Vec::new();
        branch.iter().for_each(|error| flatten(root, error, deep + 1, &mut violations));
        match wrong_from_the_start(&violations, here) {
            Some(ViolatedRule::Type(more)) => types.extend(more.iter().copied()),
            Some(ViolatedRule::Enum(more)) => values.extend(more.iter().cloned()),
            Some(ViolatedRule::Either(more, others)) => {
                types.extend(more.iter().copied());
                values.extend(others.iter().cloned());
            }
            _ => {
                let unknown_keys = unknown_keys(root, error, index);
                rest.push((distance(&violations, here, unknown_keys), violations));
            }
        }
    }
    types.sort_unstable();
    types.dedup();
    // Of several equally close alternatives, the first is used: authors put the usual one first.
    let closest = rest.iter().map(|(distance, _)| *distance).min();
    match closest {
        Some(closest) if closest.0 > 0 => found.extend(other_tag(rest, here)),
        Some(closest) => found.extend(nearest(rest, closest)),
        None => found.push(violation(
            error,
            match (types.is_empty(), values.is_empty()) {
                (true, true) => rule(error.kind()),
                (true, false) => ViolatedRule::Enum(values),
                (false, true) => ViolatedRule::Type(types),
                (false, false) => ViolatedRule::Either(types, values),
            },
        )),
    }
}

/// The violations of the first of the closest alternatives.
fn nearest(rest: Vec<(Distance, Vec<SchemaViolation>)>, closest: Distance) -> Vec<SchemaViolation> {
    let mut all = rest.into_iter().filter(|it| it.0 == closest).map(|it| it.1);
    let mut first = all.next().unwrap_or_default();
    let same = |other: &[SchemaViolation]| {
        let pairs = first.iter().zip(other);
        first.len() == other.len()
            && pairs.into_iter().all(|(a, b)| a.pointer == b.pointer && a.rule == b.rule)
    };
    if !all.all(|other| same(&other)) {
        first.iter_mut().for_each(|violation| violation.is_tied = true);
    }
    first
}

/// Number of sent keys that an alternative does not declare.
fn unknown_keys(root: &Value, error: &ValidationError<'_>, index: usize) -> usize {
    let branch = root.pointer(error.schema_path().as_str()).and_then(|all| all.get(index));
    let named =
        branch.map(|branch| schema::resolve(root, branch)).and_then(|it| it.get("properties"));
    match (named, error.instance().as_object()) {
        (Some(named), Some(sent)) => sent.keys().filter(|key| named.get(key).is_none()).count(),
        _ => 0,
    }
}

/// If no alternative has the received tag, reports all allowed tags at its location.
fn other_tag(mut rest: Vec<(Distance, Vec<SchemaViolation>)>, here: &str) -> Vec<SchemaViolation> {
    // The alternative that fits best apart from its tag comes first, with its tag.
    rest.sort_by_key(|((_, keys, places), _)| (*keys, *places));
    let is_tag = |violation: &SchemaViolation| {
        matches!(&violation.rule, ViolatedRule::Enum(values) if values.len() == 1)
            && is_child(&violation.pointer, here)
    };
    let mut tags =
        rest.into_iter().filter_map(|(_, violations)| violations.into_iter().find(|it| is_tag(it)));
    let Some(mut first) = tags.next() else { return Vec::new() };
    for other in tags {
        if let (ViolatedRule::Enum(all), ViolatedRule::Enum(more)) = (&mut first.rule, &other.rule)
            && other.pointer == first.pointer
        {
            all.extend(more.iter().filter(|tag| !all.contains(tag)).cloned().collect::<Vec<_>>());
        }
    }
    vec![first]
}

/// The rule that excludes an alternative, because it applies to the whole value and not to a part.
fn wrong_from_the_start<'a>(
    violations: &'a [SchemaViolation],
    here: &str,
) -> Option<&'a ViolatedRule> {
    violations
        .iter()
        .find(|violation| {
            violation.pointer == here
                && matches!(
                    violation.rule,
                    ViolatedRule::Type(_) | ViolatedRule::Enum(_) | ViolatedRule::Either(..)
                )
        })
        .map(|violation| &violation.rule)
}

/// How far a value is from an alternative, smaller is closer: first tags of other alternatives, then undeclared and
/// missing keys, then the number of violations.
type Distance = (usize, usize, usize);

fn distance(violations: &[SchemaViolation], here: &str, unknown_keys: usize) -> Distance {
    let mut tags = 0;
    let mut unknown = 0;
    let mut missing = 0;
    for violation in violations {
        match &violation.rule {
            ViolatedRule::Enum(values)
                if values.len() == 1 && is_child(&violation.pointer, here) =>
            {
                tags += 1;
            }
            ViolatedRule::Unknown(keys) => unknown += keys.len(),
            ViolatedRule::Required(_) => missing += 1,
            ViolatedRule::Type(_)
            | ViolatedRule::Enum(_)
            | ViolatedRule::Either(..)
            | ViolatedRule::Other(..) => {}
        }
    }
    (tags, unknown.max(unknown_keys) + missing, violations.len())
}

fn is_child(pointer: &str, of: &str) -> bool {
    pointer
        .strip_prefix(of)
        .and_then(|rest| rest.strip_prefix('/'))
        .is_some_and(|rest| !rest.contains('/'))
}

fn rule(kind: &ValidationErrorKind) -> ViolatedRule {
    use ValidationErrorKind as K;
    match kind {
        K::Type { kind: TypeKind::Single(one) } => ViolatedRule::Type(vec![*one]),
        K::Type { kind: TypeKind::Multiple(set) } => ViolatedRule::Type(set.iter().collect()),
        K::Required { property } => ViolatedRule::Required(
            property.as_str().map_or_else(|| property.to_string(), str::to_owned),
        ),
        K::AdditionalProperties { unexpected } | K::UnevaluatedProperties { unexpected } => {
            ViolatedRule::Unknown(unexpected.clone())
        }
        K::Enum { options } => ViolatedRule::Enum(options.as_array().cloned().unwrap_or_default()),
        K::Constant { expected_value } => ViolatedRule::Enum(vec![(**expected_value).clone()]),
        other => words(other),
    }
}

fn words(kind: &ValidationErrorKind) -> ViolatedRule {
    use ValidationErrorKind as K;
    let (keyword, text) = match kind {
        K::Minimum { limit } => ("minimum", format!("must be at least {limit}")),
        K::Maximum { limit } => ("maximum", format!("must be at most {limit}")),
        K::ExclusiveMinimum { limit } => ("exclusiveMinimum", format!("must be above {limit}")),
        K::ExclusiveMaximum { limit } => ("exclusiveMaximum", format!("must be below {limit}")),
        K::MultipleOf { multiple_of } => {
            ("multipleOf", format!("must be a multiple of {multiple_of}"))
        }
        K::MinLength { limit } => ("minLength", at_least(*limit, "character")),
        K::MaxLength { limit } => ("maxLength", at_most(*limit, "character")),
        K::MinItems { limit } => ("minItems", at_least(*limit, "item")),
        K::MaxItems { limit } => ("maxItems", at_most(*limit, "item")),
        K::AdditionalItems { limit } => ("additionalItems", at_most(*limit as u64, "item")),
        K::MinProperties { limit } => ("minProperties", at_least(*limit, "key")),
        K::MaxProperties { limit } => ("maxProperties", at_most(*limit, "key")),
        K::UniqueItems => ("uniqueItems", "items must not repeat".into()),
        K::UnevaluatedItems { .. } => ("unevaluatedItems", "has items that are not allowed".into()),
        K::Contains => ("contains", "must contain an item of the required form".into()),
        K::Pattern { pattern } => ("pattern", format!("must match the pattern {pattern}")),
        K::Format { format } => ("format", format!("must be of the format {format}")),
        K::PropertyNames { error } => {
            ("propertyNames", format!("has a key that is not allowed: {}", error.instance()))
        }
        K::FalseSchema => ("false", "must be left out".into()),
        K::Not { schema } => ("not", format!("must not fit {}", crate::explain::short(schema))),
        K::OneOfMultipleValid { .. } => {
            ("oneOf", "fits more than one of the alternatives; only one may fit".into())
        }
        K::AnyOf { .. } => ("anyOf", "fits none of the alternatives".into()),
        K::OneOfNotValid { .. } => ("oneOf", "fits none of the alternatives".into()),
        K::ContentEncoding { content_encoding } => {
            ("contentEncoding", format!("must be encoded as {content_encoding}"))
        }
        K::ContentMediaType { content_media_type } => {
            ("contentMediaType", format!("must be {content_media_type}"))
        }
        _ => ("schema", "does not fit".into()),
    };
    ViolatedRule::Other(keyword, text)
}

fn at_least(limit: u64, unit: &str) -> String {
    format!("must have at least {limit} {unit}{}", plural(limit))
}

fn at_most(limit: u64, unit: &str) -> String {
    format!("must have at most {limit} {unit}{}", plural(limit))
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}
