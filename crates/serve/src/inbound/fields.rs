//! Typed access to a frame's fields. Each field knows its path, so that a refusal can name it.

use budao_core::{
    Fault, Kind,
    fault::{Fact, Operation},
};
use serde_json::{Map, Value};

use crate::texts::shorten;

/// A JSON object of a frame and its path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    under: &'static str,
}

impl<'a> Fields<'a> {
    pub(super) fn root(map: &'a Map<String, Value>) -> Self {
        Self { map, under: "" }
    }

    pub(super) fn nested(map: &'a Map<String, Value>, under: &'static str) -> Self {
        Self { map, under }
    }

    /// The path of a field in the frame, such as `content.task_id`.
    pub(super) fn path(&self, name: &str) -> String {
        match self.under {
            "" => name.to_owned(),
            under => format!("{under}.{name}"),
        }
    }

    /// A field; `null` counts as absent.
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// A field as it was sent, `null` included.
    pub(super) fn get_raw(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name)
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, Fault> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type_fault(&self.path(name), "text", other)),
        }
    }

    pub(super) fn required_text(&self, name: &str, expected: &str) -> Result<&'a str, Fault> {
        self.text(name)?.ok_or_else(|| missing_fault(&self.path(name), expected))
    }

    /// The first text found under these alternative names.
    pub(super) fn first_text(&self, names: &[&str]) -> Result<Option<&'a str>, Fault> {
        for name in names {
            if let Some(text) = self.text(name)? {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Fault> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(wrong_type_fault(&self.path(name), "true or false", other)),
        }
    }

    pub(super) fn integer(&self, name: &str) -> Result<Option<u64>, Fault> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => integer(&self.path(name), value).map(Some),
        }
    }

    pub(super) fn object(&self, name: &'static str) -> Result<Option<Self>, Fault> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(map)) => {
                let under = match (self.under, name) {
                    ("content", "preferences") => "content.preferences",
                    ("content", "config") => "content.config",
                    _ => name,
                };
                Ok(Some(Self { map, under }))
            }
            Some(other) => Err(wrong_type_fault(&self.path(name), "an object", other)),
        }
    }
}

/// A non-negative integer.
pub(super) fn integer(path: &str, value: &Value) -> Result<u64, Fault> {
    let expected = "a whole number that is not negative";
    value.as_u64().ok_or_else(|| wrong_type_fault(path, expected, value))
}

/// True if the JSON is nested deeper than `levels`. It only scans brackets outside strings, so it can run before
/// parsing.
pub(super) fn is_deeper(text: &[u8], levels: usize) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                if depth > levels {
                    return true;
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// The byte offset of a line and column, both starting at 1.
pub(super) fn position(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (before + column.saturating_sub(1)).min(text.len())
}

/// Up to 24 bytes of text on each side of a position.
pub(super) fn excerpt(text: &str, position: usize) -> String {
    const EXCERPT_BYTES: usize = 24;
    let mut from = position.saturating_sub(EXCERPT_BYTES).min(text.len());
    let mut to = position.saturating_add(EXCERPT_BYTES).min(text.len());
    while !text.is_char_boundary(from) {
        from -= 1;
    }
    while !text.is_char_boundary(to) {
        to += 1;
    }
    text[from..to].to_owned()
}

pub(super) fn missing_fault(path: &str, expected: &str) -> Fault {
    Fault::new(Kind::BadRequest, Operation::AcceptFrame)
        .with(Fact::Field, path.to_owned())
        .with(Fact::Constraint, format!("{path} is required"))
        .with(Fact::Expected, expected.to_owned())
        .with(Fact::Received, "nothing")
}

pub(super) fn wrong_type_fault(path: &str, expected: &str, received: &Value) -> Fault {
    Fault::new(Kind::BadRequest, Operation::AcceptFrame)
        .with(Fact::Field, path.to_owned())
        .with(Fact::Constraint, format!("{path} is {expected}"))
        .with(Fact::Expected, expected.to_owned())
        .with(Fact::Received, json_type(received))
        .with(Fact::ProvidedValue, shorten_value(received))
}

/// The fault of a value that has the right type but violates a rule.
pub(super) fn constraint_fault(path: &str, rule: &str, value: &str) -> Fault {
    Fault::new(Kind::ConstraintViolated, Operation::AcceptFrame)
        .with(Fact::Field, path.to_owned())
        .with(Fact::Constraint, rule.to_owned())
        .with(Fact::ProvidedValue, Value::from(shorten(value)))
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A received value, shortened for the answer.
#[must_use]
pub fn shorten_value(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => shorten(text).into(),
        Value::Array(items) => format!("a list of {}", items.len()).into(),
        Value::Object(fields) => format!("an object of {} fields", fields.len()).into(),
    }
}
