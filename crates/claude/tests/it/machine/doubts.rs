//! Calls that were lost with the CLI, and what a person says of them.

use budao_core::{event::Settlement, message::CallId};
use serde_json::json;

use super::*;

/// A turn whose CLI ends while it runs this tool; the call is in doubt.
fn in_doubt() -> (Conversation, CallId) {
    let (mut conversation, _) = Conversation::started();
    conversation.line(whole("m1", json!([call("t1", "Bash", json!({"command": "pay 7"}))])));
    conversation.line(permission_request("r1", "t1", "Bash"));
    let generation = conversation.generation;
    conversation.input(Input::Exited { generation, fault: gone() });
    let open = conversation.machine.session().doubts.all_open();
    assert_eq!(open.len(), 1, "{open:?}");
    let call = open[0].call.clone();
    (conversation, call)
}

fn settle(conversation: &mut Conversation, call: &CallId, settlement: Settlement) -> Answer {
    let note = Some("I looked".to_owned());
    conversation.ask(CommandBody::SettleDoubt { call: call.clone(), settlement, note });
    conversation.answer.clone().unwrap()
}

/// The texts of the prompt that the last input sent.
fn prompt_texts(conversation: &Conversation) -> Vec<String> {
    let sent = conversation.sent();
    let prompt = sent.iter().find(|line| line["type"] == "user").expect("a prompt was sent");
    let blocks = prompt["message"]["content"].as_array().unwrap();
    blocks.iter().map(|block| block["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_settlement_of_a_call_of_a_lost_cli_is_in_the_next_prompt_once() {
    let (mut conversation, call) = in_doubt();
    let happened = Settlement::Happened { result: json!({"receipt": 41}) };
    let answer = settle(&mut conversation, &call, happened);
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    assert!(conversation.machine.session().doubts.all_open().is_empty());
    assert!(conversation.sent().is_empty(), "nothing runs because of a settlement");

    let prompt = conversation.say("and now?");
    let texts = prompt_texts(&conversation);
    assert_eq!((texts.len(), &*texts[0]), (2, "and now?"));
    for told in [r#"{"receipt":41}"#, "I looked", "Bash"] {
        assert!(texts[1].contains(told), "{texts:?}");
    }
    conversation.line(init(&[&prompt]));
    conversation.line(whole("m2", json!([text_block("I see.")])));
    conversation.line(result(&prompt));
    conversation.say("more");
    assert_eq!(prompt_texts(&conversation), ["more"], "it is told once");

    let second = settle(&mut conversation, &call, Settlement::DidNotHappen);
    let Answer::Rejected { fault } = second else { panic!("a doubt is settled once") };
    assert_eq!(fault.kind(), Kind::ConstraintViolated);
}

#[test]
fn messages_during_a_turn_are_part_of_the_next_prompt_of_any_writer() {
    let (mut conversation, call) = in_doubt();
    let prompt = conversation.say("go on");
    conversation.line(init(&[&prompt]));
    settle(&mut conversation, &call, Settlement::DidNotHappen);
    conversation.line(whole("m2", json!([text_block("one")])));
    conversation.line(whole("m3", json!([text_block("two")])));
    conversation.line(result(&prompt));
    let mut next = conversation.taken_up();
    next.input(Input::Resumed);
    next.say("more");
    let texts = prompt_texts(&next);
    assert!(texts.len() == 2 && texts[1].contains("it did not happen"), "{texts:?}");
}

#[test]
fn a_prompt_that_the_cli_never_accepted_is_sent_again_with_its_text() {
    let (mut conversation, call) = in_doubt();
    settle(&mut conversation, &call, Settlement::DidNotHappen);
    conversation.say("and now?");
    let said = prompt_texts(&conversation);
    assert_eq!(said.len(), 2, "{said:?}");
    let generation = conversation.generation;
    conversation.input(Input::Exited { generation, fault: gone() });
    conversation.ask(CommandBody::Retry { turn: None });
    assert_eq!(prompt_texts(&conversation), said);
    let mut next = conversation.taken_up();
    next.input(Input::Resumed);
    assert_eq!(prompt_texts(&next), said, "a new writer sends the same prompt");
}

#[test]
fn an_unprompted_turn_of_the_cli_uses_up_no_settlement() {
    let (mut conversation, call) = in_doubt();
    let prompt = conversation.say("go on");
    conversation.line(init(&[&prompt]));
    conversation.line(whole("m2", json!([text_block("done")])));
    conversation.line(result(&prompt));
    settle(&mut conversation, &call, Settlement::LeftToModel);
    conversation.line(init(&[]));
    assert!(conversation.machine.session().turn.is_some(), "the CLI began a turn");
    conversation.line(whole("m3", json!([text_block("a task ended")])));
    conversation.line(json!({"type": "result", "subtype": "success"}));
    conversation.say("more");
    let texts = prompt_texts(&conversation);
    assert!(texts.len() == 2 && texts[1].contains("leaves it to you"), "{texts:?}");
}

#[test]
fn a_call_that_the_cli_may_have_run_without_a_word_can_be_settled_too() {
    let (mut conversation, _) = Conversation::started();
    conversation.line(whole("m1", json!([call("t1", "Bash", json!({"command": "pay 7"}))])));
    let generation = conversation.generation;
    conversation.input(Input::Exited { generation, fault: gone() });
    let open = conversation.machine.session().doubts.all_open().to_vec();
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].arguments, json!({"command": "pay 7"}));
    let answer = settle(&mut conversation, &open[0].call, Settlement::DidNotHappen);
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
}
