//! Agent and computer each on a line of their own that breaks: every call ends once, nobody is left waiting, and whoever
//! was cut off is back in the room by itself.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use budao_core::fault::{Fault, Kind};
use budao_smcp::{
    MemberConfig,
    agent::{Agent, Call, Config as AgentConfig},
    computer::{Computer, Config as ComputerConfig},
};
use budao_testkit::proxy::{Ending, Proxy};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    chaos::SeededRng,
    common::{RunningHub, config, start, the_world, within},
    computer::{FixedValues, settings},
};

const SEED: u64 = 20_261_115;

/// A hub, and an agent and a computer that reach it through a proxy each.
struct Fixture {
    hub: RunningHub,
    to_agent: Proxy,
    to_computer: Proxy,
    agent: Agent,
    computer: Computer,
}

pub(crate) fn address(hub: &RunningHub) -> SocketAddr {
    ([127, 0, 0, 1], hub.port).into()
}

pub(crate) fn member_config(proxy: &Proxy, name: &str) -> MemberConfig {
    let mut member = MemberConfig::new(&format!("http://{}", proxy.address()), "a", name);
    let base = Duration::from_millis(5);
    (member.reconnect.base, member.reconnect.max) = (base, base * 8);
    member
}

async fn scene() -> Fixture {
    scene_of(64).await
}

/// The same, with a computer that takes so many calls at once.
async fn scene_of(calls_max: usize) -> Fixture {
    eprintln!("seed {SEED}");
    let hub = start(config()).await;
    let to_agent = Proxy::start(address(&hub), SEED).await.unwrap();
    let to_computer = Proxy::start(address(&hub), SEED + 1).await.unwrap();
    let config =
        ComputerConfig { calls_max, ..ComputerConfig::new(member_config(&to_computer, "pc")) };
    let starting = Computer::start(config, settings(|_| {}), &FixedValues, the_world());
    let computer = within(starting).await.unwrap();
    let connecting = Agent::connect(AgentConfig::new(member_config(&to_agent, "bot")), the_world());
    let agent = within(connecting).await.unwrap();
    let scene = Fixture { hub, to_agent, to_computer, agent, computer };
    scene.until_it_works().await;
    scene
}

impl Fixture {
    async fn call(&self, tool: &str, timeout: u64) -> Result<Value, Fault> {
        let call = Call {
            computer: "pc".into(),
            tool: format!("my_tools__{tool}"),
            params: json!({ "text": "hi" }),
            timeout: Duration::from_secs(timeout),
            req_id: None,
        };
        within(self.agent.call(call, &CancellationToken::new())).await
    }

    /// Calls until it is answered: by then everybody is in the room.
    async fn until_it_works(&self) {
        within(async {
            loop {
                match self.call("echo", 5).await {
                    Ok(answer) => return assert_eq!(answer["content"][0]["text"], "hi"),
                    Err(fault) => {
                        // Whatever is missing, it is said at once and by its name.
                        let known = [
                            Kind::ComputerNotFound,
                            Kind::ComputerGone,
                            Kind::UnknownTool,
                            Kind::McpServerFailed,
                            Kind::ConnectionLost,
                            Kind::OutcomeUnknown,
                            Kind::NotInRoom,
                            Kind::RoomNotFound,
                        ];
                        assert!(known.contains(&fault.kind()), "{fault:?}");
                    }
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }

    /// Ten calls that would take long, all of them on their way.
    async fn under_way(&self, timeout: u64) -> Vec<tokio::task::JoinHandle<Result<Value, Fault>>> {
        let calls = (0..10).map(|_| {
            let agent = self.agent.clone();
            tokio::spawn(async move {
                let call = Call {
                    computer: "pc".into(),
                    tool: "my_tools__slow".into(),
                    params: json!({}),
                    timeout: Duration::from_secs(timeout),
                    req_id: None,
                };
                agent.call(call, &CancellationToken::new()).await
            })
        });
        let calls = calls.collect();
        within(async {
            while self.hub.hub.stats().calls_under_way < 10 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
        calls
    }

    /// Cuts the computer off, or the agent, or lets another hub take the place of this one; then everybody comes back.
    async fn accident(&mut self, which: u64) {
        match which % 3 {
            0 => self.to_computer.cut_all(Ending::Reset),
            1 => self.to_agent.cut_all(Ending::Reset),
            _ => {
                let new = start(config()).await;
                self.to_agent.redirect(address(&new));
                self.to_computer.redirect(address(&new));
                let old = std::mem::replace(&mut self.hub, new);
                let hub = old.hub.clone();
                old.stop().await;
                assert_eq!(hub.stats().calls_under_way, 0);
            }
        }
        self.until_it_works().await;
    }

    async fn nothing_is_left(&self) {
        within(async {
            while self.hub.hub.stats().calls_under_way > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        })
        .await;
    }
}

/// Each of them ended, as one of these.
async fn ended(calls: Vec<tokio::task::JoinHandle<Result<Value, Fault>>>, kinds: &[Kind]) {
    for call in calls {
        let fault = within(call).await.unwrap().unwrap_err();
        assert!(kinds.contains(&fault.kind()), "{fault:?}");
        // Every one of them had begun.
        assert!(fault.is_outcome_unknown() && !fault.repeat().retryable, "{fault:?}");
    }
}

#[tokio::test]
async fn a_hub_that_restarts_ends_its_calls_and_all_members_reconnect() {
    let mut scene = scene().await;
    let calls = scene.under_way(60).await;
    let new = start(config()).await;
    scene.to_agent.redirect(address(&new));
    scene.to_computer.redirect(address(&new));
    let old = std::mem::replace(&mut scene.hub, new);
    let stats = old.hub.clone();
    old.stop().await;
    // What may have run must not look like what can be asked again.
    ended(calls, &[Kind::OutcomeUnknown]).await;
    assert_eq!(stats.stats().calls_under_way, 0);
    scene.until_it_works().await;
    scene.computer.shutdown().await;
}

#[tokio::test]
async fn a_hub_that_dies_silently_leaves_no_call_waiting() {
    let mut scene = scene().await;
    let calls = scene.under_way(60).await;
    let new = start(config()).await;
    scene.to_agent.redirect(address(&new));
    scene.to_computer.redirect(address(&new));
    scene.to_agent.cut_all(Ending::Reset);
    scene.to_computer.cut_all(Ending::Reset);
    let old = std::mem::replace(&mut scene.hub, new);
    ended(calls, &[Kind::OutcomeUnknown]).await;
    scene.until_it_works().await;
    drop(old);
    scene.computer.shutdown().await;
}

#[tokio::test]
async fn a_computer_that_loses_its_connection_in_a_call_is_reported_at_once_and_reconnects() {
    let scene = scene().await;
    for ending in [Ending::Reset, Ending::Close] {
        let calls = scene.under_way(60).await;
        scene.to_computer.cut_all(ending);
        ended(calls, &[Kind::ComputerGone]).await;
        scene.nothing_is_left().await;
        scene.until_it_works().await;
    }
    assert_eq!(scene.hub.hub.stats().answers_lost, 0);
    scene.computer.shutdown().await;
}

#[tokio::test]
async fn a_computer_that_falls_silent_costs_a_call_its_deadline_and_no_more() {
    let scene = scene().await;
    let calls = scene.under_way(1).await;
    scene.to_computer.cut_all(Ending::Silence);
    ended(calls, &[Kind::RequestTimedOut, Kind::DeadlinePassed]).await;
    scene.nothing_is_left().await;
    scene.computer.shutdown().await;
}

#[tokio::test]
async fn an_agent_cut_off_in_a_call_knows_it_and_leaves_nothing_behind() {
    let scene = scene().await;
    for ending in [Ending::Reset, Ending::Close] {
        let calls = scene.under_way(60).await;
        scene.to_agent.cut_all(ending);
        ended(calls, &[Kind::OutcomeUnknown]).await;
        scene.nothing_is_left().await;
        scene.until_it_works().await;
    }
    scene.computer.shutdown().await;
}

/// Goal: a call that can be answered to nobody ends, and its place is free, long before its deadline.
/// Method: a computer that takes ten calls has ten; its line is cut, then the agent's; another call gets in.
#[tokio::test]
async fn calls_of_a_lost_connection_are_ended_and_free_their_slots() {
    let scene = scene_of(10).await;
    for line in [&scene.to_computer, &scene.to_agent] {
        let calls = scene.under_way(3600).await;
        line.cut_all(Ending::Reset);
        ended(calls, &[Kind::ComputerGone, Kind::OutcomeUnknown]).await;
        within(async {
            while scene.call("echo", 5).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
    // The MCP server was told, each time.
    let seen = scene.call("seen", 10).await.unwrap().to_string();
    assert_eq!(seen.matches("notifications/cancelled").count(), 20, "{seen}");
    scene.computer.shutdown().await;
}

/// One call of many: most are echoes, some take too long, and some of those are given up at a moment of their own.
async fn one_of_many(agent: Agent, number: u64, fate: u64) -> Result<Value, Fault> {
    let (tool, params, seconds) = match fate {
        0 | 1 => ("my_tools__slow", json!({}), 1),
        _ => ("my_tools__echo", json!({ "text": number.to_string() }), 30),
    };
    let call = Call {
        computer: "pc".into(),
        tool: tool.into(),
        params,
        timeout: Duration::from_secs(seconds),
        req_id: None,
    };
    let cancel = CancellationToken::new();
    let given_up = async {
        if fate == 0 {
            tokio::time::sleep(Duration::from_millis(number % 7)).await;
            cancel.cancel();
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        ended = agent.call(call, &cancel) => ended,
        () = given_up => unreachable!("it waits for ever"),
    }
}

/// How a call ended; panics if it is another call's end, or one that it cannot have.
fn end_of(number: u64, fate: u64, ended: Result<Value, Fault>) -> &'static str {
    let fault = match ended {
        Ok(answer) => {
            assert_eq!(answer["content"][0]["text"], number.to_string());
            return "answered";
        }
        Err(fault) => fault,
    };
    match fault.kind() {
        Kind::Cancelled if fate == 0 => "given up",
        Kind::DeadlinePassed if fate < 2 => "too late",
        Kind::ConnectionLost
        | Kind::OutcomeUnknown
        | Kind::ComputerGone
        | Kind::ComputerNotFound
        | Kind::NotInRoom
        | Kind::RoomNotFound
        | Kind::ShuttingDown => "cut off",
        // What was cut off is still being given up.
        Kind::LimitReached => "too many",
        _ => panic!("{number}: {fault:?}"),
    }
}

/// Goal: whatever happens to the lines, each call ends once, with its own answer, and nothing is left of it.
/// Method: very many calls, a dozen accidents among them. `cargo xtask test --only acks` makes a hundred thousand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn very_many_calls_over_lines_that_break_end_once_each_with_their_own_answer() {
    let total = if std::env::var_os("BUDAO_FULL").is_some() { 100_000_u64 } else { 600 };
    let every = total / 12;
    let mut scene = scene().await;
    let mut dice = SeededRng(SEED);
    let window = Arc::new(Semaphore::new(48));
    let (mut calls, mut ends) = (JoinSet::new(), BTreeMap::<&str, u64>::new());
    for number in 0..total {
        let permit = window.clone().acquire_owned().await.unwrap();
        let (agent, fate) = (scene.agent.clone(), dice.roll(20));
        calls.spawn(async move {
            let ended = one_of_many(agent, number, fate).await;
            drop(permit);
            end_of(number, fate, ended)
        });
        if number % every == every / 2 {
            scene.accident(number / every).await;
        }
        while let Some(end) = calls.try_join_next() {
            *ends.entry(end.unwrap()).or_default() += 1;
        }
    }
    while let Some(end) = within(calls.join_next()).await {
        *ends.entry(end.unwrap()).or_default() += 1;
    }
    eprintln!("{total} calls: {ends:?}");
    assert_eq!(ends.values().sum::<u64>(), total);
    scene.nothing_is_left().await;
    scene.computer.shutdown().await;
}
