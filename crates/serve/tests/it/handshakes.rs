//! Clients without access: bad handshakes are refused before the upgrade, and no client reaches a session of another owner.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use budao_models::Script;
use budao_serve::{Auth, inbound::EVENTS, openapi};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{
    fixture::{Client, Fixture, Setup, TEST_TIMEOUT},
    http::client,
};

const TOKEN: &str = "token-of-ann-1a2b3c";
/// Text of ann's session, which no other client may get.
const SECRET: &str = "the-quince-is-ripe";

async fn stage() -> Fixture {
    let mut auth = Auth::default();
    let people =
        format!("{TOKEN} acme ann\ntoken-of-bob-1a2b3c acme bob\ntoken-of-eve-1a2b3c other eve\n");
    auth.add_tokens(&people).unwrap();
    let script = Script::new().say(SECRET).forever();
    Setup::new(script).with(|config| config.auth = auth).open().await
}

/// Asks for an upgrade by hand, with exactly these lines, and returns the status and the body.
async fn knock(stage: &Fixture, path: &str, lines: &[String]) -> (u16, String) {
    let mut line = TcpStream::connect(stage.address).await.unwrap();
    let has_host = lines.iter().any(|line| line.to_ascii_lowercase().starts_with("host:"));
    let host = if has_host { String::new() } else { format!("host: {}\r\n", stage.address) };
    let request = format!(
        "GET {path} HTTP/1.1\r\n{host}connection: Upgrade, close\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{}\r\n",
        lines.iter().map(|line| format!("{line}\r\n")).collect::<String>()
    );
    line.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let read =
            tokio::time::timeout(TEST_TIMEOUT, line.read(&mut piece)).await.unwrap().unwrap_or(0);
        answer.extend_from_slice(&piece[..read]);
        // An upgraded line stays open; its first line is all we want to know then.
        if read == 0 || answer.starts_with(b"HTTP/1.1 101") {
            break;
        }
    }
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, body.to_owned())
}

/// Tokens that are not ann's: parts of it, one bit away from it, without a signature, the password of another user.
fn wrong_tokens() -> Vec<String> {
    let mut all: Vec<String> = (0..TOKEN.len()).map(|end| TOKEN[..end].to_owned()).collect();
    for at in 0..TOKEN.len() {
        for bit in 0..7 {
            let mut other = TOKEN.as_bytes().to_vec();
            other[at] ^= 1 << bit;
            let other = String::from_utf8(other).unwrap();
            all.extend(
                other.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',').then_some(other),
            );
        }
    }
    all.extend([
        TOKEN.repeat(2),
        TOKEN.to_uppercase(),
        format!("{TOKEN}x"),
        format!("x{TOKEN}"),
        "x".repeat(9_000),
    ]);
    for (head, claims) in [
        (json!({"alg": "none"}), json!({"sub": "ann", "tenant": "acme", "exp": 9_999_999_999_u64})),
        (json!({"alg": "HS256"}), json!({"sub": "ann", "tenant": "acme"})),
        (json!({"alg": "HS256", "kid": "../../dev/null"}), json!({"sub": "ann"})),
        (
            json!({"alg": "RS256", "jku": "http://127.0.0.1:1/"}),
            json!({"sub": "ann", "operator": true}),
        ),
    ] {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        for seal in ["", "AAAA"] {
            all.push(format!("{}.{}.{seal}", part(&head), part(&claims)));
        }
    }
    all
}

/// Pages that are not ours.
fn wrong_origins(own: &str) -> Vec<String> {
    let mut all: Vec<String> = [
        "null",
        "https://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://localhost:1",
        "file://",
        "http://[::1]:1",
        "http://0.0.0.0",
        "chrome-extension://abc",
        "about:blank",
        "data:text/html,x",
        "*",
        "http://",
        "moz-extension://abc",
        "http://169.254.169.254",
        "javascript:0",
        "ws://127.0.0.1",
        " ",
        "http://a b",
    ]
    .map(str::to_owned)
    .into();
    for (before, after) in [
        ("http://evil.example@", ""),
        ("http://evil.example#", ""),
        ("http://evil.example?", ""),
        ("http://", ".evil.example"),
        ("http://x", ""),
        ("ftp://", ""),
        ("http://", "0"),
        ("http://", "@evil.example"),
        ("http://", ", http://evil.example"),
    ] {
        all.push(format!("{before}{own}{after}"));
    }
    all
}

/// Goal: every bad handshake is refused before the upgrade, and says the same whatever is wrong. Method: several hundred
/// of them on a plain line; one good one at the end.
#[tokio::test]
async fn bad_handshakes_are_refused_before_the_upgrade_and_all_alike() {
    let stage = stage().await;
    let own = stage.address.to_string();
    let right = format!("authorization: Bearer {TOKEN}");
    let mut cases: Vec<(u16, &str, Vec<String>)> = Vec::new();
    for token in wrong_tokens() {
        cases.push((401, "/ws", vec![format!("authorization: Bearer {token}")]));
        cases.push((401, "/ws", vec![format!("sec-websocket-protocol: budao.v1, bearer.{token}")]));
    }
    for scheme in ["Basic", "Digest", "Token", "Bearer:", "", "Negotiate"] {
        cases.push((401, "/ws", vec![format!("authorization: {scheme} {TOKEN}")]));
    }
    cases.push((401, "/ws", vec![]));
    cases.push((401, "/ws?token=token-of-ann-1a2b3c", vec![]));
    cases.push((401, "/ws?access_token=token-of-ann-1a2b3c", vec![]));
    cases.push((401, "/ws", vec![format!("cookie: token={TOKEN}")]));
    cases.push((401, "/ws", vec![format!("proxy-authorization: Bearer {TOKEN}")]));
    for origin in wrong_origins(&own) {
        cases.push((403, "/ws", vec![right.clone(), format!("origin: {origin}")]));
    }
    for host in [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "rebind.network",
        "[::2]",
        "169.254.169.254",
    ] {
        cases.push((403, "/ws", vec![right.clone(), format!("host: {host}")]));
        let origin = format!("origin: http://{host}");
        cases.push((403, "/ws", vec![right.clone(), format!("host: {host}"), origin]));
    }
    assert!(cases.len() >= 300, "{} cases", cases.len());
    let mut shapes: Vec<(u16, Value)> = Vec::new();
    for (expected, path, lines) in &cases {
        let (status, body) = knock(&stage, path, lines).await;
        assert_eq!(status, *expected, "{lines:?}: {body}");
        assert!(!body.contains(TOKEN), "{body}");
        let mut response_body: Value =
            serde_json::from_str(&body).unwrap_or_else(|_| panic!("{lines:?}: {body}"));
        response_body["trace_id"] = Value::Null;
        if !shapes.contains(&(status, response_body.clone())) {
            shapes.push((status, response_body));
        }
    }
    assert_eq!(shapes.len(), 2, "one way to say no to a token, one to a page: {shapes:#?}");
    assert_eq!(knock(&stage, "/ws", &[right, format!("origin: http://{own}")]).await.0, 101);
    eprintln!("security T7: {} bad handshakes, all refused", cases.len());
}

/// What would be asked of a session by each event, with everything one might add to be let in.
fn frames(session: &str) -> Vec<Value> {
    let contents = [
        json!({"text": "hi", "last_seq": 0, "question": "q", "task_id": "t", "decision": "allow", "step_id": "ask_call_1_1_1"}),
        json!("hi"),
        json!({"text": "hi", "owner": "acme/ann", "user": "ann", "tenant": "acme", "operator": true, "state": "AAAA"}),
    ];
    let mut all = Vec::new();
    for event in EVENTS.iter().filter(|event| **event != "user.create_session") {
        for content in &contents {
            all.push(json!({"event": event, "session_id": session, "content": content, "metadata": {"user": "ann"}}));
        }
    }
    all
}

/// Every address of the API that is about a session, and what it is asked with.
fn routes(session: &str) -> Vec<(String, String)> {
    let api: Value = serde_json::from_str(&openapi()).unwrap();
    let mut all = Vec::new();
    for (path, methods) in api["paths"].as_object().unwrap() {
        if path.contains("{session}") {
            let path = path.replace("{session}", session).replace("{seq}", "1");
            all.extend(
                methods
                    .as_object()
                    .unwrap()
                    .keys()
                    .map(|method| (method.to_uppercase(), path.clone())),
            );
        }
    }
    assert!(all.len() >= 9, "{all:?}");
    all
}

/// Goal: only its owner reaches a session, by any event or path. Method: another user tries all of
/// them; each is answered as if the session did not exist, the owner gets no frame, and no text of the session leaks.
#[tokio::test]
async fn no_event_and_no_path_reaches_a_session_of_another_owner() {
    let stage = stage().await;
    let bearer = |token: &str| format!("Bearer {token}");
    let mut ann =
        Client::connect(stage.address, &[("authorization", &bearer(TOKEN))]).await.unwrap();
    let session = ann.create(json!({})).await;
    ann.ask(&session, "say it").await;
    ann.until("agent.final_answer").await;
    let head = stage.journal.info(session.parse().unwrap()).await.unwrap().unwrap().head;
    let mut pairs = 0;
    for token in ["token-of-bob-1a2b3c", "token-of-eve-1a2b3c"] {
        let mut stranger =
            Client::connect(stage.address, &[("authorization", &bearer(token))]).await.unwrap();
        for frame in frames(&session) {
            stranger.send(frame.clone()).await;
            let answer = stranger.next().await;
            let text = answer.to_string();
            assert!(
                text.contains("unknown_session") || answer["event"] == "error.validation",
                "{frame}: {answer}"
            );
            assert!(!text.contains(SECRET), "{frame}: {answer}");
            pairs += 1;
        }
        for (method, path) in routes(&session) {
            let request = client().request(method.parse().unwrap(), stage.url(&path));
            let request = request
                .header("authorization", bearer(token))
                .header("content-type", "application/json");
            let response = request.body(r#"{"content":"hi","text":"hi"}"#).send().await.unwrap();
            let status = response.status().as_u16();
            let body = response.text().await.unwrap();
            assert!([400, 403, 404, 422].contains(&status), "{method} {path}: {status} {body}");
            assert!(!body.contains(SECRET), "{method} {path}: {body}");
            pairs += 1;
        }
        let list = client().get(stage.url("/v1/sessions")).header("authorization", bearer(token));
        assert!(!list.send().await.unwrap().text().await.unwrap().contains(&session));
    }
    for (method, path) in routes(&session) {
        let response =
            client().request(method.parse().unwrap(), stage.url(&path)).send().await.unwrap();
        assert_eq!(response.status(), 401, "{method} {path} without a token");
        pairs += 1;
    }
    let after = stage.journal.info(session.parse().unwrap()).await.unwrap().unwrap().head;
    assert_eq!(after, head, "nothing a stranger sent is in the history");
    eprintln!("security T8: {pairs} attempts of strangers on a session, none heard");
}
