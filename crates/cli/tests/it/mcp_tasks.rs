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

/// The messages to the server after which a process is killed, in turn: before the tools are listed, before the first
/// question for the task, and after several.
const MESSAGES: [usize; 5] = [1, 2, 3, 4, 6];

fn kills() -> usize {
    let wanted = std::env::var("BUDAO_TASK_KILLS").ok();
    wanted.and_then(|count| count.parse().ok()).unwrap_or(KILLS)
}

const SERVER: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
task() { printf '"taskId":"t1","status":"%s","ttlMs":3600000,"pollIntervalMs":50,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"' "$1"; }
while IFS= read -r line; do
    echo . >> seen.txt
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
            echo . >> collected.txt
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

/// Waits until a file of the server has so many more lines.
async fn grows(directory: &Path, file: &str, more: usize, child: &mut Child) {
    let wanted = lines(directory, file) + more;
    let polling = async {
        while lines(directory, file) < wanted {
            assert_eq!(child.try_wait().unwrap(), None, "the process ended by itself");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let has_grown = tokio::time::timeout(TEST_TIMEOUT, polling).await.is_ok();
    assert!(has_grown, "nothing more in {file}");
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
    grows(directory, "asked.txt", 1, &mut child).await;
    (child, first.rsplit(' ').next().unwrap().to_owned())
}

async fn service() -> Provider {
    let deploy = ModelOutput::call("c1", "mcp__ci__deploy", &json!({}));
    let done = || Reply::events(openai(&[ModelOutput::text("Done.")]));
    Provider::start([Reply::events(openai(&[deploy])), done(), done()]).await
}

#[tokio::test]
async fn a_task_survives_kills_of_the_process_and_its_result_is_collected_once() {
    let folder = tempfile::tempdir().unwrap();
    let (directory, service) = (folder.path(), service().await);
    let (mut child, session) = start(directory, &service).await;
    let resume = || budao(directory, &["resume", SERVER_ARGS[0], SERVER_ARGS[1], &session]);
    for kill in 2..kills() {
        child.kill().await.unwrap();
        child = resume().stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        grows(directory, "seen.txt", MESSAGES[kill % MESSAGES.len()], &mut child).await;
    }
    child.kill().await.unwrap();
    std::fs::write(directory.join("released"), "").unwrap();
    // The last kill meets the process that collects the result.
    child = resume().stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    grows(directory, "collected.txt", 1, &mut child).await;
    child.kill().await.unwrap();
    let output = resume().output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let asked = service.asked();
    assert!(
        (2..=3).contains(&asked.len()),
        "the model is asked once more, or twice if killed meanwhile"
    );
    for request in &asked[1..] {
        assert_eq!(format!("{request:?}").matches("deployed 42").count(), 1, "{request:?}");
    }
    let records = budao(directory, &["journal", "export", "journal.db"]).output().await.unwrap();
    let records = String::from_utf8(records.stdout).unwrap();
    assert_eq!(records.matches("deployed 42").count(), 1, "{records}");
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
