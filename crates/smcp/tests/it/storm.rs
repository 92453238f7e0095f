//! Agents and computers on bad lines to a hub that is restarted all the time: every call ends once, as its own.
//!
//! Every run does a share; `cargo xtask chaos --minutes N` goes on for as long as asked for.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use budao_core::{
    fault::{Fault, Kind},
    world::Entropy,
};
use budao_smcp::agent::{Agent, Call, Config as AgentConfig};
use budao_testkit::{
    proxy::{ConnectionPlan, Ending, Lane, Proxy},
    world,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    broken_lines::{address, member_config},
    common::{RunningHub, config, start, the_world, within},
};

/// Calls at a time.
const CALLERS: u64 = 24;
/// Calls in every run.
const CALLS: u64 = 1_500;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A line that breaks after some thousand bytes, or is only slow and torn.
fn some_cuts(dice: &Arc<dyn Entropy>) -> ConnectionPlan {
    let bytes = 600 + dice.bits() % 60_000;
    match dice.bits() % 5 {
        0 => ConnectionPlan::down(Lane::default().cut(bytes, Ending::Reset)),
        1 => {
            ConnectionPlan { up: Lane::default().cut(bytes, Ending::Close), down: Lane::default() }
        }
        2 => ConnectionPlan::down(Lane::default().torn(60)),
        _ => ConnectionPlan::clean(),
    }
}

/// What callers share.
struct Storm {
    agent: Agent,
    next: AtomicU64,
    until: Option<Instant>,
}

impl Storm {
    /// The number of the next call, if there is to be one.
    fn next(&self) -> Option<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let goes_on = self.until.map_or(number < CALLS, |until| Instant::now() < until);
        goes_on.then_some(number)
    }

    /// One call, its answer held against what was sent. What it came to.
    async fn call(&self, number: u64) -> String {
        let (tool, seconds) = if number.is_multiple_of(8) { ("slow", 1) } else { ("echo", 5) };
        let cancel = CancellationToken::new();
        if number.is_multiple_of(16) {
            let cancel = cancel.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(number % 40)).await;
                cancel.cancel();
            });
        }
        let text = format!("call {number}");
        let call = Call {
            computer: ["pc", "mac"][usize::from(number.is_multiple_of(3))].into(),
            tool: format!("my_tools__{tool}"),
            params: json!({ "text": text }),
            timeout: Duration::from_secs(seconds),
            req_id: None,
        };
        match within(self.agent.call(call, &cancel)).await {
            Ok(answer) => judge(&answer, tool, &text),
            Err(fault) => failure_code(&fault),
        }
    }
}

fn judge(answer: &Value, tool: &str, text: &str) -> String {
    assert_eq!(tool, "echo", "what never answers has answered: {answer}");
    assert_eq!(answer["content"][0]["text"], text, "the answer of another call");
    "answered".to_owned()
}

/// Whatever went wrong has the name of something that can: nobody's bug, nobody's rubbish.
fn failure_code(fault: &Fault) -> String {
    let wrong = [Kind::Bug, Kind::PeerFailed, Kind::DuplicateCallId, Kind::CrossRoomAccess];
    assert!(!wrong.contains(&fault.kind()), "{fault:?}");
    fault.row().name.to_owned()
}

/// The hub dies or stops, and lines break, until it is over.
async fn restart_at_random(
    mut hub: RunningHub,
    lines: Arc<[Proxy; 3]>,
    dice: Arc<dyn Entropy>,
    over: Arc<AtomicBool>,
) -> (RunningHub, u64) {
    let mut restarts = 0;
    while !over.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(20 + dice.bits() % 300)).await;
        let all = dice.bits().is_multiple_of(6);
        if !all {
            let line = usize::try_from(dice.bits() % 3).unwrap();
            lines[line].cut_all(Ending::Reset);
            continue;
        }
        let new = start(config()).await;
        lines.iter().for_each(|line| line.redirect(address(&new)));
        let old = std::mem::replace(&mut hub, new);
        restarts += 1;
        if dice.bits().is_multiple_of(2) {
            lines.iter().for_each(|line| line.cut_all(Ending::Reset));
            drop(old);
        } else {
            old.stop().await;
        }
    }
    (hub, restarts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_broken_lines_and_dying_hubs_leaves_every_call_with_one_end_of_its_own() {
    let seed = number("BUDAO_SEED").unwrap_or(20_261_115);
    eprintln!("BUDAO_SEED={seed}");
    let seconds = number("BUDAO_CHAOS_SECONDS");
    let hub = start(config()).await;
    let line = async |nth| Proxy::start(address(&hub), seed.wrapping_add(nth)).await.unwrap();
    let lines = Arc::new([line(0).await, line(1).await, line(2).await]);
    let pc = crate::computer::start_computer(member_config(&lines[1], "pc")).await;
    let mac = crate::computer::start_computer(member_config(&lines[2], "mac")).await;
    let connecting = Agent::connect(AgentConfig::new(member_config(&lines[0], "bot")), the_world());
    let agent = within(connecting).await.unwrap();
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let storm = Arc::new(Storm { agent, next: AtomicU64::new(0), until });
    for (nth, line) in (1..).zip(&*lines) {
        let dice = world::seeded(seed.wrapping_add(nth)).entropy;
        line.plan(move |_| some_cuts(&dice));
    }
    let over = Arc::new(AtomicBool::new(false));
    let dice = world::seeded(seed).entropy;
    let restarting =
        tokio::spawn(restart_at_random(hub, Arc::clone(&lines), dice, Arc::clone(&over)));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let storm = Arc::clone(&storm);
        callers.spawn(async move {
            let mut ends = BTreeMap::<String, u64>::new();
            while let Some(number) = storm.next() {
                *ends.entry(storm.call(number).await).or_default() += 1;
            }
            ends
        });
    }
    let mut ends = BTreeMap::<String, u64>::new();
    while let Some(some) = callers.join_next().await {
        for (end, count) in some.unwrap() {
            *ends.entry(end).or_default() += count;
        }
    }
    over.store(true, Ordering::Relaxed);
    let (hub, restarts) = within(restarting).await.unwrap();
    for line in &*lines {
        line.plan(|_| ConnectionPlan::clean());
        line.cut_all(Ending::Close);
    }
    let calls: u64 = ends.values().sum();
    let cuts: u64 = lines.iter().map(Proxy::ended_early).sum();
    eprintln!("{calls} calls, {cuts} lines cut, {restarts} hubs gone: {ends:?}");
    // When it is calm again everything works, and nothing is left of the storm.
    within(async {
        while storm.call(1).await != "answered" || storm.call(3).await != "answered" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        while hub.hub.stats().calls_under_way > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(ends.get("answered").is_some_and(|count| *count > 0) && restarts > 0 && cuts > 0);
    pc.shutdown().await;
    mac.shutdown().await;
}
