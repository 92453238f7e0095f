//! Commands: each once, each answered, and what they start ends.

use std::{sync::atomic::Ordering, time::Duration};

use budao_client::{Decision, Error, SessionRequest};
use budao_core::{Kind, tool::Mode};
use budao_models::script::Script;
use budao_testkit::proxy::{Ending, Proxy};
use serde_json::json;

use crate::fixture::{Setup, client_at, long_run, next, runs, texts_by_event, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_sent_twice_happens_once_and_gets_the_first_answer() {
    let stage = Setup::new(runs(1)).start().await;
    let mut peer = stage.peer().await;
    let session = peer.create().await;
    let message = json!({"event": "user.message", "session_id": session, "content": "go"});
    let first = peer.ask(message.clone(), "once").await;
    let second = peer.ask(message.clone(), "once").await;
    assert_eq!(
        (&first["event"], &second["event"]),
        (&json!("system.notice"), &json!("system.notice"))
    );
    let third = stage.peer().await.ask(message, "once").await;
    assert_eq!(third["metadata"]["status"], "accepted");
    let mut other = json!({"event": "user.message", "session_id": session, "content": "another"});
    other["command_id"] = "once".into();
    let refused = peer.ask(other, "once").await;
    assert_eq!(refused["event"], "error.validation", "{refused}");
    let history = stage.history(&session).await;
    let messages = history.iter().filter(|event| event.event == "user.message").count();
    assert_eq!(messages, 1);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_a_session_twice_under_one_id_gives_one_session() {
    let stage = Setup::new(runs(1)).start().await;
    let create = json!({"event": "user.create_session", "content": {}});
    let one = stage.peer().await.ask(create.clone(), "open").await;
    let two = stage.peer().await.ask(create, "open").await;
    assert_eq!(one["session_id"], two["session_id"]);
    assert_eq!(one["event_id"], two["event_id"]);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_documented_acknowledgement_is_understood_and_one_beyond_the_head_is_refused() {
    let stage = Setup::new(runs(1)).start().await;
    let mut peer = stage.peer().await;
    peer.send(&json!({"event": "user.create_session", "content": {}})).await;
    let created = peer.until("agent.session_created").await;
    let (session, seq) = (&created["session_id"], &created["seq"]);
    let shapes = [
        json!({"content": {"last_seq": seq}}),
        json!({"content": seq}),
        json!({"content": {"last_event_id": created["event_id"]}}),
        json!({"metadata": {"last_seq": seq}}),
        json!({"last_seq": seq}),
    ];
    for (number, mut shape) in shapes.into_iter().enumerate() {
        shape["event"] = "user.ack".into();
        shape["session_id"] = session.clone();
        let answer = peer.ask(shape.clone(), &format!("ack-{number}")).await;
        assert_eq!(answer["event"], "system.notice", "{shape} got {answer}");
    }
    let beyond =
        json!({"event": "user.ack", "session_id": session, "content": {"last_seq": 1_000_000_000}});
    let answer = peer.ask(beyond, "beyond").await;
    assert_eq!(answer["event"], "error.validation");
    assert_eq!(answer["metadata"]["field"], "content.last_seq");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_as_content_is_a_message_like_any_other() {
    let stage = Setup::new(runs(1)).start().await;
    let mut peer = stage.peer().await;
    let session = peer.create().await;
    let content = json!({"text": "go"});
    let frame = json!({"event": "user.message", "session_id": session, "content": content});
    let answer = peer.ask(frame, "object").await;
    assert_eq!(answer["event"], "system.notice", "{answer}");
    peer.until("agent.final_answer").await;
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_leaves_no_call_running_and_the_session_can_be_used_on() {
    let waits = (0..3).map(|_| ("wait", json!({})));
    let stage = Setup::new(Script::new().calls(waits).say("Here.")).start().await;
    let (session, mut events) = stage.session().await;
    session.send("go").await.unwrap();
    for _ in 0..3 {
        until(&mut events, "agent.tool_call").await;
    }
    while stage.running.load(Ordering::SeqCst) < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    session.cancel().await.unwrap();
    let received = until(&mut events, "agent.interrupted").await;
    let results = received.iter().filter(|event| event.event == "agent.tool_result").count();
    assert_eq!((results, stage.running.load(Ordering::SeqCst)), (3, 0), "every call has its end");
    session.send("still there?").await.unwrap();
    let answer = until(&mut events, "agent.final_answer").await;
    assert_eq!(answer.last().unwrap().text(), "Here.");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_waits_can_be_taken_back_once_and_is_never_answered() {
    let script = Script::new().call("wait", json!({})).say("To the third.");
    let stage = Setup::new(script).start().await;
    let (session, mut events) = stage.session().await;
    session.send("one").await.unwrap();
    let accepted = session.send("two").await.unwrap();
    let two = accepted.meta("command_id").as_str().unwrap().to_owned();
    let accepted = session.send("three").await.unwrap();
    let three = accepted.meta("command_id").clone();
    let taken_back = session.withdraw(&two).await.unwrap();
    assert_eq!(taken_back.meta("message"), two.as_str());
    for no_longer in [two.as_str(), "nobody's"] {
        let again = session.withdraw(no_longer).await;
        assert!(matches!(again, Err(Error::Rejected(_))), "{again:?}");
    }
    session.cancel().await.unwrap();
    let received = until(&mut events, "agent.final_answer").await;
    let news = received.iter().filter(|event| event.meta("action") == "message_withdrawn");
    let news: Vec<_> = news.map(|event| event.meta("message").clone()).collect();
    assert_eq!(news, [two.as_str()]);
    assert_eq!(received.last().unwrap().meta("command_id"), &three);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_turn_is_retried_without_its_calls_and_only_once_by_one_command() {
    let script = Script::new()
        .call("echo", json!({"text": "one"}))
        .fail(Kind::ModelAuthentication)
        .say("Done after all.");
    let stage = Setup::new(script).start().await;
    let (session, mut events) = stage.session().await;
    session.send("go").await.unwrap();
    let failed = until(&mut events, "agent.error").await;
    assert_eq!(failed.last().unwrap().meta("turn"), 1);
    until(&mut events, "agent.session_end").await;
    let retry = json!({"content": {"turn": 1}});
    for _ in 0..2 {
        session.ask_as("again", "user.retry", retry.clone()).await.unwrap();
    }
    let received = until(&mut events, "agent.final_answer").await;
    let notices: Vec<_> =
        received.iter().filter(|event| event.meta("action") == "turn_retried").collect();
    assert_eq!(notices.len(), 1);
    assert_eq!(
        (notices[0].meta("retry_of"), notices[0].meta("command_id")),
        (&1.into(), &"again".into())
    );
    let answer = received.last().unwrap();
    assert_eq!((answer.text(), answer.meta("turn")), ("Done after all.", &2.into()));
    assert_eq!(answer.meta("command_id"), "again");
    assert!(!received.iter().any(|event| event.event == "agent.tool_call"), "{received:?}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_that_cannot_be_names_the_rule_and_the_turn() {
    let stage = Setup::new(Script::new().say("Here.").call("wait", json!({}))).start().await;
    let (session, mut events) = stage.session().await;
    let constraint = async || match session.retry().await {
        Err(Error::Rejected(event)) => event.meta("constraint").as_str().unwrap().to_owned(),
        other => panic!("{other:?}"),
    };
    assert!(constraint().await.contains("the session has no turn"));
    session.send("go").await.unwrap();
    until(&mut events, "agent.final_answer").await;
    assert!(constraint().await.contains("turn 1 ended as end_turn"));
    session.send("wait").await.unwrap();
    until(&mut events, "agent.tool_call").await;
    assert!(constraint().await.contains("turn 2 is running"));
    session.cancel().await.unwrap();
    until(&mut events, "agent.interrupted").await;
    assert!(constraint().await.contains("turn 2 ended as cancelled"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_clients_that_settle_a_doubt_at_once_one_wins_and_the_other_is_refused() {
    for round in 0..10 {
        let script = Script::new().call("unsure", json!({})).say("I am not sure.");
        let stage = Setup::new(script).start().await;
        let (session, mut events) = stage.session().await;
        session.send("go").await.unwrap();
        let received = until(&mut events, "agent.final_answer").await;
        let call = received.iter().find(|event| event.event == "agent.tool_call").unwrap();
        let settle = |outcome: &str| {
            let mut content = json!({"call_id": call.meta("call_id"), "outcome": outcome});
            if outcome == "happened" {
                content["result"] = json!(round);
            }
            json!({"event": "user.settle_doubt", "session_id": session.id(), "content": content})
        };
        let (mut one, mut two) = (stage.peer().await, stage.peer().await);
        let (first, second) = tokio::join!(
            one.ask(settle("happened"), "window 1"),
            two.ask(settle("did_not_happen"), "window 2")
        );
        let late = two.ask(settle("left_to_model"), "window 2 again").await;
        let answers = [&first, &second, &late];
        let accepted = answers.iter().filter(|it| it["metadata"]["status"] == "accepted").count();
        let told = answers.iter().filter(|it| it.to_string().contains("settled it before")).count();
        assert_eq!((accepted, told), (1, 2), "{answers:?}");
        stage.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_call_has_its_terminal_event() {
    let stage = Setup::new(Script::new().call("fail", json!({})).say("It failed.")).start().await;
    let (session, mut events) = stage.session().await;
    session.send("go").await.unwrap();
    let received = until(&mut events, "agent.final_answer").await;
    let result = received.iter().find(|event| event.event == "agent.tool_result").unwrap();
    assert_eq!(result.meta("status"), "failed");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_survives_the_line_and_is_answered_once() {
    let script = Script::new().call("wait", json!({})).say("Never mind.");
    let stage = Setup::new(script).mode(Mode::Approval).start().await;
    let proxy = Proxy::start(stage.address, 1).await.unwrap();
    let (session, mut events) =
        client_at(proxy.address()).create(SessionRequest::default()).await.unwrap();
    session.send("go").await.unwrap();
    let confirmation = until(&mut events, "agent.user_confirm").await;
    let step = confirmation.last().unwrap().step_id.clone().unwrap();
    proxy.cut_all(Ending::Reset);
    // A new observer gets the question as well.
    let (other, mut seen) = stage.client().attach(session.id(), None).await.unwrap();
    until(&mut seen, "agent.user_confirm").await;
    let no = Decision::Deny(Some("not today".into()));
    session.answer(&step, no.clone()).await.unwrap();
    let second = other.answer(&step, Decision::Approve).await;
    assert!(matches!(second, Err(Error::Rejected(_))), "{second:?}");
    let received = until(&mut events, "agent.final_answer").await;
    assert_eq!(received.last().unwrap().text(), "Never mind.");
    assert_eq!(stage.running.load(Ordering::SeqCst), 0, "what was denied never ran");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_former_word_for_an_approval_is_accepted() {
    let script = Script::new().call("mark", json!({})).say("Done.");
    let stage = Setup::new(script).mode(Mode::Approval).start().await;
    let mut peer = stage.peer().await;
    let session = peer.create().await;
    peer.send(&json!({"event": "user.message", "session_id": session, "content": "go"})).await;
    let confirmation = peer.until("agent.user_confirm").await;
    let yes = json!({
        "event": "user.response", "session_id": session, "step_id": confirmation["step_id"],
        "content": {"approved": true},
    });
    peer.send(&yes).await;
    peer.until("agent.final_answer").await;
    let history = stage.history(&session).await;
    let result = history.iter().find(|event| event.event == "agent.tool_result").unwrap();
    assert_eq!((result.meta("status"), result.text()), (&json!("success"), "marked"));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_observers_of_a_session_get_the_same_events() {
    let stage = Setup::new(long_run()).start().await;
    let (session, mut events) = stage.session().await;
    let mut others = Vec::new();
    for _ in 0..20 {
        others.push(stage.client().attach(session.id(), None).await.unwrap());
    }
    session.send("go").await.unwrap();
    let received = texts_by_event(&until(&mut events, "agent.final_answer").await);
    for (_, other) in &mut others {
        let mut seen = Vec::new();
        while texts_by_event(&seen).len() < received.len() {
            seen.push(next(other).await);
        }
        assert_eq!(texts_by_event(&seen), received);
    }
    stage.stop().await;
}
