//! Who somebody is in a room: the joined name, the id that others see, and what a refusal says.

use std::time::Duration;

use budao_core::Lang;
use budao_smcp::{
    server::{Access, Config, Token},
    wire::trace_of,
};
use budao_socketio::{Client, Config as Dial, Error, Event, Payload};
use serde_json::{Value, json};

use crate::common::{config, pair, peer, start, the_world, tool_call, within};

#[tokio::test]
async fn the_joined_name_is_the_identity_regardless_of_the_request() {
    let hub = start(config()).await;
    let (agent, mut computer) = pair(&hub).await;
    for (event, mut request) in [
        ("client:tool_call", tool_call("pc", "echo", "r1", 5)),
        ("client:get_tools", json!({ "req_id": "r2", "computer": "pc", "more": 1 })),
    ] {
        request["agent"] = "somebody else".into();
        let answer = agent.ask(event, request).await;
        assert_eq!(answer["code"], Value::Null, "{answer}");
        let received = computer.receive(event).await;
        assert_eq!(received["agent"], "bot", "the computer is told who really asks");
    }
    for agent_field in [Value::Null, json!(5), json!("x".repeat(10_000))] {
        let tools_request = json!({ "agent": agent_field, "req_id": "r2", "computer": "pc" });
        let answer = agent.ask("client:get_tools", tools_request).await;
        assert_eq!(answer["seen"]["agent"], "bot", "{answer}");
    }
    let anonymous = json!({ "req_id": "r2", "computer": "pc" });
    assert_eq!(agent.ask("client:get_tools", anonymous).await["seen"]["agent"], "bot");
    let list = json!({ "agent": "somebody else", "req_id": "r3", "office_id": "a" });
    let listed = agent.ask("server:list_room", list).await;
    assert_eq!(listed["sessions"].as_array().map(Vec::len), Some(2), "{listed}");

    let slow = Payload::of(tool_call("pc", "slow", "r4", 50));
    let client = agent.client.clone();
    let slow = tokio::spawn(async move {
        client.call("client:tool_call", slow, Duration::from_secs(50)).await
    });
    computer.receive("client:tool_call").await;
    agent.ask("server:tool_call_cancel", json!({ "agent": "x", "req_id": "r4" })).await;
    let received = computer.receive("notify:tool_call_cancel").await;
    assert_eq!(received, json!({ "agent": "bot", "req_id": "r4" }));
    assert_eq!(within(slow).await.unwrap().unwrap().first()["meta"]["a2c_cancelled"], true);
}

#[tokio::test]
async fn a_refused_join_is_answered_with_a_pair_of_false_and_the_reason() {
    let hub = start(config()).await;
    let (agent, _computer) = pair(&hub).await;
    let third = peer(&hub).await;
    let nameless = json!({ "role": "agent", "office_id": "a" });
    for (args, word) in [
        (agent.join("agent", "bot", "b").await, "already in a room"),
        (third.join("agent", "other", "a").await, "already has an agent"),
        (agent.join("computer", "bot", "a").await, "role"),
        (third.join("computer", "pc", "a").await, "already exists"),
        (third.join("robot", "x", "a").await, "role"),
        (third.ask_all("server:join_office", nameless).await, "name"),
        (third.ask_all("server:leave_office", json!({ "office_id": "a" })).await, "join a room"),
    ] {
        let [Value::Bool(false), Value::String(words)] = &args[..] else { panic!("{args:?}") };
        assert!(words.contains(word), "{words}");
    }
    let join_request =
        json!({ "role": "computer", "name": "pc", "office_id": "a", "error_details": true });
    let args = third.ask_all("server:join_office", join_request).await;
    let [_, words, error] = &args[..] else { panic!("{args:?}") };
    assert_eq!(
        (words, &error["code"]),
        (&error["message"], &json!(403)),
        "for whoever asks for it"
    );
}

#[tokio::test]
async fn a_room_lists_the_ids_its_members_know_and_they_open_nothing() {
    let hub = start(config()).await;
    let (client, mut events) = within(Client::connect(hub.dial(), the_world())).await.unwrap();
    let Some(Event::Connected { sid, .. }) = within(events.next()).await else { panic!() };
    let join_request = json!({ "role": "agent", "name": "bot", "office_id": "a" });
    let limit = Duration::from_secs(20);
    within(client.call("server:join_office", Payload::of(join_request), limit)).await.unwrap();
    let list = json!({ "agent": "bot", "req_id": "r", "office_id": "a" });
    let listed = within(client.call("server:list_room", Payload::of(list), limit)).await.unwrap();
    assert_eq!(listed.first()["sessions"][0]["sid"], sid.as_str());
    let poll = format!("{}/socket.io/?EIO=4&transport=polling&sid={sid}", hub.url());
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let response = within(http.post(poll).body("41/smcp,").send()).await.unwrap();
    assert_eq!(response.status(), 400, "nobody speaks for another by reading the list");
    assert!(client.stats().connections == 1);
}

#[tokio::test]
async fn a_computer_may_name_itself_by_its_id() {
    let hub = start(config()).await;
    let (mut agent, computer) = pair(&hub).await;
    let list = json!({ "agent": "bot", "req_id": "r", "office_id": "a" });
    let listed = agent.ask("server:list_room", list).await;
    let sid = listed["sessions"][1]["sid"].clone();
    computer.ask("server:update_tool_list", json!({ "computer": sid })).await;
    assert_eq!(agent.receive("notify:update_tool_list").await, json!({ "computer": sid }));
    let tools_request = json!({ "agent": "bot", "req_id": "r", "computer": sid });
    let tools = agent.ask("client:get_tools", tools_request).await;
    assert!(tools["tools"].is_array(), "and is found by it in its room: {tools}");
    let other = peer(&hub).await;
    other.join("agent", "bot", "b").await;
    let tools_request = json!({ "agent": "bot", "req_id": "r", "computer": sid });
    assert_eq!(other.ask("client:get_tools", tools_request).await["code"], 404, "and nowhere else");
    let foreign = json!({ "computer": listed["sessions"][0]["sid"] });
    assert_eq!(computer.ask("server:update_tool_list", foreign).await["code"], 403);
}

#[tokio::test]
async fn a_cancel_that_comes_after_the_answer_still_reaches_the_computer() {
    let hub = start(config()).await;
    let (agent, mut computer) = pair(&hub).await;
    agent.call("pc", "echo", "r1", 5).await;
    agent.ask("server:tool_call_cancel", json!({ "agent": "bot", "req_id": "r1" })).await;
    assert_eq!(computer.receive("notify:tool_call_cancel").await["req_id"], "r1");
    agent.ask("server:tool_call_cancel", json!({ "agent": "bot", "req_id": "never" })).await;
    let received = computer.received_so_far().await;
    assert!(received.iter().all(|(_, payload)| payload["req_id"] != "never"), "{received:?}");

    // A computer that has gone to another room hears nothing of this one.
    agent.call("pc", "echo", "r2", 5).await;
    computer.join("computer", "pc", "b").await;
    computer.received_so_far().await;
    agent.ask("server:tool_call_cancel", json!({ "agent": "bot", "req_id": "r2" })).await;
    assert_eq!(computer.received_so_far().await, []);
}

#[tokio::test]
async fn a_refused_handshake_names_the_field() {
    let hub = start(config()).await;
    for (version, words) in [
        (None, "Missing a2c_version query parameter"),
        (Some("four"), "Invalid a2c_version: four; expected MAJOR.MINOR.PATCH"),
    ] {
        let mut dial = Dial::new(&hub.url()).unwrap().namespace("/smcp");
        if let Some(version) = version {
            dial = dial.query("a2c_version", version);
        }
        let error = within(Client::connect(dial, the_world())).await.unwrap_err();
        let Error::Http(refusal) = &error else { panic!("{error:?}") };
        let body: Value = serde_json::from_str(&refusal.body).unwrap();
        assert_eq!(body, json!({ "code": 400, "message": words }));
        let trace = refusal.header("x-a2c-trace-id").expect("a trace");
        assert_eq!(trace.len(), 32, "{trace}");
    }
    let access = Access::Tokens(vec![Token::shared("right")]);
    let hub = start(Config { access, ..config() }).await;
    for (auth, words) in
        [(json!({}), "auth.token is missing"), (json!({ "token": "x" }), "auth.token is not valid")]
    {
        let refused = within(Client::connect(hub.dial().auth(auth), the_world())).await;
        let Err(Error::Refused { message, .. }) = refused else { panic!("{refused:?}") };
        assert!(message.starts_with("401 ") && message.contains(words), "{message}");
    }
}

#[tokio::test]
async fn every_refusal_has_a_trace() {
    let hub = start(config()).await;
    let (agent, computer) = pair(&hub).await;
    let details = json!({ "role": "agent", "name": "x", "office_id": "a", "error_details": true });
    let joined = agent.ask_all("server:join_office", details).await;
    for answer in [
        &joined[2],
        &agent.ask("client:dance", json!({})).await,
        &agent.ask("client:tool_call", json!([1])).await,
        &agent.ask("client:get_tools", json!({})).await,
        &computer.ask("server:update_config", json!({ "computer": "other" })).await,
        &agent.ask("client:tool_call", json!({ "x": "y".repeat(2_000_000) })).await,
    ] {
        let trace = answer["details"]["trace_id"].as_str().unwrap_or_default();
        assert_eq!(trace.len(), 32, "{answer}");
    }
    let known = agent.call("nobody", "echo", "r9", 5).await;
    assert_eq!(known["details"]["trace_id"], trace_of("r9").to_string());
    // A computer's flat error has no room for a result's mark: it stands in the details.
    let flat = agent.call("pc", "flat", "r10", 5).await;
    assert_eq!(flat["details"]["trace_id"], trace_of("r10").to_string(), "{flat}");
}

#[tokio::test]
async fn a_name_that_looks_like_nothing_or_like_another_is_refused() {
    let hub = start(config()).await;
    let newcomer = peer(&hub).await;
    for bad in [
        " ",
        "\u{a0}\u{3000}",
        " pc",
        "pc ",
        "pc\u{202e}cp",
        "\u{2066}pc\u{2069}",
        "p\u{200b}c",
        "\u{feff}pc",
        "cafe\u{301}",
        "a\u{2028}b",
    ] {
        for (name, room) in [(bad, "a"), ("pc", bad)] {
            let joined = newcomer.join("computer", name, room).await;
            assert_eq!(joined[0], false, "{bad:?}");
            let words = joined[1].as_str().unwrap();
            assert!(words.contains(if name == bad { "name" } else { "office_id" }), "{words}");
        }
    }
    for good in ["caf\u{e9}", "我的电脑", "my pc", "a\u{200d}b 👩\u{200d}💻"] {
        let joined = newcomer.join("computer", good, &format!("room {good}")).await;
        assert_eq!(joined[0], true, "{good:?} {joined:?}");
    }
}

#[tokio::test]
async fn an_error_without_a_numeric_code_is_answered_with_500() {
    let hub = start(config()).await;
    let (agent, _computer) = pair(&hub).await;
    for tool in ["odd code", "odd nested", "odd result"] {
        let answer = agent.call("pc", tool, "r", 5).await;
        assert_eq!((&answer["code"], &answer["isError"]), (&json!(500), &json!(true)), "{answer}");
        assert!(answer["details"]["reason"].as_str().unwrap().contains("disk full"), "{answer}");
        assert!(!answer.to_string().contains("hunter2"), "{answer}");
    }
    let tools_request = json!({ "agent": "bot", "req_id": "r", "computer": "pc", "odd": true });
    let answer = agent.ask("client:get_config", tools_request).await;
    assert_eq!(answer["code"], 500, "{answer}");
}

#[tokio::test]
async fn an_answer_that_is_an_object_and_no_result_is_made_one() {
    let hub = start(config()).await;
    let (agent, _computer) = pair(&hub).await;
    let answer = agent.call("pc", "object", "r", 5).await;
    assert_eq!((&answer["neither"], &answer["isError"]), (&json!("nor"), &json!(false)));
    assert_eq!(answer["content"][0]["text"], r#"{"neither":"nor"}"#);
    for claim in ["claims error", "claims message"] {
        assert_eq!(agent.call("pc", claim, "r", 5).await["code"], 500, "{claim}");
    }
}

#[tokio::test]
async fn a_chinese_hub_answers_in_chinese() {
    let hub = start(Config { lang: Lang::Zh, ..config() }).await;
    let (agent, _computer) = pair(&hub).await;
    let third = peer(&hub).await;
    let taken = third.join("computer", "pc", "a").await;
    assert!(taken[1].as_str().unwrap().contains("房间中已有同名的计算机：pc"), "{taken:?}");
    let missing = agent.call("nobody", "echo", "r", 5).await;
    let rendered: Value =
        serde_json::from_str(missing["content"][0]["text"].as_str().unwrap()).unwrap();
    for words in [&missing["message"], &rendered["error"], &rendered["recommendations"][0]] {
        assert!(words.as_str().unwrap().contains(|letter| letter > '\u{4e00}'), "{words}");
    }
    let dial = Dial::new(&hub.url()).unwrap().namespace("/smcp").query("a2c_version", "0.3.0");
    let error = within(Client::connect(dial, the_world())).await.unwrap_err();
    let Error::Http(refusal) = &error else { panic!("{error:?}") };
    assert!(refusal.body.contains("版本"), "{}", refusal.body);
}
