//! What a run starts ends with it: real commands of the real program, looked for by their process ids.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use budao_client::SessionRequest;

use crate::{
    fixture::{TEST_TIMEOUT, client_at, until},
    program::{Server, program},
};

/// A shell, a child of it, and a child that left its group and its session.
const COMMAND: &str = "echo $$ >> pids; sleep 1000 & echo $! >> pids; setsid sh -c 'echo $$ >> pids; exec sleep 1000' & wait";

fn pids(home: &Path) -> Vec<u32> {
    let written = std::fs::read_to_string(home.join("pids")).unwrap_or_default();
    written.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Is it running? One that has ended and waits for its parent to notice is not.
fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancel_leaves_no_child_process_running() {
    let Some(program) = program() else { return };
    let home = tempfile::tempdir().unwrap();
    let call = format!("[[step.call]]\ntool = \"bash_run\"\narguments = {{ cmd = {COMMAND:?} }}\n");
    let script =
        format!("order = \"history\"\n[[step]]\n{}[[step]]\ntext = \"Here.\"\n", call.repeat(3));
    std::fs::write(home.path().join("script.toml"), script).unwrap();
    let server = Server::start(&program, home.path(), "script:script.toml", "auto");
    let client = client_at(server.address);
    let (session, mut events) = client.create(SessionRequest::default()).await.unwrap();
    session.send("go").await.unwrap();
    let deadline = Instant::now() + TEST_TIMEOUT;
    while pids(home.path()).len() < 9 {
        assert!(Instant::now() < deadline, "they did not start: {:?}", pids(home.path()));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let started = pids(home.path());
    assert!(started.iter().all(|pid| is_running(*pid)), "{started:?}");
    session.cancel().await.unwrap();
    let received = until(&mut events, "agent.interrupted").await;
    // The turn ends when its children have ended: nothing is waited for here.
    let left: Vec<u32> = started.iter().copied().filter(|pid| is_running(*pid)).collect();
    assert!(left.is_empty(), "still running: {left:?} of {started:?}");
    let results = received.iter().filter(|event| event.event == "agent.tool_result").count();
    assert_eq!(results, 3, "every call has its end");
    session.send("still there?").await.unwrap();
    assert_eq!(until(&mut events, "agent.final_answer").await.last().unwrap().text(), "Here.");
}
