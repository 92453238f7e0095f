//! Sanitizes every input of a session: scrubs faults and removes known secrets from payloads.
//!
//! It runs before the decision, so that state, record, snapshot and model see the same text. Payloads stay
//! verbatim apart from the configured secrets, which are found by exact match.

use budao_core::{
    elicitation::Elicitation,
    event::{Answer, CommandBody, Event, Settlement},
    message::clean_blocks,
    nesting,
    remote::WorkerReport,
    tool::{Failure, Outcome, ReconcileResult},
    turn::{CallVerdict, Input as TurnInput},
};
use budao_pipeline::Input;
use budao_scrub::Scrubber;

/// Scrubs an input and limits its nesting to `levels`, the depth that can be read back.
pub(crate) fn clean_input(input: Input, scrubber: &Scrubber, levels: usize) -> Input {
    match input {
        Input::Turn(input) => Input::Turn(clean_turn_input(input, scrubber, levels)),
        // The end of a child is read from the child's records, which are scrubbed.
        Input::StageOpened { .. } | Input::StageEnded { .. } => input,
    }
}

fn clean_turn_input(input: TurnInput, scrubber: &Scrubber, levels: usize) -> TurnInput {
    match input {
        TurnInput::ModelFailed { turn, step, attempt, fault } => {
            TurnInput::ModelFailed { turn, step, attempt, fault: fault.scrub(scrubber) }
        }
        TurnInput::RequestHeld { turn, step, attempt, mut hold } => {
            hold.fault = hold.fault.take().map(|fault| fault.scrub(scrubber));
            TurnInput::RequestHeld { turn, step, attempt, hold }
        }
        TurnInput::CompactionFailed { turn, fault } => {
            TurnInput::CompactionFailed { turn, fault: fault.scrub(scrubber) }
        }
        TurnInput::Aborted { fault } => TurnInput::Aborted { fault: fault.scrub(scrubber) },
        TurnInput::ToolCallEnded { turn, call, attempt, outcome: ended } => {
            TurnInput::ToolCallEnded {
                turn,
                call,
                attempt,
                outcome: clean_outcome(ended, scrubber, levels),
            }
        }
        TurnInput::InputNeeded { turn, call, attempt, elicitation, digest } => {
            let mut shown = elicitation.to_arguments();
            scrubber.clean_json(&mut shown);
            let elicitation = Elicitation::of_arguments(&shown).map_or(elicitation, Box::new);
            TurnInput::InputNeeded { turn, call, attempt, elicitation, digest }
        }
        TurnInput::CallReconciled { turn, call, attempt, answer } => {
            let answer = clean_reconciliation(answer, scrubber, levels);
            TurnInput::CallReconciled { turn, call, attempt, answer }
        }
        TurnInput::CallsChecked { turn, verdicts } => {
            let verdicts = verdicts.into_iter().map(|(call, verdict)| match verdict {
                CallVerdict::Settled(ended) => {
                    (call, CallVerdict::Settled(clean_outcome(ended, scrubber, levels)))
                }
                verdict => (call, verdict),
            });
            TurnInput::CallsChecked { turn, verdicts: verdicts.collect() }
        }
        TurnInput::RecordOnly { turn, mut event } => {
            if let Event::ToolCallAnnotated { data, .. } = &mut event {
                nesting::flatten(data, levels);
            }
            TurnInput::RecordOnly { turn, event: event.scrub(scrubber) }
        }
        TurnInput::Delta { turn, step, attempt, mut text, mut thought } => {
            scrubber.clean_text(&mut text);
            scrubber.clean_text(&mut thought);
            TurnInput::Delta { turn, step, attempt, text, thought }
        }
        TurnInput::ModelAnswered {
            turn,
            step,
            attempt,
            mut content,
            stop,
            usage,
            mut response,
        } => {
            clean_blocks(&mut content, scrubber);
            response.iter_mut().for_each(|response| response.clean(scrubber));
            TurnInput::ModelAnswered { turn, step, attempt, content, stop, usage, response }
        }
        TurnInput::AnswerRejected { turn, step, attempt, mut content, usage, fault } => {
            clean_blocks(&mut content, scrubber);
            let fault = fault.scrub(scrubber);
            TurnInput::AnswerRejected { turn, step, attempt, content, usage, fault }
        }
        TurnInput::Command(mut command) => {
            match &mut command.body {
                CommandBody::Message { content } => clean_blocks(content, scrubber),
                CommandBody::SetTimer { message, .. } => scrubber.clean_text(message),
                CommandBody::SettleDoubt { settlement, note, .. } => {
                    if let Settlement::Happened { result } = settlement {
                        scrubber.clean_json(result);
                    }
                    note.iter_mut().for_each(|note| scrubber.clean_text(note));
                }
                CommandBody::ReportCall { report, .. } => {
                    clean_worker_report(report, scrubber, levels);
                }
                _ => {}
            }
            TurnInput::Command(command)
        }
        other => other,
    }
}

/// Scrubs the report of a worker. The text of its foreign error is scrubbed like the cause of a fault.
fn clean_worker_report(report: &mut WorkerReport, scrubber: &Scrubber, levels: usize) {
    match report {
        WorkerReport::Done { result } => {
            nesting::flatten(result, levels);
            scrubber.clean_json(result);
        }
        WorkerReport::Failed(error) => {
            let texts = error.message.iter_mut().chain(&mut error.advice);
            texts.for_each(|text| scrubber.clean_text(text));
            error.detail = error.detail.take().map(|text| scrubber.scrub(&text).into_owned());
            error.data.iter_mut().for_each(|data| {
                nesting::flatten(data, levels);
                scrubber.clean_json(data);
            });
        }
        WorkerReport::Lost => {}
    }
}

/// Scrubs the fault of a rejection.
pub(crate) fn clean_answer(answer: Answer, scrubber: &Scrubber) -> Answer {
    match answer {
        Answer::Rejected { fault } => Answer::Rejected { fault: fault.scrub(scrubber) },
        accepted @ Answer::Accepted { .. } => accepted,
    }
}

fn clean_reconciliation(
    answer: ReconcileResult,
    scrubber: &Scrubber,
    levels: usize,
) -> ReconcileResult {
    match answer {
        ReconcileResult::Happened(mut output) => {
            nesting::flatten(&mut output.data, levels);
            scrubber.clean_json(&mut output.data);
            ReconcileResult::Happened(output)
        }
        ReconcileResult::Failed(fault) => ReconcileResult::Failed(fault.scrub(scrubber)),
        known @ (ReconcileResult::DidNotHappen
        | ReconcileResult::StillRuns
        | ReconcileResult::CannotTell) => known,
    }
}

fn clean_outcome(outcome: Outcome, scrubber: &Scrubber, levels: usize) -> Outcome {
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
