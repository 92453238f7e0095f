//! The common chunk of a Gemini answer, read without a tree of values: one candidate with one unsigned text.
//!
//! A chunk with anything else is left to the decoder for all forms.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use crate::wire::Text;

/// A chunk that only adds a text or thinking.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlainChunk<'a> {
    #[serde(borrow, default)]
    response_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    model_version: Option<Text<'a>>,
    #[serde(borrow)]
    candidates: [PlainCandidate<'a>; 1],
    #[serde(default)]
    pub(super) usage_metadata: Option<TokenCounts>,
    #[serde(default)]
    prompt_feedback: Option<IgnoredAny>,
    #[serde(default)]
    error: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlainCandidate<'a> {
    #[serde(borrow)]
    content: PlainContent<'a>,
    #[serde(default)]
    finish_reason: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct PlainContent<'a> {
    #[serde(borrow)]
    parts: [PlainPart<'a>; 1],
}

/// A part. Any other field, such as a signature, makes it one that is not plain.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainPart<'a> {
    #[serde(borrow)]
    text: Text<'a>,
    #[serde(default)]
    thought: bool,
}

/// The counts of tokens so far. Thinking is output, and the service counts it apart.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TokenCounts {
    pub(super) prompt_token_count: Option<u64>,
    pub(super) candidates_token_count: Option<u64>,
    pub(super) thoughts_token_count: Option<u64>,
    pub(super) cached_content_token_count: Option<u64>,
}

impl TokenCounts {
    /// Reads the counts that are numbers.
    pub(super) fn of(usage: &Value) -> Self {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64);
        Self {
            prompt_token_count: count("promptTokenCount"),
            candidates_token_count: count("candidatesTokenCount"),
            thoughts_token_count: count("thoughtsTokenCount"),
            cached_content_token_count: count("cachedContentTokenCount"),
        }
    }
}

impl<'a> PlainChunk<'a> {
    /// Reads an event; `None` if the chunk is not plain.
    pub(super) fn read(data: &'a str) -> Option<Self> {
        let chunk: Self = serde_json::from_str(data).ok().filter(|_| data.starts_with('{'))?;
        let others = [&chunk.prompt_feedback, &chunk.error, &chunk.candidates[0].finish_reason];
        let is_plain = others.into_iter().all(Option::is_none);
        is_plain.then_some(chunk)
    }

    /// The service's name of the answer and its model's name.
    pub(super) fn names(&self) -> (Option<&str>, Option<&str>) {
        let Self { response_id, model_version, .. } = self;
        (response_id.as_ref().map(|id| &*id.0), model_version.as_ref().map(|model| &*model.0))
    }

    /// The text that the chunk adds, and whether it is thinking.
    pub(super) fn text(&self) -> (&str, bool) {
        let [part] = &self.candidates[0].content.parts;
        (&part.text.0, part.thought)
    }
}
