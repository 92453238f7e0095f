//! Words and thoughts: each is shown once, by the turn it belongs to.

use budao_core::{event::Event, fault::Kind};
use serde_json::json;

use super::*;

#[test]
fn text_of_a_sub_agent_is_not_shown_as_the_agents_own() {
    let (mut conversation, _) = Conversation::started();
    let mut line = stream_begins("m1");
    line["parent_tool_use_id"] = json!("t1");
    assert_eq!(conversation.line(line), []);
    let mut line = whole("m1", json!([text_block("inner")]));
    line["parent_tool_use_id"] = json!("t1");
    assert_eq!(conversation.line(line), []);
    let mut line = gave("t2", json!("inner"));
    line["parent_tool_use_id"] = json!("t1");
    assert_eq!(conversation.line(line), []);
}

#[test]
fn an_answer_that_belongs_to_no_turn_is_late_once_and_its_pieces_are_dropped() {
    let (mut conversation, prompt) = Conversation::started();
    conversation.line(whole("m1", json!([text_block("hi")])));
    conversation.line(result(&prompt));
    let late = conversation.line(stream_begins("m2"));
    let expected =
        Event::LateArrivalDropped { operation: Operation::ReadCli, of_turn: 1, call: None };
    assert_eq!(late, std::slice::from_ref(&expected));
    assert_eq!(conversation.line(piece(0, "late")), []);
    assert_eq!(conversation.line(whole("m2", json!([text_block("late")]))), [expected]);
    assert_eq!(conversation.line(gave("t1", json!("late"))), []);
    assert_eq!(conversation.line(json!({"type": "system", "subtype": "api_retry"})), []);
    assert_eq!(conversation.final_text(), "hi");
}

#[test]
fn unknown_pieces_and_pieces_outside_an_answer_change_nothing() {
    let (mut conversation, _) = Conversation::started();
    assert_eq!(conversation.line(piece(0, "lost")), []);
    let stop = stream(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}));
    assert_eq!(conversation.line(stop), []);
    conversation.line(stream_begins("m1"));
    let signature = json!({"type": "signature_delta", "signature": "x"});
    let piece = json!({"type": "content_block_delta", "index": 0, "delta": signature});
    assert_eq!(conversation.line(stream(piece)), []);
    assert_eq!(conversation.line(stream(json!({"type": "content_block_sparkle"}))), []);
    assert_eq!(conversation.line(super::piece(0, "")), []);
    assert!(!conversation.machine.has_words());
}

#[test]
fn of_a_stream_thrown_away_from_a_block_on_the_blocks_before_it_stand() {
    let (mut conversation, prompt) = Conversation::started();
    conversation.line(stream_begins("m1"));
    conversation.line(piece(0, "kept "));
    conversation.line(piece(1, "void"));
    let events = conversation.line(thrown_away(1));
    assert_eq!(
        names(&events),
        ["text_delta", "answer_abandoned", "step_started", "text_delta", "model_answered"]
    );
    conversation.line(whole("m2", json!([text_block("and on")])));
    conversation.line(result(&prompt));
    assert_eq!(conversation.final_text(), "kept and on");
}

#[test]
fn a_stream_thrown_away_whole_is_another_try_of_the_same_step() {
    let (mut conversation, prompt) = Conversation::started();
    conversation.line(stream_begins("m1"));
    conversation.line(piece(0, "void"));
    assert_eq!(names(&conversation.line(thrown_away(0))), ["text_delta", "answer_abandoned"]);
    // One of which nothing was shown is given up without a word.
    conversation.line(stream_begins("m2"));
    assert_eq!(conversation.line(thrown_away(0)), []);
    // And one that is not there.
    assert_eq!(conversation.line(thrown_away(0)), []);
    let events = conversation.line(stream_begins("m3"));
    let third = Event::StepStarted { step: 1, attempt: 3, model: "m".into() };
    assert_eq!(events, [third]);
    conversation.line(piece(0, "said"));
    conversation.line(result(&prompt));
    assert_eq!(conversation.final_text(), "said");
}

#[test]
fn a_thrown_away_end_of_which_nothing_was_shown_voids_nothing() {
    let (mut conversation, _) = Conversation::started();
    conversation.line(stream_begins("m1"));
    conversation.line(piece(0, "kept"));
    assert_eq!(names(&conversation.line(thrown_away(1))), ["text_delta", "model_answered"]);
}

#[test]
fn a_retry_voids_the_text_of_the_failed_attempt_and_its_success_is_recorded() {
    let (mut conversation, prompt) = Conversation::started();
    conversation.line(stream_begins("m1"));
    conversation.line(piece(0, "void"));
    let retry = json!({"type": "system", "subtype": "api_retry", "attempt": 1,
        "max_retries": 3, "retry_delay_ms": 500.0, "error_status": 529});
    let events = conversation.line(retry.clone());
    assert_eq!(
        names(&events),
        ["text_delta", "answer_abandoned", "fault_raised", "retry_scheduled"]
    );
    assert_eq!(
        names(&conversation.line(retry)),
        ["step_started", "fault_raised", "retry_scheduled"],
        "the next try failed before a word"
    );
    conversation.now = conversation.now.after(Duration::from_secs(2));
    let events = conversation.line(whole("m2", json!([text_block("said")])));
    assert_eq!(events, [Event::StepStarted { step: 1, attempt: 3, model: "m".into() }]);
    let events = conversation.line(result(&prompt));
    let recovered = events.iter().find_map(|event| match event {
        Event::Recovered { kind, attempts, elapsed_ms, .. } => {
            Some((*kind, *attempts, *elapsed_ms))
        }
        _ => None,
    });
    assert_eq!(recovered, Some((Kind::ModelOverloaded, 3, 2_000)));
    assert_eq!(conversation.final_text(), "said");
}

#[test]
fn the_echo_of_our_prompt_begins_its_turn() {
    let mut conversation = Conversation::open();
    let prompt = conversation.say("hello");
    let echo = json!({"type": "user", "isReplay": true, "uuid": prompt,
        "message": {"content": "hello"}});
    assert_eq!(conversation.line(echo), []);
    // From now on what has no stamp is ours.
    assert_eq!(names(&conversation.line(stream_begins("m1"))), ["step_started"]);
}

#[test]
fn the_output_of_a_cli_command_is_an_answer() {
    let (mut conversation, prompt) = Conversation::started();
    let printed = |text: &str| json!({"type": "user", "message": {"content": text}});
    assert_eq!(conversation.line(printed("a plain note")), []);
    assert_eq!(conversation.line(printed("<local-command-stdout> </local-command-stdout>")), []);
    let output = printed("<local-command-stdout>3 files</local-command-stdout>");
    assert_eq!(names(&conversation.line(output)), ["step_started", "text_delta", "model_answered"]);
    let ended = conversation.line(result(&prompt));
    assert_eq!(names(&ended), ["turn_ended"]);
    assert_eq!(conversation.final_text(), "3 files");
}

#[test]
fn words_of_a_result_are_shown_when_no_others_came() {
    let (mut conversation, prompt) = Conversation::started();
    let mut line = result(&prompt);
    line["result"] = json!("said at the end");
    let events = conversation.line(line);
    assert_eq!(names(&events), ["step_started", "text_delta", "model_answered", "turn_ended"]);
    assert_eq!(conversation.final_text(), "said at the end");
}

#[test]
fn unprompted_output_of_the_cli_before_the_answer_is_kept_apart_and_bounded() {
    let mut conversation = Conversation::open();
    let prompt = conversation.say("hello");
    let mut begins = init(&[]);
    begins["capabilities"] = json!(["msg_lifecycle_v1"]);
    conversation.line(begins);
    assert_eq!(conversation.line(stream_begins("own")), []);
    let long = "x".repeat(20_000);
    conversation.line(whole("own", json!([text_block("by the way ")])));
    conversation.line(whole("own", json!([text_block(&long)])));
    let events = conversation.line(json!({"type": "result", "subtype": "success"}));
    let [Event::Annotated { topic, data }] = &*events else { panic!("{events:?}") };
    assert_eq!(topic, "claude.background_text");
    let text = data["text"].as_str().unwrap();
    assert!(text.starts_with("by the way xxx"), "{text}");
    assert_eq!(text.len(), 16_384);
    // Ours begins only now.
    conversation.line(init(&[&prompt]));
    conversation.line(whole("m1", json!([text_block("hello you")])));
    conversation.line(result(&prompt));
    assert_eq!(conversation.final_text(), "hello you");
}
