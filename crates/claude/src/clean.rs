//! What may be kept: faults scrubbed, and secrets this process knows removed from payloads by exact match.

use std::borrow::Cow;

use budao_core::{event::Event, message::Block, scrub::Scrubber, tool::Outcome};
use serde_json::Value;

/// An event without what must not be kept.
pub(crate) fn event(event: Event, scrubber: &Scrubber) -> Event {
    let mut event = event.scrubbed(scrubber);
    match &mut event {
        Event::TextCame { text, .. } | Event::ThoughtCame { text, .. } => exact(text, scrubber),
        Event::MessageAccepted { content, .. } | Event::ModelAnswered { content, .. } => {
            blocks(content, scrubber);
        }
        Event::CallStarted { arguments, .. } | Event::QuestionAsked { arguments, .. } => {
            exact_json(arguments, scrubber);
        }
        Event::QuestionAnswered { arguments: Some(arguments), .. } => {
            exact_json(arguments, scrubber);
        }
        Event::CallEnded { outcome, .. } => match outcome {
            Outcome::Done(output) => exact_json(&mut output.data, scrubber),
            Outcome::Failed(failure) => {
                failure.data.iter_mut().for_each(|data| exact_json(data, scrubber));
            }
        },
        Event::Noted { data, .. } => exact_json(data, scrubber),
        _ => {}
    }
    event
}

fn blocks(content: &mut [Block], scrubber: &Scrubber) {
    for block in content {
        match block {
            Block::Text(text) | Block::ToolResult { content: text, .. } => exact(text, scrubber),
            Block::ToolUse(call) => exact(&mut call.arguments, scrubber),
            Block::Thinking { .. } | Block::Opaque(_) | Block::Image { .. } => {}
        }
    }
}

fn exact(text: &mut String, scrubber: &Scrubber) {
    if let Cow::Owned(clean) = scrubber.scrub_exact(text) {
        *text = clean;
    }
}

fn exact_json(value: &mut Value, scrubber: &Scrubber) {
    match value {
        Value::String(text) => exact(text, scrubber),
        Value::Array(items) => items.iter_mut().for_each(|item| exact_json(item, scrubber)),
        Value::Object(map) => map.values_mut().for_each(|value| exact_json(value, scrubber)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
