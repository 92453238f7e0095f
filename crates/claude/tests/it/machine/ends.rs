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
fn a_result_of_an_abandoned_process_is_late_and_its_other_lines_are_dropped() {
    let (mut conversation, first) = Conversation::started();
    let events = conversation.input(Input::Broken { generation: 1, fault: gone() });
    assert_eq!(end(&events), (StopReason::Failed, Some(Kind::CliExited)));
    assert_eq!(conversation.actions, [Action::Kill { generation: 1 }]);
    conversation.say("again");
    assert_eq!(conversation.generation, 2);
    assert_eq!(conversation.line_of(1, stream_begins("m1")), []);
    assert_eq!(conversation.line_of(1, result(&first)), [late(1)]);
    assert_eq!(conversation.input(Input::Broken { generation: 1, fault: gone() }), []);
    assert_eq!(conversation.input(Input::Exited { generation: 1, fault: gone() }), []);
}

#[test]
fn a_result_for_no_running_turn_is_late_for_the_turn_it_is_stamped_with() {
    let (mut conversation, first) = Conversation::started();
    conversation.line(result(&first));
    assert_eq!(conversation.line(result(&first)), [late(1)]);
    assert_eq!(conversation.line(json!({"type": "result", "subtype": "success"})), [late(0)]);
    assert_eq!(conversation.line(init(&[&first])), [late(1)], "nor does it begin again");
    let second = conversation.say("again");
    conversation.line(init(&[&second]));
    assert_eq!(conversation.line(result(&first)), [late(1)]);
    assert_eq!(conversation.line(init(&[&first])), [], "nor does another begin beside ours");
    assert_eq!(conversation.line(init(&[])), []);
    assert_eq!(end(&conversation.line(result(&second))), (StopReason::EndTurn, None));
}

#[test]
fn only_the_last_prompts_are_remembered() {
    let mut conversation = Conversation::open();
    let mut prompts = Vec::new();
    for _ in 0..66 {
        let prompt = conversation.say("again");
        conversation.line(init(&[&prompt]));
        conversation.line(result(&prompt));
        prompts.push(prompt);
    }
    assert_eq!(conversation.line(result(&prompts[1])), [late(0)]);
    assert_eq!(conversation.line(result(&prompts[2])), [late(3)]);
}

#[test]
fn a_result_without_a_stamp_ends_our_turn_only_if_it_has_begun_and_is_not_older() {
    let unstamped =
        |took: u64| json!({"type": "result", "subtype": "success", "duration_ms": took});
    let mut conversation = Conversation::open();
    conversation.say("hello");
    conversation.line(init(&[]));
    conversation.steady = conversation.steady.after(Duration::from_secs(1));
    assert_eq!(conversation.line(unstamped(1_251)), [late(0)], "longer than our turn is old");
    let mut foreign = unstamped(10);
    foreign["origin"] = json!({"kind": "task-notification"});
    assert_eq!(conversation.line(foreign), [late(0)]);
    let mut person = unstamped(1_250);
    person["origin"] = json!("human");
    assert_eq!(end(&conversation.line(person)), (StopReason::EndTurn, None));
}

#[test]
fn the_words_of_a_cli_that_could_not_begin_are_the_reason_of_its_end() {
    let mut conversation = Conversation::open();
    conversation.say("hello");
    let error_result = json!({"type": "result", "subtype": "error_during_execution",
        "errors": ["bad flag"]});
    assert_eq!(conversation.line(error_result), []);
    let events = conversation.input(Input::Exited { generation: 1, fault: gone() });
    let fault = events.iter().find_map(|event| match event {
        Event::TurnEnded { fault, .. } => fault.clone(),
        _ => None,
    });
    assert!(fault.unwrap().to_string().contains("bad flag"));
}

#[test]
fn a_failure_before_any_answer_still_counts_what_it_cost() {
    let (mut conversation, prompt) = Conversation::started();
    let mut line = result(&prompt);
    line["subtype"] = json!("error_during_execution");
    line["usage"] = json!({"input_tokens": 7, "output_tokens": 2});
    let events = conversation.line(line);
    let Some(Event::TurnEnded { usage, steps, .. }) = events.last() else { panic!("{events:?}") };
    assert_eq!((usage.input_tokens, usage.output_tokens, *steps), (7, 2, 0));
}

#[test]
fn a_failure_without_a_remedy_here_ends_the_session() {
    let (mut conversation, prompt) = Conversation::started();
    let mut line = result(&prompt);
    line["is_error"] = json!(true);
    line["api_error_status"] = json!(401);
    let events = conversation.line(line);
    assert_eq!(end(&events), (StopReason::Failed, Some(Kind::ModelAuthentication)));
    let Some(Event::SessionEnded { end, fault }) = events.last() else { panic!("{events:?}") };
    assert_eq!(*end, SessionEnd::Error);
    assert_eq!(fault.as_ref().map(Fault::kind), Some(Kind::ModelAuthentication));
    assert_eq!(conversation.actions, [Action::Kill { generation: 1 }], "and needs no CLI");
    assert_eq!(conversation.input(Input::Warm), []);
    assert_eq!(conversation.actions, [], "nor another one");
}

#[test]
fn a_prompt_the_cli_dropped_ends_its_turn_and_no_other() {
    let (mut conversation, prompt) = Conversation::started();
    let state = |prompt: &str, state: &str| json!({"type": "command_lifecycle", "command_uuid": prompt, "state": state});
    assert_eq!(conversation.line(state("another", "discarded")), []);
    assert_eq!(conversation.line(state(&prompt, "queued")), []);
    let events = conversation.line(state(&prompt, "discarded"));
    assert_eq!(end(&events), (StopReason::Failed, Some(Kind::CliTurnFailed)));
}

#[test]
fn a_report_of_a_failure_is_no_answer_and_gives_the_result_its_kind() {
    let (mut conversation, prompt) = Conversation::started();
    let mut report = whole("m1", json!([text_block("API Error")]));
    report["error"] = json!("rate_limit");
    assert_eq!(conversation.line(report), []);
    let mut line = result(&prompt);
    line["is_error"] = json!(true);
    assert_eq!(end(&conversation.line(line)), (StopReason::Failed, Some(Kind::ModelRateLimited)));
    assert_eq!(conversation.final_text(), "");
}

#[test]
fn a_turn_of_the_clis_own_takes_no_stamped_line_and_ends_with_an_unstamped_result() {
    let (mut conversation, first) = Conversation::started();
    conversation.line(result(&first));
    assert_eq!(names(&conversation.line(init(&[]))), ["turn_started"]);
    conversation.line(init(&[]));
    let mut foreign = stream_begins("m1");
    foreign["user_message_uuids"] = json!([first]);
    assert_eq!(conversation.line(foreign), [late(1)]);
    assert_eq!(conversation.line(result(&first)), [late(1)]);
    conversation.line(whole("m2", json!([text_block("done in the background")])));
    let ended = conversation.line(json!({"type": "result", "subtype": "success"}));
    assert_eq!(end(&ended), (StopReason::EndTurn, None));
    assert_eq!(conversation.final_text(), "done in the background");
}

#[test]
fn a_cancel_that_came_too_early_is_repeated_when_the_turn_begins() {
    let mut conversation = Conversation::open();
    let prompt = conversation.say("hello");
    conversation.ask(CommandBody::Cancel { reason: None });
    assert_eq!(conversation.sent().len(), 1);
    conversation.line(init(&[&prompt]));
    assert_eq!(conversation.sent()[0]["request"]["subtype"], "interrupt");
    conversation.line(init(&[&prompt]));
    assert_eq!(conversation.sent().len(), 0, "once");
    let mut line = result(&prompt);
    line["subtype"] = json!("error_during_execution");
    assert_eq!(end(&conversation.line(line)), (StopReason::Cancelled, None));
}

#[test]
fn a_running_cli_that_makes_no_progress_in_the_turn_is_ended() {
    let (mut conversation, _) = Conversation::started();
    let timeouts = CliTimeouts::default();
    let mut ended = Vec::new();
    let mut waited = Duration::ZERO;
    while ended.is_empty() {
        assert!(waited <= timeouts.quiet, "it is never given up");
        ended = conversation.later(timeouts.probe);
        waited += timeouts.probe;
        // Every sign of life it is asked for, it gives.
        for line in conversation.sent() {
            let id = line["request_id"].clone();
            conversation.line(json!({"type": "control_response",
                "response": {"request_id": id, "subtype": "success"}}));
        }
    }
    assert_eq!(end(&ended), (StopReason::Failed, Some(Kind::CliSilent)));
    assert_eq!(waited, timeouts.quiet);
}

#[test]
fn no_timeout_runs_without_a_request_to_the_cli() {
    let (mut conversation, prompt) = Conversation::started();
    conversation.line(result(&prompt));
    assert_eq!(conversation.wake(), None);
    assert!(conversation.machine.is_idle());
    assert_eq!(conversation.later(Duration::from_secs(86_400)), []);
    assert_eq!(conversation.input(Input::Exited { generation: 1, fault: gone() }), []);
    assert_eq!(conversation.later(Duration::from_secs(86_400)), [], "nor of one that is gone");
}

/// What was under way when the writer died, taken up by the next one.
#[test]
fn a_turn_of_a_dead_writer_is_sealed_and_its_question_is_closed() {
    let (mut conversation, _) = Conversation::started_with(Mode::Approval);
    let calls = ["t1", "t2", "t3"].map(|id| call(id, "Bash", json!({})));
    conversation.line(whole("m1", json!(calls)));
    conversation.line(permission_request("r1", "t2", "Bash"));
    conversation.later(Duration::from_millis(200));
    let mut next = conversation.taken_up();
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
    let (mut conversation, _) = Conversation::started();
    conversation.line(stream_begins("m1"));
    conversation.line(piece(0, "half"));
    conversation.input(Input::Flush);
    let mut next = conversation.taken_up();
    let events = next.input(Input::Resumed);
    assert_eq!(names(&events)[..2], ["answer_abandoned", "session_resumed"]);
    assert_eq!(end(&events), (StopReason::Failed, Some(Kind::CliExited)));
}

#[test]
fn a_turn_of_which_nothing_was_answered_is_asked_again_unless_it_was_cancelled() {
    let mut conversation = Conversation::open();
    conversation.say("hello");
    let mut next = conversation.taken_up();
    assert_eq!(names(&next.input(Input::Resumed)), ["session_resumed"]);
    assert!(next.sent().iter().any(|line| line["type"] == "user"));
    conversation.ask(CommandBody::Cancel { reason: None });
    let mut next = conversation.taken_up();
    assert_eq!(end(&next.input(Input::Resumed)), (StopReason::Cancelled, None));
    assert_eq!(next.actions, []);
    // And where nothing was under way, what waits goes on.
    let mut next = Conversation::open().taken_up();
    assert_eq!(next.input(Input::Resumed), []);
}

#[test]
fn a_conversation_that_the_cli_lost_restarts_with_a_report() {
    let (mut conversation, prompt) = Conversation::started();
    conversation.line(whole("m1", json!([text_block("hi")])));
    conversation.line(result(&prompt));
    conversation.input(Input::Exited { generation: 1, fault: gone() });
    conversation.say("again");
    let lost = gone().with(Fact::StderrTail, "No conversation found with session ID x");
    let events = conversation.input(Input::Exited { generation: 2, fault: lost.clone() });
    assert_eq!(names(&events), ["fault_raised"]);
    assert!(matches!(
        conversation.actions[0],
        Action::Start { launch: budao_claude::Launch::Fresh, .. }
    ));
    let events = conversation.input(Input::Exited { generation: 3, fault: lost });
    assert_eq!(end(&events), (StopReason::Failed, Some(Kind::CliExited)), "once");
}

#[test]
fn a_fork_continues_a_conversation_that_exists_already() {
    let parent = SessionId(Uuid::from_u128(0x8888));
    let mut conversation = Conversation::of(Session::default());
    let origin = Some(Origin::Fork { parent, at: 3, copied: 3 });
    conversation.input(Input::Opened { settings: Box::default(), origin });
    conversation.input(Input::Warm);
    assert!(
        matches!(conversation.actions[0], Action::Start { launch: budao_claude::Launch::Fork(from), .. }
            if from == parent)
    );
    conversation.say("hello");
    let used = gone().with(Fact::StderrTail, "Error: Session ID is already in use.");
    assert_eq!(conversation.input(Input::Exited { generation: 1, fault: used }), []);
    assert!(matches!(
        conversation.actions[0],
        Action::Start { launch: budao_claude::Launch::Resume, .. }
    ));
}

#[test]
fn a_message_that_waits_when_the_engine_stops_is_left_as_a_turn_that_has_begun() {
    let (mut conversation, _) = Conversation::started();
    conversation.say("and then?");
    let events = conversation.input(Input::Parked { fault: gone() });
    assert_eq!(end(&events), (StopReason::Failed, Some(Kind::CliExited)));
    assert_eq!(name(events.last().unwrap()), "turn_started");
    assert_eq!(conversation.actions, [Action::Kill { generation: 1 }]);
    let mut next = conversation.taken_up();
    assert_eq!(names(&next.input(Input::Resumed)), ["session_resumed"]);
    assert!(next.sent().iter().any(|line| line["type"] == "user"), "and is answered");
}

#[test]
fn a_session_that_cannot_go_on_ends_its_turn_and_its_process() {
    let (mut conversation, _) = Conversation::started();
    let full = Fault::new(Kind::JournalFull, Operation::AppendRecords);
    let events = conversation.input(Input::Aborted { fault: full });
    assert_eq!(end(&events).0, StopReason::Failed);
    assert_eq!(conversation.actions[0], Action::Kill { generation: 1 });
}

#[test]
fn a_failed_turn_that_the_cli_had_not_begun_to_answer_is_retried_with_its_prompt() {
    let (mut conversation, first) = Conversation::started();
    conversation.input(Input::Broken { generation: 1, fault: gone() });
    let events = conversation.ask(CommandBody::Retry { turn: Some(1) });
    assert_eq!(names(&events), ["retry_accepted", "turn_started"]);
    assert_eq!(conversation.generation, 2);
    let sent = conversation.sent();
    let prompt = sent.iter().find(|line| line["type"] == "user").unwrap();
    assert_eq!(prompt["message"]["content"][0]["text"], "hello");
    let second = prompt["uuid"].as_str().unwrap().to_owned();
    assert_ne!(first, second);
    conversation.line(init(&[&second]));
    assert_eq!(end(&conversation.line(result(&second))), (StopReason::EndTurn, None));
}

#[test]
fn a_retried_turn_of_a_process_that_died_sends_its_prompt_again() {
    let (mut conversation, _) = Conversation::started();
    conversation.input(Input::Broken { generation: 1, fault: gone() });
    conversation.ask(CommandBody::Retry { turn: None });
    let mut other = conversation.taken_up();
    other.input(Input::Resumed);
    let sent = other.sent();
    let prompt = sent.iter().find(|line| line["type"] == "user").unwrap();
    assert_eq!(prompt["message"]["content"][0]["text"], "hello");
}

#[test]
fn a_failed_turn_that_the_cli_had_begun_to_answer_is_not_retried() {
    let (mut conversation, _) = Conversation::started();
    conversation.line(whole("m1", json!([call("t1", "Bash", json!({"command": "date"}))])));
    conversation.line(gave("t1", json!("Monday")));
    conversation.input(Input::Broken { generation: 1, fault: gone() });
    assert_eq!(conversation.ask(CommandBody::Retry { turn: None }), []);
    let Some(Answer::Rejected { fault }) = &conversation.answer else {
        panic!("{:?}", conversation.answer)
    };
    assert_eq!(fault.kind(), Kind::ConstraintViolated);
    let message = budao_core::fault::text::user_text(fault, budao_core::Lang::En);
    assert!(message.contains("the CLI had begun to answer turn 1"), "{message}");
}

#[test]
fn a_retry_of_a_turn_that_answered_or_runs_is_refused_by_its_number() {
    let (mut conversation, first) = Conversation::started();
    let constraint = |conversation: &Conversation| match &conversation.answer {
        Some(Answer::Rejected { fault }) => {
            budao_core::fault::text::user_text(fault, budao_core::Lang::En)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(conversation.ask(CommandBody::Retry { turn: None }), []);
    assert!(constraint(&conversation).contains("turn 1 is running"));
    conversation.line(result(&first));
    assert_eq!(conversation.ask(CommandBody::Retry { turn: None }), []);
    assert!(constraint(&conversation).contains("turn 1 ended as end_turn"));
}

/// A stream of one answer without content that ended for this reason.
fn silent_answer(conversation: &mut Conversation, reason: &str) {
    conversation.line(stream_begins("m1"));
    let delta = json!({"type": "message_delta", "delta": {"stop_reason": reason}});
    conversation.line(stream(delta));
    conversation.line(stream_ends());
}

#[test]
fn an_answer_without_content_is_the_fault_of_the_native_engine() {
    let empty = (StopReason::Failed, Some(Kind::EmptyAnswer));
    let (mut conversation, prompt) = Conversation::started();
    silent_answer(&mut conversation, "end_turn");
    assert_eq!(end(&conversation.line(result(&prompt))), empty);

    // CLI 2.1.9 says this.
    let (mut conversation, prompt) = Conversation::started();
    silent_answer(&mut conversation, "end_turn");
    let old = json!({"type": "result", "subtype": "error_during_execution", "is_error": false,
        "errors": [], "user_message_uuids": [prompt]});
    assert_eq!(end(&conversation.line(old)), empty);
}

#[test]
fn a_turn_without_an_answer_of_the_model_and_silence_after_a_tool_are_no_faults() {
    let (mut conversation, prompt) = Conversation::started();
    assert_eq!(end(&conversation.line(result(&prompt))), (StopReason::EndTurn, None), "`/clear`");

    let (mut conversation, prompt) = Conversation::started();
    conversation.line(stream_begins("m0"));
    conversation.line(whole("m0", json!([call("t1", "Read", json!({}))])));
    conversation.line(stream_ends());
    conversation.line(gave("t1", json!("read")));
    silent_answer(&mut conversation, "end_turn");
    assert_eq!(end(&conversation.line(result(&prompt))), (StopReason::EndTurn, None));
}

#[test]
fn an_old_cli_that_reports_no_stop_reason_is_judged_by_the_stream() {
    let failed = |text: &str, prompt: &str| {
        json!({"type": "result", "subtype": "success", "is_error": true, "result": text,
            "user_message_uuids": [prompt]})
    };
    let synthetic = |text: &str, error: Value| {
        json!({"type": "assistant", "error": error, "message": {"id": "s1",
            "model": "<synthetic>", "content": [text_block(text)]}})
    };
    let policy = "API Error: Claude Code is unable to respond to this request";
    let (mut conversation, prompt) = Conversation::started();
    conversation.line(stream_begins("m1"));
    conversation.line(synthetic(policy, json!("invalid_request")));
    let delta = json!({"type": "message_delta", "delta": {"stop_reason": "refusal"}});
    conversation.line(stream(delta));
    let refused = (StopReason::Refusal, Some(Kind::ModelRefused));
    assert_eq!(end(&conversation.line(failed(policy, &prompt))), refused);

    let limit = "API Error: Claude's response exceeded the 32000 output token maximum.";
    let (mut conversation, prompt) = Conversation::started();
    conversation.line(stream_begins("m1"));
    conversation.line(piece(0, "half an answer"));
    conversation.line(whole("m1", json!([text_block("half an answer")])));
    conversation.line(synthetic(limit, Value::Null));
    let delta = json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}});
    conversation.line(stream(delta));
    conversation.line(stream_ends());
    let events = conversation.line(failed(limit, &prompt));
    assert_eq!(end(&events), (StopReason::MaxTokens, None));
    assert_eq!(conversation.final_text(), "half an answer", "the error is no answer");
}
