//! Pipelines at the ends of a session: closed before they began, failed, and begun again by a new writer.

use budao_core::{
    Fault, Kind, Lang,
    event::{Answer, CommandBody, Event, SessionEnd, StopReason},
    fault::{Operation, text},
    message::Block,
    session::SessionState,
    turn,
};

use crate::play::{Play, answer_model, name};

#[test]
fn a_run_that_waited_when_the_session_was_closed_ends_without_having_begun() {
    let mut play = Play::new();
    play.command(CommandBody::Message { content: vec![Block::Text("go".into())] });
    play.plan(false);
    play.plan(true);
    play.command(CommandBody::Close);
    let names: Vec<_> = play.entries.iter().map(|entry| name(&entry.event)).collect();
    let count = |name| names.iter().filter(|other| **other == name).count();
    assert_eq!((count("pipeline_ended"), count("turn_ended"), count("plan_started")), (2, 3, 0));
    assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::Cancelled);
    assert_eq!(play.session.ended, Some(SessionEnd::Closed));
    assert_eq!(play.session.state(), SessionState::Closed);
    play.replayed();
}

#[test]
fn a_run_that_waited_begins_when_the_turn_before_it_has_ended() {
    let mut play = Play::new();
    play.command(CommandBody::Message { content: vec![Block::Text("go".into())] });
    assert_eq!(play.plan(false), ["pipeline_accepted"]);
    let names = answer_model(&mut play, "words");
    assert_eq!(names[names.len() - 3..], ["turn_ended", "turn_started", "plan_started"]);
}

/// Records that end with the start of the turn, as a full disk may leave them.
#[test]
fn a_new_writer_begins_a_pipeline_that_had_not_begun() {
    let mut play = Play::new();
    play.plan(false);
    assert!(matches!(*play.entries.pop().unwrap().event, Event::PlanStarted { .. }));
    play.session = budao_core::session::Session::default();
    for entry in &play.entries {
        play.session.apply(&entry.event, entry.at, entry.trace);
    }
    assert_eq!(play.due(), []);
    assert_eq!(play.input(turn::Input::Resumed), ["session_resumed", "plan_started"]);
}

#[test]
fn a_failed_plan_is_not_retried_but_made_anew() {
    let mut play = Play::new();
    play.plan(false);
    let fault = Fault::new(Kind::JournalFull, Operation::AppendRecords);
    play.input(turn::Input::Aborted { fault });
    let (_, answer) = play.command(CommandBody::Retry { turn: None });
    let Answer::Rejected { fault } = answer else { panic!("{answer:?}") };
    let told = text::user_text(&fault, Lang::En);
    assert!(told.contains("turn 1 was a plan"), "{told}");
    let (names, _) = play.command(CommandBody::Replan { question: None });
    assert_eq!(names, ["pipeline_accepted", "turn_started", "plan_started"]);
}
