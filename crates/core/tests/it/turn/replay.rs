//! Strict replay: histories follow from their own inputs, and a changed decision is named.

use std::time::Duration;

use budao_core::{
    Kind, Record,
    event::{Decision, Epoch, Event, SessionId, StopReason},
    limits::Limits,
    session::Session,
};
use budao_pipeline::replay::{Difference, Replay, replay};
use uuid::Uuid;

use crate::turn::play::{Play, ask, done, failed};

fn records(play: &Play) -> Vec<Record> {
    let entries = (1..).zip(&play.entries);
    entries
        .map(|(seq, entry)| Record {
            session: SessionId(Uuid::from_u128(7)),
            epoch: Epoch(1),
            seq,
            at: entry.at,
            trace: entry.trace,
            turn: entry.turn,
            event: Event::decode(&entry.event.encode()).unwrap(),
        })
        .collect()
}

/// The whole history of a play follows from its inputs.
pub(crate) fn agrees(play: &Play) {
    let records = records(play);
    let replayed = replay(Session::default(), &records, &play.limits);
    let whole = Replay { agreed: records.len() as u64, taken: 0, difference: None };
    assert_eq!(replayed, whole);
}

fn difference(records: &[Record], limits: &Limits) -> Difference {
    replay(Session::default(), records, limits).difference.expect("a difference")
}

/// A turn with a failed request, a question, a retried call and an answer.
fn played() -> Play {
    let mut play = Play::new();
    play.say("go");
    play.model_fails(Kind::ModelOverloaded);
    play.wait(Duration::from_secs(30));
    let calls = play.answer_calls(&[("a", "{}"), ("b", "{}")]);
    play.check_calls(vec![
        (calls[0].clone(), crate::turn::play::run(true)),
        (calls[1].clone(), ask()),
    ]);
    play.now = play.now.after(Duration::from_secs(1));
    play.end_call(&calls[0], 1, failed(Kind::ToolFailed));
    play.decide(&format!("ask_{}", calls[1]), Decision::Deny, None);
    if play.outcomes().len() < 2 {
        play.wait(Duration::from_secs(30));
        play.end_call(&calls[0], 2, done());
    }
    play.now = play.now.after(Duration::from_secs(1));
    play.delta("all ");
    play.answer_text("all done");
    play
}

#[test]
fn a_history_follows_from_its_own_inputs() {
    agrees(&played());
}

#[test]
fn a_decision_that_changed_since_is_named_with_both_events() {
    let play = played();
    // Another version of the program that allows one step only.
    let limits = Limits { steps: 1, ..play.limits.clone() };
    let records = records(&play);
    let found = difference(&records, &limits);
    let second = records
        .iter()
        .find(|record| matches!(record.event, Event::StepStarted { step: 2, .. }))
        .unwrap();
    assert_eq!(found.seq, second.seq);
    assert_eq!(found.recorded.as_ref(), Some(&second.event));
    assert!(matches!(found.today, Some(Event::RecoveryFailed { .. })), "{found:?}");
}

#[test]
fn an_event_that_no_decision_leads_to_is_named() {
    let play = played();
    let mut records = records(&play);
    let last = records.last_mut().unwrap();
    let Event::TurnEnded { stop, .. } = &mut last.event else { panic!("{last:?}") };
    *stop = StopReason::Refusal;
    let seq = last.seq;
    let found = difference(&records, &play.limits);
    assert_eq!(found.seq, seq);
    let today = found.today.unwrap();
    assert!(matches!(today, Event::TurnEnded { stop: StopReason::EndTurn, .. }), "{today:?}");
}

#[test]
fn a_delay_outside_of_the_policy_is_named() {
    let play = played();
    let mut records = records(&play);
    let retry = records.iter_mut().find_map(|record| match &mut record.event {
        Event::RetryScheduled { wait_ms, .. } => Some((record.seq, wait_ms)),
        _ => None,
    });
    let (seq, wait_ms) = retry.unwrap();
    *wait_ms += 3_600_000;
    assert_eq!(difference(&records, &play.limits).seq, seq);
}
