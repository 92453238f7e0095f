//! Retries: a failed turn is continued from where it stood, and every other retry is refused by name.

use std::time::Duration;

use budao_core::{
    Fault, Kind,
    event::{Answer, CommandBody, Event, Origin, SessionId, StopReason},
    fault::{Operation, text},
    lang::Lang,
    message::{Block, ModelStop, Role, text_of},
    turn::Input,
};

use crate::turn::play::{Play, done, refuse};

impl Play {
    fn retry(&mut self, turn: Option<u64>) -> (Vec<&'static str>, Answer) {
        self.command(CommandBody::Retry { turn })
    }

    fn retries(&mut self) {
        let (names, answer) = self.retry(None);
        assert_eq!(names, ["retry_accepted", "turn_started", "step_started"]);
        assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    }

    /// The refusal of a retry, as the user reads it. Nothing is recorded.
    fn refusal(&mut self, turn: Option<u64>) -> String {
        let before = self.session.clone();
        match self.retry(turn) {
            (names, Answer::Rejected { fault }) => {
                assert_eq!((names.len(), &self.session), (0, &before));
                assert_eq!(fault.kind(), Kind::ConstraintViolated);
                text::user_text(&fault, Lang::En)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Makes a call that is done, then fails the next request for good.
    fn fails_after_a_call(&mut self) {
        self.say("hello");
        let calls = self.answer_calls(&[("write", "{}")]);
        self.run_all(&calls, false);
        self.end_call(&calls[0], 1, done());
        let ends = ["recovery_failed", "turn_ended", "session_ended"];
        assert!(self.model_fails(Kind::ModelAuthentication).ends_with(&ends));
    }
}

#[test]
fn a_retry_continues_after_the_calls_that_were_done() {
    let mut play = Play::new();
    play.fails_after_a_call();
    let history = play.session.history.clone();
    play.retries();
    assert_eq!(play.session.history, history, "no message is added and none is lost");
    assert_eq!(play.asking(), (2, 1, 1), "the request is due, and no call");
    play.answer_text("done");
    let last = play.session.last.clone().unwrap();
    assert_eq!((last.number, last.stop, last.fault), (2, StopReason::EndTurn, None));
    assert_eq!((play.outcomes().len(), play.count("tool_call_started")), (1, 1));
    assert_eq!(play.count("message_accepted"), 1);
    play.replayed();
}

#[test]
fn a_retried_turn_may_fail_and_be_retried_again() {
    let mut play = Play::new();
    play.fails_after_a_call();
    for turn in 2..5 {
        play.retries();
        assert_eq!(play.turn(), turn);
        play.model_fails(Kind::ModelAuthentication);
        play.session = play.replayed();
    }
    assert!(play.refusal(Some(2)).contains("only the last turn can be retried; that is turn 4"));
    assert_eq!(play.retry(Some(4)).0.len(), 3);
}

#[test]
fn calls_of_a_retried_turn_have_ids_of_their_own() {
    let mut play = Play::new();
    play.fails_after_a_call();
    play.retries();
    let calls = play.answer_calls(&[("write", "{}")]);
    play.run_all(&calls, false);
    play.end_call(&calls[0], 1, done());
    assert_eq!(play.outcomes().len(), 2);
    play.answer_text("done");
    play.replayed();
}

#[test]
fn a_retried_turn_has_new_tries_and_new_patience() {
    let mut play = Play::new();
    play.limits.gate.patience_watched = Duration::from_secs(4);
    play.say("hello");
    let waited = |play: &mut Play| {
        let begun = play.now;
        while play.session.turn.is_some() {
            play.model_fails(Kind::ModelOverloaded);
            if play.session.turn.is_some() {
                play.wait(Duration::from_secs(2));
            }
        }
        play.now.since(begun)
    };
    let first = waited(&mut play);
    assert!(first > Duration::ZERO);
    play.retries();
    assert_eq!(waited(&mut play), first);
}

#[test]
fn a_turn_that_spent_its_steps_gets_new_ones() {
    let mut play = Play::new();
    play.limits.steps = 1;
    play.say("hello");
    let calls = play.answer_calls(&[("read", "{}")]);
    play.run_all(&calls, true);
    play.end_call(&calls[0], 1, done());
    assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::MaxTurnRequests);
    play.retries();
    assert_eq!(play.asking(), (2, 1, 1));
    play.answer_text("done");
    assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::EndTurn);
}

#[test]
fn a_turn_that_the_brake_stopped_starts_with_a_released_brake() {
    let mut play = Play::new();
    play.say("hello");
    let repeats = |play: &mut Play| {
        let mut times = 0;
        while play.session.turn.is_some() {
            let calls = play.answer_calls(&[("read", "{")]);
            play.check_calls(vec![(calls[0].clone(), refuse(Kind::InvalidArguments))]);
            times += 1;
        }
        times
    };
    let first = repeats(&mut play);
    let fault = play.session.last.as_ref().unwrap().fault.clone().unwrap();
    assert_eq!(fault.kind(), Kind::RepeatedCallStopped);
    play.retries();
    assert_eq!(repeats(&mut play), first);
}

#[test]
fn a_refused_answer_leaves_the_history_before_the_request_is_made_again() {
    let mut play = Play::new();
    play.say("hello");
    play.answer(vec![Block::Text("I will not.".into())], ModelStop::Refusal);
    play.retries();
    let history = &play.session.history;
    assert_eq!((history.len(), history[0].role), (1, Role::User));
    play.answer_text("I will.");
    assert_eq!(text_of(&play.session.history[1].content), "I will.");
    play.replayed();
}

#[test]
fn a_session_that_its_fault_ended_is_opened_again_by_a_retry() {
    let mut play = Play::new();
    play.say("hello");
    play.input(Input::Aborted { fault: Fault::new(Kind::Bug, Operation::RunTurn) });
    play.command(CommandBody::Close);
    assert!(play.session.ended.is_some());
    play.retries();
    assert_eq!(play.session.ended, None);
    play.replayed();
}

#[test]
fn messages_during_a_retried_turn_wait_for_it() {
    let mut play = Play::new();
    play.fails_after_a_call();
    play.retries();
    assert_eq!(play.say("and then?"), ["message_accepted"]);
    assert!(play.refusal(None).contains("turn 2 is running"));
    assert!(play.answer_text("done").ends_with(&["turn_ended", "turn_started", "step_started"]));
}

#[test]
fn a_long_history_is_shortened_in_a_retried_turn_without_losing_its_question() {
    let mut play = Play::new();
    play.say("the question");
    for _ in 0..2 {
        let calls = play.answer_calls(&[("read", "{}")]);
        play.run_all(&calls, true);
        play.end_call(&calls[0], 1, done());
    }
    play.model_fails(Kind::ModelAuthentication);
    play.retries();
    let (summary, usage) = ("what was done".to_owned(), budao_core::message::Usage::default());
    play.input(Input::HistoryCompacted {
        turn: 2,
        messages: 3,
        summary,
        by_model: true,
        tokens_after: 10,
        usage,
    });
    let texts: Vec<_> =
        play.session.history.iter().map(|message| text_of(&message.content)).collect();
    assert_eq!(texts[..2], ["what was done", "the question"]);
    play.replayed();
}

#[test]
fn every_retry_that_cannot_be_is_refused_with_the_turn_and_the_rule() {
    let mut play = Play::new();
    assert!(play.refusal(None).contains("the session has no turn"));
    assert!(play.refusal(Some(1)).contains("the session has no turn"));
    play.say("hello");
    assert!(play.refusal(None).contains("turn 1 is running"));
    play.answer_text("done");
    assert!(play.refusal(None).contains("turn 1 ended as end_turn"));
    assert!(play.refusal(Some(7)).contains("turn 7 does not exist; the session has 1"));
    assert!(play.refusal(Some(0)).contains("turn 0 does not exist"));
    play.say("again");
    play.cancel();
    assert!(play.refusal(None).contains("turn 2 ended as cancelled"));
    assert!(play.refusal(Some(1)).contains("only the last turn can be retried; that is turn 2"));
}

#[test]
fn the_turn_of_a_child_is_not_retried_by_itself() {
    let mut play = Play::new();
    let parent = SessionId(uuid::Uuid::from_u128(5));
    let origin = Origin::Call { parent, call: "call_1_1_1".into(), depth: 1 };
    let settings = play.session.settings.clone();
    let event = Event::SessionOpened { settings, origin: Some(origin) };
    play.input(Input::RecordOnly { turn: 0, event });
    play.fails_after_a_call();
    assert!(play.refusal(None).contains(&format!("its parent is {parent}")));
}
