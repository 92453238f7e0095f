//! The real program, killed with SIGKILL in the middle of a run and started again.

use std::path::Path;

use budao_client::{Decision, SessionRequest};
use budao_testkit::proxy::Proxy;
use serde_json::json;

use crate::{
    fixture::{Peer, client_at, next, texts_by_event, until},
    program::{Server, program},
};

/// Reads files one after the other, slowly enough to be killed in between; a file is written in the middle.
fn script(home: &Path) -> String {
    std::fs::write(home.join("note.txt"), "hello\n").unwrap();
    let read = r#"
[[step]]
delay_ms = 20
[[step.call]]
tool = "fs_read"
arguments = { path = "note.txt" }
"#;
    let write = r#"
[[step]]
[[step.call]]
tool = "fs_write"
arguments = { path = "done.txt", content = "done" }
"#;
    let last = "\n[[step]]\ntext = \"All read.\"\n";
    let text = ["order = \"history\"\n", &read.repeat(20), write, &read.repeat(10), last].concat();
    std::fs::write(home.join("script.toml"), text).unwrap();
    "script:script.toml".to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_receives_the_end_of_a_run_after_kill_9() {
    let Some(program) = program() else { return };
    let home = tempfile::tempdir().unwrap();
    let model = script(home.path());
    let mut server = Server::start(&program, home.path(), &model, "approval");
    let proxy = Proxy::start(server.address, 1).await.unwrap();
    let (session, mut events) =
        client_at(proxy.address()).create(SessionRequest::default()).await.unwrap();
    session.send("go").await.unwrap();
    let mut received = Vec::new();
    let mut kills = 0;
    loop {
        let event = next(&mut events).await;
        let name = event.event.clone();
        let step = event.step_id.clone();
        received.push(event);
        let results = received.iter().filter(|event| event.event == "agent.tool_result").count();
        match name.as_str() {
            // In the middle of the reading, before the question and after it.
            "agent.tool_result" if [5, 12, 25].contains(&results) => kills += 1,
            "agent.user_confirm" => {
                let step = step.unwrap();
                // The question may have been sent again; the answer counts once.
                let _ = session.answer(&step, Decision::Approve).await;
                continue;
            }
            "agent.final_answer" => break,
            _ => continue,
        }
        server.kill();
        server = Server::start(&program, home.path(), &model, "approval");
        proxy.redirect(server.address);
    }
    assert_eq!((kills, received.last().unwrap().text()), (3, "All read."));
    assert_eq!(std::fs::read_to_string(home.path().join("done.txt")).unwrap(), "done");
    let (_other, mut whole) = client_at(server.address).attach(session.id(), None).await.unwrap();
    let all = texts_by_event(&until(&mut whole, "agent.final_answer").await);
    assert_eq!(texts_by_event(&received), all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_outlives_kill_9_is_answered_once_and_only_for_what_was_asked() {
    let Some(program) = program() else { return };
    let home = tempfile::tempdir().unwrap();
    let script = r#"
order = "history"
[[step]]
[[step.call]]
tool = "bash_run"
arguments = { cmd = "echo done >> done.txt" }
[[step]]
text = "It is done."
"#;
    std::fs::write(home.path().join("script.toml"), script).unwrap();
    let start = || Server::start(&program, home.path(), "script:script.toml", "approval");
    let mut server = start();
    let mut peer = Peer::connect(server.address).await;
    let session = peer.create().await;
    peer.send(&json!({"event": "user.message", "session_id": session, "content": "go"})).await;
    let confirmation = peer.until("agent.user_confirm").await;
    server.kill();
    server = start();
    let mut peer = Peer::connect(server.address).await;
    let back = json!({
        "event": "user.reconnect", "session_id": session, "content": {"last_seq": confirmation["seq"]},
    });
    peer.send(&back).await;
    let again = peer.until("agent.user_confirm").await;
    let same = |field: &str| (&confirmation["metadata"][field], &again["metadata"][field]);
    assert_eq!(
        (&confirmation["step_id"], &confirmation["content"]),
        (&again["step_id"], &again["content"])
    );
    assert!(confirmation["metadata"]["digest"].is_string(), "{confirmation}");
    assert_eq!(same("digest").0, same("digest").1);
    let answer = |digest: &serde_json::Value| {
        json!({
            "event": "user.response", "session_id": session, "step_id": confirmation["step_id"],
            "content": {"confirmed": true, "digest": digest},
        })
    };
    let other = peer.ask(answer(&json!("0".repeat(32))), "for something else").await;
    assert_eq!(other["event"], "error.validation", "{other}");
    let ours = answer(&confirmation["metadata"]["digest"]);
    let first = peer.ask(ours.clone(), "yes").await;
    assert_eq!(first["event"], "system.notice", "{first}");
    let repeated = peer.ask(ours.clone(), "yes").await;
    assert_eq!(repeated["metadata"]["status"], "accepted", "the same command, the same answer");
    let second = peer.ask(ours, "yes, again").await;
    assert_eq!(second["event"], "error.validation", "a question takes one answer: {second}");
    let mut watching = Peer::connect(server.address).await;
    let whole = json!({"event": "user.reconnect", "session_id": session});
    watching.send(&whole).await;
    watching.until("agent.final_answer").await;
    assert_eq!(std::fs::read_to_string(home.path().join("done.txt")).unwrap(), "done\n");
}
