//! A new writer after the one before it was lost: the turn is cut, its partial answer and shared state are kept.

use budao_core::{
    engine::Engine as _,
    event::{Answer, CommandBody, Decision, Event, QuestionId, Settlement},
    fault::{Fact, Kind},
    message::{ModelStop, text_of},
};
use budao_relay::RelayConfig;
use serde_json::{Value, json};

use crate::common::{
    Fixture, call, fault_of, finished, kind_of, lines, relay, reply, result, run, started, text,
};

/// Loses the engine as a killed process does: its tasks end in the middle of their work, and nothing is parked. A new
/// engine takes its leases.
async fn killed(fixture: Fixture, resubmit: bool) -> Fixture {
    fixture.tasks.kill();
    next_engine(fixture, resubmit)
}

/// Shuts the engine down, which parks its turns, and starts another one.
async fn restarted(fixture: Fixture) -> Fixture {
    fixture.relay.shutdown(std::time::Duration::ZERO).await;
    next_engine(fixture, false)
}

fn next_engine(fixture: Fixture, resubmit: bool) -> Fixture {
    let url = Some(format!("{}/agent", fixture.agent.url()));
    let config = RelayConfig { url, resubmit, ..RelayConfig::default() };
    let (relay, tasks) = relay(&fixture.journal, config);
    let next = Fixture { relay, tasks, ..fixture };
    next.relay.touch(next.session);
    next
}

/// The texts and stops of the answers of a turn.
fn answers(turn: &[Event]) -> Vec<(String, ModelStop)> {
    let answers = turn.iter().filter_map(|event| match event {
        Event::ModelAnswered { content, stop, .. } => Some((text_of(content), *stop)),
        _ => None,
    });
    answers.collect()
}

#[tokio::test]
async fn a_shutdown_in_the_middle_of_an_answer_keeps_it_and_the_next_message_is_answered() {
    let half: Vec<Value> = [started()].into_iter().chain(text("m", &["half"])).collect();
    let good = reply(&run([text("n", &["good"])]));
    let fixture = Fixture::new([reply(&half[..3]).stall(), good]).await;
    fixture.say("go").await;
    fixture.until(|event| matches!(event, Event::TextDelta { .. })).await;
    let next = restarted(fixture).await;
    let turn = next.turn(1).await;
    assert_eq!(kind_of(&turn), Some(Kind::UpstreamCut), "{}", lines(&turn));
    assert_eq!(fault_of(&turn).unwrap().detail().text(Fact::State), Some("restarted"));
    assert_eq!(answers(&turn), [("half".to_owned(), ModelStop::Other)]);
    next.say("again").await;
    assert_eq!(kind_of(&next.turn(2).await), None);
}

#[tokio::test]
async fn after_a_kill_the_partial_answer_is_kept_and_marked_and_its_calls_are_in_doubt() {
    let state = json!({"type": "STATE_SNAPSHOT", "snapshot": {"n": 1}});
    let half: Vec<Value> = [started(), state]
        .into_iter()
        .chain(call("x", "pay", r#"{"claim":7}"#))
        .chain(text("m", &["half"]))
        .collect();
    let good = reply(&run([text("n", &["good"])]));
    let fixture = Fixture::new([reply(&half[..half.len() - 1]).stall(), good]).await;
    fixture.say("go").await;
    let before = fixture.until(|event| matches!(event, Event::TextDelta { .. })).await;
    assert!(!lines(before.iter().map(|record| &record.event)).contains("answer"));
    let next = killed(fixture, false).await;
    let turn = next.turn(1).await;
    assert!(lines(&turn).contains("session_resumed"), "nothing was parked: {}", lines(&turn));
    assert_eq!(kind_of(&turn), Some(Kind::UpstreamCut), "{}", lines(&turn));
    assert_eq!(fault_of(&turn).unwrap().detail().text(Fact::State), Some("restarted"));
    assert_eq!(answers(&turn), [("half".to_owned(), ModelStop::Other)]);
    assert!(lines(&turn).contains(r#""partial\":true"#), "it is marked: {}", lines(&turn));
    let doubts = next.state().await.doubts.all_open().to_vec();
    assert_eq!(doubts.len(), 1, "{}", lines(&turn));
    assert_eq!((&*doubts[0].tool, &doubts[0].arguments), ("pay", &json!({"claim": 7})));

    let (call, settlement, note) = (doubts[0].call.clone(), Settlement::DidNotHappen, None);
    let answer = next.submit(CommandBody::SettleDoubt { call, settlement, note }).await;
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    next.say("again").await;
    assert_eq!(kind_of(&next.turn(2).await), None);
    let asked = next.agent.asked();
    assert_eq!(asked[1].body["state"], json!({"n": 1}));
    assert!(asked[1].body["messages"].to_string().contains("it did not happen"));
}

#[tokio::test]
async fn a_run_that_may_be_asked_twice_is_posted_again_after_a_kill() {
    let half: Vec<Value> = [started()].into_iter().chain(text("m", &["half"])).collect();
    let good = reply(&run([text("n", &["good"])]));
    let fixture = Fixture::with(
        RelayConfig { resubmit: true, ..RelayConfig::default() },
        [reply(&half[..3]).stall(), good],
    )
    .await;
    fixture.say("go").await;
    fixture.until(|event| matches!(event, Event::TextDelta { .. })).await;
    let next = killed(fixture, true).await;
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
async fn a_question_survives_a_kill_and_its_answer_is_posted() {
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
    let next = killed(fixture, false).await;
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
