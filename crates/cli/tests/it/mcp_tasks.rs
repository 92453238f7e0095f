//! A real process killed again and again while a server finishes a call later, as a task.
//!
//! The server is a shell script without a handshake. Its tasks are files, so they outlive it as those of a remote
//! server do.

use std::{path::Path, process::Stdio, time::Duration};

use budao_testkit::{
    provider::{Provider, Reply},
    sse::{ModelOutput, openai},
};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

/// Nothing here takes this long unless it hangs.
const TEST_TIMEOUT: Duration = Duration::from_secs(90);

/// How often the process is killed during one task, unless `BUDAO_TASK_KILLS` says otherwise. More than a call has
/// attempts.
const KILLS: usize = 8;

fn kills() -> usize {
    let wanted = std::env::var("BUDAO_TASK_KILLS").ok();
    wanted.and_then(|count| count.parse().ok()).unwrap_or(KILLS)
}

const SERVER: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
task() { printf '"taskId":"t1","status":"%s","ttlMs":3600000,"pollIntervalMs":50,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"' "$1"; }
while IFS= read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
    case "$line" in
    *'"method":"server/discover"'*)
        reply '{"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":0,"cacheScope":"private","capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}' ;;
    *'"method":"tools/list"'*)
        reply '{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"deploy","inputSchema":{"type":"object"}}]}' ;;
    *'"method":"tools/call"'*)
        echo . >> created.txt
        reply "{\"resultType\":\"task\",$(task working)}" ;;
    *'"method":"tasks/get"'*)
        echo . >> asked.txt
        if [ -e released ]; then
            reply "{\"resultType\":\"complete\",$(task completed),\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"deployed 42\"}]}}"
        else reply "{\"resultType\":\"complete\",$(task working)}"; fi ;;
    *'"method":"tasks/cancel"'*)
        echo . >> cancelled.txt
        reply '{"resultType":"complete"}' ;;
    *'"method":"initialize"'*)
        printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no handshake"}}\n' "$id" ;;
    esac
done
"#;

fn budao(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_budao"));
    command
        .args(args)
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", directory)
        .env("OPENAI_API_KEY", "sk-of-a-test")
        .env("BUDAO_JOURNAL", directory.join("journal.db"))
        .kill_on_drop(true)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn lines(directory: &Path, file: &str) -> usize {
    std::fs::read_to_string(directory.join(file)).unwrap_or_default().lines().count()
}

/// Waits until the server was asked for the task once more.
async fn asked_again(directory: &Path, child: &mut Child) {
    let before = lines(directory, "asked.txt");
    let polling = async {
        while lines(directory, "asked.txt") <= before {
            assert_eq!(child.try_wait().unwrap(), None, "the process ended by itself");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(TEST_TIMEOUT, polling).await.is_ok(), "nobody asks for the task");
}

const SERVER_ARGS: [&str; 2] = ["--mcp", "ci=sh server.sh"];

/// Starts a turn that deploys, and waits until its task is asked for. Returns the process and its session.
async fn start(directory: &Path, service: &Provider) -> (Child, String) {
    std::fs::write(directory.join("server.sh"), SERVER).unwrap();
    let model = format!("openai:m@{}/v1", service.url());
    let args = [
        "run",
        SERVER_ARGS[0],
        SERVER_ARGS[1],
        "--permission",
        "auto",
        "--model",
        &model,
        "deploy",
    ];
    let mut child = budao(directory, &args).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = said.next_line().await.unwrap().unwrap();
    tokio::spawn(async move { while let Ok(Some(_)) = said.next_line().await {} });
    asked_again(directory, &mut child).await;
    (child, first.rsplit(' ').next().unwrap().to_owned())
}

async fn service() -> Provider {
    let deploy = ModelOutput::call("c1", "mcp__ci__deploy", &json!({}));
    let done = Reply::events(openai(&[ModelOutput::text("Done.")]));
    Provider::start([Reply::events(openai(&[deploy])), done]).await
}

#[tokio::test]
async fn a_task_survives_kills_of_the_process_and_its_result_is_collected_once() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, service) = (folder.path(), service().await);
    let (mut child, session) = start(directory, &service).await;
    for _ in 1..kills() {
        child.kill().await.unwrap();
        let args = ["resume", SERVER_ARGS[0], SERVER_ARGS[1], &session];
        child = budao(directory, &args).stderr(Stdio::null()).spawn().unwrap();
        asked_again(directory, &mut child).await;
    }
    child.kill().await.unwrap();
    std::fs::write(directory.join("released"), "").unwrap();
    let output = budao(directory, &["resume", SERVER_ARGS[0], SERVER_ARGS[1], &session]);
    let output = { output }.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let asked = service.asked();
    assert_eq!(asked.len(), 2, "the model is asked once more");
    assert!(format!("{:?}", asked[1]).contains("deployed 42"), "{:?}", asked[1]);
    assert_eq!(lines(directory, "created.txt"), 1, "the tool is called once");
    assert_eq!(lines(directory, "cancelled.txt"), 0);
    let doubts = budao(directory, &["doubts", "--json"]).output().await.unwrap();
    assert_eq!(String::from_utf8(doubts.stdout).unwrap(), "");
}

#[tokio::test]
async fn a_cancelled_turn_cancels_its_task_at_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, service) = (folder.path(), service().await);
    let (mut child, session) = start(directory, &service).await;
    let cancelled = budao(directory, &["cancel", &session]).output().await.unwrap();
    assert!(cancelled.status.success(), "{}", String::from_utf8_lossy(&cancelled.stderr));
    tokio::time::timeout(TEST_TIMEOUT, child.wait()).await.expect("it hangs").unwrap();
    assert_eq!(lines(directory, "cancelled.txt"), 1);
    assert_eq!(lines(directory, "created.txt"), 1);
}
