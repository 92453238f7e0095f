//! Parses requests strictly: an error names the missing or invalid field.

use std::time::Duration;

use budao_core::fault::{Fact, Fault, Kind, Operation};
use serde_json::{Map, Value};
use unicode_normalization::is_nfc;

use super::Role;

/// Longest name, room or request id, in bytes.
pub const NAME_BYTES_MAX: usize = 256;

/// Valid timeouts of a tool call, in seconds.
pub const TIMEOUT_SECONDS: std::ops::RangeInclusive<u64> = 1..=3600;

/// Parses an event into its name and its only argument.
///
/// # Errors
/// If the text is longer than `limit` bytes, has attachments, or is not an event.
pub fn event(text: &str, is_binary: bool, limit: usize) -> Result<(String, Value), Fault> {
    let op = Operation::AcceptFrame;
    if text.len() > limit {
        let bytes = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        return Err(Fault::new(Kind::FrameTooLarge, op)
            .with(Fact::LimitName, "frame_bytes")
            .with(Fact::Limit, bytes(limit))
            .with(Fact::Actual, bytes(text.len())));
    }
    if is_binary {
        return Err(Fault::new(Kind::BadRequest, op)
            .with(Fact::Expected, "JSON without attachments")
            .with(Fact::Received, "binary data"));
    }
    let mut args: Vec<Value> = serde_json::from_str(text)
        .map_err(|error| Fault::new(Kind::MalformedJson, op).caused_by(&error))?;
    let name = match args.first() {
        Some(Value::String(name)) => name.clone(),
        _ => {
            return Err(Fault::new(Kind::BadRequest, op).with(Fact::Expected, "an event's name"));
        }
    };
    let payload = if args.len() > 1 { args.swap_remove(1) } else { Value::Null };
    Ok((name, payload))
}

/// Whether the text is a valid name: 1 to 256 bytes without control characters.
#[must_use]
pub fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// Whether a name or room can be told from every other by looking at it: a valid name in Unicode form NFC, without
/// spaces at its ends, and without characters that are invisible or change the direction of writing. Joiners stay,
/// because scripts and emoji need them.
#[must_use]
pub fn is_distinct_name(text: &str) -> bool {
    let is_hidden = |letter| {
        matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{180e}' | '\u{200b}' | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    is_name(text) && text.trim() == text && !text.contains(is_hidden) && is_nfc(text)
}

/// The fields of a request, with its event and operation for error messages.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    event: &'a str,
    operation: Operation,
    map: &'a Map<String, Value>,
}

/// The routing fields of a request to a computer.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutedRequest {
    /// The name that the caller gives itself; empty without one. The hub puts the name it joined with in its place.
    pub agent: String,
    /// The request id, unique among the agent's running calls.
    pub req_id: String,
    /// The name of the computer that answers.
    pub computer: String,
}

/// The additional fields of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The exposed name of the tool.
    pub tool_name: String,
    /// The deadline of the call: whole seconds, from 1 to 3600.
    pub timeout: Duration,
}

/// A request to join a room.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinRequest {
    /// Agent or computer.
    pub role: Role,
    /// The name to join with.
    pub name: String,
    /// The room to join, `office_id` on the wire.
    pub room: String,
}

impl<'a> Fields<'a> {
    /// Wraps the only argument of `event`.
    ///
    /// # Errors
    /// If the argument is not an object.
    pub fn new(event: &'a str, operation: Operation, value: &'a Value) -> Result<Self, Fault> {
        match value {
            Value::Object(map) => Ok(Self { event, operation, map }),
            other => Err(Fault::new(Kind::BadRequest, operation)
                .with(Fact::EventName, event.to_owned())
                .with(Fact::Expected, "an object")
                .with(Fact::Received, shape(other))),
        }
    }

    fn bad(&self, field: &'static str, expected: &'static str) -> Fault {
        let received = self.map.get(field).map_or("nothing", shape);
        Fault::new(Kind::BadRequest, self.operation)
            .with(Fact::EventName, self.event.to_owned())
            .with(Fact::Field, field)
            .with(Fact::Expected, expected)
            .with(Fact::Received, received)
    }

    /// A required name: 1 to 256 bytes without control characters.
    ///
    /// # Errors
    /// If the field is missing or not a valid name.
    pub fn name(&self, field: &'static str) -> Result<String, Fault> {
        let text = self.map.get(field).and_then(Value::as_str);
        let text = text.ok_or_else(|| self.bad(field, "text"))?;
        let is_short = (1..=NAME_BYTES_MAX).contains(&text.len());
        if !is_short {
            return Err(self.bad(field, "1 to 256 bytes of text"));
        }
        if !is_name(text) {
            return Err(self.bad(field, "text without control characters"));
        }
        Ok(text.to_owned())
    }

    /// A required text of 1 to `bytes_max` bytes.
    ///
    /// # Errors
    /// If the field is missing or not such a text.
    pub fn text(&self, field: &'static str, bytes_max: usize) -> Result<String, Fault> {
        let text = self.map.get(field).and_then(Value::as_str);
        let text = text.filter(|text| (1..=bytes_max).contains(&text.len()));
        text.map(str::to_owned)
            .ok_or_else(|| self.bad(field, "text that is not empty and not long"))
    }

    /// An optional text.
    ///
    /// # Errors
    /// If the field is present and not a valid text.
    pub fn text_if_any(
        &self,
        field: &'static str,
        bytes_max: usize,
    ) -> Result<Option<String>, Fault> {
        match self.map.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(_) => self.text(field, bytes_max).map(Some),
        }
    }

    /// An optional whole number, at least `least`.
    ///
    /// # Errors
    /// If the field is present and not such a number.
    pub fn number(&self, field: &'static str, least: u64) -> Result<Option<u64>, Fault> {
        match self.map.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64().filter(|number| *number >= least) {
                Some(number) => Ok(Some(number)),
                None => Err(self.bad(field, "a whole number that is not too small")),
            },
        }
    }

    /// An optional whole number of either sign.
    ///
    /// # Errors
    /// If the field is present and not a whole number.
    pub fn integer(&self, field: &'static str) -> Result<Option<i64>, Fault> {
        match self.map.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                value.as_i64().map(Some).ok_or_else(|| self.bad(field, "a whole number"))
            }
        }
    }

    /// The fields that every request to a computer has.
    ///
    /// # Errors
    /// If one of them is missing or invalid.
    pub fn routed(&self) -> Result<RoutedRequest, Fault> {
        Ok(RoutedRequest {
            agent: self.map.get("agent").and_then(Value::as_str).unwrap_or_default().to_owned(),
            req_id: self.name("req_id")?,
            computer: self.name("computer")?,
        })
    }

    /// The additional fields of a tool call.
    ///
    /// # Errors
    /// If one of them is missing or invalid.
    pub fn tool_call(&self) -> Result<ToolCall, Fault> {
        let tool_name = self.name("tool_name")?;
        if !self.map.get("params").is_some_and(Value::is_object) {
            return Err(self.bad("params", "an object"));
        }
        Ok(ToolCall { tool_name, timeout: Duration::from_secs(self.timeout()?) })
    }

    /// The timeout in whole seconds. Like other hubs, it accepts a whole number written as text or as a float.
    fn timeout(&self) -> Result<u64, Fault> {
        let expected = "a whole number of seconds from 1 to 3600";
        let seconds = match self.map.get("timeout") {
            Some(Value::Number(number)) => number.as_u64().or_else(|| {
                let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
                (1.0..=3600.0).contains(&float).then(|| {
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "checked"
                    )]
                    let whole = float as u64;
                    whole
                })
            }),
            Some(Value::String(text)) => text.parse().ok(),
            _ => None,
        };
        seconds
            .filter(|seconds| TIMEOUT_SECONDS.contains(seconds))
            .ok_or_else(|| self.bad("timeout", expected))
    }

    /// The fields of a join request.
    ///
    /// # Errors
    /// If one of them is missing or invalid.
    pub fn join(&self) -> Result<JoinRequest, Fault> {
        let role = match self.map.get("role").and_then(Value::as_str) {
            Some("agent") => Role::Agent,
            Some("computer") => Role::Computer,
            _ => return Err(self.bad("role", "`agent` or `computer`")),
        };
        Ok(JoinRequest {
            role,
            name: self.distinct_name("name")?,
            room: self.distinct_name("office_id")?,
        })
    }

    fn distinct_name(&self, field: &'static str) -> Result<String, Fault> {
        let name = self.name(field)?;
        let expected =
            "text in Unicode form NFC, without spaces at its ends and invisible characters";
        if is_distinct_name(&name) { Ok(name) } else { Err(self.bad(field, expected)) }
    }
}

/// The JSON type of a value, for error messages.
fn shape(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number that does not fit",
        Value::String(_) => "text that does not fit",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object that does not fit",
    }
}

#[cfg(test)]
mod tests {
    use crate::codes::smcp_code;
    use serde_json::json;

    use super::*;

    fn timeout(value: &Value) -> Result<u64, Option<String>> {
        let request = json!({ "tool_name": "t", "params": {}, "timeout": value });
        let fields = Fields::new("client:tool_call", Operation::RelayCall, &request).unwrap();
        let field = |fault: Fault| fault.detail().text(Fact::Field).map(str::to_owned);
        fields.tool_call().map(|call| call.timeout.as_secs()).map_err(field)
    }

    #[test]
    fn a_timeout_is_whole_seconds_in_its_range() {
        assert_eq!(timeout(&json!(5)), Ok(5));
        assert_eq!(timeout(&json!("5")), Ok(5));
        assert_eq!(timeout(&json!(5.0)), Ok(5));
        assert_eq!(timeout(&json!(3600)), Ok(3600));
        for bad in [json!(0), json!(-5), json!(1.5), json!(1_000_000_000), json!(3601), json!("x")]
        {
            assert_eq!(timeout(&bad), Err(Some("timeout".into())), "{bad}");
        }
        for bad in [json!(null), json!([5]), json!(true), json!(1e300), json!("5.5")] {
            assert_eq!(timeout(&bad), Err(Some("timeout".into())), "{bad}");
        }
    }

    #[test]
    fn a_missing_or_ill_typed_field_is_named() {
        let whole = json!({ "agent": "a", "req_id": "r", "computer": "c" });
        let read = |value: &Value| {
            Fields::new("client:get_tools", Operation::RelayCall, value).and_then(|f| f.routed())
        };
        assert!(read(&whole).is_ok());
        for field in ["req_id", "computer"] {
            for wrong in [None, Some(json!(1)), Some(json!("")), Some(json!("a\u{0}"))] {
                let mut request = whole.clone();
                match &wrong {
                    Some(value) => request[field] = value.clone(),
                    None => drop(request.as_object_mut().unwrap().remove(field)),
                }
                let fault = read(&request).unwrap_err();
                assert_eq!(smcp_code(fault.kind()), 400);
                assert_eq!(fault.detail().text(Fact::Field), Some(field), "{wrong:?}");
            }
        }
        let long = json!({ "agent": "a", "req_id": "x".repeat(10_000), "computer": "c" });
        assert_eq!(read(&long).unwrap_err().detail().text(Fact::Field), Some("req_id"));
        assert_eq!(smcp_code(read(&json!([])).unwrap_err().kind()), 400);
    }
}
