//! A cancel that stands right behind its call, in one segment of a connection or in one post of many packets: it is
//! never read before its call is known.

use futures::SinkExt as _;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    common::{RunningHub, TEST_TIMEOUT, config, pair, peer, start, within},
    computer::{agent, computer, person, settings, tools},
    raw_frames::{Socket, connected, send_text, text},
};

/// Often enough that luck is none.
const TIMES: u32 = 20;

/// The packets of a call and of its cancel. A call whose cancel is lost ends after two seconds, with another code.
fn call_and_cancel(tool: &str, number: u32) -> [String; 2] {
    let req_id = format!("r{number}");
    let call = json!({
        "agent": "bot", "req_id": req_id, "computer": "pc", "tool_name": tool, "params": {}, "timeout": 2,
    });
    let cancel = json!({ "agent": "bot", "req_id": req_id });
    [
        format!("42/smcp,{number}{}", json!(["client:tool_call", call])),
        format!("42/smcp,{}", json!(["server:tool_call_cancel", cancel])),
    ]
}

fn join() -> String {
    let request = json!({ "role": "agent", "name": "bot", "office_id": "a" });
    format!("42/smcp,1000{}", json!(["server:join_office", request]))
}

/// The first argument of the answer, if this packet is the answer to that call.
fn answer(packet: &str, number: u32) -> Option<Value> {
    let args = packet.strip_prefix(&format!("43/smcp,{number}"))?;
    let mut args: Vec<Value> = serde_json::from_str(args).ok()?;
    Some(args.swap_remove(0))
}

async fn joined(hub: &RunningHub) -> Socket {
    let mut socket = connected(hub).await;
    send_text(&mut socket, &join()).await;
    while answer(&text(&mut socket).await, 1000).is_none() {}
    socket
}

/// Both in one write, so that whoever reads has both at once.
async fn cancelled_at_once(socket: &mut Socket, tool: &str, number: u32) -> Value {
    for packet in call_and_cancel(tool, number) {
        within(socket.feed(Message::text(packet))).await.unwrap();
    }
    within(socket.flush()).await.unwrap();
    loop {
        if let Some(answer) = answer(&text(socket).await, number) {
            return answer;
        }
    }
}

#[tokio::test]
async fn a_cancel_right_behind_its_call_is_passed_on() {
    let hub = start(config()).await;
    let computer = peer(&hub).await;
    computer.join("computer", "pc", "a").await;
    let mut socket = joined(&hub).await;
    for number in 0..TIMES {
        let answer = cancelled_at_once(&mut socket, "slow", number).await;
        assert_eq!(answer["meta"]["a2c_cancelled"], true, "{answer}");
    }
    let cancels = hub.hub.stats().cancels;
    assert_eq!((cancels.passed_on, cancels.unknown), (u64::from(TIMES), 0));
}

#[tokio::test]
async fn a_cancel_right_behind_its_call_ends_it_at_the_computer() {
    let hub = start(config()).await;
    let computer = computer(&hub, person(0), settings(|_| {})).await;
    let first = agent(&hub).await;
    tools(&first).await;
    drop(first);
    within(async {
        while hub.hub.stats().connections > 1 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    let mut socket = joined(&hub).await;
    for number in 0..TIMES {
        let answer = cancelled_at_once(&mut socket, "my_tools__slow", number).await;
        assert_eq!(answer["meta"]["a2c_cancelled"], true, "{answer}");
    }
    computer.shutdown().await;
}

/// By polling a client posts many packets at once, with a control character between them.
#[tokio::test]
async fn a_cancel_in_the_same_post_as_its_call_is_passed_on() {
    let hub = start(config()).await;
    let (agent, _computer) = pair(&hub).await;
    agent.client.close();
    within(async {
        while hub.hub.stats().connections > 1 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    let polling = Polling::open(&hub).await;
    polling.post(join()).await;
    polling.answer(1000).await;
    for number in 0..TIMES {
        polling.post(call_and_cancel("slow", number).join("\u{1e}")).await;
        let answer = polling.answer(number).await;
        assert_eq!(answer["meta"]["a2c_cancelled"], true, "{answer}");
    }
    assert_eq!(hub.hub.stats().cancels.unknown, 0);
}

/// A client that never upgrades.
struct Polling {
    client: reqwest::Client,
    url: String,
}

impl Polling {
    async fn open(hub: &RunningHub) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(TEST_TIMEOUT).build().unwrap();
        let version = budao_smcp::wire::PROTOCOL;
        let url = format!("{}/socket.io/?EIO=4&transport=polling&a2c_version={version}", hub.url());
        let hello = client.get(&url).send().await.unwrap().text().await.unwrap();
        let hello: Value = serde_json::from_str(hello.strip_prefix('0').unwrap()).unwrap();
        let polling = Self { client, url: format!("{url}&sid={}", hello["sid"].as_str().unwrap()) };
        polling.post("40/smcp,{}".to_owned()).await;
        polling.hear(|packet| packet.starts_with("40/smcp,").then_some(())).await;
        polling
    }

    async fn post(&self, packets: String) {
        let posted = self.client.post(&self.url).body(packets).send().await.unwrap();
        assert!(posted.status().is_success(), "{posted:?}");
    }

    /// Polls until a packet is what is waited for, whatever else is said.
    async fn hear<T>(&self, matches: impl Fn(&str) -> Option<T>) -> T {
        loop {
            let body = self.client.get(&self.url).send().await.unwrap().text().await.unwrap();
            if body.split('\u{1e}').any(|packet| packet == "2") {
                self.post("3".to_owned()).await;
            }
            if let Some(found) = body.split('\u{1e}').find_map(&matches) {
                return found;
            }
        }
    }

    /// The answer to a call.
    async fn answer(&self, number: u32) -> Value {
        self.hear(|packet| answer(packet, number)).await
    }
}
