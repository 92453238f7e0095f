//! The web page's shells, and what its scripts ask for.

use budao_models::Script;
use budao_serve::{Auth, Identity};
use reqwest::{Client, Response, header};
use serde_json::{Value, json};

use crate::fixture::{Fixture, Setup, TEST_TIMEOUT};

fn client() -> Client {
    // No TLS is spoken here, but the library wants to know how.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::new()
}

async fn get(stage: &Fixture, path: &str, headers: &[(&'static str, &str)]) -> Response {
    let mut request = client().get(stage.url(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.unwrap()
}

async fn json_of(stage: &Fixture, path: &str, token: &str) -> (u16, Value) {
    let response = get(stage, path, &[("authorization", &format!("Bearer {token}"))]).await;
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or_default())
}

/// Two people: one operates, the other does not.
async fn with_two(script: Script) -> Fixture {
    let mut auth = Auth::token("operator-token");
    let ann = Identity {
        tenant: "acme".to_owned(),
        user: "ann".to_owned(),
        is_operator: false,
        offers: Vec::new(),
    };
    auth.add_token("anns-token", ann);
    Setup::new(script).with(|config| config.auth = auth).open().await
}

/// A session of ann's whose only turn is over.
async fn run(stage: &Fixture) -> String {
    run_with(stage, json!({})).await
}

/// Like [`run`], with options for the session.
async fn run_with(stage: &Fixture, options: Value) -> String {
    let post = async |path: &str, body: Value| {
        let request = client().post(stage.url(path)).bearer_auth("anns-token");
        let request = request.header("content-type", "application/json").body(body.to_string());
        request.send().await.unwrap().bytes().await.unwrap()
    };
    let opened: Value = serde_json::from_slice(&post("/v1/sessions", options).await).unwrap();
    let session = opened["session_id"].as_str().unwrap().to_owned();
    post(&format!("/v1/sessions/{session}/messages"), json!({"content": "go"})).await;
    let over = async {
        loop {
            let (_, view) = json_of(stage, &format!("/v1/sessions/{session}"), "anns-token").await;
            if view["turns"] == 1 && view["status"] == "idle" {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, over).await.unwrap();
    session
}

#[tokio::test]
async fn every_page_is_served_without_a_sign_in_and_loads_nothing_from_elsewhere() {
    let stage = with_two(Script::new()).await;
    let id = "01900000-0000-7000-8000-000000000001";
    let session = format!("/sessions/{id}");
    for path in ["/", "/now", "/sessions", &session, "/faults", "/faults/ERR_RATE_001", "/machines"]
    {
        let response = get(&stage, path, &[]).await;
        assert_eq!(response.status(), 200, "{path}");
        let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
        let policy = header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"));
        assert!(
            policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(header("referrer-policy"), "no-referrer");
        assert_eq!(header("x-content-type-options"), "nosniff");
        let html = response.text().await.unwrap();
        assert!(!html.contains("<script>") && !html.contains("style=") && !html.contains('⟨'));
        assert!(!html.contains(id), "a shell has no data in it");
    }
    assert_eq!(get(&stage, "/faults/<b>", &[]).await.status(), 404);
    assert_eq!(get(&stage, "/assets/..%2Fsrc%2Fpage.rs", &[]).await.status(), 404);
}

#[tokio::test]
async fn a_file_that_a_browser_has_is_not_sent_again() {
    let stage = with_two(Script::new()).await;
    let first = get(&stage, "/assets/kit.js", &[]).await;
    assert_eq!(first.headers()[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
    let tag = first.headers()[header::ETAG].to_str().unwrap().to_owned();
    assert_eq!(get(&stage, "/assets/kit.js", &[("if-none-match", &tag)]).await.status(), 304);
}

#[tokio::test]
async fn the_readers_choice_of_language_wins_over_the_browsers() {
    let stage = with_two(Script::new()).await;
    for (headers, expected) in [
        (vec![], "Chat"),
        (vec![("accept-language", "zh-CN,zh;q=0.9")], "对话"),
        (vec![("accept-language", "zh"), ("cookie", "lang=en")], "Chat"),
        (vec![("cookie", "theme=dark; lang=zh")], "对话"),
    ] {
        let html = get(&stage, "/", &headers).await.text().await.unwrap();
        assert!(html.contains(&format!("<title>{expected} ·")), "{headers:?}");
    }
}

#[tokio::test]
async fn the_pages_read_well_in_both_languages() {
    let stage = with_two(Script::new()).await;
    for (lang, path, name) in
        [("en", "/", "page_try_en"), ("zh", "/faults/ERR_RATE_001", "page_explain_zh")]
    {
        let html = get(&stage, path, &[("cookie", &format!("lang={lang}"))]).await;
        let html = html.text().await.unwrap();
        // Words of scripts are in the texts; the page is what is under main.
        let (_, main) = html.split_once("<main").unwrap();
        let (main, _) = main.split_once("</main>").unwrap();
        insta::assert_snapshot!(name, main);
    }
}

#[tokio::test]
async fn the_page_shows_a_fault_as_model_user_and_operator_got_it() {
    let script = Script::new().call("echo", json!({"extra": 1})).say("done");
    let stage = with_two(script).await;
    let session = run(&stage).await;
    let mut rendered = Value::Null;
    let (_, view) = json_of(&stage, &format!("/v1/sessions/{session}"), "anns-token").await;
    for seq in 1..=view["head"].as_u64().unwrap() {
        let path = format!("/v1/sessions/{session}/faults/{seq}");
        let (status, body) = json_of(&stage, &path, "operator-token").await;
        match status {
            200 => {
                let (_, anns) = json_of(&stage, &path, "anns-token").await;
                assert_eq!(anns["user"], body["user"]);
                assert_eq!(anns["operator"], Value::Null, "only operators see the operator's");
                rendered = body;
            }
            _ => assert_eq!((status, &body["code"]), (400, &json!("ERR_VAL_006")), "{seq}: {body}"),
        }
    }
    assert_eq!(rendered["code"], "ERR_VAL_002");
    assert_eq!(rendered["model"]["errorType"], "validation");
    assert!(rendered["model"]["error"].as_str().unwrap().starts_with("Invalid parameters: "));
    assert_eq!(rendered["user"]["event"], "agent.tool_result");
    let line = rendered["operator"]["line"].as_str().unwrap();
    assert!(line.starts_with("ERR_VAL_002 ") && !line.contains('\n'), "{line}");
    let nowhere = format!("/v1/sessions/{session}/faults/x");
    assert_eq!(json_of(&stage, &nowhere, "operator-token").await.0, 400);
}

#[tokio::test]
async fn sessions_are_found_by_code_tool_and_trace_and_list_their_faults() {
    let script = Script::new().call("echo", json!({"extra": 1})).say("done").say("done");
    let stage = with_two(script).await;
    let rough = run(&stage).await;
    let smooth = run(&stage).await;
    let found = async |query: &str| {
        let (status, body) = json_of(&stage, &format!("/v1/sessions?{query}"), "anns-token").await;
        assert_eq!(status, 200, "{body}");
        let sessions = body["sessions"].as_array().unwrap().clone();
        sessions.iter().map(|item| (item["session_id"].clone(), item["faults"].clone())).collect()
    };
    let all: Vec<(Value, Value)> = found("limit=10").await;
    assert_eq!(all, [(json!(smooth), json!(0)), (json!(rough), json!(1))]);
    let by_code: Vec<_> = found("code=ERR_VAL_002").await;
    assert_eq!(by_code, [(json!(rough), json!(1))]);
    let by_tool: Vec<_> = found("tool=echo").await;
    assert_eq!(by_tool, [(json!(rough), json!(1))]);
    let by_trace: Vec<_> = found("trace=0123456789abcdef0123456789abcdef").await;
    assert_eq!(by_trace, []);
    let (status, _) = json_of(&stage, "/v1/sessions?trace=xyz", "anns-token").await;
    assert_eq!(status, 400);
}

/// Goal: a history that is asked for at once is the one a socket would have sent.
/// Method: compare with the frames of an event stream, whatever the language is.
#[tokio::test]
async fn a_history_in_one_answer_is_what_a_socket_sends() {
    let script =
        Script::new().call("echo", json!({"extra": 1})).call("echo", json!({})).say("done");
    let stage = with_two(script).await;
    let session = run_with(&stage, json!({"preferences": {"language": "zh"}})).await;
    let path = format!("/v1/sessions/{session}/frames");
    let lines = async |query: &str| {
        let path = format!("{path}{query}");
        let response = get(&stage, &path, &[("authorization", "Bearer anns-token")]).await;
        assert_eq!(response.status(), 200);
        let text = response.text().await.unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let all = lines("").await;
    let token = [("authorization", "Bearer anns-token")];
    let mut socket = crate::fixture::Client::connect(stage.address, &token).await.unwrap();
    socket.send(json!({"event": "user.reconnect", "session_id": session})).await;
    let sent = socket.until("agent.final_answer").await;
    let placed: Vec<&Value> = sent.iter().filter(|frame| !frame["seq"].is_null()).collect();
    assert_eq!(all.iter().collect::<Vec<_>>(), placed);
    let shown: String = all.iter().filter_map(|frame| frame["show_content"].as_str()).collect();
    assert!(!shown.is_ascii(), "a Chinese session speaks Chinese: {shown}");
    let third = all[2]["seq"].as_u64().unwrap();
    assert_eq!(lines(&format!("?last_seq={third}")).await, all[3..]);
    let (status, _) = json_of(&stage, &format!("{path}?last_seq=x"), "anns-token").await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn an_unknown_address_is_a_page_for_a_browser_and_a_problem_for_a_program() {
    let stage = with_two(Script::default()).await;
    let html = get(&stage, "/nothing", &[("accept", "text/html,*/*"), ("cookie", "lang=zh")]).await;
    assert_eq!(html.status(), 404);
    assert!(html.headers()["content-type"].to_str().unwrap().starts_with("text/html"));
    assert!(html.headers().contains_key("content-security-policy"));
    assert!(html.text().await.unwrap().contains("没有这个页面"));
    for path in ["/v1/nothing", "/api/nothing"] {
        let headers = [("accept", "text/html"), ("authorization", "Bearer operator-token")];
        let problem = get(&stage, path, &headers).await;
        assert_eq!(problem.status(), 404, "{path}");
        assert_eq!(problem.headers()[header::CONTENT_TYPE], "application/problem+json", "{path}");
    }
    let problem = get(&stage, "/nothing", &[("authorization", "Bearer operator-token")]).await;
    assert_eq!(problem.headers()[header::CONTENT_TYPE], "application/problem+json");
}

#[tokio::test]
async fn sessions_are_found_by_the_time_of_their_last_event_and_name_their_owner() {
    let stage = with_two(Script::new().say("It is done.")).await;
    let id = run(&stage).await;
    let (_, all) = json_of(&stage, "/v1/sessions", "operator-token").await;
    let item = &all["sessions"][0];
    assert_eq!(item["owner"], "acme/ann");
    let at = item["updated_at"].as_str().unwrap();
    let count = async |query: String| {
        let (status, list) =
            json_of(&stage, &format!("/v1/sessions?{query}"), "operator-token").await;
        (status, list["sessions"].as_array().map_or(0, Vec::len))
    };
    assert_eq!(count(format!("since={at}")).await, (200, 1), "{id}");
    assert_eq!(count(format!("until={at}")).await, (200, 0));
    assert_eq!(count("since=2999-01-01T00:00:00Z".to_owned()).await, (200, 0));
    assert_eq!(count("since=yesterday".to_owned()).await.0, 400);
}
