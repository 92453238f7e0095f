//! The reference package in Python as agent of our computer: resources, windows, skills, and data in pieces.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    common::within,
    peers::{Agent, Kit},
    python::{hub, right},
    resources::start_full_computer,
};

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|it| format!("{it:02x}")).collect()
}

/// Waits until all three servers of the computer have their tools.
async fn ready(agent: &mut Agent) {
    within(async {
        loop {
            let tools = agent.ask(json!({ "do": "tools", "computer": "pc" })).await.to_string();
            if ["alpha__echo", "beta__echo", "plain__echo"].iter().all(|it| tools.contains(it)) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// What its library raised: the code and the reason.
async fn refused(agent: &mut Agent, command: Value) -> Value {
    let answer = within(agent.begin(command).await).await.unwrap();
    assert!(answer.get("error").is_some(), "{answer}");
    answer
}

#[tokio::test]
async fn the_reference_agent_uses_what_our_computer_has_besides_tools() {
    let Some(python) = Kit::python() else { return };
    let hub = hub().await;
    let full_computer = start_full_computer(right(&hub.url(), "pc")).await;
    let mut agent = Agent::start(&python, &hub.url()).await;
    ready(&mut agent).await;
    let with = |what: &str, more: Value| {
        let mut command = json!({ "do": what, "computer": "pc" });
        command.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        command
    };

    let page = agent.ask(with("resources", json!({ "server": "beta" }))).await;
    let cursor = json!({ "server": "beta", "cursor": page["next_cursor"] });
    let rest = agent.ask(with("resources", cursor)).await;
    let count = |page: &Value| page["resources"].as_array().unwrap().len();
    assert_eq!((count(&page), count(&rest)), (20, 12));
    for (server, code) in [("plain", 4015), ("nobody", 4014)] {
        let no = refused(&mut agent, with("resources", json!({ "server": server }))).await;
        assert_eq!(no["code"], code, "{no}");
    }

    let shown = agent.ask(with("desktop", json!({ "size": 2 }))).await;
    assert_eq!(count_of(&shown["desktops"]), 2, "{shown}");
    let one = agent.ask(with("desktop", json!({ "window": "window://beta/only" }))).await;
    assert_eq!(one["desktops"], json!(["window://beta/only\n\nshown by window://beta/only"]));

    let skills = agent.ask(with("skills", json!({}))).await;
    assert_eq!(count_of(&skills["skills"]), 2, "{skills}");
    let entry = agent.ask(with("skill", json!({ "name": "pdf-tools" }))).await;
    assert_eq!(entry["body"], "Do it well.\n");
    // Its library fetches a long text by itself.
    let long = agent.ask(with("skill", json!({ "name": "pdf-tools", "path": "long.txt" }))).await;
    assert_eq!(long["body"].as_str().map(str::len), Some(400_000));
    let picture =
        agent.ask(with("skill", json!({ "name": "pdf-tools", "path": "page.png" }))).await;
    let handle = json!({ "handle": picture["blob_handle"] });
    let drained = agent.ask(with("drain", handle)).await;
    assert_eq!(drained, json!([10, digest(&[7; 10]), "image/png"]));
    for (name, path, code) in [
        ("Bad Name", "SKILL.md", 4016),
        ("not-here", "SKILL.md", 4014),
        ("pdf-tools", "../x", 4017),
        ("pdf-tools", ".skillenv", 4017),
    ] {
        let no = refused(&mut agent, with("skill", json!({ "name": name, "path": path }))).await;
        assert_eq!(no["code"], code, "{no}");
    }

    // A large picture is fetched by its library and put back where it was.
    let image = agent.call("plain__picture", json!({ "base64": 2_000_000 }), 30).await;
    let data = STANDARD.decode(image["content"][0]["data"].as_str().unwrap()).unwrap();
    assert_eq!(data, vec![0; 1_500_000]);
    let huge = agent.call("plain__huge", json!({ "bytes": 2_500_000 }), 30).await;
    let blob = huge["content"][1]["resource"]["blob"].as_str().unwrap();
    assert_eq!(STANDARD.decode(blob).unwrap(), vec![b'x'; 2_500_000]);
    let gone = json!({ "handle": format!("b{}", "0".repeat(32)), "concurrency": 4 });
    let gone = refused(&mut agent, with("drain", gone)).await;
    assert_eq!(gone["reason"], "gone", "{gone}");

    let data: Vec<u8> = (0..600_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let put = agent.ask(with("put", json!({ "data": STANDARD.encode(&data) }))).await;
    assert_eq!((&put[1], &put[2]), (&json!(600_000), &json!(digest(&data))));
    assert!(std::fs::read(put[0].as_str().unwrap()).unwrap() == data);
    full_computer.computer.shutdown().await;
}

fn count_of(list: &Value) -> usize {
    list.as_array().unwrap().len()
}
