//! A fast check for schemas that mostly describe structure, as those of typed tools do.
//!
//! [`Structure::accepts`] is true only for values that the full validator accepts and that are nested at most as deep as
//! recursive code may receive. False means that the full validator decides: the value is invalid, or a rule applies to
//! it that a structure does not express (a pattern, a reference, a combination of schemas).

mod build;
mod names;
#[cfg(test)]
mod tests;

use budao_core::nesting;
use serde_json::{Map, Number, Value};

use self::names::PropertyName;
use super::SCHEMA_DEPTH_MAX;

/// Maximum nesting of a part that a schema leaves open. Together with the schema's own depth, it stays within
/// [`nesting::LEVELS_MAX`].
const OPEN_LEVELS_MAX: usize = nesting::LEVELS_MAX - SCHEMA_DEPTH_MAX;

/// Properties of an object above which names are looked up by binary search.
const LINEAR_MAX: usize = 12;

/// Bounds up to this size are exact as floats.
const EXACT_MAX: i128 = 1 << 53;

/// The values that a schema surely accepts.
#[derive(Debug)]
pub(crate) enum Structure {
    Any,
    /// No value; the full validator decides.
    Undecided,
    Boolean,
    Text,
    Integer,
    Object(Box<ObjectStructure>),
    Array(Box<ArrayStructure>),
    Mixed(Box<MixedStructure>),
}

impl Structure {
    /// True if the full validator surely accepts the value.
    #[inline]
    pub(crate) fn accepts(&self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Boolean => value.is_boolean(),
            other => other.accepts_part(value),
        }
    }

    fn accepts_part(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Object(structure), Value::Object(map)) => structure.accepts(map),
            (Self::Array(structure), Value::Array(items)) => structure.accepts(items),
            (Self::Integer, Value::Number(number)) => !number.is_f64(),
            (Self::Mixed(structure), value) => structure.accepts(value),
            (Self::Any, Value::Object(_) | Value::Array(_)) => {
                !nesting::is_deeper(value, OPEN_LEVELS_MAX)
            }
            (Self::Any, _) => true,
            _ => false,
        }
    }
}

/// The accepted values of several types; for each type, none or those that fit its rules.
#[derive(Debug)]
pub(crate) struct MixedStructure {
    null: bool,
    boolean: bool,
    number: Option<NumberRange>,
    text: Option<TextStructure>,
    object: Option<ObjectStructure>,
    array: Option<ArrayStructure>,
    /// If there are any, one of them must accept the value too.
    alternatives: Vec<Structure>,
}

impl MixedStructure {
    fn accepts(&self, value: &Value) -> bool {
        let fits = match value {
            Value::Null => self.null,
            Value::Bool(_) => self.boolean,
            Value::Number(number) => self.number.as_ref().is_some_and(|it| it.accepts(number)),
            Value::String(text) => self.text.as_ref().is_some_and(|it| it.accepts(text)),
            Value::Object(map) => self.object.as_ref().is_some_and(|it| it.accepts(map)),
            Value::Array(items) => self.array.as_ref().is_some_and(|it| it.accepts(items)),
        };
        let is_chosen = |it: &Structure| it.accepts(value);
        fits && (self.alternatives.is_empty() || self.alternatives.iter().any(is_chosen))
    }
}

/// The accepted numbers.
#[derive(Debug, Default)]
struct NumberRange {
    integers_only: bool,
    /// The bounds, both inclusive.
    low: Option<i128>,
    high: Option<i128>,
}

impl NumberRange {
    fn accepts(&self, number: &Number) -> bool {
        let whole = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
        match (whole, number.as_f64()) {
            (Some(whole), _) => {
                self.low.is_none_or(|low| low <= whole)
                    && self.high.is_none_or(|high| whole <= high)
            }
            (None, Some(float)) if !self.integers_only => {
                self.low.is_none_or(|low| exact_float(low).is_some_and(|low| low <= float))
                    && self
                        .high
                        .is_none_or(|high| exact_float(high).is_some_and(|high| float <= high))
            }
            _ => false,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "checked to be exact")]
fn exact_float(bound: i128) -> Option<f64> {
    (-EXACT_MAX..=EXACT_MAX).contains(&bound).then_some(bound as f64)
}

/// The accepted texts.
#[derive(Debug, Default)]
struct TextStructure {
    chars_min: usize,
    chars_max: Option<usize>,
    /// The only accepted texts, if they are listed.
    listed: Option<Vec<String>>,
}

impl TextStructure {
    fn is_free(&self) -> bool {
        self.chars_min == 0 && self.chars_max.is_none() && self.listed.is_none()
    }

    fn accepts(&self, text: &str) -> bool {
        // A character has one to four bytes, which decides most cases without counting.
        let is_short = |max: usize| text.len() <= max || text.chars().count() <= max;
        let is_long = text.len() >= self.chars_min * 4 || text.chars().count() >= self.chars_min;
        is_long
            && self.chars_max.is_none_or(is_short)
            && self.listed.as_ref().is_none_or(|listed| listed.iter().any(|it| it == text))
    }
}

/// The accepted lists.
#[derive(Debug)]
pub(crate) struct ArrayStructure {
    items: Structure,
    least: usize,
    most: usize,
}

impl ArrayStructure {
    fn accepts(&self, items: &[Value]) -> bool {
        (self.least..=self.most).contains(&items.len())
            && items.iter().all(|item| self.items.accepts(item))
    }
}

/// The accepted objects.
#[derive(Debug)]
pub(crate) struct ObjectStructure {
    /// In the order of the schema, which models usually follow.
    properties: Vec<PropertyStructure>,
    /// Indices of the properties in the order of their names, if there are many.
    sorted: Vec<usize>,
    required: usize,
    /// The values of all other keys; none if other keys are refused.
    others: Option<Structure>,
    least: usize,
    most: usize,
}

#[derive(Debug)]
struct PropertyStructure {
    name: PropertyName,
    is_required: bool,
    structure: Structure,
}

impl ObjectStructure {
    fn accepts(&self, map: &Map<String, Value>) -> bool {
        let (mut at, mut required) = (0, 0);
        for (name, value) in map {
            let property = match self.properties.get(at) {
                Some(expected) if expected.name.is(name) => expected,
                _ => match self.find(name) {
                    Some(found) => {
                        at = found;
                        &self.properties[at]
                    }
                    None if self.others_accept(value) => continue,
                    None => return false,
                },
            };
            at += 1;
            required += usize::from(property.is_required);
            if !property.structure.accepts(value) {
                return false;
            }
        }
        required == self.required && self.least <= map.len() && map.len() <= self.most
    }

    fn others_accept(&self, value: &Value) -> bool {
        self.others.as_ref().is_some_and(|others| others.accepts(value))
    }

    /// The index of a property that is not where it was expected.
    #[inline(never)]
    fn find(&self, name: &str) -> Option<usize> {
        if self.sorted.is_empty() {
            return self.properties.iter().position(|property| property.name.is(name));
        }
        let of = |&at: &usize| self.properties[at].name.as_str().cmp(name);
        self.sorted.binary_search_by(of).ok().map(|found| self.sorted[found])
    }
}
