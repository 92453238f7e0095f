//! Clients that do not read what they asked for: each is closed with a reason, and costs the others nothing.

use std::time::Duration;

use budao_smcp::{
    server::{Config, Limits},
    wire::PROTOCOL,
};
use serde_json::json;

use crate::{
    common::{RunningHub, config, pair, peer, start, tool_call, within},
    raw_frames::{Socket, connected, send_text, text},
};

const MIB: usize = 1 << 20;

fn limited(change: impl FnOnce(&mut Limits)) -> Config {
    let mut config = config();
    change(&mut config.limits);
    config
}

/// Joins over a raw socket, which is not read unless somebody does.
async fn join(socket: &mut Socket, role: &str, name: &str, room: &str) {
    let request = json!({ "role": role, "name": name, "office_id": room });
    send_text(socket, &format!("42/smcp,0{}", json!(["server:join_office", request]))).await;
    while !text(socket).await.starts_with("43/smcp,0[true") {}
}

/// A raw agent `bot` in a room with a computer `pc` that answers.
async fn unread_agent(hub: &RunningHub, room: &str) -> (Socket, crate::common::Peer) {
    let computer = peer(hub).await;
    assert_eq!(computer.join("computer", "pc", room).await[0], true);
    let mut agent = connected(hub).await;
    join(&mut agent, "agent", "bot", room).await;
    (agent, computer)
}

/// Asks for two megabytes, so many times, and reads nothing.
async fn ask_for_much(socket: &mut Socket, times: usize) {
    for number in 0..times {
        let call = tool_call("pc", "big", &format!("r{number}"), 30);
        send_text(socket, &format!("42/smcp,{}{}", number + 1, json!(["client:tool_call", call])))
            .await;
    }
}

async fn until_closed(hub: &RunningHub, limit: &str) {
    within(async {
        while !hub.hub.stats().closed_slow.contains_key(limit) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn until_nothing_waits(hub: &RunningHub) {
    within(async {
        while hub.hub.stats().queued_bytes > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_does_not_read_is_disconnected_and_gets_the_reason_later() {
    let hub = start(limited(|limits| limits.queue_bytes_max = 4 * MIB)).await;
    let (mut agent, _computer) = unread_agent(&hub, "slow").await;
    // One by one: what the hub has not read when it closes would reset the connection.
    for count in 1.. {
        ask_for_much(&mut agent, 1).await;
        let is_answered = || {
            let stats = hub.hub.stats();
            let received = stats.events.get("client:tool_call").copied().unwrap_or_default();
            received >= count && stats.calls_under_way == 0
        };
        within(async {
            while !is_answered() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        if !hub.hub.stats().closed_slow.is_empty() {
            break;
        }
    }
    let reason = loop {
        let next = text(&mut agent).await;
        if next.starts_with("42/smcp,[\"notify:connection_closed\"") {
            break next;
        }
    };
    assert!(reason.contains("\"limit_name\":\"queue_bytes_max\""), "{reason}");
    assert!(reason.contains("observer_too_slow"), "{reason}");
    assert_eq!(text(&mut agent).await, "41/smcp,", "the reason is the last thing it hears");
    until_nothing_waits(&hub).await;
    assert_eq!(hub.hub.stats().closed_slow["queue_bytes_max"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_never_reads_again_is_cut_off_and_its_bytes_are_given_back() {
    let hub = start(limited(|limits| limits.queue_bytes_max = 4 * MIB)).await;
    let (mut agent, mut computer) = unread_agent(&hub, "slow").await;
    ask_for_much(&mut agent, 30).await;
    until_closed(&hub, "queue_bytes_max").await;
    computer.receive("notify:leave_office").await;
    until_nothing_waits(&hub).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_takes_nothing_for_too_long_is_closed_however_little_waits() {
    let hub = start(limited(|limits| limits.send = Duration::from_millis(300))).await;
    let (mut agent, mut computer) = unread_agent(&hub, "slow").await;
    ask_for_much(&mut agent, 15).await;
    until_closed(&hub, "send").await;
    computer.receive("notify:leave_office").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_connections_together_have_too_much_the_slowest_is_closed() {
    let limits = |limits: &mut Limits| {
        limits.queue_bytes_max = 64 * MIB;
        limits.queue_bytes_total_max = 12 * MIB;
    };
    let hub = start(limited(limits)).await;
    let (agent, _computer) = pair(&hub).await;
    let (mut first, _one) = unread_agent(&hub, "first").await;
    let (mut second, _two) = unread_agent(&hub, "second").await;
    ask_for_much(&mut first, 20).await;
    ask_for_much(&mut second, 20).await;
    until_closed(&hub, "queue_bytes_total_max").await;
    let answer = agent.call("pc", "big", "fine", 30).await;
    assert_eq!(answer["isError"], false, "who reads is served");
    assert!(hub.hub.stats().queued_bytes <= 2 * 12 * MIB, "{}", hub.hub.stats().queued_bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_to_a_computer_that_does_not_read_are_refused_and_may_be_repeated() {
    let hub = start(limited(|limits| limits.queue_bytes_max = 4 * MIB)).await;
    let agent = peer(&hub).await;
    assert_eq!(agent.join("agent", "bot", "a").await[0], true);
    let mut computer = connected(&hub).await;
    join(&mut computer, "computer", "pc", "a").await;
    let refused = within(async {
        for number in 0.. {
            let mut call = tool_call("pc", "t", &format!("r{number}"), 1);
            call["params"] = json!({ "text": "x".repeat(900_000) });
            let answer = agent.ask("client:tool_call", call).await;
            let details = &answer["details"];
            if details["limit_name"] == "queue_bytes_max" {
                return answer;
            }
            // Those before it are in a buffer somewhere, and nobody knows what becomes of them.
            assert_eq!((&answer["code"], &details["outcome_unknown"]), (&json!(408), &json!(true)));
            assert_eq!(details["retryable"], false);
        }
        unreachable!("one is refused");
    })
    .await;
    assert_eq!(refused["details"]["retryable"], true, "{refused}");
    assert_eq!(refused["details"].get("outcome_unknown"), None, "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_polling_agent_that_never_polls_is_closed_too() {
    let hub = start(limited(|limits| limits.queue_bytes_max = 4 * MIB)).await;
    let computer = peer(&hub).await;
    assert_eq!(computer.join("computer", "pc", "a").await[0], true);
    let client = reqwest::Client::new();
    let base = format!("{}/socket.io/?EIO=4&transport=polling&a2c_version={PROTOCOL}", hub.url());
    let get = async |url: &str| within(client.get(url).send()).await.unwrap();
    let opened = get(&base).await.text().await.unwrap();
    let open: serde_json::Value = serde_json::from_str(&opened[1..]).unwrap();
    let url = format!("{base}&sid={}", open["sid"].as_str().unwrap());
    let post = async |text: String| within(client.post(&url).body(text).send()).await.unwrap();
    post("40/smcp,{}".into()).await;
    let receive = async |word: &str| while !get(&url).await.text().await.unwrap().contains(word) {};
    receive("40/smcp,").await;
    let request = json!({ "role": "agent", "name": "bot", "office_id": "a" });
    post(format!("42/smcp,0{}", json!(["server:join_office", request]))).await;
    receive("43/smcp,0[true,null]").await;
    for number in 1..6 {
        let call = tool_call("pc", "big", &format!("r{number}"), 30);
        post(format!("42/smcp,{number}{}", json!(["client:tool_call", call]))).await;
        post("3".into()).await;
    }
    until_closed(&hub, "queue_bytes_max").await;
    // The session is over.
    within(async { while get(&url).await.status() != 400 {} }).await;
    until_nothing_waits(&hub).await;
}
