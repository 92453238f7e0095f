//! Each scenario that other hubs were measured in, with the answer the specification names.

use std::time::{Duration, Instant};

use budao_smcp::{
    server::{Access, Config, CrossRoomVisibility, Token},
    wire::{Dialect, trace_of},
};
use budao_socketio::{Client, Error, Payload};
use serde_json::{Value, json};

use crate::common::{Peer, config, pair, peer, start, the_world, tool_call, within};

#[tokio::test]
async fn no_or_a_wrong_token_is_401() {
    let access = Access::Tokens(vec![Token::shared("right")]);
    let hub = start(Config { access, ..config() }).await;
    for auth in [json!({}), json!({ "token": "wrong" }), json!({ "token": 5 })] {
        let refused = within(Client::connect(hub.dial().auth(auth), the_world())).await;
        let Err(Error::Refused { message, .. }) = refused else { panic!("{refused:?}") };
        assert!(message.starts_with("401 "), "{message}");
    }
    within(Client::connect(hub.dial().auth(json!({ "token": "right" })), the_world()))
        .await
        .unwrap();
}

#[tokio::test]
async fn joining_twice_is_joining_once() {
    let hub = start(config()).await;
    let (agent, mut computer) = pair(&hub).await;
    assert_eq!(agent.join("agent", "bot", "a").await, [json!(true), Value::Null]);
    let entered: Vec<_> = computer.received_so_far().await;
    assert_eq!(
        entered,
        [("notify:enter_office".into(), json!({ "office_id": "a", "agent": "bot" }))]
    );
}

/// The code in the third argument of a refused join, after checking the first two.
fn join_code(args: &[Value]) -> u64 {
    let [ok, words, error] = args else { panic!("{args:?}") };
    assert_eq!(ok, false);
    assert_eq!(words, &error["message"]);
    assert!(!words.as_str().unwrap().is_empty());
    error["code"].as_u64().unwrap()
}

#[tokio::test]
async fn a_refused_join_has_its_code_in_the_third_argument_for_who_asks_for_it() {
    let hub = start(config()).await;
    let (agent, _computer) = pair(&hub).await;
    let third = peer(&hub).await;
    let join = async |peer: &Peer, role: &str, name: &str, room: &str| {
        let join_request =
            json!({ "role": role, "name": name, "office_id": room, "error_details": true });
        join_code(&peer.ask_all("server:join_office", join_request).await)
    };
    assert_eq!(join(&agent, "agent", "bot", "b").await, 403, "a second room");
    assert_eq!(join(&third, "agent", "other", "a").await, 4101, "a full room");
    assert_eq!(join(&agent, "computer", "bot", "a").await, 403, "another role");
    assert_eq!(join(&third, "computer", "pc", "a").await, 403, "a taken name");
    assert_eq!(join(&third, "robot", "x", "a").await, 400, "no role");
    let ill_typed = json!({ "role": "agent", "name": 5, "office_id": "a", "error_details": true });
    assert_eq!(join_code(&third.ask_all("server:join_office", ill_typed).await), 400);
    for bad in [json!(null), json!([]), json!({})] {
        let args = third.ask_all("server:join_office", bad).await;
        assert_eq!((args.len(), &args[0]), (2, &json!(false)), "{args:?}");
    }
    let leave = |room: &str| json!({ "office_id": room, "error_details": true });
    assert_eq!(join_code(&third.ask_all("server:leave_office", leave("a")).await), 4103);
    assert_eq!(join_code(&agent.ask_all("server:leave_office", leave("nowhere")).await), 4102);
    assert_eq!(third.join("computer", "fine", "a").await, [json!(true), Value::Null]);
}

/// The code of a failed tool call, after checking that both shapes say the same.
fn code(answer: &Value) -> u64 {
    assert_eq!(answer["isError"], true, "{answer}");
    assert_eq!(answer["code"], answer["meta"]["error_code"], "{answer}");
    let rendered = answer["content"][0]["text"].as_str().unwrap();
    let rendered: Value = serde_json::from_str(rendered).expect("what a model reads");
    assert_eq!(
        (&rendered["ok"], &rendered["code"]),
        (&json!(false), &answer["details"]["error_code"])
    );
    answer["code"].as_u64().unwrap()
}

#[tokio::test]
async fn a_forbidden_request_is_refused_with_its_reason() {
    let hub = start(config()).await;
    let (agent, computer) = pair(&hub).await;
    let stranger = peer(&hub).await;
    let other_room_peer = peer(&hub).await;
    other_room_peer.join("computer", "mac", "b").await;

    assert_eq!(code(&stranger.call("pc", "echo", "r1", 5).await), 4103, "in no room");
    let tools = |computer: &str| json!({ "agent": "bot", "req_id": "r2", "computer": computer });
    assert_eq!(stranger.ask("client:get_tools", tools("pc")).await["code"], 4103);
    assert_eq!(code(&agent.call("mac", "echo", "r3", 5).await), 4104, "in another room");
    let missing = agent.call("nobody", "echo", "r4", 5).await;
    assert_eq!(code(&missing), 404);
    assert_eq!(missing["details"]["computer_name"], "nobody");
    assert_eq!(missing["details"]["trace_id"], trace_of("r4").to_string());
    assert_eq!(missing["meta"]["a2c_trace_id"], trace_of("r4").to_string());
    assert_eq!(code(&agent.call("bot", "echo", "r5", 5).await), 404, "an agent is no target");
    assert_eq!(code(&computer.call("pc", "echo", "r6", 5).await), 403, "a computer does not ask");
    assert_eq!(computer.ask("client:get_config", tools("pc")).await["code"], 403);
    let list = |room: &str| json!({ "agent": "bot", "req_id": "r", "office_id": room });
    assert_eq!(agent.ask("server:list_room", list("b")).await["code"], 4104);
    assert_eq!(agent.ask("server:list_room", list("z")).await["code"], 4102);
    assert_eq!(stranger.ask("server:list_room", list("a")).await["code"], 4103);
    let listed = agent.ask("server:list_room", list("a")).await;
    assert_eq!(listed["req_id"], "r");
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(listed["sessions"][1]["name"], "pc");
    assert_eq!(listed["sessions"][1]["a2c_version"], "0.4.0");
}

#[tokio::test]
async fn a_hub_may_hide_what_is_elsewhere() {
    let hub = start(Config { cross_room: CrossRoomVisibility::Hidden, ..config() }).await;
    let (agent, _computer) = pair(&hub).await;
    let other_room_peer = peer(&hub).await;
    other_room_peer.join("computer", "mac", "b").await;
    let (hidden, missing) =
        (agent.call("mac", "echo", "r", 5).await, agent.call("zzz", "echo", "r", 5).await);
    assert_eq!((code(&hidden), code(&missing)), (404, 404));
    let same = hidden.to_string().replace("mac", "zzz");
    assert_eq!(same, missing.to_string(), "not to be told apart");
}

#[tokio::test]
async fn a_missing_or_ill_typed_field_is_400_and_named() {
    let hub = start(config()).await;
    let (agent, _computer) = pair(&hub).await;
    for field in ["req_id", "computer", "tool_name", "params", "timeout"] {
        let mut request = tool_call("pc", "echo", "r", 5);
        request.as_object_mut().unwrap().remove(field);
        let answer = agent.ask("client:tool_call", request).await;
        assert_eq!((code(&answer), &answer["details"]["field"]), (400, &json!(field)));
    }
    for bad in [json!(0), json!(-5), json!(1.5), json!(1_000_000_000), json!("x"), json!(null)] {
        let mut request = tool_call("pc", "echo", "r", 5);
        request["timeout"] = bad;
        let answer = agent.ask("client:tool_call", request).await;
        assert_eq!((code(&answer), &answer["details"]["field"]), (400, &json!("timeout")));
    }
    for good in [json!("5"), json!(5.0)] {
        let mut request = tool_call("pc", "echo", "r", 5);
        request["timeout"] = good;
        assert_eq!(agent.ask("client:tool_call", request).await["isError"], false);
    }
    for bad in [json!(null), json!("x"), json!([1])] {
        assert_eq!(code(&agent.ask("client:tool_call", bad).await), 400);
    }
    let unknown = agent.ask("client:dance", json!({})).await;
    assert_eq!(
        (&unknown["code"], &unknown["details"]["event_name"]),
        (&json!(400), &json!("client:dance"))
    );
}

#[tokio::test]
async fn odd_payloads_are_answered_and_the_connection_stays() {
    let hub = start(config()).await;
    let (agent, _computer) = pair(&hub).await;
    let big = |bytes: usize| {
        let mut request = tool_call("pc", "echo", "r", 5);
        request["params"] = json!({ "text": "x".repeat(bytes) });
        request
    };
    for bytes in [2_000_000, 6_000_000] {
        let answer = agent.ask("client:tool_call", big(bytes)).await;
        assert_eq!(answer["code"], 400, "{bytes}");
        assert_eq!(answer["details"]["message_key"], "frame_too_large");
        assert!(answer["details"]["actual"].as_u64().unwrap() > bytes as u64);
    }
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let mut request = tool_call("pc", "echo", "r", 5);
    request["params"] = json!({ "deep": deep });
    assert_eq!(agent.ask("client:tool_call", request).await["code"], 400);
    let binary = Payload::none().and_bytes(vec![1, 2, 3]);
    let answer =
        within(agent.client.call("client:tool_call", binary, crate::common::TEST_TIMEOUT)).await;
    assert_eq!(answer.unwrap().first()["code"], 400);
    assert_eq!(agent.call("pc", "echo", "r", 5).await["isError"], false);
    assert_eq!(agent.client.stats().connections, 1, "nothing cost the connection");
}

#[tokio::test]
async fn a_result_passes_as_it_is() {
    let hub = start(config()).await;
    let (agent, _computer) = pair(&hub).await;
    assert_eq!(agent.call("pc", "echo", "r", 5).await, crate::common::text(r#"{"n":1}"#));
    assert_eq!(
        agent.call("pc", "big", "r", 5).await["content"][0]["text"].as_str().unwrap().len(),
        2_000_000
    );
    let flat = agent.call("pc", "flat", "r", 5).await;
    let details = json!({ "trace_id": trace_of("r").to_string() });
    let rendered =
        json!({ "code": 4001, "message": "no such tool", "trace_id": "kept", "details": details });
    assert_eq!(flat, rendered, "as it is, and its trace");
    let tools = json!({ "agent": "bot", "req_id": "r9", "computer": "pc", "extra": 1 });
    let answer = agent.ask("client:get_tools", tools.clone()).await;
    assert_eq!((&answer["seen"], &answer["req_id"]), (&tools, &json!("r9")));
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_refused_with_its_size_and_no_client_is_disconnected() {
    let hub = start(config()).await;
    let (agent, computer) = pair(&hub).await;
    let answer = agent.call("pc", "huge", "r", 5).await;
    assert_eq!(code(&answer), 4003);
    assert!(answer["details"]["actual"].as_u64().unwrap() > 4_000_000, "{answer}");
    assert_eq!(agent.call("pc", "echo", "r", 5).await["isError"], false);
    assert_eq!((agent.client.stats().connections, computer.client.stats().connections), (1, 1));
}

#[tokio::test]
async fn rubbish_from_a_computer_is_500() {
    let hub = start(config()).await;
    let (agent, _computer) = pair(&hub).await;
    for tool in ["null", "garbage"] {
        assert_eq!(code(&agent.call("pc", tool, "r", 5).await), 500, "{tool}");
    }
}

#[tokio::test]
async fn secrets_in_a_failure_do_not_pass() {
    let hub = start(config()).await;
    let (agent, _computer) = pair(&hub).await;
    let answer = agent.call("pc", "leak", "r", 5).await;
    let text = answer.to_string();
    assert!(!text.contains("hunter2") && !text.contains("10.0.0.7"), "{text}");
    assert_eq!(answer["meta"]["a2c_trace_id"], trace_of("r").to_string());
    assert_eq!(hub.hub.stats().scrubbed, 1);
}

#[tokio::test]
async fn a_call_past_its_deadline_is_408_with_its_mark_and_a_late_answer_is_counted() {
    let hub = start(config()).await;
    let (agent, mut computer) = pair(&hub).await;
    let began = Instant::now();
    let answer = agent.call("pc", "slow", "r", 1).await;
    assert!(began.elapsed() >= Duration::from_millis(1200));
    assert_eq!((code(&answer), &answer["meta"]["a2c_timeout"]), (408, &json!(true)));
    computer.receive("client:tool_call").await;
    let stats = hub.hub.stats();
    assert_eq!((stats.answers_lost, stats.calls_under_way), (1, 0));
    let cancel = json!({ "agent": "bot", "req_id": "r" });
    assert_eq!(agent.ask("server:tool_call_cancel", cancel).await, Value::Null);
    // The computer still runs it: it hears the cancel, and its answer comes too late for the agent.
    assert_eq!(hub.hub.stats().cancels.passed_on, 1);
    assert_eq!(computer.receive("notify:tool_call_cancel").await["req_id"], "r");
    let are_late = async |count: u64| {
        within(async {
            while hub.hub.stats().answers_late < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    };
    are_late(1).await;
    assert_eq!(code(&agent.call("pc", "late", "r", 1).await), 408);
    are_late(2).await;
    assert_eq!(agent.client.stats().late_answers, 0, "the agent never hears of it");
}

#[tokio::test]
async fn a_cancel_reaches_exactly_its_call() {
    let hub = start(config()).await;
    let (agent, mut computer) = pair(&hub).await;
    let mut bystander = peer(&hub).await;
    bystander.join("computer", "pc2", "a").await;
    let calls: Vec<_> = ["r1", "r2"]
        .map(|id| {
            let client = agent.client.clone();
            let call = Payload::of(tool_call("pc", "slow", id, 50));
            tokio::spawn(async move {
                client.call("client:tool_call", call, Duration::from_secs(50)).await
            })
        })
        .into_iter()
        .collect();
    computer.receive("client:tool_call").await;
    computer.receive("client:tool_call").await;
    let cancel = |agent: &str, id: &str| json!({ "agent": agent, "req_id": id });
    assert_eq!(bystander.ask("server:tool_call_cancel", cancel("bot", "r1")).await["code"], 403);
    assert_eq!(agent.ask("server:tool_call_cancel", cancel("bot", "unknown")).await, Value::Null);
    assert_eq!(agent.ask("server:tool_call_cancel", cancel("bot", "r2")).await, Value::Null);
    let mut calls = calls.into_iter();
    let (first, second) = (calls.next().unwrap(), calls.next().unwrap());
    let cancelled = within(second).await.unwrap().unwrap().into_first();
    assert_eq!(cancelled["meta"]["a2c_cancelled"], true);
    assert_eq!(cancelled["meta"]["a2c_cancel_reason"], "agent_requested");
    assert!(!first.is_finished(), "the other one runs on");
    assert_eq!(hub.hub.stats().calls_under_way, 1);
    let received = bystander.received_so_far().await;
    assert!(!received.iter().any(|(name, _)| name.contains("cancel")), "{received:?}");
    let cancels = hub.hub.stats().cancels;
    assert_eq!((cancels.passed_on, cancels.unknown, cancels.refused), (1, 1, 1));
}

#[tokio::test]
async fn a_request_id_under_way_cannot_be_used_again() {
    let hub = start(config()).await;
    let (agent, mut computer) = pair(&hub).await;
    let client = agent.client.clone();
    let call = Payload::of(tool_call("pc", "slow", "r", 50));
    let slow = tokio::spawn(async move {
        client.call("client:tool_call", call, Duration::from_secs(50)).await
    });
    computer.receive("client:tool_call").await;
    let twice = agent.call("pc", "echo", "r", 5).await;
    assert_eq!(
        (code(&twice), &twice["details"]["message_key"]),
        (400, &json!("duplicate_call_id"))
    );
    agent.ask("server:tool_call_cancel", json!({ "agent": "bot", "req_id": "r" })).await;
    within(slow).await.unwrap().unwrap();
    assert_eq!(agent.call("pc", "echo", "r", 5).await["isError"], false, "and then it can");
}

#[tokio::test]
async fn a_computer_that_goes_takes_its_calls_with_it_at_once() {
    let hub = start(config()).await;
    let (agent, mut computer) = pair(&hub).await;
    let client = agent.client.clone();
    let call = Payload::of(tool_call("pc", "slow", "r", 50));
    let slow = tokio::spawn(async move {
        client.call("client:tool_call", call, Duration::from_secs(50)).await
    });
    computer.receive("client:tool_call").await;
    computer.client.close();
    let answer = within(slow).await.unwrap().unwrap().into_first();
    assert_eq!((code(&answer), &answer["details"]["message_key"]), (404, &json!("computer_gone")));
}

#[tokio::test]
async fn a_hub_that_shuts_down_answers_what_is_under_way() {
    let hub = start(config()).await;
    let (agent, mut computer) = pair(&hub).await;
    let client = agent.client.clone();
    let call = Payload::of(tool_call("pc", "slow", "r", 50));
    let slow = tokio::spawn(async move {
        client.call("client:tool_call", call, Duration::from_secs(50)).await
    });
    computer.receive("client:tool_call").await;
    hub.stop().await;
    let answer = within(slow).await.unwrap().unwrap().into_first();
    // The computer has it: nobody can say that nothing happened.
    assert_eq!(
        (code(&answer), &answer["details"]["message_key"]),
        (4003, &json!("outcome_unknown"))
    );
}

#[tokio::test]
async fn the_first_draft_nests_its_errors_and_marks_timeouts_plainly() {
    let hub = start(Config { dialect: Dialect::V02, ..config() }).await;
    let (agent, _computer) = pair(&hub).await;
    let missing = agent.call("nobody", "echo", "r", 5).await;
    assert_eq!(missing["error"]["code"], 404);
    assert!(missing.get("code").is_none());
    assert_eq!(missing["error"]["details"]["computer"], "nobody");
    let late = agent.call("pc", "slow", "r", 1).await;
    assert_eq!(late["meta"]["timeout"], true);
    assert_eq!(late["content"][0], json!({ "type": "text", "text": "Tool call timeout" }));
    let doubt = late["content"][1]["text"].as_str().unwrap();
    assert!(doubt.contains("may still be running"), "{late}");
    assert_eq!(late["error"]["code"], 408);
    assert_eq!(late["error"]["details"]["outcome_unknown"], true);
    assert_eq!(late["error"]["details"]["retryable"], false);
    let join_request =
        json!({ "role": "agent", "name": "bot", "office_id": "b", "error_details": true });
    let refused = agent.ask_all("server:join_office", join_request).await;
    assert_eq!(refused[2]["error"]["code"], 403);
    let finder = json!({ "agent": "bot", "req_id": "r", "computer": "pc" });
    assert_eq!(agent.ask("client:get_finder", finder.clone()).await["seen"], finder);
}

#[tokio::test]
async fn updates_reach_the_room_and_only_from_their_owner() {
    let hub = start(config()).await;
    let (mut agent, computer) = pair(&hub).await;
    for (update, received) in [
        ("server:update_config", "notify:update_config"),
        ("server:update_tool_list", "notify:update_tool_list"),
        ("server:update_desktop", "notify:update_desktop"),
        ("server:update_skills", "notify:update_skills"),
    ] {
        assert_eq!(computer.ask(update, json!({ "computer": "pc" })).await, Value::Null);
        assert_eq!(agent.receive(received).await, json!({ "computer": "pc" }));
        assert_eq!(computer.ask(update, json!({ "computer": "other" })).await["code"], 403);
        assert_eq!(agent.ask(update, json!({ "computer": "pc" })).await["code"], 403);
        assert_eq!(computer.ask(update, json!({})).await["code"], 400);
    }
}

#[tokio::test]
async fn questions_are_answered_long_before_any_deadline() {
    let hub = start(config()).await;
    let (agent, _computer) = pair(&hub).await;
    let began = Instant::now();
    for _ in 0..200 {
        agent.call("nobody", "echo", "r", 3600).await;
    }
    let each = began.elapsed() / 200;
    assert!(each < Duration::from_millis(50), "{each:?}");
}
