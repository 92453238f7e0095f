//! Numbers and names: each is its own, and each is the right one.

use std::collections::BTreeSet;

use budao_core::event::Event;
use serde_json::json;

use super::*;

#[test]
fn a_turn_carries_the_trace_that_its_own_message_brought() {
    let mut conversation = Conversation::open();
    let traces = [Trace::from_random(21), Trace::from_random(22)];
    for (index, trace) in traces.into_iter().enumerate() {
        let body = CommandBody::Message { content: vec![Block::Text("go".to_owned())] };
        let id = format!("m{index}").into();
        conversation.input(Input::Command(Command { id, by: "ada".into(), trace, body }));
    }
    let started = conversation.entries.iter().filter(|entry| name(&entry.event) == "turn_started");
    let started: Vec<Trace> = started.map(|entry| entry.trace).collect();
    assert_eq!(started, traces[..1], "the second waits for the first");
}

#[test]
fn a_session_resumed_within_a_turn_is_not_idle() {
    let (conversation, prompt) = Conversation::started();
    assert!(!conversation.machine.is_idle());
    assert!(!conversation.taken_up().machine.is_idle());
    let mut conversation = conversation;
    conversation.line(whole("m1", json!([text_block("hi")])));
    conversation.line(result(&prompt));
    assert!(conversation.machine.is_idle());
}

#[test]
fn a_retry_records_its_time_and_attempt_and_its_success_records_the_step() {
    let (mut conversation, _) = Conversation::started();
    conversation.line(stream_begins("m1"));
    let retry = json!({"type": "system", "subtype": "api_retry", "attempt": 1,
        "max_retries": 3, "retry_delay_ms": 1500.0, "error_status": 529});
    let events = conversation.line(retry);
    let Some(Event::RetryScheduled {
        attempt, next_attempt, max_attempts, wait_ms, due_at, ..
    }) = events.last()
    else {
        panic!("{events:?}")
    };
    assert_eq!((*attempt, *next_attempt, *max_attempts, *wait_ms), (1, 2, 4, 1_500));
    assert_eq!(*due_at, conversation.now.after(Duration::from_millis(1_500)));
    // A CLI that says of no retry that it is allowed makes one all the same.
    let retry = json!({"type": "system", "subtype": "api_retry", "attempt": 2,
        "max_retries": 0, "retry_delay_ms": 0.0, "error_status": 529});
    let events = conversation.line(retry);
    let Some(Event::RetryScheduled { attempt: 2, next_attempt: 3, max_attempts: 3, .. }) =
        events.last()
    else {
        panic!("{events:?}")
    };
    conversation.line(whole("m2", json!([text_block("at last")])));
    let events = conversation.line(stream_begins("m3"));
    let recovered = events.iter().find_map(|event| match event {
        Event::Recovered { scope, .. } => Some(scope.step),
        _ => None,
    });
    assert_eq!(recovered, Some(Some(1)), "{events:?}");
}

#[test]
fn answers_without_an_id_are_answers_of_their_own() {
    let (mut conversation, prompt) = Conversation::started();
    for text in ["one", "two"] {
        let mut line = whole("", json!([text_block(text)]));
        line["message"].as_object_mut().unwrap().remove("id");
        conversation.line(line);
    }
    conversation.line(result(&prompt));
    let answered =
        conversation.entries.iter().filter(|entry| name(&entry.event) == "model_answered");
    assert_eq!(answered.count(), 2);
    assert_eq!(conversation.final_text(), "onetwo");
}

#[test]
fn every_question_about_the_same_call_has_a_name_of_its_own() {
    let (mut conversation, _) = Conversation::started_with(Mode::Approval);
    conversation.line(stream_begins("m1"));
    conversation.line(whole("m1", json!([call("t1", "Bash", json!({}))])));
    conversation.line(stream_ends());
    let mut questions = BTreeSet::new();
    for request in ["r1", "r2", "r3"] {
        for event in conversation.line(permission_request(request, "t1", "Bash")) {
            if let Event::QuestionAsked { question, .. } = event {
                questions.insert(question.to_string());
            }
        }
    }
    assert_eq!(questions.len(), 3, "{questions:?}");
}

#[test]
fn calls_of_sub_agents_with_the_same_id_are_distinguished() {
    let (mut conversation, _) = Conversation::started_with(Mode::Approval);
    conversation.line(whole("m1", json!([text_block("hi")])));
    let mut calls = BTreeSet::new();
    for request in ["r1", "r2", "r3"] {
        let mut line = permission_request(request, "inner", "Bash");
        line["request"]["agent_id"] = json!("sub");
        for event in conversation.line(line) {
            if let Event::QuestionAsked { call, .. } = event {
                calls.insert(call.to_string());
            }
        }
    }
    assert_eq!(calls.len(), 3, "{calls:?}");
}

#[test]
fn of_two_open_questions_only_the_withdrawn_one_is_closed() {
    let (mut conversation, _) = Conversation::started_with(Mode::Approval);
    conversation.line(stream_begins("m1"));
    conversation.line(permission_request("r1", "t1", "Bash"));
    conversation.line(permission_request("r2", "t2", "Bash"));
    conversation.line(json!({"type": "control_cancel_request", "request_id": "r1"}));
    let content = json!([call("t1", "Bash", json!({})), call("t2", "Bash", json!({}))]);
    let mut events = conversation.line(whole("m1", content));
    events.extend(conversation.line(stream_ends()));
    let questions = names(&events).into_iter().filter(|name| name == "question_asked");
    assert_eq!(questions.count(), 1, "{events:?}");
}

#[test]
fn a_question_that_is_open_when_its_turn_ends_is_closed_with_it() {
    let (mut conversation, prompt) = Conversation::started_with(Mode::Approval);
    conversation.line(stream_begins("m1"));
    conversation.line(whole("m1", json!([call("t1", "Bash", json!({}))])));
    conversation.line(stream_ends());
    conversation.line(permission_request("r1", "t1", "Bash"));
    let events = conversation.line(result(&prompt));
    assert!(names(&events).iter().any(|name| name == "question_answered"), "{events:?}");
    assert!(conversation.machine.is_idle());
}

#[test]
fn each_of_our_requests_has_a_name_of_its_own() {
    let (mut conversation, _) = Conversation::started();
    let mut requests = BTreeSet::new();
    let mut count = 0;
    for _ in 0..2 {
        conversation.later(CliTimeouts::default().silence);
        for line in conversation.sent().iter().filter(|line| line["type"] == "control_request") {
            requests.insert(line["request_id"].to_string());
            count += 1;
        }
        conversation.line(stream_begins("m1"));
    }
    conversation.ask(CommandBody::Cancel { reason: None });
    for line in conversation.sent().iter().filter(|line| line["type"] == "control_request") {
        requests.insert(line["request_id"].to_string());
        count += 1;
    }
    assert!(count >= 2, "nothing was asked for");
    assert_eq!(requests.len(), count, "{requests:?}");
}

/// The id of the request of this sort that the last input sent.
fn requested(conversation: &Conversation, subtype: &str) -> Option<String> {
    let sent = conversation.sent();
    let line = sent.iter().find(|line| line["request"]["subtype"] == subtype)?;
    line["request_id"].as_str().map(str::to_owned)
}

fn control_response(id: &str, subtype: &str, response: Value) -> Value {
    json!({"type": "control_response",
        "response": {"request_id": id, "subtype": subtype, "response": response, "error": "no"}})
}

#[test]
fn commands_of_the_cli_are_recorded_when_it_lists_them_and_not_when_it_refuses() {
    let commands = json!({"commands": [{"name": "compact", "description": "less"}]});
    let mut conversation = Conversation::open();
    conversation.say("hello");
    let id = requested(&conversation, "initialize").unwrap();
    let events = conversation.line(control_response(&id, "success", commands.clone()));
    let [Event::Annotated { topic, data }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(topic, "claude.commands");
    assert_eq!(data["commands"][0]["name"], "compact");
    let mut conversation = Conversation::open();
    conversation.say("hello");
    let id = requested(&conversation, "initialize").unwrap();
    assert_eq!(conversation.line(control_response(&id, "error", commands.clone())), []);
    conversation.ask(CommandBody::Cancel { reason: None });
    let id = requested(&conversation, "interrupt").unwrap();
    assert_eq!(
        conversation.line(control_response(&id, "success", commands)),
        [],
        "that is no list of commands"
    );
}

#[test]
fn a_turn_of_the_clis_own_is_named_after_its_number() {
    let (mut conversation, prompt) = Conversation::started();
    conversation.line(whole("m1", json!([text_block("hi")])));
    conversation.line(result(&prompt));
    let events = conversation.line(init(&[]));
    let [Event::TurnStarted { message }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(message.to_string(), "claude-2");
}

#[test]
fn a_cancel_is_repeated_once_the_prompt_is_reported_as_begun() {
    let mut conversation = Conversation::open();
    let prompt = conversation.say("hello");
    conversation.ask(CommandBody::Cancel { reason: None });
    conversation
        .line(json!({"type": "command_lifecycle", "command_uuid": prompt, "state": "started"}));
    assert!(requested(&conversation, "interrupt").is_some());
}

#[test]
fn a_conversation_restarts_only_if_the_cli_has_none_and_is_reported_only_if_messages_are_lost() {
    let lost = || gone().with(Fact::StderrTail, "No conversation found with session ID x");
    let resuming = || {
        let (mut conversation, _) = Conversation::started();
        conversation.input(Input::Exited { generation: 1, fault: gone() });
        conversation.say("again");
        conversation
    };
    let is_over = |events: &[Event]| names(events).iter().any(|name| name == "turn_ended");
    let mut conversation = resuming();
    assert_eq!(
        conversation.input(Input::Exited { generation: 2, fault: lost() }),
        [],
        "nothing was answered yet"
    );
    let mut conversation = resuming();
    let other = gone().with(Fact::StderrTail, "no space left on device");
    assert!(is_over(&conversation.input(Input::Exited { generation: 2, fault: other })));
    let mut conversation = resuming();
    conversation.ask(CommandBody::Cancel { reason: None });
    assert!(
        is_over(&conversation.input(Input::Exited { generation: 2, fault: lost() })),
        "nobody wants it"
    );
}

#[test]
fn a_question_is_closed_by_the_process_that_resumes_the_session() {
    let (mut conversation, _) = Conversation::started_with(Mode::Approval);
    conversation.line(whole("m1", json!([call("t1", "Bash", json!({}))])));
    conversation.line(permission_request("r1", "t1", "Bash"));
    let events = conversation.taken_up().input(Input::Resumed);
    assert!(names(&events).iter().any(|name| name == "question_answered"), "{events:?}");
}

#[test]
fn a_silent_cli_is_reported_with_the_limit_and_the_duration() {
    let silence = |events: &[Event]| {
        let fault = events.iter().find_map(|event| match event {
            Event::TurnEnded { fault, .. } => fault.clone(),
            _ => None,
        });
        let fault = fault.unwrap_or_else(|| panic!("{events:?}"));
        let limit = fault.detail().text(Fact::LimitName).unwrap_or_default().to_owned();
        (limit, fault.detail().number(Fact::TimeoutMs))
    };
    let timeouts = CliTimeouts::default();
    let mut conversation = Conversation::open();
    conversation.say("hello");
    let events = conversation.later(timeouts.start);
    assert_eq!(silence(&events).0, "start");
    let (mut conversation, _) = Conversation::started();
    assert_eq!(conversation.later(timeouts.silence), [], "it is asked for a sign of life");
    let (limit, took) = silence(&conversation.later(timeouts.probe));
    let all = i64::try_from((timeouts.silence + timeouts.probe).as_millis()).unwrap();
    assert_eq!((limit.as_str(), took), ("probe", Some(all)));
}

#[test]
fn a_failed_turn_names_its_step_and_does_not_end_the_session() {
    let (mut conversation, prompt) = Conversation::started();
    conversation.line(whole("m1", json!([call("t1", "Read", json!({}))])));
    conversation.line(gave("t1", json!("1")));
    let mut line = result(&prompt);
    line["subtype"] = json!("error_during_execution");
    line["result"] = json!("oops");
    let events = conversation.line(line);
    let step = events.iter().find_map(|event| match event {
        Event::RecoveryFailed { scope, .. } => Some(scope.step),
        _ => None,
    });
    assert_eq!(step, Some(Some(1)), "{events:?}");
    assert!(!names(&events).iter().any(|name| name == "session_ended"), "{events:?}");
    assert_eq!(conversation.final_text(), "");
}

#[test]
fn a_repeated_result_is_no_echo_of_the_prompt() {
    let (mut conversation, _) = Conversation::started();
    conversation.line(whole("m1", json!([call("t1", "Read", json!({}))])));
    let mut line = gave("t1", json!("1"));
    (line["isReplay"], line["uuid"]) = (json!(true), json!("another"));
    let events = conversation.line(line);
    assert!(names(&events).iter().any(|name| name == "tool_call_ended"), "{events:?}");
}
