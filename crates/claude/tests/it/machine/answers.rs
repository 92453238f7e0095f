//! Words and thoughts: each is shown once, by the turn it belongs to.

use budao_core::{event::Event, fault::Kind};
use serde_json::json;

use super::*;

#[test]
fn what_a_sub_agent_says_is_not_shown_as_the_agents_own() {
    let (mut talk, _) = Talk::begun();
    let mut line = stream_begins("m1");
    line["parent_tool_use_id"] = json!("t1");
    assert_eq!(talk.line(line), []);
    let mut line = whole("m1", json!([words("inner")]));
    line["parent_tool_use_id"] = json!("t1");
    assert_eq!(talk.line(line), []);
    let mut line = gave("t2", json!("inner"));
    line["parent_tool_use_id"] = json!("t1");
    assert_eq!(talk.line(line), []);
}

#[test]
fn an_answer_that_belongs_to_no_turn_is_late_once_and_its_pieces_are_dropped() {
    let (mut talk, prompt) = Talk::begun();
    talk.line(whole("m1", json!([words("hi")])));
    talk.line(result(&prompt));
    let late = talk.line(stream_begins("m2"));
    let expected =
        Event::LateArrivalDropped { operation: Operation::ReadCli, of_turn: 1, call: None };
    assert_eq!(late, std::slice::from_ref(&expected));
    assert_eq!(talk.line(piece(0, "late")), []);
    assert_eq!(talk.line(whole("m2", json!([words("late")]))), [expected]);
    assert_eq!(talk.line(gave("t1", json!("late"))), []);
    assert_eq!(talk.line(json!({"type": "system", "subtype": "api_retry"})), []);
    assert_eq!(talk.shown(), "hi");
}

#[test]
fn pieces_of_kinds_nobody_reads_and_pieces_of_no_answer_change_nothing() {
    let (mut talk, _) = Talk::begun();
    assert_eq!(talk.line(piece(0, "lost")), []);
    let stop = stream(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}));
    assert_eq!(talk.line(stop), []);
    talk.line(stream_begins("m1"));
    let signature = json!({"type": "signature_delta", "signature": "x"});
    let piece = json!({"type": "content_block_delta", "index": 0, "delta": signature});
    assert_eq!(talk.line(stream(piece)), []);
    assert_eq!(talk.line(stream(json!({"type": "content_block_sparkle"}))), []);
    assert_eq!(talk.line(super::piece(0, "")), []);
    assert!(!talk.machine.has_words());
}

#[test]
fn of_a_stream_thrown_away_from_a_block_on_the_blocks_before_it_stand() {
    let (mut talk, prompt) = Talk::begun();
    talk.line(stream_begins("m1"));
    talk.line(piece(0, "kept "));
    talk.line(piece(1, "void"));
    let events = talk.line(thrown_away(1));
    assert_eq!(
        names(&events),
        ["text_delta", "answer_abandoned", "step_started", "text_delta", "model_answered"]
    );
    talk.line(whole("m2", json!([words("and on")])));
    talk.line(result(&prompt));
    assert_eq!(talk.shown(), "kept and on");
}

#[test]
fn a_stream_thrown_away_whole_is_another_try_of_the_same_step() {
    let (mut talk, prompt) = Talk::begun();
    talk.line(stream_begins("m1"));
    talk.line(piece(0, "void"));
    assert_eq!(names(&talk.line(thrown_away(0))), ["text_delta", "answer_abandoned"]);
    // One of which nothing was shown is given up without a word.
    talk.line(stream_begins("m2"));
    assert_eq!(talk.line(thrown_away(0)), []);
    // And one that is not there.
    assert_eq!(talk.line(thrown_away(0)), []);
    let events = talk.line(stream_begins("m3"));
    let third = Event::StepStarted { step: 1, attempt: 3, model: "m".into() };
    assert_eq!(events, [third]);
    talk.line(piece(0, "said"));
    talk.line(result(&prompt));
    assert_eq!(talk.shown(), "said");
}

#[test]
fn a_thrown_away_end_of_which_nothing_was_shown_voids_nothing() {
    let (mut talk, _) = Talk::begun();
    talk.line(stream_begins("m1"));
    talk.line(piece(0, "kept"));
    assert_eq!(names(&talk.line(thrown_away(1))), ["text_delta", "model_answered"]);
}

#[test]
fn a_retry_voids_what_was_shown_of_the_try_and_its_success_is_told() {
    let (mut talk, prompt) = Talk::begun();
    talk.line(stream_begins("m1"));
    talk.line(piece(0, "void"));
    let retry = json!({"type": "system", "subtype": "api_retry", "attempt": 1,
        "max_retries": 3, "retry_delay_ms": 500.0, "error_status": 529});
    let events = talk.line(retry.clone());
    assert_eq!(
        names(&events),
        ["text_delta", "answer_abandoned", "fault_raised", "retry_scheduled"]
    );
    assert_eq!(
        names(&talk.line(retry)),
        ["step_started", "fault_raised", "retry_scheduled"],
        "the next try failed before a word"
    );
    talk.now = talk.now.after(Duration::from_secs(2));
    let events = talk.line(whole("m2", json!([words("said")])));
    assert_eq!(events, [Event::StepStarted { step: 1, attempt: 3, model: "m".into() }]);
    let events = talk.line(result(&prompt));
    let recovered = events.iter().find_map(|event| match event {
        Event::Recovered { kind, attempts, elapsed_ms, .. } => {
            Some((*kind, *attempts, *elapsed_ms))
        }
        _ => None,
    });
    assert_eq!(recovered, Some((Kind::ModelOverloaded, 3, 2_000)));
    assert_eq!(talk.shown(), "said");
}

#[test]
fn the_echo_of_our_prompt_begins_its_turn() {
    let mut talk = Talk::open();
    let prompt = talk.say("hello");
    let echo = json!({"type": "user", "isReplay": true, "uuid": prompt,
        "message": {"content": "hello"}});
    assert_eq!(talk.line(echo), []);
    // From now on what has no stamp is ours.
    assert_eq!(names(&talk.line(stream_begins("m1"))), ["step_started"]);
}

#[test]
fn what_a_command_of_the_clis_own_prints_is_an_answer() {
    let (mut talk, prompt) = Talk::begun();
    let printed = |text: &str| json!({"type": "user", "message": {"content": text}});
    assert_eq!(talk.line(printed("a plain note")), []);
    assert_eq!(talk.line(printed("<local-command-stdout> </local-command-stdout>")), []);
    let output = printed("<local-command-stdout>3 files</local-command-stdout>");
    assert_eq!(names(&talk.line(output)), ["step_started", "text_delta", "model_answered"]);
    let ended = talk.line(result(&prompt));
    assert_eq!(names(&ended), ["turn_ended"]);
    assert_eq!(talk.shown(), "3 files");
}

#[test]
fn words_of_a_result_are_shown_when_no_others_came() {
    let (mut talk, prompt) = Talk::begun();
    let mut line = result(&prompt);
    line["result"] = json!("said at the end");
    let events = talk.line(line);
    assert_eq!(names(&events), ["step_started", "text_delta", "model_answered", "turn_ended"]);
    assert_eq!(talk.shown(), "said at the end");
}

#[test]
fn what_the_cli_says_by_itself_while_our_prompt_waits_is_kept_beside_it_and_is_bounded() {
    let mut talk = Talk::open();
    let prompt = talk.say("hello");
    let mut begins = init(&[]);
    begins["capabilities"] = json!(["msg_lifecycle_v1"]);
    talk.line(begins);
    assert_eq!(talk.line(stream_begins("own")), []);
    let long = "x".repeat(20_000);
    talk.line(whole("own", json!([words("by the way ")])));
    talk.line(whole("own", json!([words(&long)])));
    let events = talk.line(json!({"type": "result", "subtype": "success"}));
    let [Event::Annotated { topic, data }] = &*events else { panic!("{events:?}") };
    assert_eq!(topic, "claude.aside");
    let text = data["text"].as_str().unwrap();
    assert!(text.starts_with("by the way xxx"), "{text}");
    assert_eq!(text.len(), 16_384);
    // Ours begins only now.
    talk.line(init(&[&prompt]));
    talk.line(whole("m1", json!([words("hello you")])));
    talk.line(result(&prompt));
    assert_eq!(talk.shown(), "hello you");
}
