//! The one door through which everything comes to a session: faults are scrubbed, and secrets this process
//! knows are removed from payloads.
//!
//! It stands before the decision, so that the state in memory, the record, the snapshot and what the model
//! is told are the same. Payloads stay verbatim but for the configured secrets, which are found by exact match.

use std::borrow::Cow;

use budao_core::{
    event::{Answer, Ask, Event},
    message::Block,
    nesting,
    scrub::Scrubber,
    tool::{Failure, Outcome},
    turn::{Input, Verdict},
};
use serde_json::Value;

/// An input without what must not be kept, nor nested in more levels than can be read back.
pub(crate) fn input(input: Input, scrubber: &Scrubber, levels: usize) -> Input {
    match input {
        Input::ModelFailed { turn, step, attempt, fault } => {
            Input::ModelFailed { turn, step, attempt, fault: fault.scrubbed(scrubber) }
        }
        Input::Halted { fault } => Input::Halted { fault: fault.scrubbed(scrubber) },
        Input::CallEnded { turn, call, attempt, outcome: ended } => {
            Input::CallEnded { turn, call, attempt, outcome: outcome(ended, scrubber) }
        }
        Input::Checked { turn, verdicts } => {
            let verdicts = verdicts.into_iter().map(|(call, verdict)| match verdict {
                Verdict::Settled(ended) => (call, Verdict::Settled(outcome(ended, scrubber))),
                verdict => (call, verdict),
            });
            Input::Checked { turn, verdicts: verdicts.collect() }
        }
        Input::Noted { turn, mut event } => {
            if let Event::CallNoted { data, .. } = &mut event {
                nesting::flatten(data, levels);
            }
            Input::Noted { turn, event: event.scrubbed(scrubber) }
        }
        Input::Delta { turn, step, attempt, mut text, mut thought } => {
            exact(&mut text, scrubber);
            exact(&mut thought, scrubber);
            Input::Delta { turn, step, attempt, text, thought }
        }
        Input::Answered { turn, step, attempt, mut content, stop, usage } => {
            blocks(&mut content, scrubber);
            Input::Answered { turn, step, attempt, content, stop, usage }
        }
        Input::Command(mut command) => {
            if let Ask::Message { content } = &mut command.ask {
                blocks(content, scrubber);
            }
            Input::Command(command)
        }
        other => other,
    }
}

/// An answer without what must not be told.
pub(crate) fn answer(answer: Answer, scrubber: &Scrubber) -> Answer {
    match answer {
        Answer::Rejected { fault } => Answer::Rejected { fault: fault.scrubbed(scrubber) },
        accepted @ Answer::Accepted { .. } => accepted,
    }
}

fn outcome(outcome: Outcome, scrubber: &Scrubber) -> Outcome {
    match outcome {
        Outcome::Done(mut output) => {
            exact_json(&mut output.data, scrubber);
            Outcome::Done(output)
        }
        Outcome::Failed(Failure { fault, mut data, note }) => {
            data.iter_mut().for_each(|data| exact_json(data, scrubber));
            Outcome::Failed(Failure { fault: fault.scrubbed(scrubber), data, note })
        }
    }
}

fn blocks(content: &mut [Block], scrubber: &Scrubber) {
    for block in content {
        match block {
            Block::Text(text) => exact(text, scrubber),
            Block::ToolUse(call) => exact(&mut call.arguments, scrubber),
            // Sealed by the provider: one byte changed and it is refused.
            Block::Thinking { .. } | Block::Opaque(_) => {}
            Block::ToolResult { content, .. } => exact(content, scrubber),
            Block::Image { .. } => {}
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
