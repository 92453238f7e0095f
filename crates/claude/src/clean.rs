//! What may be kept: faults scrubbed, and secrets this process knows removed from payloads by exact match.

use budao_core::{event::Event, scrub::Scrubber, tool::Outcome};

/// An event without what must not be kept.
pub(crate) fn event(event: Event, scrubber: &Scrubber) -> Event {
    let mut event = event.scrubbed(scrubber);
    match &mut event {
        Event::TextCame { text, .. } | Event::ThoughtCame { text, .. } => scrubber.clean_text(text),
        Event::MessageAccepted { content, .. } | Event::ModelAnswered { content, .. } => {
            scrubber.clean_blocks(content);
        }
        Event::CallStarted { arguments, .. } | Event::QuestionAsked { arguments, .. } => {
            scrubber.clean_json(arguments);
        }
        Event::QuestionAnswered { arguments: Some(arguments), .. } => {
            scrubber.clean_json(arguments);
        }
        Event::CallEnded { outcome, .. } => match outcome {
            Outcome::Done(output) => scrubber.clean_json(&mut output.data),
            Outcome::Failed(failure) => {
                failure.data.iter_mut().for_each(|data| scrubber.clean_json(data));
            }
        },
        Event::Noted { data, .. } => scrubber.clean_json(data),
        _ => {}
    }
    event
}
