//! The fast path: recognizes ordinary tool calls and results without building a tree of their values.
//!
//! The hub forwards such messages as text. Every other message takes the slow path, which can report the error.

use std::{fmt, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    event::RequestEvent,
    request::{RoutedRequest, TIMEOUT_SECONDS, ToolCall, is_name},
};

/// Nesting depth that is forwarded. Parsers at the other end accept a few more levels, so none fails on it.
const DEPTH_MAX: u8 = 100;

/// A tool call that may be forwarded unchanged.
#[derive(Debug)]
pub struct PlainCall<'a> {
    /// The agent, the computer and the request id.
    pub routed: RoutedRequest,
    /// The tool and its timeout.
    pub call: ToolCall,
    /// The event's argument, to be forwarded unchanged.
    pub text: &'a RawValue,
}

/// The six fields of a tool call. A call with any other field takes the slow path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call<'a> {
    agent: &'a str,
    req_id: &'a str,
    computer: &'a str,
    tool_name: &'a str,
    #[serde(rename = "params")]
    _params: ValidValue<{ OBJECT }>,
    timeout: u64,
}

/// The fields of a result. An error has other fields and takes the slow path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Outcome {
    #[serde(rename = "content")]
    _content: ValidValue<{ LIST }>,
    #[serde(default, rename = "isError")]
    is_error: bool,
    #[serde(rename = "meta")]
    _meta: Option<ValidValue<{ ANY }>>,
    #[serde(rename = "_meta")]
    _own_meta: Option<ValidValue<{ ANY }>>,
    #[serde(rename = "structuredContent")]
    _structured: Option<ValidValue<{ ANY }>>,
}

/// Parses an event as an ordinary tool call; `None` sends it to the slow path.
#[must_use]
pub fn call(event: &str) -> Option<PlainCall<'_>> {
    let (name, text) = serde_json::from_str::<(&str, &RawValue)>(event).ok()?;
    if name.parse() != Ok(RequestEvent::ToolCall) {
        return None;
    }
    let call: Call<'_> = serde_json::from_str(text.get()).ok()?;
    let names = [call.agent, call.req_id, call.computer, call.tool_name];
    if !names.into_iter().all(is_name) || !TIMEOUT_SECONDS.contains(&call.timeout) {
        return None;
    }
    let [agent, req_id, computer, tool_name] = names.map(str::to_owned);
    Some(PlainCall {
        routed: RoutedRequest { agent, req_id, computer },
        call: ToolCall { tool_name, timeout: Duration::from_secs(call.timeout) },
        text,
    })
}

/// The first element of a JSON array, as text; `None` if the array is empty or the element is null.
///
/// # Errors
/// If the text is not a JSON array.
pub fn first(args: &str) -> Result<Option<Box<RawValue>>, String> {
    let first: First = serde_json::from_str(args).map_err(|error| error.to_string())?;
    Ok(first.0)
}

/// The first element of an array. Further elements are skipped.
struct First(Option<Box<RawValue>>);

impl<'de> Deserialize<'de> for First {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = First;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of arguments")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<First, A::Error> {
                let first = list.next_element::<Option<Box<RawValue>>>()?.flatten();
                while list.next_element::<serde::de::IgnoredAny>()?.is_some() {}
                Ok(First(first))
            }
        }
        deserializer.deserialize_seq(List)
    }
}

/// Whether the answer is certainly the result of a successful tool call.
#[must_use]
pub fn is_good_result(answer: &str) -> bool {
    serde_json::from_str::<Outcome>(answer).is_ok_and(|outcome| !outcome.is_error)
}

/// Whether every JSON parser would accept the text: limited depth, valid numbers, and no attachment placeholder,
/// because attachments are not forwarded.
#[must_use]
pub fn is_sound(text: &str) -> bool {
    serde_json::from_str::<ValidValue<{ ANY }>>(text).is_ok()
}

const ANY: u8 = 0;
const LIST: u8 = 1;
const OBJECT: u8 = 2;

/// A value of a given shape that every parser accepts. Its content is discarded.
struct ValidValue<const SHAPE: u8>;

impl<'de, const SHAPE: u8> Deserialize<'de> for ValidValue<SHAPE> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let skip = ValueSkipper { shape: SHAPE, depth: DEPTH_MAX };
        skip.deserialize(from).map(|()| Self)
    }
}

/// Skips a value, with the same checks as if it were parsed.
#[derive(Clone, Copy)]
struct ValueSkipper {
    shape: u8,
    depth: u8,
}

impl ValueSkipper {
    fn inner<E: Error>(self) -> Result<Self, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| E::custom("too deep"))?;
        Ok(Self { shape: ANY, depth })
    }

    fn of<E: Error>(self, shape: u8) -> Result<(), E> {
        if self.shape == ANY || self.shape == shape { Ok(()) } else { Err(E::custom("shape")) }
    }

    fn single<E: Error>(self) -> Result<(), E> {
        self.of(ANY)
    }
}

impl<'de> DeserializeSeed<'de> for ValueSkipper {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSkipper {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sound value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.single()
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.single()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.single()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.single()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.single()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.single()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.of(LIST)?;
        let inner = self.inner()?;
        while items.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        self.of(OBJECT)?;
        let inner = self.inner()?;
        while fields.next_key_seed(FieldName)?.is_some() {
            fields.next_value_seed(inner)?;
        }
        Ok(())
    }
}

/// A field's name. The name that marks an attachment placeholder is rejected.
struct FieldName;

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldName {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<(), E> {
        if name == "_placeholder" { Err(E::custom("an attachment")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::{
        error,
        request::{self, Fields},
    };
    use budao_core::fault::Operation;

    fn ordinary() -> Value {
        json!({
            "agent": "bot", "req_id": "r", "computer": "pc", "tool_name": "t",
            "params": { "deep": [1, -1, 1.5, null, true, { "text": "\"\u{4f60}" }] }, "timeout": 5,
        })
    }

    #[test]
    fn an_ordinary_call_is_known_and_passed_on_byte_for_byte() {
        let payload = ordinary().to_string();
        let event = format!(r#"["client:tool_call",{payload}]"#);
        let plain = call(&event).unwrap();
        assert_eq!(plain.text.get(), payload);
        let ordinary = ordinary();
        let fields = Fields::new("", Operation::RelayCall, &ordinary).unwrap();
        assert_eq!(plain.routed, fields.routed().unwrap());
        assert_eq!(plain.call, fields.tool_call().unwrap());
    }

    /// Every message that the fast path accepts, the slow path accepts with the same content.
    #[test]
    fn what_is_not_ordinary_is_left_to_the_long_way() {
        let changes: [(&str, Value); 16] = [
            ("agent", json!("")),
            ("agent", json!(1)),
            ("req_id", json!("x".repeat(300))),
            ("computer", json!("a\u{0}b")),
            ("tool_name", json!(null)),
            ("params", json!([])),
            ("params", json!("x")),
            ("params", json!(null)),
            ("timeout", json!(0)),
            ("timeout", json!(3601)),
            ("timeout", json!(-1)),
            ("timeout", json!(1.5)),
            ("timeout", json!("5")),
            ("timeout", json!(5.0)),
            ("more", json!(1)),
            ("params", json!({ "_placeholder": true, "num": 0 })),
        ];
        for (field, value) in changes {
            let mut request = ordinary();
            request[field] = value;
            assert!(call(&json!(["client:tool_call", request]).to_string()).is_none(), "{request}");
        }
        let good = ordinary();
        for other in [
            json!(["client:get_tools", good]),
            json!(["client:tool_call", good, 1]),
            json!(["client:tool_call"]),
            json!([good]),
            json!({}),
        ] {
            assert!(call(&other.to_string()).is_none(), "{other}");
        }
        let twice = r#"["client:tool_call",{"agent":"a","agent":"b","req_id":"r","computer":"c","tool_name":"t","params":{},"timeout":1}]"#;
        assert!(call(twice).is_none(), "which of the two is meant is not for us to say");
    }

    #[test]
    fn a_good_result_is_known_and_everything_else_is_looked_at() {
        for good in [
            json!({ "content": [] }),
            json!({ "content": [{ "type": "text", "text": "x" }], "isError": false }),
            json!({ "content": [], "meta": null, "_meta": { "a": 1 }, "structuredContent": [1] }),
        ] {
            assert!(is_good_result(&good.to_string()), "{good}");
            assert!(error::is_result(&good) && !error::says_failed(&good), "{good}");
        }
        for other in [
            json!({ "content": [], "isError": true }),
            json!({ "content": [], "code": 404 }),
            json!({ "content": [], "error": { "code": 404 } }),
            json!({ "content": {} }),
            json!({ "content": [{ "_placeholder": true, "num": 0 }] }),
            json!({ "isError": false }),
            json!(null),
        ] {
            assert!(!is_good_result(&other.to_string()), "{other}");
        }
    }

    #[test]
    fn data_that_a_reader_cannot_decode_is_not_forwarded() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(is_sound(&deep(100)) && !is_sound(&deep(102)));
        for bad in [r#""\ud800""#, "1e999", "[1,]", "{\"a\":}", "nul", "\"\u{1}\"", ""] {
            assert!(!is_sound(bad), "{bad}");
            assert!(!is_good_result(&format!(r#"{{"content":[{bad}]}}"#)) || bad.is_empty());
        }
        // A message at the depth limit is still readable inside its envelope.
        let event = format!(r#"["client:tool_call",{{"params":{}}}]"#, deep(100));
        assert!(request::event(&event, false, 4096).is_ok());
    }
}
