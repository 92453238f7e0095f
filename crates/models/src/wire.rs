//! Shared by all wire formats: makes names and arguments from the history safe to send.
//!
//! A model may have called `fs.read` with arguments that are not JSON. The history keeps that call, and a service
//! that refuses it would fail every later turn.

use std::borrow::Cow;

use budao_core::message::CallId;
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use sha2::{Digest, Sha256};

/// A text of an event, borrowed unless it has escapes.
#[derive(Deserialize)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// The key that holds arguments which are not a JSON object, so that the model can read them.
pub(crate) const MALFORMED: &str = "_malformed_arguments";

/// The longest name or id that the services accept, in characters.
const NAME_CHARS: usize = 64;

/// The arguments as an object: unchanged if they are one, otherwise `{"_malformed_arguments": "…"}`.
pub(crate) fn safe_arguments(arguments: &str) -> Box<RawValue> {
    let text = arguments.trim();
    if text.starts_with('{')
        && let Ok(raw) = RawValue::from_string(text.to_owned())
    {
        return raw;
    }
    let kept = if text.is_empty() { json!({}) } else { json!({ MALFORMED: arguments }) };
    RawValue::from_string(kept.to_string()).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// A tool name or call id, restricted to the characters that every service accepts.
pub(crate) fn safe_name(name: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= NAME_CHARS && name.chars().all(fits) {
        return Cow::Borrowed(name);
    }
    let name: String =
        name.chars().map(|c| if fits(c) { c } else { '_' }).take(NAME_CHARS).collect();
    if name.is_empty() { Cow::Borrowed("unknown") } else { Cow::Owned(name) }
}

/// A call id that every service accepts. Ids that differ stay different: a changed one ends with a part of its hash.
pub(crate) fn safe_id(id: &CallId) -> Cow<'_, str> {
    let safe = safe_name(&id.0);
    if *safe == *id.0 {
        return Cow::Borrowed(&id.0);
    }
    let hash = Sha256::digest(id.0.as_bytes());
    let hash = hash.iter().take(8).fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let kept: String = safe.chars().take(NAME_CHARS - hash.len() - 1).collect();
    Cow::Owned(format!("{kept}_{hash}"))
}

/// The service whose own JSON an opaque block holds. No other service receives the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpaqueOwner {
    Anthropic,
    OpenAi,
    Gemini,
}

impl OpaqueOwner {
    /// Decides by the `type` of the block. Types that are not listed here are Anthropic's.
    pub(crate) fn of(json: &str) -> Self {
        #[derive(Deserialize)]
        struct Typed<'a> {
            #[serde(rename = "type", borrow, default)]
            kind: Cow<'a, str>,
        }
        let kind = serde_json::from_str::<Typed<'_>>(json).map(|typed| typed.kind);
        match kind.as_deref() {
            Ok(REASONING | PHASE) => Self::OpenAi,
            Ok(SIGNATURE) => Self::Gemini,
            _ => Self::Anthropic,
        }
    }
}

/// The `type` of OpenAI's reasoning items.
pub(crate) const REASONING: &str = "reasoning";
/// The `type` under which the `phase` of the next text of an OpenAI answer is kept.
pub(crate) const PHASE: &str = "openai_phase";
/// The `type` under which Gemini's signature of the next part is kept.
pub(crate) const SIGNATURE: &str = "gemini_signature";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_object_is_sent_as_it_came() {
        assert_eq!(safe_arguments(r#"{"b":1.0, "a":[]}"#).get(), r#"{"b":1.0, "a":[]}"#);
        assert_eq!(safe_arguments("").get(), "{}");
    }

    #[test]
    fn arguments_that_are_no_object_are_kept_as_text() {
        for text in ["{\"path\": \"a", "[1]", "null", "\"x\""] {
            let kept: serde_json::Value = serde_json::from_str(safe_arguments(text).get()).unwrap();
            assert_eq!(kept, json!({ MALFORMED: text }));
        }
    }

    proptest! {
        #[test]
        fn every_name_becomes_one_that_services_take(name: String) {
            let safe = safe_name(&name);
            prop_assert!(!safe.is_empty() && safe.len() <= NAME_CHARS);
            prop_assert!(safe.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)));
            prop_assert_eq!(safe_name(&safe), safe.clone());
        }

        #[test]
        fn ids_that_differ_stay_different(one in "[a-c:. ]{0,70}", other in "[a-c:. ]{0,70}") {
            let (one, other) = (CallId::from(one.as_str()), CallId::from(other.as_str()));
            prop_assert_eq!(safe_id(&one) == safe_id(&other), one == other);
            prop_assert!(safe_id(&one).len() <= NAME_CHARS);
        }

        #[test]
        fn all_arguments_become_an_object(text: String) {
            let value: serde_json::Value = serde_json::from_str(safe_arguments(&text).get()).unwrap();
            prop_assert!(value.is_object());
        }
    }
}
