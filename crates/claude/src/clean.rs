//! What may be kept: faults scrubbed, and secrets this process knows removed from payloads by exact match. Payloads are
//! nested no deeper than a reader of the journal goes.

use budao_core::{event::Event, nesting, scrub::Scrubber, tool::Outcome};
use serde_json::Value;

/// An event without what must not be kept, its payloads nested in at most `levels` levels.
pub(crate) fn event(event: Event, scrubber: &Scrubber, levels: usize) -> Event {
    let clean = |value: &mut Value| {
        nesting::flatten(value, levels);
        scrubber.clean_json(value);
    };
    let mut event = event.scrubbed(scrubber);
    match &mut event {
        Event::TextCame { text, .. } | Event::ThoughtCame { text, .. } => scrubber.clean_text(text),
        Event::MessageAccepted { content, .. } | Event::ModelAnswered { content, .. } => {
            scrubber.clean_blocks(content);
        }
        Event::CallStarted { arguments, .. } | Event::QuestionAsked { arguments, .. } => {
            clean(arguments);
        }
        Event::QuestionAnswered { arguments: Some(arguments), .. } => clean(arguments),
        Event::CallEnded { outcome, .. } => match outcome {
            Outcome::Done(output) => clean(&mut output.data),
            Outcome::Failed(failure) => {
                failure.data.iter_mut().for_each(clean);
            }
        },
        Event::Noted { data, .. } => clean(data),
        _ => {}
    }
    event
}
