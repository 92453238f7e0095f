//! Ends: one for every turn, and none for another's.

use budao_core::{
    event::{Event, Origin, SessionEnd, StopReason},
    fault::Kind,
};
use serde_json::json;

use super::*;

fn end(events: &[Event]) -> (StopReason, Option<Kind>) {
    let ends: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::TurnEnded { stop, fault, .. } => Some((*stop, fault.as_ref().map(Fault::kind))),
            _ => None,
        })
        .collect();
    assert_eq!(ends.len(), 1, "{events:?}");
    ends[0]
}

fn late(of_turn: u64) -> Event {
    Event::LateArrivalDropped { operation: Operation::ReadCli, of_turn, call: None }
}

#[test]
fn a_result_of_a_process_that_was_given_up_is_late_and_its_other_words_are_dropped() {
    let (mut talk, first) = Talk::begun();
    let events = talk.input(Input::Broken { life: 1, fault: gone() });
    assert_eq!(end(&events), (StopReason::Failed, Some(Kind::CliExited)));
    assert_eq!(talk.actions, [Action::Kill { life: 1 }]);
    talk.say("again");
    assert_eq!(talk.life, 2);
    assert_eq!(talk.line_of(1, stream_begins("m1")), []);
    assert_eq!(talk.line_of(1, result(&first)), [late(1)]);
    assert_eq!(talk.input(Input::Broken { life: 1, fault: gone() }), []);
    assert_eq!(talk.input(Input::Exited { life: 1, fault: gone() }), []);
}

#[test]
fn a_result_for_no_running_turn_is_late_for_the_turn_it_is_stamped_with() {
    let (mut talk, first) = Talk::begun();
    talk.line(result(&first));
    assert_eq!(talk.line(result(&first)), [late(1)]);
    assert_eq!(talk.line(json!({"type": "result", "subtype": "success"})), [late(0)]);
    assert_eq!(talk.line(init(&[&first])), [late(1)], "nor does it begin again");
    let second = talk.say("again");
    talk.line(init(&[&second]));
    assert_eq!(talk.line(result(&first)), [late(1)]);
    assert_eq!(talk.line(init(&[&first])), [], "nor does another begin beside ours");
    assert_eq!(talk.line(init(&[])), []);
    assert_eq!(end(&talk.line(result(&second))), (StopReason::EndTurn, None));
}

#[test]
fn only_the_last_prompts_are_remembered() {
    let mut talk = Talk::open();
    let mut prompts = Vec::new();
    for _ in 0..66 {
        let prompt = talk.say("again");
        talk.line(init(&[&prompt]));
        talk.line(result(&prompt));
        prompts.push(prompt);
    }
    assert_eq!(talk.line(result(&prompts[1])), [late(0)]);
    assert_eq!(talk.line(result(&prompts[2])), [late(3)]);
}

#[test]
fn a_result_without_a_stamp_ends_our_turn_only_if_it_has_begun_and_is_not_older() {
    let unstamped =
        |took: u64| json!({"type": "result", "subtype": "success", "duration_ms": took});
    let mut talk = Talk::open();
    talk.say("hello");
    talk.line(init(&[]));
    talk.now = talk.now.after(Duration::from_secs(1));
    assert_eq!(talk.line(unstamped(1_251)), [late(0)], "longer than our turn is old");
    let mut foreign = unstamped(10);
    foreign["origin"] = json!({"kind": "task-notification"});
    assert_eq!(talk.line(foreign), [late(0)]);
    let mut person = unstamped(1_250);
    person["origin"] = json!("human");
    assert_eq!(end(&talk.line(person)), (StopReason::EndTurn, None));
}

#[test]
fn the_words_of_a_cli_that_could_not_begin_are_the_reason_of_its_end() {
    let mut talk = Talk::open();
    talk.say("hello");
    let words = json!({"type": "result", "subtype": "error_during_execution",
        "errors": ["bad flag"]});
    assert_eq!(talk.line(words), []);
    let events = talk.input(Input::Exited { life: 1, fault: gone() });
    let fault = events.iter().find_map(|event| match event {
        Event::TurnEnded { fault, .. } => fault.clone(),
        _ => None,
    });
    assert!(fault.unwrap().to_string().contains("bad flag"));
}

#[test]
fn a_failure_before_any_answer_still_counts_what_it_cost() {
    let (mut talk, prompt) = Talk::begun();
    let mut line = result(&prompt);
    line["subtype"] = json!("error_during_execution");
    line["usage"] = json!({"input_tokens": 7, "output_tokens": 2});
    let events = talk.line(line);
    let Some(Event::TurnEnded { usage, steps, .. }) = events.last() else { panic!("{events:?}") };
    assert_eq!((usage.input_tokens, usage.output_tokens, *steps), (7, 2, 0));
}

#[test]
fn a_failure_nobody_can_mend_here_ends_the_session() {
    let (mut talk, prompt) = Talk::begun();
    let mut line = result(&prompt);
    line["is_error"] = json!(true);
    line["api_error_status"] = json!(401);
    let events = talk.line(line);
    assert_eq!(end(&events), (StopReason::Failed, Some(Kind::ModelAuthentication)));
    let Some(Event::SessionEnded { end, fault }) = events.last() else { panic!("{events:?}") };
    assert_eq!(*end, SessionEnd::Error);
    assert_eq!(fault.as_ref().map(Fault::kind), Some(Kind::ModelAuthentication));
    assert_eq!(talk.actions, [Action::Kill { life: 1 }], "and needs no CLI");
    assert_eq!(talk.input(Input::Warm), []);
    assert_eq!(talk.actions, [], "nor another one");
}

#[test]
fn a_prompt_the_cli_dropped_ends_its_turn_and_no_other() {
    let (mut talk, prompt) = Talk::begun();
    let state = |prompt: &str, state: &str| json!({"type": "command_lifecycle", "command_uuid": prompt, "state": state});
    assert_eq!(talk.line(state("another", "discarded")), []);
    assert_eq!(talk.line(state(&prompt, "queued")), []);
    let events = talk.line(state(&prompt, "discarded"));
    assert_eq!(end(&events), (StopReason::Failed, Some(Kind::CliTurnFailed)));
}

#[test]
fn a_report_of_a_failure_is_no_answer_and_gives_the_result_its_kind() {
    let (mut talk, prompt) = Talk::begun();
    let mut report = whole("m1", json!([words("API Error")]));
    report["error"] = json!("rate_limit");
    assert_eq!(talk.line(report), []);
    let mut line = result(&prompt);
    line["is_error"] = json!(true);
    assert_eq!(end(&talk.line(line)), (StopReason::Failed, Some(Kind::ModelRateLimited)));
    assert_eq!(talk.shown(), "");
}

#[test]
fn a_turn_of_the_clis_own_takes_no_stamped_line_and_ends_with_an_unstamped_result() {
    let (mut talk, first) = Talk::begun();
    talk.line(result(&first));
    assert_eq!(names(&talk.line(init(&[]))), ["turn_started"]);
    talk.line(init(&[]));
    let mut foreign = stream_begins("m1");
    foreign["user_message_uuids"] = json!([first]);
    assert_eq!(talk.line(foreign), [late(1)]);
    assert_eq!(talk.line(result(&first)), [late(1)]);
    talk.line(whole("m2", json!([words("done in the background")])));
    let ended = talk.line(json!({"type": "result", "subtype": "success"}));
    assert_eq!(end(&ended), (StopReason::EndTurn, None));
    assert_eq!(talk.shown(), "done in the background");
}

#[test]
fn a_cancel_that_came_too_early_is_repeated_when_the_turn_begins() {
    let mut talk = Talk::open();
    let prompt = talk.say("hello");
    talk.ask(CommandBody::Cancel { reason: None });
    assert_eq!(talk.sent().len(), 1);
    talk.line(init(&[&prompt]));
    assert_eq!(talk.sent()[0]["request"]["subtype"], "interrupt");
    talk.line(init(&[&prompt]));
    assert_eq!(talk.sent().len(), 0, "once");
    let mut line = result(&prompt);
    line["subtype"] = json!("error_during_execution");
    assert_eq!(end(&talk.line(line)), (StopReason::Cancelled, None));
}

#[test]
fn a_cli_that_lives_but_does_nothing_for_the_turn_is_given_up() {
    let (mut talk, _) = Talk::begun();
    let timeouts = CliTimeouts::default();
    let mut ended = Vec::new();
    let mut waited = Duration::ZERO;
    while ended.is_empty() {
        assert!(waited <= timeouts.quiet, "it is never given up");
        ended = talk.later(timeouts.probe);
        waited += timeouts.probe;
        // Every sign of life it is asked for, it gives.
        for line in talk.sent() {
            let id = line["request_id"].clone();
            talk.line(json!({"type": "control_response",
                "response": {"request_id": id, "subtype": "success"}}));
        }
    }
    assert_eq!(end(&ended), (StopReason::Failed, Some(Kind::CliSilent)));
    assert_eq!(waited, timeouts.quiet);
}

#[test]
fn nothing_is_waited_for_while_nothing_is_asked_of_the_cli() {
    let (mut talk, prompt) = Talk::begun();
    talk.line(result(&prompt));
    assert_eq!(talk.machine.wake(&CliTimeouts::default()), None);
    assert!(talk.machine.is_idle());
    assert_eq!(talk.later(Duration::from_secs(86_400)), []);
    assert_eq!(talk.input(Input::Exited { life: 1, fault: gone() }), []);
    assert_eq!(talk.later(Duration::from_secs(86_400)), [], "nor of one that is gone");
}

/// What was under way when the writer died, taken up by the next one.
#[test]
fn a_turn_whose_writer_died_is_sealed_and_its_question_closed() {
    let (mut talk, _) = Talk::begun_with(Mode::Approval);
    let calls = ["t1", "t2", "t3"].map(|id| call(id, "Bash", json!({})));
    talk.line(whole("m1", json!(calls)));
    talk.line(may_use("r1", "t2", "Bash"));
    talk.later(Duration::from_millis(200));
    let mut next = talk.taken_up();
    let events = next.input(Input::Resumed);
    let Event::SessionResumed { sealed } = &events[0] else { panic!("{events:?}") };
    assert_eq!(sealed.len(), 1, "of three one ran");
    assert_eq!(end(&events), (StopReason::Failed, Some(Kind::CliExited)));
    let ended = events.iter().filter(|event| matches!(event, Event::ToolCallEnded { .. })).count();
    assert_eq!(ended, 3);
    assert!(next.machine.is_idle());
}

#[test]
fn words_of_an_answer_that_was_cut_by_the_writers_death_are_void() {
    let (mut talk, _) = Talk::begun();
    talk.line(stream_begins("m1"));
    talk.line(piece(0, "half"));
    talk.input(Input::Flush);
    let mut next = talk.taken_up();
    let events = next.input(Input::Resumed);
    assert_eq!(names(&events)[..2], ["answer_abandoned", "session_resumed"]);
    assert_eq!(end(&events), (StopReason::Failed, Some(Kind::CliExited)));
}

#[test]
fn a_turn_of_which_nothing_was_answered_is_asked_again_unless_it_was_cancelled() {
    let mut talk = Talk::open();
    talk.say("hello");
    let mut next = talk.taken_up();
    assert_eq!(names(&next.input(Input::Resumed)), ["session_resumed"]);
    assert!(next.sent().iter().any(|line| line["type"] == "user"));
    talk.ask(CommandBody::Cancel { reason: None });
    let mut next = talk.taken_up();
    assert_eq!(end(&next.input(Input::Resumed)), (StopReason::Cancelled, None));
    assert_eq!(next.actions, []);
    // And where nothing was under way, what waits goes on.
    let mut next = Talk::open().taken_up();
    assert_eq!(next.input(Input::Resumed), []);
}

#[test]
fn a_conversation_the_cli_lost_is_begun_anew_and_that_is_told() {
    let (mut talk, prompt) = Talk::begun();
    talk.line(whole("m1", json!([words("hi")])));
    talk.line(result(&prompt));
    talk.input(Input::Exited { life: 1, fault: gone() });
    talk.say("again");
    let lost = gone().with(Fact::StderrTail, "No conversation found with session ID x");
    let events = talk.input(Input::Exited { life: 2, fault: lost.clone() });
    assert_eq!(names(&events), ["fault_raised"]);
    assert!(matches!(talk.actions[0], Action::Start { launch: budao_claude::Launch::Fresh, .. }));
    let events = talk.input(Input::Exited { life: 3, fault: lost });
    assert_eq!(end(&events), (StopReason::Failed, Some(Kind::CliExited)), "once");
}

#[test]
fn a_fork_whose_conversation_is_there_already_goes_on_with_it() {
    let parent = SessionId(Uuid::from_u128(0x8888));
    let mut talk = Talk::of(Session::default());
    let origin = Some(Origin::Fork { parent, at: 3 });
    talk.input(Input::Opened { settings: Box::default(), origin });
    talk.input(Input::Warm);
    assert!(
        matches!(talk.actions[0], Action::Start { launch: budao_claude::Launch::Fork(from), .. }
            if from == parent)
    );
    talk.say("hello");
    let used = gone().with(Fact::StderrTail, "Error: Session ID is already in use.");
    assert_eq!(talk.input(Input::Exited { life: 1, fault: used }), []);
    assert!(matches!(talk.actions[0], Action::Start { launch: budao_claude::Launch::Resume, .. }));
}

#[test]
fn a_message_that_waits_when_the_engine_stops_is_left_as_a_turn_that_has_begun() {
    let (mut talk, _) = Talk::begun();
    talk.say("and then?");
    let events = talk.input(Input::Parked { fault: gone() });
    assert_eq!(end(&events), (StopReason::Failed, Some(Kind::CliExited)));
    assert_eq!(name(events.last().unwrap()), "turn_started");
    assert_eq!(talk.actions, [Action::Kill { life: 1 }]);
    let mut next = talk.taken_up();
    assert_eq!(names(&next.input(Input::Resumed)), ["session_resumed"]);
    assert!(next.sent().iter().any(|line| line["type"] == "user"), "and is answered");
}

#[test]
fn a_session_that_cannot_go_on_ends_its_turn_and_its_process() {
    let (mut talk, _) = Talk::begun();
    let full = Fault::new(Kind::JournalFull, Operation::AppendRecords);
    let events = talk.input(Input::Aborted { fault: full });
    assert_eq!(end(&events).0, StopReason::Failed);
    assert_eq!(talk.actions[0], Action::Kill { life: 1 });
}

#[test]
fn a_failed_turn_that_the_cli_had_not_begun_to_answer_is_retried_with_its_prompt() {
    let (mut talk, first) = Talk::begun();
    talk.input(Input::Broken { life: 1, fault: gone() });
    let events = talk.ask(CommandBody::Retry { turn: Some(1) });
    assert_eq!(names(&events), ["retry_accepted", "turn_started"]);
    assert_eq!(talk.life, 2);
    let sent = talk.sent();
    let prompt = sent.iter().find(|line| line["type"] == "user").unwrap();
    assert_eq!(prompt["message"]["content"][0]["text"], "hello");
    let second = prompt["uuid"].as_str().unwrap().to_owned();
    assert_ne!(first, second);
    talk.line(init(&[&second]));
    assert_eq!(end(&talk.line(result(&second))), (StopReason::EndTurn, None));
}

#[test]
fn a_retried_turn_of_a_process_that_died_sends_its_prompt_again() {
    let (mut talk, _) = Talk::begun();
    talk.input(Input::Broken { life: 1, fault: gone() });
    talk.ask(CommandBody::Retry { turn: None });
    let mut other = talk.taken_up();
    other.input(Input::Resumed);
    let sent = other.sent();
    let prompt = sent.iter().find(|line| line["type"] == "user").unwrap();
    assert_eq!(prompt["message"]["content"][0]["text"], "hello");
}

#[test]
fn a_failed_turn_that_the_cli_had_begun_to_answer_is_not_retried() {
    let (mut talk, _) = Talk::begun();
    talk.line(whole("m1", json!([call("t1", "Bash", json!({"command": "date"}))])));
    talk.line(gave("t1", json!("Monday")));
    talk.input(Input::Broken { life: 1, fault: gone() });
    assert_eq!(talk.ask(CommandBody::Retry { turn: None }), []);
    let Some(Answer::Rejected { fault }) = &talk.answer else { panic!("{:?}", talk.answer) };
    assert_eq!(fault.kind(), Kind::ConstraintViolated);
    let told = budao_core::fault::text::user_text(fault, budao_core::Lang::En);
    assert!(told.contains("the CLI had begun to answer turn 1"), "{told}");
}

#[test]
fn a_retry_of_a_turn_that_answered_or_runs_is_refused_by_its_number() {
    let (mut talk, first) = Talk::begun();
    let constraint = |talk: &Talk| match &talk.answer {
        Some(Answer::Rejected { fault }) => {
            budao_core::fault::text::user_text(fault, budao_core::Lang::En)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(talk.ask(CommandBody::Retry { turn: None }), []);
    assert!(constraint(&talk).contains("turn 1 is running"));
    talk.line(result(&first));
    assert_eq!(talk.ask(CommandBody::Retry { turn: None }), []);
    assert!(constraint(&talk).contains("turn 1 ended as end_turn"));
}
