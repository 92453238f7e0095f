//! The common chunk of a chat completion, read without a tree of values: one choice that adds text or thinking.
//!
//! A chunk with anything else is left to the decoder for all forms.

use serde::{Deserialize, de::IgnoredAny};

use crate::wire::Text;

/// A chunk that only adds to the answer.
#[derive(Deserialize)]
pub(super) struct PlainChunk<'a> {
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    model: Option<Text<'a>>,
    #[serde(borrow, default)]
    object: Option<Text<'a>>,
    #[serde(borrow)]
    choices: [PlainChoice<'a>; 1],
    #[serde(default)]
    error: Option<IgnoredAny>,
    #[serde(default)]
    usage: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct PlainChoice<'a> {
    #[serde(default)]
    index: u64,
    #[serde(borrow)]
    delta: PlainDelta<'a>,
    #[serde(default)]
    finish_reason: Option<IgnoredAny>,
}

/// A delta. Any other field makes it one that is not plain.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlainDelta<'a> {
    #[serde(borrow, default)]
    content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning: Option<Text<'a>>,
    #[serde(default, rename = "role")]
    _role: IgnoredAny,
    #[serde(default)]
    refusal: Option<IgnoredAny>,
    #[serde(default)]
    tool_calls: Option<IgnoredAny>,
    #[serde(default)]
    function_call: Option<IgnoredAny>,
}

impl<'a> PlainChunk<'a> {
    /// Reads an event; `None` if the chunk is not plain.
    pub(super) fn read(data: &'a str) -> Option<Self> {
        let chunk: Self = serde_json::from_str(data).ok().filter(|_| data.starts_with('{'))?;
        let [choice] = &chunk.choices;
        let PlainDelta { refusal, tool_calls, function_call, .. } = &choice.delta;
        let others = [refusal, tool_calls, function_call, &choice.finish_reason];
        let is_failed = chunk.object.as_ref().is_some_and(|object| object.0 == "error");
        let is_plain = choice.index == 0
            && others.into_iter().chain([&chunk.error, &chunk.usage]).all(Option::is_none);
        (is_plain && !is_failed).then_some(chunk)
    }

    /// The service's name of the answer and its model's name.
    pub(super) fn names(&self) -> (Option<&str>, Option<&str>) {
        (self.id.as_ref().map(|id| &*id.0), self.model.as_ref().map(|model| &*model.0))
    }

    /// The thinking that the chunk adds; empty for none.
    pub(super) fn thought(&self) -> &str {
        let delta = &self.choices[0].delta;
        let texts = [&delta.reasoning_content, &delta.reasoning];
        let mut texts = texts.into_iter().flatten().map(|text| &*text.0);
        texts.find(|text| !text.is_empty()).unwrap_or_default()
    }

    /// The text that the chunk adds; empty for none.
    pub(super) fn text(&self) -> &str {
        self.choices[0].delta.content.as_ref().map_or("", |text| &text.0)
    }
}
