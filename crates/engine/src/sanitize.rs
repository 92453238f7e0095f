//! Sanitizes events before they are recorded: scrubs faults, removes known secrets from payloads by exact
//! match, and limits the nesting of payloads to the depth that a reader of the journal accepts.

use budao_core::{
    event::{CallStart, Event},
    message::clean_blocks,
    nesting,
    tool::Outcome,
};
use budao_scrub::Scrubber;
use serde_json::Value;

/// Scrubs an event and limits the nesting of its payloads to `levels`. For engines whose payloads come from a foreign
/// program.
#[must_use]
pub fn clean_event(event: Event, scrubber: &Scrubber, levels: usize) -> Event {
    let clean = |value: &mut Value| {
        nesting::flatten(value, levels);
        scrubber.clean_json(value);
    };
    let mut event = event.scrub(scrubber);
    match &mut event {
        Event::TextDelta { text, .. } | Event::ThinkingDelta { text, .. } => {
            scrubber.clean_text(text);
        }
        Event::MessageAccepted { content, .. } | Event::TimerFired { content, .. } => {
            clean_blocks(content, scrubber);
        }
        Event::ModelAnswered { content, response, .. } => {
            clean_blocks(content, scrubber);
            response.iter_mut().for_each(|response| response.clean(scrubber));
        }
        Event::ToolCallStarted(CallStart { arguments, .. })
        | Event::QuestionAsked { arguments, .. } => {
            clean(arguments);
        }
        Event::QuestionAnswered { arguments: Some(arguments), .. } => clean(arguments),
        Event::ToolCallEnded { outcome, .. } => match outcome {
            Outcome::Done(output) => clean(&mut output.data),
            Outcome::Failed(failure) => {
                failure.data.iter_mut().for_each(clean);
            }
        },
        Event::Annotated { data, .. } => clean(data),
        _ => {}
    }
    event
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stored_json_is_readable_whatever_its_depth() {
        let deep = (0..125).fold(json!(1), |inside, _| Value::Array(vec![inside]));
        let noted = Event::Annotated { topic: "t".into(), data: deep };
        let kept = clean_event(noted, &Scrubber::default(), 64);
        let text = serde_json::to_string(&json!({ "record": { "event": kept } })).unwrap();
        let again: Value = serde_json::from_str(&text).unwrap();
        let again: Event = serde_json::from_value(again["record"]["event"].clone()).unwrap();
        assert_eq!(again, kept);
    }
}
