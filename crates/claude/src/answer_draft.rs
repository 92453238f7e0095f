//! One answer of the model while it arrives: its streamed pieces, its complete blocks, its void parts.
//!
//! The CLI sends every block twice: as pieces of a stream, then complete. After a broken stream only the
//! complete block arrives. The draft therefore shows each piece on arrival, and of a complete block only the
//! part that was not shown.

use budao_core::message::{Block, ModelStop, ToolUse, Usage};
use serde_json::Value;

use crate::wire;

/// An answer that is not complete yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnswerDraft {
    /// The provider's message id; `None` until the CLI reports it.
    pub(crate) message: Option<String>,
    /// True while the answer's stream is open.
    pub(crate) streaming: bool,
    /// Text shown so far, one entry per block of the stream.
    shown: Vec<ShownBlock>,
    /// Number of entries in `shown` whose complete block has arrived.
    matched: usize,
    /// Complete blocks, in order of arrival.
    blocks: Vec<Block>,
    stop: Option<String>,
    usage: wire::Usage,
}

#[derive(Clone, Debug, Default)]
struct ShownBlock {
    index: usize,
    is_thought: bool,
    text: String,
}

/// The part of complete blocks that was not shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnseenText {
    pub(crate) text: String,
    pub(crate) thought: String,
}

impl AnswerDraft {
    pub(crate) fn streamed(head: &wire::MessageHead) -> Self {
        Self { message: head.id.clone(), streaming: true, usage: head.usage, ..Self::default() }
    }

    pub(crate) fn unstreamed(head: &wire::MessageHead) -> Self {
        Self { message: head.id.clone(), ..Self::default() }
    }

    /// Notes that a piece was shown.
    pub(crate) fn piece(&mut self, index: usize, is_thought: bool, text: &str) {
        match self.shown.last_mut() {
            Some(last) if last.index == index && last.is_thought == is_thought => {
                last.text.push_str(text);
            }
            _ => self.shown.push(ShownBlock { index, is_thought, text: text.to_owned() }),
        }
    }

    /// Takes the stop reason and the usage. Usage reports repeat, so the larger numbers count.
    pub(crate) fn ends(&mut self, stop: Option<&str>, usage: wire::Usage) {
        if let Some(stop) = stop {
            self.stop = Some(stop.to_owned());
        }
        let larger = |now: &mut u64, then: u64| *now = (*now).max(then);
        larger(&mut self.usage.input_tokens, usage.input_tokens);
        larger(&mut self.usage.output_tokens, usage.output_tokens);
        larger(&mut self.usage.cache_read_input_tokens, usage.cache_read_input_tokens);
        larger(&mut self.usage.cache_creation_input_tokens, usage.cache_creation_input_tokens);
    }

    /// Takes complete blocks and returns the part of them that was not shown.
    pub(crate) fn take(&mut self, head: &wire::MessageHead) -> UnseenText {
        let mut unseen = UnseenText::default();
        for value in &head.content {
            let block = block(value);
            match &block {
                Block::Text(text) => unseen.text.push_str(self.take_unseen(false, text)),
                Block::Thinking { text, .. } => {
                    unseen.thought.push_str(self.take_unseen(true, text));
                }
                _ => {}
            }
            self.blocks.push(block);
        }
        self.ends(head.stop_reason.as_deref(), head.usage);
        unseen
    }

    /// Returns the part of a complete text that follows its shown part.
    fn take_unseen<'a>(&mut self, is_thought: bool, whole: &'a str) -> &'a str {
        let rest = &self.shown[self.matched..];
        let found = rest.iter().position(|shown| {
            shown.is_thought == is_thought
                && !shown.text.is_empty()
                && whole.starts_with(&shown.text)
        });
        match found {
            Some(at) => {
                let seen = rest[at].text.len();
                self.matched += at + 1;
                &whole[seen..]
            }
            None => whole,
        }
    }

    /// Was any text or thinking shown?
    pub(crate) fn was_shown(&self) -> bool {
        self.shown.iter().any(|shown| !shown.text.is_empty())
    }

    /// Does the answer request this call? The id is the CLI's.
    pub(crate) fn asks_for(&self, tool_use_id: &str) -> bool {
        self.tool_uses().any(|id| id == tool_use_id)
    }

    /// The CLI's ids of the requested calls, in order.
    pub(crate) fn tool_uses(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().filter_map(|block| match block {
            Block::ToolUse(call) => Some(&*call.id.0),
            _ => None,
        })
    }

    /// Removes the blocks from index `first` on. Returns true if some of their text was shown.
    pub(crate) fn abandon_from(&mut self, first: usize) -> bool {
        let void = self.shown.iter().any(|shown| shown.index >= first && !shown.text.is_empty());
        self.shown.retain(|shown| shown.index < first);
        self.matched = self.matched.min(self.shown.len());
        self.blocks.truncate(first);
        void
    }

    /// Is there neither a complete block nor shown text?
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && !self.was_shown()
    }

    /// All shown text that is still valid.
    pub(crate) fn shown_text(&self) -> UnseenText {
        let of = |is_thought: bool| {
            let parts = self.shown.iter().filter(|shown| shown.is_thought == is_thought);
            parts.map(|shown| shown.text.as_str()).collect()
        };
        UnseenText { text: of(false), thought: of(true) }
    }

    /// Returns the answer to record: complete blocks, then shown text whose complete block never arrived.
    pub(crate) fn finish(self) -> (Vec<Block>, ModelStop, Usage) {
        let mut content = self.blocks;
        for shown in self.shown.into_iter().skip(self.matched) {
            content.push(match shown.is_thought {
                true => Block::Thinking { text: shown.text, signature: None },
                false => Block::Text(shown.text),
            });
        }
        content.retain(|block| !matches!(block, Block::Text(text) if text.is_empty()));
        let calls = content.iter().any(|block| matches!(block, Block::ToolUse(_)));
        let stop = match self.stop.as_deref() {
            Some("end_turn") => ModelStop::EndTurn,
            Some("tool_use") => ModelStop::ToolUse,
            Some("max_tokens") => ModelStop::MaxTokens,
            Some("refusal") => ModelStop::Refusal,
            None if calls => ModelStop::ToolUse,
            _ => ModelStop::Other,
        };
        (content, stop, tokens(self.usage))
    }
}

/// Converts token counts: the provider excludes cached input from `input_tokens`, Budao includes it.
pub(crate) fn tokens(usage: wire::Usage) -> Usage {
    let cached = usage.cache_read_input_tokens;
    let written = usage.cache_creation_input_tokens;
    Usage {
        input_tokens: usage.input_tokens.saturating_add(cached).saturating_add(written),
        output_tokens: usage.output_tokens,
        cached_tokens: cached,
        cache_write_tokens: written,
        ..Usage::default()
    }
}

/// Converts a block of the provider.
fn block(value: &Value) -> Block {
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    match value["type"].as_str() {
        Some("text") => Block::Text(text("text").unwrap_or_default()),
        Some("thinking") => Block::Thinking {
            text: text("thinking").unwrap_or_default(),
            signature: text("signature"),
        },
        Some("tool_use") => Block::ToolUse(ToolUse {
            id: text("id").unwrap_or_default().as_str().into(),
            name: text("name").unwrap_or_default(),
            arguments: value["input"].to_string(),
        }),
        _ => Block::Opaque(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn head(content: &Value) -> wire::MessageHead {
        serde_json::from_value(json!({"id": "m", "content": content})).unwrap()
    }

    #[test]
    fn of_a_whole_block_only_the_rest_is_new() {
        let mut draft = AnswerDraft::streamed(&head(&json!([])));
        draft.piece(0, true, "hm");
        draft.piece(1, false, "hello ");
        let thought = draft.take(&head(&json!([{"type": "thinking", "thinking": "hm"}])));
        assert_eq!(thought, UnseenText::default());
        let text = draft.take(&head(&json!([{"type": "text", "text": "hello world"}])));
        assert_eq!(text.text, "world");
        let (content, ..) = draft.finish();
        assert_eq!(content.len(), 2);
        assert_eq!(content[1], Block::Text("hello world".into()));
    }

    #[test]
    fn shown_text_without_a_complete_message_is_kept() {
        let mut draft = AnswerDraft::streamed(&head(&json!([])));
        draft.piece(0, false, "half");
        let (content, stop, _) = draft.finish();
        assert_eq!((content, stop), (vec![Block::Text("half".into())], ModelStop::Other));
    }

    #[test]
    fn a_block_that_was_never_streamed_is_new_from_its_beginning() {
        let mut draft = AnswerDraft::unstreamed(&head(&json!([])));
        let unseen = draft.take(&head(&json!([{"type": "text", "text": "whole answer"}])));
        assert_eq!(unseen.text, "whole answer");
    }

    #[test]
    fn abandoned_blocks_are_removed_and_shown_ones_are_voided() {
        let mut draft = AnswerDraft::streamed(&head(&json!([])));
        draft.piece(0, false, "kept");
        draft.take(&head(&json!([{"type": "text", "text": "kept"}])));
        assert!(!draft.abandon_from(1), "nothing of block 1 was shown");
        draft.piece(1, false, "lost");
        assert!(draft.abandon_from(1));
        assert_eq!(draft.finish().0, vec![Block::Text("kept".into())]);
    }
}
