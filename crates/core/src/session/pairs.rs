//! Checks that a history is fit for a model: every tool use paired with its result, and a size estimate.

use std::{borrow::Borrow, sync::Arc};

use crate::message::{Block, CallId, Message, Role};

/// Estimated tokens of a message: those of its content, and four for its frame.
#[must_use]
pub fn estimate_tokens(message: &Message) -> u64 {
    estimate_content_tokens(&message.content) + 4
}

/// Estimated tokens of blocks: four bytes of text per token, and a fixed amount per picture.
#[must_use]
pub fn estimate_content_tokens(content: &[Block]) -> u64 {
    const IMAGE_TOKENS: usize = 1_500;
    let bytes: usize = content
        .iter()
        .map(|block| match block {
            Block::Text(text) | Block::Opaque(text) => text.len(),
            Block::Thinking { text, .. } => text.len(),
            Block::ToolUse(call) => call.name.len() + call.arguments.len() + 16,
            Block::ToolResult { content, .. } => content.len() + 16,
            Block::Image { .. } => IMAGE_TOKENS * 4,
        })
        .sum();
    (bytes as u64).div_ceil(4)
}

/// The first message, from index `from`, that holds a tool use without a result in the next message, or a result
/// without a use in the previous one.
#[must_use]
pub fn unpaired<M: Borrow<Message>>(history: &[M], from: usize) -> Option<usize> {
    (from..history.len()).find(|&index| {
        let content = content_of(&history[index]);
        let next = history.get(index + 1).map(content_of).unwrap_or_default();
        let before = index.checked_sub(1).map(|before| content_of(&history[before]));
        let orphans = index == from
            && results(content).next().is_some()
            && uses(before.unwrap_or_default()).next().is_none();
        !uses(content).eq(results(next)) || orphans
    })
}

fn content_of<M: Borrow<Message>>(message: &M) -> &[Block] {
    &message.borrow().content
}

/// The question of the turn that starts at index `first`, if a summary of the `cut` oldest messages would replace it.
#[must_use]
pub fn question(history: &[Arc<Message>], first: usize, cut: usize) -> Option<&Arc<Message>> {
    let asked = history.get(first).filter(|_| first < cut)?;
    let is_asked = asked.role == Role::User && results(&asked.content).next().is_none();
    is_asked.then_some(asked)
}

fn uses(content: &[Block]) -> impl Iterator<Item = &CallId> {
    content.iter().filter_map(|block| match block {
        Block::ToolUse(call) => Some(&call.id),
        _ => None,
    })
}

fn results(content: &[Block]) -> impl Iterator<Item = &CallId> {
    content.iter().filter_map(|block| match block {
        Block::ToolResult { call, .. } => Some(call),
        _ => None,
    })
}
