//! Agent and computer each on a line of their own that breaks: every call ends once, nobody is left waiting, and whoever
//! was cut off is back in the room by itself.

use std::{net::SocketAddr, time::Duration};

use budao_core::fault::{Fault, Kind};
use budao_smcp::{
    Place,
    agent::{Agent, Call, Config as AgentConfig},
    computer::Computer,
};
use budao_testkit::proxy::{Ending, Proxy};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::common::{Running, config, start, the_world, within};

const SEED: u64 = 20_261_115;

/// A hub, and an agent and a computer that reach it through a proxy each.
struct Scene {
    hub: Running,
    to_agent: Proxy,
    to_computer: Proxy,
    agent: Agent,
    computer: Computer,
}

fn address(hub: &Running) -> SocketAddr {
    ([127, 0, 0, 1], hub.port).into()
}

fn place(proxy: &Proxy, name: &str) -> Place {
    let mut place = Place::new(&format!("http://{}", proxy.address()), "a", name);
    let base = Duration::from_millis(5);
    (place.reconnect.base, place.reconnect.max) = (base, base * 8);
    place
}

async fn scene() -> Scene {
    eprintln!("seed {SEED}");
    let hub = start(config()).await;
    let to_agent = Proxy::start(address(&hub), SEED).await.unwrap();
    let to_computer = Proxy::start(address(&hub), SEED + 1).await.unwrap();
    let computer = crate::computer::of_place(place(&to_computer, "pc")).await;
    let connecting = Agent::connect(AgentConfig::new(place(&to_agent, "bot")), the_world());
    let agent = within(connecting).await.unwrap();
    let scene = Scene { hub, to_agent, to_computer, agent, computer };
    scene.until_it_works().await;
    scene
}

impl Scene {
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
    }
}

#[tokio::test]
async fn a_hub_that_restarts_ends_its_calls_and_everybody_comes_back() {
    let mut scene = scene().await;
    let calls = scene.under_way(60).await;
    let new = start(config()).await;
    scene.to_agent.redirect(address(&new));
    scene.to_computer.redirect(address(&new));
    let old = std::mem::replace(&mut scene.hub, new);
    let stats = old.hub.clone();
    old.stop().await;
    ended(calls, &[Kind::ShuttingDown, Kind::ConnectionLost]).await;
    assert_eq!(stats.stats().calls_under_way, 0);
    scene.until_it_works().await;
    scene.computer.shutdown().await;
}

#[tokio::test]
async fn a_hub_that_dies_without_a_word_leaves_nobody_waiting() {
    let mut scene = scene().await;
    let calls = scene.under_way(60).await;
    let new = start(config()).await;
    scene.to_agent.redirect(address(&new));
    scene.to_computer.redirect(address(&new));
    scene.to_agent.cut_all(Ending::Reset);
    scene.to_computer.cut_all(Ending::Reset);
    let old = std::mem::replace(&mut scene.hub, new);
    ended(calls, &[Kind::ConnectionLost]).await;
    scene.until_it_works().await;
    drop(old);
    scene.computer.shutdown().await;
}

#[tokio::test]
async fn a_computer_cut_off_in_a_call_is_told_at_once_and_is_back_by_itself() {
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
        ended(calls, &[Kind::ConnectionLost]).await;
        scene.nothing_is_left().await;
        scene.until_it_works().await;
    }
    scene.computer.shutdown().await;
}
