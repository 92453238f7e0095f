//! Sanitizes every input of a session: scrubs faults and removes known secrets from payloads.
//!
//! It runs before the decision, so that state, record, snapshot and model see the same text. Payloads stay
//! verbatim apart from the configured secrets, which are found by exact match.

use budao_core::{
    event::{Answer, CommandBody, Event, Settlement},
    message::clean_blocks,
    nesting,
    tool::{Failure, Outcome, ReconcileResult},
    turn::{CallVerdict, Input},
};
use budao_scrub::Scrubber;

/// Scrubs an input and limits its nesting to `levels`, the depth that can be read back.
pub(crate) fn input(input: Input, scrubber: &Scrubber, levels: usize) -> Input {
    match input {
        Input::ModelFailed { turn, step, attempt, fault } => {
            Input::ModelFailed { turn, step, attempt, fault: fault.scrub(scrubber) }
        }
        Input::RequestHeld { turn, step, attempt, mut hold } => {
            hold.fault = hold.fault.take().map(|fault| fault.scrub(scrubber));
            Input::RequestHeld { turn, step, attempt, hold }
        }
        Input::Aborted { fault } => Input::Aborted { fault: fault.scrub(scrubber) },
        Input::ToolCallEnded { turn, call, attempt, outcome: ended } => {
            Input::ToolCallEnded { turn, call, attempt, outcome: outcome(ended, scrubber, levels) }
        }
        Input::CallReconciled { turn, call, attempt, answer } => {
            let answer = reconciled(answer, scrubber, levels);
            Input::CallReconciled { turn, call, attempt, answer }
        }
        Input::CallsChecked { turn, verdicts } => {
            let verdicts = verdicts.into_iter().map(|(call, verdict)| match verdict {
                CallVerdict::Settled(ended) => {
                    (call, CallVerdict::Settled(outcome(ended, scrubber, levels)))
                }
                verdict => (call, verdict),
            });
            Input::CallsChecked { turn, verdicts: verdicts.collect() }
        }
        Input::RecordOnly { turn, mut event } => {
            if let Event::ToolCallAnnotated { data, .. } = &mut event {
                nesting::flatten(data, levels);
            }
            Input::RecordOnly { turn, event: event.scrub(scrubber) }
        }
        Input::Delta { turn, step, attempt, mut text, mut thought } => {
            scrubber.clean_text(&mut text);
            scrubber.clean_text(&mut thought);
            Input::Delta { turn, step, attempt, text, thought }
        }
        Input::ModelAnswered { turn, step, attempt, mut content, stop, usage } => {
            clean_blocks(&mut content, scrubber);
            Input::ModelAnswered { turn, step, attempt, content, stop, usage }
        }
        Input::Command(mut command) => {
            match &mut command.body {
                CommandBody::Message { content } => clean_blocks(content, scrubber),
                CommandBody::SettleDoubt { settlement, note, .. } => {
                    if let Settlement::Happened { result } = settlement {
                        scrubber.clean_json(result);
                    }
                    note.iter_mut().for_each(|note| scrubber.clean_text(note));
                }
                _ => {}
            }
            Input::Command(command)
        }
        other => other,
    }
}

/// Scrubs the fault of a rejection.
pub(crate) fn answer(answer: Answer, scrubber: &Scrubber) -> Answer {
    match answer {
        Answer::Rejected { fault } => Answer::Rejected { fault: fault.scrub(scrubber) },
        accepted @ Answer::Accepted { .. } => accepted,
    }
}

fn reconciled(answer: ReconcileResult, scrubber: &Scrubber, levels: usize) -> ReconcileResult {
    match answer {
        ReconcileResult::Happened(mut output) => {
            nesting::flatten(&mut output.data, levels);
            scrubber.clean_json(&mut output.data);
            ReconcileResult::Happened(output)
        }
        ReconcileResult::Failed(fault) => ReconcileResult::Failed(fault.scrub(scrubber)),
        known @ (ReconcileResult::DidNotHappen | ReconcileResult::CannotTell) => known,
    }
}

fn outcome(outcome: Outcome, scrubber: &Scrubber, levels: usize) -> Outcome {
    match outcome {
        Outcome::Done(mut output) => {
            nesting::flatten(&mut output.data, levels);
            scrubber.clean_json(&mut output.data);
            Outcome::Done(output)
        }
        Outcome::Failed(Failure { fault, mut data, note }) => {
            data.iter_mut().for_each(|data| {
                nesting::flatten(data, levels);
                scrubber.clean_json(data);
            });
            Outcome::Failed(Failure { fault: fault.scrub(scrubber), data, note })
        }
    }
}
