//! Not one frame crosses rooms: every event, from everybody who should not be heard.

use serde_json::{Value, json};
use strum::VariantArray as _;

use budao_smcp::wire::event::{NotificationEvent, RequestEvent};

use crate::common::{Peer, config, pair, peer, start};

/// Every event, as somebody would send it to reach room `a` from outside.
fn attempts() -> Vec<(&'static str, Value)> {
    let whole = json!({
        "agent": "bot", "req_id": "r", "computer": "pc", "tool_name": "echo", "params": {},
        "timeout": 5, "office_id": "a", "mcp_server": "m", "name": "pc", "blob_handle": "h",
        "error_details": true,
    });
    let asks = RequestEvent::VARIANTS.iter().map(|ask| <&str>::from(*ask));
    let tells = NotificationEvent::VARIANTS
        .iter()
        .filter(|kind| **kind != NotificationEvent::Join)
        .map(|kind| <&str>::from(*kind));
    asks.chain(tells).map(|event| (event, whole.clone())).collect()
}

/// Sends everything; each must be refused. Returns how much that was.
async fn try_all(who: &str, peer: &Peer) -> usize {
    let attempts = attempts();
    let count = attempts.len();
    for (event, payload) in attempts {
        let args = peer.ask_all(event, payload).await;
        let error = args.last().unwrap();
        let code = error["code"].as_u64();
        if event == "server:tool_call_cancel" && args == [Value::Null] {
            continue; // Nothing of that id is under way in the sender's own room: silence is the rule.
        }
        let is_refused = code.is_some_and(|code| [400, 403, 404, 4102, 4103, 4104].contains(&code));
        assert!(is_refused, "{who} {event}: {args:?}");
    }
    count
}

#[tokio::test]
async fn no_message_crosses_the_border_of_a_room() {
    let hub = start(config()).await;
    let (mut agent, mut computer) = pair(&hub).await;

    let mut non_member = peer(&hub).await;
    let mut other_agent = peer(&hub).await;
    other_agent.join("agent", "bot", "b").await;
    let mut other_computer = peer(&hub).await;
    other_computer.join("computer", "x", "b").await;
    let mut refused_agent = peer(&hub).await;
    assert_eq!(refused_agent.join("agent", "spy", "a").await[0], false);
    let mut refused_computer = peer(&hub).await;
    assert_eq!(refused_computer.join("computer", "pc", "a").await[0], false);
    let mut ex_member = peer(&hub).await;
    ex_member.join("computer", "was", "a").await;
    ex_member.ask_all("server:leave_office", json!({ "office_id": "a" })).await;
    // Everybody's own comings and goings have been heard.
    for peer in [&mut agent, &mut computer, &mut ex_member, &mut other_agent, &mut other_computer] {
        peer.received_so_far().await;
    }

    let mut tried = 0;
    for (who, peer) in [
        ("a non-member", &non_member),
        ("another room's agent", &other_agent),
        ("another room's computer", &other_computer),
        ("a refused agent", &refused_agent),
        ("a refused computer", &refused_computer),
        ("an ex-member", &ex_member),
    ] {
        tried += try_all(who, peer).await;
    }
    eprintln!("security T8: {tried} events of strangers in a room, none heard");
    assert_eq!(agent.received_so_far().await, []);
    assert_eq!(computer.received_so_far().await, []);

    // And what happens in the room is heard nowhere else.
    agent.call("pc", "echo", "r", 5).await;
    computer.ask("server:update_tool_list", json!({ "computer": "pc" })).await;
    let newcomer = peer(&hub).await;
    newcomer.join("computer", "new", "a").await;
    newcomer.ask_all("server:leave_office", json!({ "office_id": "a" })).await;
    for peer in [
        &mut non_member,
        &mut other_agent,
        &mut other_computer,
        &mut refused_agent,
        &mut refused_computer,
        &mut ex_member,
    ] {
        assert_eq!(peer.received_so_far().await, []);
    }
    let received: Vec<String> =
        agent.received_so_far().await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(received, ["notify:update_tool_list", "notify:enter_office", "notify:leave_office"]);
}

#[tokio::test]
async fn two_rooms_with_the_same_names_do_not_know_each_other() {
    let hub = start(config()).await;
    let (agent, mut computer) = pair(&hub).await;
    let (agent_b, mut computer_b) = (peer(&hub).await, peer(&hub).await);
    computer_b.join("computer", "pc", "b").await;
    agent_b.join("agent", "bot", "b").await;
    computer_b.received_so_far().await;
    agent.call("pc", "echo", "same", 5).await;
    agent_b.call("pc", "echo", "same", 5).await;
    for peer in [&mut computer, &mut computer_b] {
        let received = peer.received_so_far().await;
        let calls = received.iter().filter(|(name, _)| name == "client:tool_call").count();
        assert_eq!(calls, 1, "{received:?}");
    }
}

#[tokio::test]
async fn a_call_ends_when_its_computer_leaves_the_room() {
    let hub = start(config()).await;
    let (agent, mut computer) = pair(&hub).await;
    let client = agent.client.clone();
    let call = budao_socketio::Payload::of(crate::common::tool_call("pc", "slow", "r", 50));
    let slow = tokio::spawn(async move {
        client.call("client:tool_call", call, std::time::Duration::from_secs(50)).await
    });
    computer.receive("client:tool_call").await;
    computer.join("computer", "pc", "elsewhere").await;
    let answer = crate::common::within(slow).await.unwrap().unwrap().into_first();
    assert_eq!(answer["code"], 404);
}
