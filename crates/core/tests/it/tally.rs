//! The fault counts that every list, page and report shows.

use std::time::Duration;

use budao_core::{
    Event, Fault, Kind, Timestamp,
    event::{Scope, StopReason},
    fault::Operation,
    message::{CallId, Usage},
    tally::{FaultCounts, FaultTally},
    tool::{Outcome, Output},
};

fn fault(kind: Kind) -> Fault {
    Fault::new(kind, Operation::ModelRequest)
}

fn raised(kind: Kind) -> Event {
    Event::FaultRaised { fault: fault(kind), scope: Scope::default() }
}

fn retry(kind: Kind) -> Event {
    Event::RetryScheduled {
        operation: Operation::ModelRequest,
        kind,
        attempt: 1,
        next_attempt: 2,
        max_attempts: 3,
        wait_ms: 1_000,
        due_at: Timestamp::default(),
        scope: Scope::default(),
    }
}

fn recovered(kind: Kind) -> Event {
    Event::Recovered {
        operation: Operation::ModelRequest,
        kind,
        attempts: 2,
        elapsed_ms: 1_000,
        scope: Scope::default(),
    }
}

fn not_recovered(kind: Kind) -> Event {
    Event::RecoveryFailed { fault: fault(kind), scope: Scope::default() }
}

fn call(id: &str, outcome: Outcome) -> Event {
    let call = CallId(id.into());
    Event::ToolCallEnded { call, tool: "fs_read".into(), outcome, duration_ms: 1 }
}

fn ended(failed: Option<Kind>) -> Event {
    let stop = if failed.is_some() { StopReason::Failed } else { StopReason::EndTurn };
    Event::TurnEnded { stop, fault: failed.map(fault), steps: 1, usage: Usage::default() }
}

fn started() -> Event {
    Event::TurnStarted { message: "m".into() }
}

fn counts(events: impl IntoIterator<Item = Event>) -> [u64; 3] {
    let mut tally = FaultTally::default();
    let mut at = Timestamp::from_micros(1_794_729_600_000_000);
    for event in events {
        at = at.after(Duration::from_millis(10));
        tally.apply(&event, at, &mut ());
        // What is stored between two records continues as if it had never been stored.
        let stored = serde_json::to_string(&tally).unwrap();
        assert_eq!(serde_json::from_str::<FaultTally>(&stored).unwrap(), tally, "{stored}");
    }
    let FaultCounts { faults, recovered, not_recovered } = tally.counts();
    [faults, recovered, not_recovered]
}

#[test]
fn each_failed_attempt_is_one_fault_and_a_retry_that_succeeds_recovers_all_of_them() {
    let kind = Kind::ModelOverloaded;
    let events = [
        started(),
        raised(kind),
        retry(kind),
        raised(Kind::ConnectionLost),
        retry(Kind::ConnectionLost),
        recovered(Kind::ConnectionLost),
        ended(None),
    ];
    assert_eq!(counts(events), [2, 2, 0]);
}

#[test]
fn a_fault_that_ends_its_turn_is_counted_once_though_three_records_carry_it() {
    let kind = Kind::ModelOverloaded;
    assert_eq!(
        counts([started(), raised(kind), not_recovered(kind), ended(Some(kind))]),
        [1, 0, 1]
    );
    assert_eq!(counts([started(), raised(kind), ended(Some(kind))]), [1, 0, 1]);
    assert_eq!(counts([started(), ended(Some(kind))]), [1, 0, 1]);
}

#[test]
fn a_call_that_succeeds_recovers_the_earlier_failures_of_its_tool_in_the_turn() {
    let failed = || Outcome::from(Fault::new(Kind::InvalidArguments, Operation::ToolCall));
    let done = || Outcome::Done(Output::default());
    let events = [started(), call("a", failed()), call("b", failed()), call("c", done())];
    assert_eq!(counts(events), [2, 2, 0]);
    let next_turn = [started(), call("a", failed()), ended(None), started(), call("b", done())];
    assert_eq!(counts(next_turn), [1, 0, 0]);
}

#[test]
fn a_fault_that_the_turn_goes_on_without_is_neither_recovered_nor_not_recovered() {
    assert_eq!(counts([started(), raised(Kind::GuardFailed), ended(None)]), [1, 0, 0]);
}

#[test]
fn more_faults_than_are_tracked_are_still_counted() {
    let kind = Kind::ModelOverloaded;
    let many = std::iter::once(started()).chain((0..1_000).map(|_| raised(kind)));
    assert_eq!(counts(many.chain([ended(Some(kind))])), [1_000, 0, 256]);
}
