//! Very many calls, some cancelled, some too slow, while computers come and go: each has one answer, its own.
//!
//! Every run does a share; `cargo xtask test --only acks` does a hundred thousand.

use std::{sync::Arc, time::Duration};

use budao_socketio::Payload;
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::common::{TEST_TIMEOUT, config, pair, peer, start, tool_call, within};

/// A small generator: what happens depends on the seed alone.
pub(crate) struct SeededRng(pub(crate) u64);

impl SeededRng {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_has_exactly_one_answer_and_it_is_its_own() {
    let total = if std::env::var_os("BUDAO_FULL").is_some() { 100_000_u64 } else { 4_000 };
    let seed = 20_261_115;
    eprintln!("seed {seed}");
    let mut dice = SeededRng(seed);
    let hub = start(config()).await;
    let (agent, _pc) = pair(&hub).await;
    let window = Arc::new(Semaphore::new(64));
    let mut calls = JoinSet::new();
    let mut guest = None;
    for number in 0..total {
        let permit = window.clone().acquire_owned().await.unwrap();
        let client = agent.client.clone();
        let fate = dice.roll(20);
        if number % 500 == 0 {
            // Another computer, whose predecessor goes with everything it had.
            let next = peer(&hub).await;
            let joined = next.join("computer", &format!("guest{}", number / 500), "a").await;
            assert_eq!(joined[0], true);
            guest = Some(next);
        }
        let computer = if fate < 4 { format!("guest{}", number / 500) } else { "pc".into() };
        calls.spawn(async move {
            let tool = if matches!(fate, 0..2 | 18..) { "slow" } else { "echo" };
            let mut request = tool_call(&computer, tool, &format!("r{number}"), 1);
            request["params"] = json!({ "number": number });
            if tool == "slow" && number % 2 == 0 {
                let client = client.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(number % 7)).await;
                    let cancel = json!({ "agent": "bot", "req_id": format!("r{number}") });
                    client.emit("server:tool_call_cancel", Payload::of(cancel)).await.unwrap();
                });
            }
            let pending_answer =
                client.call("client:tool_call", Payload::of(request), TEST_TIMEOUT);
            let answer = pending_answer.await.unwrap().into_first();
            drop(permit);
            (number, tool, answer)
        });
    }
    let mut ends = std::collections::BTreeMap::<&str, u64>::new();
    while let Some(done) = within(calls.join_next()).await {
        let (number, tool, answer) = done.unwrap();
        *ends.entry(judge(number, tool, &answer)).or_default() += 1;
    }
    drop(guest);
    eprintln!("{ends:?}");
    assert_eq!(ends.values().sum::<u64>(), total);
    assert_eq!((agent.client.waiting(), hub.hub.stats().calls_under_way), (0, 0));
    assert_eq!(agent.client.stats().late_answers, 0, "nothing was answered twice");
}

/// What an answer says; panics if it is another call's.
fn judge(number: u64, tool: &str, answer: &Value) -> &'static str {
    if tool == "echo" && answer["isError"] == false {
        let sent = json!({ "number": number }).to_string();
        assert_eq!(answer["content"][0]["text"], sent);
        return "answered";
    }
    if answer["meta"]["a2c_cancelled"] == true {
        assert_eq!(tool, "slow");
        return "cancelled";
    }
    match answer["code"].as_u64().unwrap() {
        404 => "gone",
        408 => {
            assert_eq!(tool, "slow");
            "too late"
        }
        other => panic!("{other}: {answer}"),
    }
}
