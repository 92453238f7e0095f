//! What a front end gives the agent beside a message: it goes with the request of that message, also after a restart.

use budao_core::{
    ag_ui::{AgentInput, INPUT_TOPIC},
    engine::Engine as _,
    event::{Answer, CommandBody, Decision, Event, QuestionId},
    fault::Kind,
};
use budao_relay::{RelayConfig, RelayLimits};
use serde_json::{Map, Value, json};

use crate::common::{Fixture, call, kind_of, lines, relay, reply, run, started, text};

/// The command of the message that follows the input.
fn next_message(fixture: &Fixture) -> String {
    format!("c{}", fixture.commands.get() + 2)
}

fn input(message: Option<String>, state: Option<Value>, name: &str) -> CommandBody {
    let mut forwarded_props = Map::new();
    forwarded_props.insert("name".to_owned(), name.into());
    let context = vec![json!({ "description": "name", "value": name })];
    let message = message.map(|id| id.as_str().into());
    let data = json!(AgentInput { message, state, context, forwarded_props });
    CommandBody::Annotate { topic: INPUT_TOPIC.to_owned(), data }
}

fn given(body: &Value) -> [&Value; 3] {
    [&body["state"], &body["context"], &body["forwardedProps"]]
}

fn good() -> budao_testkit::provider::Reply {
    reply(&run([text("m", &["good"])]))
}

/// Ends the engine as a kill does, and starts another one.
fn killed(fixture: Fixture) -> Fixture {
    fixture.tasks.kill();
    let url = Some(format!("{}/agent", fixture.agent.url()));
    let (relay, tasks) = relay(&fixture.journal, RelayConfig { url, ..RelayConfig::default() });
    let next = Fixture { relay, tasks, ..fixture };
    next.relay.touch(next.session);
    next
}

#[tokio::test]
async fn the_input_of_a_front_end_is_in_the_request_of_its_message_and_only_there() {
    let fixture = Fixture::new([good(), good()]).await;
    let state = json!({ "n": 1 });
    fixture.submit(input(Some(next_message(&fixture)), Some(state.clone()), "ada")).await;
    fixture.say("one").await;
    fixture.turn(1).await;
    fixture.say("two").await;
    fixture.turn(2).await;
    let asked = fixture.agent.asked();
    let context = json!([{ "description": "name", "value": "ada" }]);
    assert_eq!(given(&asked[0].body), [&state, &context, &json!({ "name": "ada" })]);
    assert_eq!(given(&asked[1].body), [&state, &json!([]), &json!({})]);
}

#[tokio::test]
async fn the_input_of_a_queued_message_survives_a_kill_with_the_message() {
    let half: Vec<Value> = [started()].into_iter().chain(text("m", &["half"])).collect();
    let fixture = Fixture::new([reply(&half[..3]).stall(), good()]).await;
    fixture.say("first").await;
    fixture.until(|event| matches!(event, Event::TextDelta { .. })).await;
    fixture.submit(input(Some(next_message(&fixture)), Some(json!({ "old": true })), "ada")).await;
    fixture.say("second").await;
    let next = killed(fixture);
    assert_eq!(kind_of(&next.turn(1).await), Some(Kind::UpstreamCut));
    assert_eq!(kind_of(&next.turn(2).await), None);
    let asked = next.agent.asked();
    assert_eq!(asked[1].body["forwardedProps"], json!({ "name": "ada" }));
    assert_eq!(asked[1].body["state"], json!({}), "the run under way owned the state");
}

#[tokio::test]
async fn an_input_above_the_limit_is_refused_and_the_session_goes_on() {
    let limits = RelayLimits { state_bytes: 500, ..RelayLimits::default() };
    let fixture = Fixture::with(RelayConfig { limits, ..RelayConfig::default() }, [good()]).await;
    let large = input(Some(next_message(&fixture)), None, &"x".repeat(600));
    let Answer::Rejected { fault } = fixture.submit(large).await else { panic!("it is too large") };
    assert_eq!(fault.kind(), Kind::LimitReached);
    fixture.say("one").await;
    assert_eq!(kind_of(&fixture.turn(1).await), None);
    assert_eq!(fixture.agent.asked()[0].body["context"], json!([]));
}

#[tokio::test]
async fn after_a_kill_the_patches_before_a_question_are_not_applied_again() {
    let ask = json!({
        "type": "RUN_FINISHED", "threadId": "t", "runId": "r",
        "outcome": { "type": "interrupt", "interrupts": [{ "id": "i", "reason": "tool_call", "toolCallId": "x" }] },
    });
    let asking = [
        vec![started()],
        call("x", "pay", "{}"),
        vec![json!({ "type": "STATE_DELTA", "delta": [{ "op": "add", "path": "/list/-", "value": 1 }] }), ask],
    ]
    .concat();
    let half: Vec<Value> = [started()].into_iter().chain(text("m", &["half"])).collect();
    let half = reply(&half[..3]).stall();
    let state = vec![json!({ "type": "STATE_SNAPSHOT", "snapshot": { "list": [] } })];
    let first = reply(&run([state, text("m", &["good"])]));
    let fixture = Fixture::new([first, reply(&asking), half, good()]).await;
    fixture.say("begin").await;
    fixture.turn(1).await;
    fixture.say("go").await;
    let asked = fixture.until(|event| matches!(event, Event::QuestionAsked { .. })).await;
    let question = asked.iter().find_map(|record| match &record.event {
        Event::QuestionAsked { question, .. } => Some(question.clone()),
        _ => None,
    });
    let question: QuestionId = question.unwrap();
    let decision = Decision::Allow;
    fixture
        .submit(CommandBody::Decide {
            question,
            decision,
            note: None,
            arguments: None,
            digest: None,
        })
        .await;
    fixture.until(|event| matches!(event, Event::TextDelta { text, .. } if text == "half")).await;
    let next = killed(fixture);
    let turn = next.turn(2).await;
    assert_eq!(kind_of(&turn), Some(Kind::UpstreamCut), "{}", lines(&turn));
    next.say("again").await;
    next.turn(3).await;
    assert_eq!(next.agent.asked()[3].body["state"], json!({ "list": [1] }));
}
