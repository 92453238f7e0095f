//! The facts of one fault: typed values instead of prose.

use std::{borrow::Cow, fmt};

use budao_scrub::Scrubber;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::Value;

use super::Fact;
use crate::nesting;

/// The type of a fact's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A word, a name, a path or a sentence.
    Text,
    /// A count, a size in bytes, or milliseconds.
    Number,
    /// A list of texts.
    List,
    /// Any JSON, usually a value from a peer or a model.
    Json,
}

/// The value of a fact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FactValue {
    /// A count, a size in bytes, or milliseconds.
    Number(i64),
    /// A word, a name, a path or a sentence.
    Text(Cow<'static, str>),
    /// A list of texts.
    List(Vec<String>),
    /// Any JSON, usually a value from a peer or a model; its depth is bounded.
    Json(Value),
}

impl FactValue {
    /// The shape of this value.
    #[must_use]
    pub fn shape(&self) -> Shape {
        match self {
            Self::Number(_) => Shape::Number,
            Self::Text(_) => Shape::Text,
            Self::List(_) => Shape::List,
            Self::Json(_) => Shape::Json,
        }
    }
}

impl fmt::Display for FactValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::List(items) => f.write_str(&items.join(", ")),
            Self::Json(Value::String(text)) => f.write_str(text),
            Self::Json(value) => value.fmt(f),
        }
    }
}

macro_rules! from_number {
    ($($number:ty),*) => {$(
        impl From<$number> for FactValue {
            fn from(number: $number) -> Self {
                Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
            }
        }
    )*};
}
from_number!(u8, u16, u32, u64, usize, i32, i64, u128);

impl From<&'static str> for FactValue {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for FactValue {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<Cow<'static, str>> for FactValue {
    fn from(text: Cow<'static, str>) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<String>> for FactValue {
    fn from(items: Vec<String>) -> Self {
        Self::List(items)
    }
}

impl From<Value> for FactValue {
    fn from(value: Value) -> Self {
        Self::Json(value)
    }
}

impl From<std::time::Duration> for FactValue {
    /// The duration in whole milliseconds.
    fn from(duration: std::time::Duration) -> Self {
        duration.as_millis().into()
    }
}

/// The facts of one fault, in catalog order. A sorted vector, because a fault has few facts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detail(Vec<(Fact, FactValue)>);

impl Detail {
    /// An empty set of facts.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Whether there are no facts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a fact, in builder style; a second value replaces the first.
    #[must_use]
    pub fn with(mut self, fact: Fact, value: impl Into<FactValue>) -> Self {
        self.set(fact, value.into());
        self
    }

    /// Sets a fact, converted to the fact's shape; a second value replaces the first.
    pub fn set(&mut self, fact: Fact, value: FactValue) {
        let value = fit(fact.shape(), value);
        match self.0.binary_search_by_key(&fact, |(known, _)| *known) {
            Ok(index) => self.0[index].1 = value,
            Err(index) => self.0.insert(index, (fact, value)),
        }
    }

    /// The value of a fact, if present.
    #[must_use]
    pub fn get(&self, fact: Fact) -> Option<&FactValue> {
        let index = self.0.binary_search_by_key(&fact, |(known, _)| *known).ok()?;
        Some(&self.0[index].1)
    }

    /// The value of a fact, if present and text.
    #[must_use]
    pub fn text(&self, fact: Fact) -> Option<&str> {
        match self.get(fact)? {
            FactValue::Text(text) => Some(text),
            FactValue::Json(Value::String(text)) => Some(text),
            FactValue::Json(_) | FactValue::Number(_) | FactValue::List(_) => None,
        }
    }

    /// The value of a fact, if present and a number.
    #[must_use]
    pub fn number(&self, fact: Fact) -> Option<i64> {
        match self.get(fact)? {
            FactValue::Number(number) => Some(*number),
            FactValue::Text(_) | FactValue::List(_) | FactValue::Json(_) => None,
        }
    }

    /// All facts, in catalog order.
    pub fn iter(&self) -> impl Iterator<Item = (Fact, &FactValue)> {
        self.0.iter().map(|(fact, value)| (*fact, value))
    }

    pub(super) fn scrub(&mut self, scrubber: &Scrubber) {
        for (_, value) in &mut self.0 {
            match value {
                FactValue::Number(_) => {}
                FactValue::Text(text) => {
                    if let Cow::Owned(clean) = scrubber.scrub(text) {
                        *text = Cow::Owned(clean);
                    }
                }
                FactValue::List(items) => {
                    for item in items {
                        scrub_string(item, scrubber);
                    }
                }
                FactValue::Json(value) => scrubber.scrub_json(value),
            }
        }
    }
}

/// Converts a value to the shape of its fact, so that a recorded value decodes to the same value. Text that is not a
/// number stays text. JSON is bounded in depth, so that walking a fact cannot overflow the stack.
fn fit(shape: Shape, mut value: FactValue) -> FactValue {
    if let FactValue::Json(json) = &mut value {
        nesting::bound(json);
    }
    match shape {
        Shape::Text => FactValue::Text(words(value)),
        Shape::List => FactValue::List(match value {
            FactValue::List(items) => items,
            FactValue::Json(Value::Array(items)) => {
                items.into_iter().map(|item| words(FactValue::Json(item)).into_owned()).collect()
            }
            other => vec![words(other).into_owned()],
        }),
        Shape::Json => FactValue::Json(match value {
            FactValue::Json(value) => value,
            FactValue::Number(number) => number.into(),
            FactValue::Text(text) => Value::String(text.into_owned()),
            FactValue::List(items) => items.into(),
        }),
        Shape::Number => match value {
            FactValue::Number(number) => FactValue::Number(number),
            FactValue::Json(Value::Number(number)) => FactValue::Number(rounded(&number)),
            other => {
                let text = words(other);
                text.parse().map_or(FactValue::Text(text), FactValue::Number)
            }
        },
    }
}

fn words(value: FactValue) -> Cow<'static, str> {
    match value {
        FactValue::Text(text) => text,
        FactValue::Json(Value::String(text)) => text.into(),
        other => other.to_string().into(),
    }
}

/// Rounds to the nearest integer; the cast from a float saturates.
fn rounded(number: &serde_json::Number) -> i64 {
    number.as_i64().unwrap_or_else(|| number.as_f64().unwrap_or_default().round() as i64)
}

pub(super) fn scrub_string(text: &mut String, scrubber: &Scrubber) {
    if let Cow::Owned(clean) = scrubber.scrub(text) {
        *text = clean;
    }
}

impl Serialize for Detail {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (fact, value) in &self.0 {
            map.serialize_entry(fact, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Detail {
    /// Skips facts that this version does not know, because a newer writer may have added them.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Facts;
        impl<'de> Visitor<'de> for Facts {
            type Value = Detail;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of facts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Detail, A::Error> {
                let mut detail = Detail::new();
                while let Some(name) = map.next_key::<Cow<'de, str>>()? {
                    let value: Value = map.next_value()?;
                    if let Ok(fact) = name.parse::<Fact>() {
                        detail.set(fact, FactValue::Json(value));
                    }
                }
                Ok(detail)
            }
        }
        deserializer.deserialize_map(Facts)
    }
}

/// A place where arguments do not fit their schema.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mismatch {
    /// JSON pointer to the place, for example `/edits/0/path`; empty for the whole value.
    pub pointer: String,
    /// The schema keyword that was violated: `required`, `type`, `enum` …
    pub rule: Cow<'static, str>,
    /// A description of a fitting value.
    pub expected: String,
    /// The value that was sent, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<String>,
    /// The allowed values, when they are few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<Value>,
    /// The known key most similar to an unknown one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
}

impl Mismatch {
    /// The pointer in dotted form, for example `edits.0.path`; `arguments` for the whole value.
    #[must_use]
    pub fn dotted(&self) -> String {
        let path = self.pointer.trim_start_matches('/').replace('/', ".");
        let path = path.replace("~1", "/").replace("~0", "~");
        if path.is_empty() { "arguments".into() } else { path }
    }

    pub(super) fn scrub(&mut self, scrubber: &Scrubber) {
        // Each step is scrubbed alone: in one text, a field called `root` would look like a home directory.
        let steps: Vec<_> = self.pointer.split('/').map(|step| scrubber.scrub(step)).collect();
        if steps.iter().any(|step| matches!(step, Cow::Owned(_))) {
            self.pointer = steps.join("/");
        }
        let texts = [Some(&mut self.expected), self.received.as_mut(), self.nearest.as_mut()];
        for text in texts.into_iter().flatten() {
            scrub_string(text, scrubber);
        }
        for value in &mut self.allowed {
            scrubber.scrub_json(value);
        }
    }
}

impl fmt::Display for Mismatch {
    /// A single line: `edits.0.path: required`, `times: must be at most 3 (you sent 9)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.dotted(), self.expected)?;
        if let Some(received) = &self.received {
            write!(f, " (you sent {received})")?;
        }
        if let Some(nearest) = &self.nearest {
            write!(f, "; did you mean `{nearest}`?")?;
        }
        Ok(())
    }
}
