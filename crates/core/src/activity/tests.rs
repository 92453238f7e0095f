//! Tests of the facts and of their context.

use super::*;
use crate::{event::Event, session::SessionState};

fn seen(events: &[Event]) -> (Vec<Option<Activity<'_>>>, Option<TurnContext>) {
    let mut fold = ActivityFold::default();
    let at = |index: usize| Timestamp::from_micros(i64::try_from(index).unwrap_or(0) * 1_000);
    let facts = events.iter().enumerate().map(|(index, event)| fold.apply(event, at(index), 1));
    (facts.collect(), fold.turn())
}

fn start() -> Event {
    Event::TurnStarted { message: CommandId::from("m") }
}

fn text(step: u32) -> Event {
    Event::TextDelta { step, text: "well".to_owned() }
}

fn fault(kind: Kind) -> Event {
    Event::FaultRaised { fault: Fault::new(kind, Operation::ModelRequest), scope: Scope::default() }
}

#[test]
fn text_counts_as_shown_until_it_is_abandoned_or_answered() {
    let abandoned = Event::AnswerAbandoned { step: 1, attempt: 1 };
    let answered = Event::ModelAnswered {
        step: 1,
        content: Vec::new(),
        stop: ModelStop::EndTurn,
        usage: Usage::default(),
        response: None,
    };
    let is_streamed = |events: &[Event]| seen(events).1.map(|turn| turn.is_streamed);
    assert_eq!(is_streamed(&[start()]), Some(false));
    assert_eq!(is_streamed(&[start(), text(1)]), Some(true));
    assert_eq!(is_streamed(&[start(), text(1), abandoned.clone()]), Some(false));
    assert_eq!(is_streamed(&[start(), text(1), abandoned, text(1)]), Some(true));
    assert_eq!(is_streamed(&[start(), text(1), answered]), Some(false));
}

#[test]
fn the_context_of_a_turn_ends_with_it() {
    let end = |fault| Event::TurnEnded {
        stop: StopReason::Failed,
        fault,
        steps: 1,
        usage: Usage::default(),
    };
    let events = [start(), fault(Kind::RequestTimedOut), text(2)];
    let (facts, turn) = seen(&events);
    let turn = turn.expect("the turn is open");
    assert!(facts.iter().all(Option::is_some));
    assert_eq!((turn.step, turn.last_fault), (2, Some(Kind::RequestTimedOut)));
    assert_eq!(seen(&[start(), text(1), end(None)]).1, None);
    assert_eq!(seen(&[text(1), fault(Kind::RequestTimedOut)]).1, None, "its start was not seen");
}

#[test]
fn messages_pipelines_and_retries_are_accepted_alike() {
    let command = CommandId::from("m");
    let question = "why".to_owned();
    let events = [
        Event::MessageAccepted { command: command.clone(), content: Vec::new() },
        Event::PipelineAccepted { command: command.clone(), question, confirm: true, tasks: None },
        Event::RetryAccepted { command: command.clone(), of_turn: 3 },
    ];
    for event in &events {
        let fact = Activity::of(event);
        assert!(
            matches!(fact, Some(Activity::MessageAccepted { command: by, .. }) if *by == command),
            "{fact:?}"
        );
        let after = fact.map(|fact| SessionState::Closed.after(&fact, false));
        assert_eq!(after, Some(SessionState::Running));
    }
}

#[test]
fn bookkeeping_is_no_fact() {
    assert!(Activity::of(&Event::RequestReleased { step: 1, waited_ms: 5 }).is_none());
    assert!(Activity::of(&Event::PatienceChanged { patience_ms: 5 }).is_none());
}
