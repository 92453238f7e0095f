//! Who may: tokens, owners, origins, limits.

use budao_models::Script;
use budao_serve::Auth;
use serde_json::json;
use tokio_tungstenite::tungstenite::{Error, http::Response};

use crate::fixture::{Client, Fixture, Setup};

fn people() -> Auth {
    let mut auth = Auth::default();
    auth.add_tokens("token-of-ann acme ann\ntoken-of-bob acme bob\ntoken-of-op ops op operator\n")
        .unwrap();
    auth
}

async fn stage() -> Fixture {
    Setup::new(Script::new().say("fine").forever())
        .with(|config| config.auth = people())
        .open()
        .await
}

async fn connect_with_token(stage: &Fixture, token: &str) -> Client {
    let bearer = format!("Bearer {token}");
    Client::connect(stage.address, &[("authorization", &bearer)]).await.unwrap()
}

async fn refused(stage: &Fixture, headers: &[(&'static str, &str)]) -> Response<Option<Vec<u8>>> {
    match Client::connect(stage.address, headers).await {
        Err(Error::Http(response)) => *response,
        Err(other) => panic!("a refusal was expected, not {other}"),
        Ok(_) => panic!("a refusal was expected"),
    }
}

#[tokio::test]
async fn a_client_without_a_valid_token_is_refused_before_the_upgrade_always_alike() {
    let stage = stage().await;
    let mut shapes = Vec::new();
    for headers in [
        &[][..],
        &[("authorization", "Bearer wrong")],
        &[("authorization", "Basic dG9rZW4tb2YtYW5u")],
        &[("sec-websocket-protocol", "budao.v1, bearer.wrong")],
    ] {
        let response = refused(&stage, headers).await;
        assert_eq!(response.status(), 401);
        let body: serde_json::Value =
            serde_json::from_slice(response.body().as_ref().unwrap()).unwrap();
        assert_eq!(body["code"], "ERR_AUTH_002");
        let mut body = body;
        body["trace_id"] = json!(null);
        shapes.push(body);
    }
    shapes.dedup();
    assert_eq!(shapes.len(), 1, "{shapes:#?}");
}

#[tokio::test]
async fn a_browser_brings_its_token_as_a_sub_protocol() {
    let stage = stage().await;
    let offered = "budao.v1, bearer.token-of-ann";
    let mut client =
        Client::connect(stage.address, &[("sec-websocket-protocol", offered)]).await.unwrap();
    client.create(json!({})).await;
}

#[tokio::test]
async fn a_session_is_its_owners_alone() {
    let stage = stage().await;
    let session = connect_with_token(&stage, "token-of-ann").await.create(json!({})).await;
    let mut bob = connect_with_token(&stage, "token-of-bob").await;
    for event in [
        "user.message",
        "user.cancel",
        "user.retry",
        "user.reconnect",
        "user.request_state",
        "user.ack",
    ] {
        let frame = json!({"event": event, "session_id": session, "content": {"text": "hi", "last_seq": 0}});
        bob.send(frame).await;
        let answer = bob.next().await;
        assert_eq!(answer["metadata"]["kind"], "unknown_session", "{event}");
    }
    let mut operator = connect_with_token(&stage, "token-of-op").await;
    operator.reconnect(&session, 0).await;
    assert_eq!(operator.next().await["metadata"]["status"], "complete");
}

#[tokio::test]
async fn a_page_of_another_origin_is_refused_on_loopback_too() {
    let stage = stage().await;
    let token = ("authorization", "Bearer token-of-ann");
    for origin in ["https://evil.example", "null", "http://127.0.0.1:1"] {
        let response = refused(&stage, &[token, ("origin", origin)]).await;
        assert_eq!(response.status(), 403, "{origin}");
    }
    let own = format!("http://{}", stage.address);
    Client::connect(stage.address, &[token, ("origin", &own)]).await.unwrap();
}

#[tokio::test]
async fn a_tenant_has_so_many_connections_and_sessions() {
    let setup = Setup::new(Script::new().say("fine")).with(|config| {
        config.auth = people();
        config.limits.tenant_connections = 2;
        config.limits.tenant_sessions = 1;
    });
    let stage = setup.open().await;
    let mut ann = connect_with_token(&stage, "token-of-ann").await;
    let _bob = connect_with_token(&stage, "token-of-bob").await;
    let third = refused(&stage, &[("authorization", "Bearer token-of-bob")]).await;
    assert_eq!(third.status(), 429);
    ann.create(json!({})).await;
    ann.send(json!({"event": "user.create_session", "command_id": "more"})).await;
    let answer = ann.next().await;
    assert_eq!(answer["event"], "error.validation");
    assert_eq!(answer["metadata"]["limit_name"], "tenant_sessions");
    assert_eq!(answer["metadata"]["command_id"], "more");
}
