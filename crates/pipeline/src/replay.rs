//! Strict replay: feeds the inputs of a recorded history to today's decisions and names the first that differs.
//!
//! A record tells what followed from an input, so the input is derived from the records: a message from
//! `MessageAccepted`, an outcome from `ToolCallEnded`. The environment of a decision is not recorded: jitter, free slots,
//! observers and the state of gates. A decision therefore agrees if it follows in *some* environment. The state before
//! each decision is the fold of the records, so one difference does not cause others.

mod environment;
mod inputs;

use std::time::Duration;

use budao_core::{
    event::{Event, Origin, Record, Seq},
    fault::{Fact, Fault, Kind},
    limits::Limits,
    session::Session,
    tool::Outcome,
};

use self::environment::Environment;
use crate::{Input, step};

/// What a replay of one history found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replay {
    /// Records that follow from today's decisions.
    pub agreed: u64,
    /// Records that no rule decides, taken as they are: faults of hooks, a planner's invalid answer.
    pub taken: u64,
    /// The first decision that differs; `None` if there is none.
    pub difference: Option<Difference>,
}

/// A decision that differs from the recorded one.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The position of the record that differs.
    pub seq: Seq,
    /// The recorded event; `None` if the history ends here and today's decision goes on.
    pub recorded: Option<Event>,
    /// Today's event in the decision that agrees longest; `None` if no decision leads to a further event.
    pub today: Option<Event>,
}

/// Replays records that follow `session`, which is the fold of all records before them. Records that a fork copied are
/// taken as they are: their decisions are in the parent's history.
#[must_use]
pub fn replay(mut session: Session, records: &[Record], limits: &Limits) -> Replay {
    let copied = copied_records(records);
    session.apply_all(&records[..copied]);
    let mut replay = Replay { taken: copied as u64, ..Replay::default() };
    let mut rest = &records[copied..];
    while !rest.is_empty() {
        let taken = match explain(&session, rest, limits) {
            Ok(Explanation::Decided(count)) => {
                replay.agreed += count as u64;
                count
            }
            Ok(Explanation::Taken) => {
                replay.taken += 1;
                1
            }
            Err(difference) => {
                replay.difference = Some(difference);
                return replay;
            }
        };
        let (done, next) = rest.split_at(taken);
        session.apply_all(done);
        rest = next;
    }
    replay
}

/// The number of records at the beginning that a fork copied.
fn copied_records(records: &[Record]) -> usize {
    let opened = records.first().map(|record| &record.event);
    let Some(Event::SessionOpened { origin: Some(Origin::Fork { copied, .. }), .. }) = opened
    else {
        return 0;
    };
    usize::try_from(*copied).unwrap_or(usize::MAX).min(records.len())
}

enum Explanation {
    /// One decision of today leads to this many records.
    Decided(usize),
    /// No rule decides the next record.
    Taken,
}

/// Finds an input and an environment in which today's decision is the recorded one.
#[expect(clippy::result_large_err, reason = "a difference ends the replay")]
fn explain(session: &Session, rest: &[Record], limits: &Limits) -> Result<Explanation, Difference> {
    let inputs = inputs::candidates(session, rest);
    let mut best: Option<(usize, Difference)> = None;
    for environment in Environment::variants(session, rest, limits) {
        for input in &inputs {
            match compare(session, rest, input, &environment) {
                Ok(0) => {}
                Ok(count) => return Ok(Explanation::Decided(count)),
                Err((agreed, difference)) => {
                    if best.as_ref().is_none_or(|(most, _)| agreed > *most) {
                        best = Some((agreed, difference));
                    }
                }
            }
        }
    }
    if inputs::is_undecided(session, rest) {
        return Ok(Explanation::Taken);
    }
    let unexplained =
        Difference { seq: rest[0].seq, recorded: Some(rest[0].event.clone()), today: None };
    Err(best.map_or(unexplained, |(_, difference)| difference))
}

/// Compares a decision with the records. Returns how many agree, or how many agree before the first difference.
#[expect(
    clippy::result_large_err,
    reason = "a difference ends the replay, or is one of few candidates"
)]
fn compare(
    session: &Session,
    rest: &[Record],
    input: &Input,
    environment: &Environment<'_>,
) -> Result<usize, (usize, Difference)> {
    let decide = |jitter| {
        let mut session = session.clone();
        step(&mut session, input.clone(), &environment.env(&rest[0], jitter)).entries
    };
    // The delays of retries are drawn between these two.
    let (low, high) = (decide(-1.0), decide(1.0));
    for (index, entry) in low.iter().enumerate() {
        let recorded = rest.get(index);
        let top = high.get(index).map_or(&entry.event, |high| &high.event);
        let agrees = recorded
            .is_some_and(|it| it.turn == entry.turn && follows(&it.event, &entry.event, top));
        if !agrees {
            let seq = recorded.map_or(rest[0].seq + index as u64, |record| record.seq);
            let recorded = recorded.map(|record| record.event.clone());
            return Err((
                index,
                Difference { seq, recorded, today: Some(Event::clone(&entry.event)) },
            ));
        }
    }
    Ok(low.len())
}

/// Whether the recorded event is the decided one, with a delay between those of the two.
fn follows(recorded: &Event, low: &Event, high: &Event) -> bool {
    let within = |value: u64, least: u64, most: u64| (least..=most).contains(&value);
    let mut expected = low.clone();
    let is_in_time = match (recorded, &mut expected, high) {
        (
            Event::RetryScheduled { wait_ms: was, due_at: at, .. },
            Event::RetryScheduled { wait_ms, due_at, .. },
            Event::RetryScheduled { wait_ms: most, .. },
        ) => {
            let least = std::mem::replace(wait_ms, *was);
            *due_at = *at;
            within(*was, least, *most)
        }
        (
            Event::FaultRaised { fault: was, .. },
            Event::FaultRaised { fault, .. },
            Event::FaultRaised { fault: most, .. },
        ) => {
            let ms = |fault: &Fault| {
                let millis = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                fault.retry_hint().map(millis)
            };
            let (least, most) = (ms(fault), ms(most));
            match (ms(was), least, most) {
                (Some(at), Some(least), Some(most)) if within(at, least, most) => {
                    *fault = fault.clone().retry_after(Duration::from_millis(at));
                    true
                }
                _ => true,
            }
        }
        (Event::ToolCallEnded { outcome: was, .. }, Event::ToolCallEnded { outcome, .. }, _) => {
            quote_cause(was, outcome);
            true
        }
        _ => true,
    };
    is_in_time && is_same(recorded, &expected)
}

/// A repeated invalid call quotes the text of the refusal, which no record has: the recorded quotation counts.
fn quote_cause(recorded: &Outcome, expected: &mut Outcome) {
    let (Outcome::Failed(was), Outcome::Failed(failure)) = (recorded, expected) else { return };
    let is_repeated = |fault: &Fault| fault.kind() == Kind::RepeatedCallStopped;
    if let (true, true, Some(cause)) =
        (is_repeated(&was.fault), is_repeated(&failure.fault), was.fault.detail().get(Fact::Cause))
    {
        failure.fault = failure.fault.clone().with(Fact::Cause, cause.clone());
    }
}

/// Compares what would be stored: several forms of a fault's facts have the same stored form.
fn is_same(recorded: &Event, expected: &Event) -> bool {
    recorded == expected
        || Event::decode(&expected.encode()).is_ok_and(|expected| expected == *recorded)
}
