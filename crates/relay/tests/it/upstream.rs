//! The engine against an agent that does each bad thing: a fault with its own meaning, and the session goes on.

use std::time::Duration;

use budao_core::{
    event::{CommandBody, Event},
    fault::{Fact, Kind},
    message::text_of,
};
use budao_relay::{RelayConfig, RelayLimits};
use budao_testkit::{port::Refusing, provider::Reply, sse};
use serde_json::{Value, json};

use crate::common::{Fixture, fault_of, finished, kind_of, lines, reply, run, started, text};

fn good() -> Reply {
    reply(&run([text("m", &["good"])]))
}

fn small() -> RelayConfig {
    let limits = RelayLimits {
        event_bytes: 4_096,
        turn_bytes: 20_000,
        open_ids: 8,
        state_bytes: 500,
        ..RelayLimits::default()
    };
    RelayConfig { limits, ..RelayConfig::default() }
}

/// Plays a bad reply, then a good one: the second message is answered.
async fn survives(config: RelayConfig, bad: Reply) -> Vec<Event> {
    let fixture = Fixture::with(config, [bad, good()]).await;
    fixture.say("first").await;
    let first = fixture.turn(1).await;
    assert!(fault_of(&first).is_some(), "{}", lines(&first));
    fixture.say("second").await;
    let second = fixture.turn(2).await;
    assert_eq!(kind_of(&second), None, "{}", lines(&second));
    assert_eq!(fixture.agent.asked().len(), 2, "nothing was posted twice");
    first
}

fn fact(events: &[Event], fact: Fact) -> String {
    let fault = fault_of(events).unwrap();
    fault.detail().get(fact).map_or(String::new(), ToString::to_string)
}

#[tokio::test]
async fn a_conversation_is_relayed_and_each_request_has_the_history() {
    let fixture = Fixture::new([good(), good()]).await;
    fixture.say("one").await;
    fixture.turn(1).await;
    fixture.say("two").await;
    fixture.turn(2).await;
    let asked = fixture.agent.asked();
    let roles = |body: &Value| -> Vec<String> {
        let messages = body["messages"].as_array().unwrap().iter();
        messages.map(|it| it["role"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(roles(&asked[0].body), ["user"]);
    assert_eq!(roles(&asked[1].body), ["user", "assistant", "user"]);
    assert_eq!(asked[1].body["threadId"], json!(fixture.session.to_string()));
    assert_eq!(asked[0].path, "/agent");
    assert_ne!(asked[0].body["runId"], asked[1].body["runId"]);
}

#[tokio::test]
async fn each_status_of_a_refusal_is_named_and_a_redirect_is_not_followed() {
    for status in [401, 403, 404, 422, 500] {
        let bad = Reply::refuse(status, &json!({"detail": "no"}));
        let events = survives(RelayConfig::default(), bad).await;
        assert_eq!(kind_of(&events), Some(Kind::UpstreamRefused), "{status}");
        assert_eq!(fact(&events, Fact::Status), status.to_string());
        assert_eq!(fault_of(&events).unwrap().is_outcome_unknown(), status == 500);
    }
    let other = Fixture::new([good()]).await;
    for status in [302, 307, 308] {
        let bad = Reply::status(status).header("location", &format!("{}/x", other.agent.url()));
        let events = survives(RelayConfig::default(), bad).await;
        assert_eq!(kind_of(&events), Some(Kind::UpstreamRefused), "{status}");
    }
    assert!(other.agent.asked().is_empty(), "no other address was asked");
}

#[tokio::test]
async fn something_that_is_not_agui_is_called_so() {
    for bad in [
        Reply::status(200).header("content-type", "text/html").bytes("<html>"),
        Reply::status(200).header("content-type", "application/json").bytes("{}"),
        Reply::events(["data: hello\n\n"]),
        Reply::events(["data: {\"choices\": []}\n\n"]),
        Reply::stream().bytes("<html>\n<body>\n"),
    ] {
        let events = survives(RelayConfig::default(), bad.clone()).await;
        assert_eq!(kind_of(&events), Some(Kind::UpstreamProtocol), "{bad:?}");
        assert_eq!(fact(&events, Fact::Cause), "not_agui", "{bad:?}");
    }
}

#[tokio::test]
async fn events_out_of_order_or_unreadable_end_the_turn_and_keep_what_came() {
    let half = || text("m", &["half"]).into_iter().take(2);
    let strange = json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "other", "delta": "x"});
    let events: Vec<Value> = std::iter::once(started()).chain(half()).chain([strange]).collect();
    let turn = survives(RelayConfig::default(), reply(&events)).await;
    assert_eq!(fact(&turn, Fact::Cause), "out_of_order");
    assert_eq!(fact(&turn, Fact::EventName), "TEXT_MESSAGE_CONTENT");
    assert!(lines(&turn).contains("answer Other"), "{}", lines(&turn));

    let turn = survives(RelayConfig::default(), reply(&text("m", &["no start"]))).await;
    assert_eq!(fact(&turn, Fact::Cause), "out_of_order");

    let unreadable = reply(&[started()]).bytes("data: {\"type\": \"TEXT\n\n").then([": x\n\n"]);
    let unreadable = unreadable.then([sse::data(&finished())]);
    let turn = survives(RelayConfig::default(), unreadable).await;
    assert_eq!(fact(&turn, Fact::Cause), "malformed");
}

#[tokio::test]
async fn an_error_of_the_agent_is_reported_with_its_code_and_without_its_words() {
    let error = json!({"type": "RUN_ERROR", "message": "key sk-123 is wrong", "code": "bad_key"});
    let turn = survives(RelayConfig::default(), reply(&[started(), error])).await;
    assert_eq!(kind_of(&turn), Some(Kind::UpstreamFailed));
    assert_eq!(fact(&turn, Fact::Cause), "bad_key");
    let words = budao_core::fault::text::user_text(&fault_of(&turn).unwrap(), Default::default());
    assert!(words.contains("bad_key") && !words.contains("sk-123"), "{words}");
}

#[tokio::test]
async fn a_stream_that_ends_without_its_end_was_cut_and_the_partial_answer_is_kept() {
    let half: Vec<Value> =
        std::iter::once(started()).chain(text("m", &["half an ", "answer"])).collect();
    let half = &half[..half.len() - 1];
    for bad in [reply(half), reply(half).cut(), reply(half).bytes("data: {\"type\": \"RUN_FIN")] {
        let turn = survives(RelayConfig::default(), bad.clone()).await;
        assert_eq!(kind_of(&turn), Some(Kind::UpstreamCut), "{bad:?}");
        assert!(fault_of(&turn).unwrap().is_outcome_unknown());
        let kept = turn.iter().find_map(|event| match event {
            Event::ModelAnswered { content, .. } => Some(text_of(content)),
            _ => None,
        });
        assert_eq!(kept.as_deref(), Some("half an answer"), "{bad:?}");
    }
}

#[tokio::test]
async fn a_retry_asks_again_without_the_unfinished_answer() {
    let half = [started()].into_iter().chain(text("m", &["half"])).collect::<Vec<_>>();
    let fixture = Fixture::new([reply(&half), good()]).await;
    fixture.say("once").await;
    assert_eq!(kind_of(&fixture.turn(1).await), Some(Kind::UpstreamCut));
    fixture.submit(CommandBody::Retry { turn: None }).await;
    assert_eq!(kind_of(&fixture.turn(2).await), None);
    let asked = fixture.agent.asked();
    assert_eq!(asked[0].body["messages"], asked[1].body["messages"]);
    assert_eq!(fixture.state().await.last_text().as_deref(), Some("good"));
}

#[tokio::test]
async fn a_cut_run_is_posted_again_only_if_that_is_configured_and_at_most_three_times() {
    let half = [started()].into_iter().chain(text("m", &["half"])).collect::<Vec<_>>();
    let config = || RelayConfig { resubmit: true, ..RelayConfig::default() };
    let fixture = Fixture::with(config(), [reply(&half), good()]).await;
    fixture.say("go").await;
    let turn = fixture.turn(1).await;
    assert_eq!(kind_of(&turn), None, "{}", lines(&turn));
    assert!(lines(&turn).contains("answer_abandoned"), "{}", lines(&turn));
    assert!(lines(&turn).contains("recovered"), "{}", lines(&turn));
    assert_eq!(fixture.agent.asked().len(), 2);

    let fixture = Fixture::with(config(), (0..9).map(|_| reply(&half))).await;
    fixture.say("go").await;
    assert_eq!(kind_of(&fixture.turn(1).await), Some(Kind::UpstreamCut));
    assert_eq!(fixture.agent.asked().len(), 3);
}

#[tokio::test]
async fn an_agent_that_cannot_be_reached_is_tried_again_because_nothing_was_sent() {
    let fixture = Fixture::new([]).await;
    let nobody = Refusing::take();
    let url = format!("http://{}/agent", nobody.address());
    let config = RelayConfig { url: Some(url), ..RelayConfig::default() };
    let (relay, tasks) = crate::common::relay(&fixture.journal, config);
    let away = Fixture { relay, tasks, ..fixture };
    away.say("go").await;
    let turn = away.turn(1).await;
    assert_eq!(kind_of(&turn), Some(Kind::ConnectionRefused), "{}", lines(&turn));
    assert_eq!(lines(&turn).matches("retry as attempt").count(), 2, "{}", lines(&turn));
    assert!(!fault_of(&turn).unwrap().is_outcome_unknown());
}

#[tokio::test]
async fn every_size_has_a_bound_that_is_named() {
    let delta = |size: usize| json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "x".repeat(size)});
    let start = || vec![started(), text("m", &[])[0].clone()];
    let with = |events: Vec<Value>| reply(&[start(), events].concat());
    let open = |n: usize| json!({"type": "TEXT_MESSAGE_START", "messageId": n.to_string()});
    let double: Vec<Value> =
        (0..64).map(|n| json!({"op": "copy", "from": "", "path": format!("/{n}")})).collect();
    for (name, bad) in [
        ("event_bytes", with(vec![delta(5_000)])),
        ("turn_bytes", with((0..20).map(|_| delta(2_000)).collect())),
        ("open_ids", with((0..20).map(open).collect())),
        ("state_bytes", with(vec![json!({"type": "STATE_SNAPSHOT", "snapshot": "x".repeat(600)})])),
        ("state_bytes", with(vec![json!({"type": "STATE_DELTA", "delta": double})])),
    ] {
        let turn = survives(small(), bad).await;
        assert_eq!(kind_of(&turn), Some(Kind::LimitReached), "{name}: {}", lines(&turn));
        assert_eq!(fact(&turn, Fact::LimitName), format!("engines.agui.limits.{name}"));
        assert!(fault_of(&turn).unwrap().is_outcome_unknown());
    }
}

#[tokio::test]
async fn an_agent_that_falls_silent_is_left() {
    let mut config = RelayConfig::default();
    config.limits.first_event = Duration::from_millis(300);
    config.limits.between_events = Duration::from_millis(300);
    for bad in [Reply::silence(), reply(&[started()]).stall()] {
        let turn = survives(config.clone(), bad).await;
        assert_eq!(kind_of(&turn), Some(Kind::UpstreamCut));
        assert_eq!(fact(&turn, Fact::State), "silent");
    }
    config.limits.between_events = Duration::from_secs(60);
    config.limits.run = Duration::from_millis(600);
    let heart = json!({"type": "CUSTOM", "name": "beat", "value": 1});
    let beats: Vec<Value> = (0..200).map(|_| heart.clone()).collect();
    let endless = reply(&[vec![started()], beats].concat()).paced(Duration::from_millis(20));
    let turn = survives(config, endless).await;
    assert_eq!(fact(&turn, Fact::State), "overdue");
}

#[tokio::test]
async fn cancel_ends_the_connection_and_the_queue_goes_on() {
    let half: Vec<Value> = [started()].into_iter().chain(text("m", &["half"])).collect();
    let fixture = Fixture::new([reply(&half[..3]).stall(), good()]).await;
    fixture.say("first").await;
    fixture.until(|event| matches!(event, Event::TextDelta { .. })).await;
    fixture.say("second").await;
    fixture.submit(CommandBody::Cancel { reason: None }).await;
    let first = fixture.turn(1).await;
    assert!(lines(&first).ends_with("turn ended Cancelled 0+0 \n"), "{}", lines(&first));
    fixture.agent.hung_up(1).await;
    assert_eq!(kind_of(&fixture.turn(2).await), None);
}

#[tokio::test]
async fn a_request_above_its_limit_is_not_sent() {
    let mut config = RelayConfig::default();
    config.limits.request_bytes = 400;
    let fixture = Fixture::with(config, [good()]).await;
    fixture.say(&"long ".repeat(200)).await;
    let turn = fixture.turn(1).await;
    assert_eq!(kind_of(&turn), Some(Kind::LimitReached));
    assert!(fixture.agent.asked().is_empty());
}

/// Set in the process whose environment names a proxy.
const PROXIED: &str = "BUDAO_TEST_PROXIED";

/// Goal: the request and its token go to the configured address alone. Method: a process with a proxy in its environment
/// asks an agent at `0.0.0.0`, which leads to this machine and is no loopback address.
#[tokio::test]
async fn the_relay_connects_only_to_the_configured_address_whatever_proxy_the_environment_names() {
    if std::env::var_os(PROXIED).is_some() {
        return ask_past_the_proxy().await;
    }
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap());
    let name = "upstream::the_relay_connects_only_to_the_configured_address_whatever_proxy_the_environment_names";
    child.args(["--exact", name]).env(PROXIED, "1").env_remove("NO_PROXY").env_remove("no_proxy");
    for proxied in
        ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
    {
        child.env(proxied, &url);
    }
    let output = child.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    let met = proxy.accept().map(|(_, from)| from);
    assert_eq!(met.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nobody asked the proxy");
}

async fn ask_past_the_proxy() {
    let fixture = Fixture::new([reply(&run([text("m", &["good"])]))]).await;
    let url = fixture.agent.url().replace("127.0.0.1", "0.0.0.0");
    let mut config = RelayConfig { url: Some(format!("{url}/agent")), ..RelayConfig::default() };
    config.limits.first_event = std::time::Duration::from_secs(5);
    let (relay, tasks) = crate::common::relay(&fixture.journal, config);
    let direct = Fixture { relay, tasks, ..fixture };
    direct.say("go").await;
    let turn = direct.turn(1).await;
    assert_eq!(kind_of(&turn), None, "{}", lines(&turn));
    assert_eq!(direct.agent.asked().len(), 1);
}
