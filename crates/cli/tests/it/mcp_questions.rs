//! A question of an MCP server to a person, with `budao serve` as a real process that is killed while it is open.
//!
//! The server is a shell script without a handshake: it ends its call with a question and its own state.

use std::{path::Path, time::Duration};

use budao_testkit::{
    program::{ServerProcess, command_in, run},
    provider::{Provider, Reply},
    sse::{ModelOutput, openai},
};
use serde_json::{Value, json};
use tokio::sync::Notify;

const PROGRAM: &str = env!("CARGO_BIN_EXE_budao");

/// Nothing here takes this long unless it hangs.
const TEST_TIMEOUT: Duration = Duration::from_secs(90);

const SERVER: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while IFS= read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
    case "$line" in
    *'"method":"server/discover"'*)
        reply '{"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":0,"cacheScope":"private","capabilities":{"tools":{}}}' ;;
    *'"method":"tools/list"'*)
        reply '{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"book","inputSchema":{"type":"object"}}]}' ;;
    *'"method":"tools/call"'*'"inputResponses"'*)
        printf '%s\n' "$line" >> answered.txt
        reply '{"resultType":"complete","content":[{"type":"text","text":"booked seat 42"}]}' ;;
    *'"method":"tools/call"'*)
        echo . >> called.txt
        reply '{"resultType":"input_required","requestState":"opaque-7","inputRequests":{"k1":{"method":"elicitation/create","params":{"mode":"form","message":"Which seat?","requestedSchema":{"type":"object","required":["row"],"properties":{"row":{"type":"integer","minimum":1,"maximum":30},"window":{"type":"boolean","default":true}}}}}}}' ;;
    *'"method":"initialize"'*)
        printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"no handshake"}}\n' "$id" ;;
    esac
done
"#;

fn start(directory: &Path, model: &str) -> ServerProcess {
    std::fs::write(directory.join("server.sh"), SERVER).unwrap();
    let script = directory.join("server.sh");
    let server = format!("air=sh {}", script.to_str().unwrap());
    let args = ["--mcp", &server, "--permission", "auto", "--model", model];
    ServerProcess::start(PROGRAM, directory, &args)
}

fn lines(directory: &Path, file: &str) -> usize {
    std::fs::read_to_string(directory.join(file)).unwrap_or_default().lines().count()
}

async fn service() -> Provider {
    let book = ModelOutput::call("c1", "mcp__air__book", &json!({}));
    let done = Reply::events(openai(&[ModelOutput::text("Done.")]));
    Provider::start([Reply::events(openai(&[book])), done]).await
}

/// Waits for the frame of the question.
async fn question(server: &ServerProcess, session: &str, observed: Option<&Notify>) -> Value {
    let mut found = Value::Null;
    let read = server.read_frames(session, |frame| {
        observed.into_iter().for_each(Notify::notify_one);
        let is_it = frame["event"] == "agent.user_confirm";
        if is_it {
            found = frame.clone();
        }
        is_it
    });
    let read = tokio::time::timeout(TEST_TIMEOUT, read).await.expect("no question arrives");
    assert!(read, "the stream ended before the question");
    found
}

/// Goal: a question is durable, checked and answered once, although the process is killed while it is open.
/// Method: a person observes the session; the process is killed; the next one takes a wrong answer and a right one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_of_a_server_survives_kills_and_its_answer_is_checked() {
    let provider = service().await;
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    let model = format!("openai:m@{}/v1", provider.url());
    let mut server = start(directory, &model);
    let opened = server.post("/v1/sessions", &json!({})).await;
    let session = opened["session_id"].as_str().unwrap().to_owned();
    let observed = Notify::new();
    let asks = async {
        observed.notified().await;
        let path = format!("/v1/sessions/{session}/messages");
        server.post(&path, &json!({ "content": "book a seat" })).await;
    };
    let (frame, ()) = tokio::join!(question(&server, &session, Some(&observed)), asks);
    let meta = &frame["metadata"];
    assert_eq!(meta["scope"], "elicitation", "{frame}");
    assert_eq!(meta["server"], "air");
    assert_eq!(meta["fields"][0]["name"], "row");
    for _ in 0..3 {
        drop(server);
        server = start(directory, &model);
        let again = question(&server, &session, None).await;
        assert_eq!(again["step_id"], frame["step_id"], "it is the same question");
    }
    let path = format!("/v1/sessions/{session}/commands");
    let answer = |values: Value| {
        let content = json!({ "confirmed": true, "arguments": values, "digest": meta["digest"] });
        json!({ "event": "user.response", "step_id": frame["step_id"], "content": content })
    };
    let (status, refused) = server.try_post(&path, &answer(json!({ "row": 99 }))).await;
    assert_eq!(status, 422, "{refused}");
    assert!(refused.to_string().contains("row"), "{refused}");
    server.post(&path, &answer(json!({ "row": 7 }))).await;
    tokio::time::timeout(TEST_TIMEOUT, provider.reached(2)).await.expect("the turn goes on");
    let asked = format!("{:?}", provider.asked()[1]);
    assert!(asked.contains("booked seat 42"), "{asked}");
    assert_eq!(lines(directory, "called.txt"), 1, "the call was made once");
    let answers = std::fs::read_to_string(directory.join("answered.txt")).unwrap();
    assert_eq!(answers.lines().count(), 1, "and once with the answer: {answers}");
    assert!(answers.contains("opaque-7") && answers.contains(r#""row":7"#), "{answers}");
    assert!(answers.contains(r#""window":true"#), "defaults are part of the answer: {answers}");
    let (status, late) = server.try_post(&path, &answer(json!({ "row": 8 }))).await;
    assert_eq!(status, 409, "{late}");
    let args = ["replay", "--verify", &session];
    let (code, said, errors) = run(command_in(PROGRAM, directory, &args)).await;
    assert_eq!(code, Some(0), "{said}{errors}");
}

/// Goal: without a user, a question is declined at once and the turn goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_connected_user_a_question_is_declined_and_the_turn_ends() {
    let provider = service().await;
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    let model = format!("openai:m@{}/v1", provider.url());
    let server = start(directory, &model);
    server.ask("book a seat").await;
    tokio::time::timeout(TEST_TIMEOUT, provider.reached(2)).await.expect("the turn goes on");
    let answers = std::fs::read_to_string(directory.join("answered.txt")).unwrap();
    assert!(answers.contains(r#""action":"decline""#), "{answers}");
}
