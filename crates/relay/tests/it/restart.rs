//! A new writer after the one before it was lost: the turn is cut, its partial answer and shared state are kept.

use std::sync::Arc;

use budao_core::{
    engine::Engine as _,
    event::{CommandBody, Decision, Event, QuestionId},
    fault::{Fact, Kind},
    message::text_of,
};
use budao_relay::RelayConfig;
use serde_json::{Value, json};

use crate::common::{
    Fixture, call, fault_of, finished, kind_of, lines, relay, reply, result, run, started, text,
};

/// Loses the engine as a killed process does: it is dropped without a shutdown, and its lease runs out.
async fn restarted(fixture: Fixture, resubmit: bool) -> Fixture {
    let url = Some(format!("{}/agent", fixture.agent.url()));
    let config = RelayConfig { url, resubmit, ..RelayConfig::default() };
    fixture.relay.shutdown(std::time::Duration::ZERO).await;
    let relay = relay(&fixture.journal, config);
    let journal = Arc::clone(&fixture.journal);
    let next = Fixture { relay, journal, ..fixture };
    next.relay.touch(next.session);
    next
}

#[tokio::test]
async fn a_shutdown_in_the_middle_of_an_answer_keeps_it_and_the_next_message_is_answered() {
    let half: Vec<Value> = [started()].into_iter().chain(text("m", &["half"])).collect();
    let good = reply(&run([text("n", &["good"])]));
    let fixture = Fixture::new([reply(&half[..3]).stall(), good]).await;
    fixture.say("go").await;
    fixture.until(|event| matches!(event, Event::TextDelta { .. })).await;
    let next = restarted(fixture, false).await;
    let turn = next.turn(1).await;
    assert_eq!(kind_of(&turn), Some(Kind::UpstreamCut), "{}", lines(&turn));
    assert_eq!(fault_of(&turn).unwrap().detail().text(Fact::State), Some("restarted"));
    assert!(lines(&turn).contains("half"), "{}", lines(&turn));
    next.say("again").await;
    assert_eq!(kind_of(&next.turn(2).await), None);
}

#[tokio::test]
async fn a_run_that_may_be_asked_twice_is_posted_again_after_a_restart() {
    let half: Vec<Value> = [started()].into_iter().chain(text("m", &["half"])).collect();
    let good = reply(&run([text("n", &["good"])]));
    let fixture = Fixture::with(
        RelayConfig { resubmit: true, ..RelayConfig::default() },
        [reply(&half[..3]).stall(), good],
    )
    .await;
    fixture.say("go").await;
    fixture.until(|event| matches!(event, Event::TextDelta { .. })).await;
    let next = restarted(fixture, true).await;
    let turn = next.turn(1).await;
    assert_eq!(kind_of(&turn), None, "{}", lines(&turn));
    assert_eq!(next.agent.asked().len(), 2);
    let kept = turn.iter().rev().find_map(|event| match event {
        Event::ModelAnswered { content, .. } => Some(text_of(content)),
        _ => None,
    });
    assert_eq!(kept.as_deref(), Some("good"));
}

#[tokio::test]
async fn a_question_survives_a_restart_and_its_answer_is_posted() {
    let interrupt = json!({"id": "i", "reason": "tool_call", "toolCallId": "x"});
    let outcome = json!({"type": "interrupt", "interrupts": [interrupt]});
    let state = json!({"type": "STATE_SNAPSHOT", "snapshot": {"n": 1}});
    let asks: Vec<Value> = [started(), state]
        .into_iter()
        .chain(call("x", "delete", "{}"))
        .chain([json!({"type": "RUN_FINISHED", "outcome": outcome})])
        .collect();
    let done: Vec<Value> = [started(), result("x", "deleted")]
        .into_iter()
        .chain(text("m", &["Done."]))
        .chain([finished()])
        .collect();
    let fixture = Fixture::new([reply(&asks), reply(&done)]).await;
    fixture.say("delete").await;
    fixture.until(|event| matches!(event, Event::QuestionAsked { .. })).await;
    let next = restarted(fixture, false).await;
    next.submit(CommandBody::Decide {
        question: QuestionId("ask_call_1_1_1".into()),
        decision: Decision::Allow,
        note: None,
        arguments: None,
        digest: None,
    })
    .await;
    let turn = next.turn(1).await;
    assert_eq!(kind_of(&turn), None, "{}", lines(&turn));
    let asked = next.agent.asked();
    let resume = json!([{"interruptId": "i", "status": "resolved", "payload": {"approved": true}}]);
    assert_eq!(asked[1].body["resume"], resume);
    assert_eq!(asked[1].body["state"], json!({"n": 1}));
}
