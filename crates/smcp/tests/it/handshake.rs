//! The gate before Socket.IO, and the counters beside it.

use budao_smcp::{
    server::{Access, Config, Token, VersionRejection},
    wire::Dialect,
};
use budao_socketio::{Client, Config as Dial, Error, Loss, Transports};
use serde_json::{Value, json};

use crate::common::{RunningHub, config, pair, start, the_world, within};

async fn refused(hub: &RunningHub, version: Option<&str>, transports: Transports) -> Error {
    let mut dial = Dial::new(&hub.url()).unwrap().namespace("/smcp").transports(transports);
    if let Some(version) = version {
        dial = dial.query("a2c_version", version);
    }
    within(Client::connect(dial, the_world())).await.unwrap_err()
}

#[tokio::test]
async fn a_version_that_does_not_fit_is_refused_before_anything_else() {
    let hub = start(config()).await;
    for transports in [Transports::PollingThenWebSocket, Transports::WebSocket] {
        for (version, code) in [
            (None, 400),
            (Some(""), 400),
            (Some("0.4"), 400),
            (Some("four"), 400),
            (Some("0.3.0"), 4008),
            (Some("0.5.0"), 4008),
            (Some("1.4.0"), 4008),
        ] {
            let error = refused(&hub, version, transports).await;
            let Error::Http(refusal) = &error else { panic!("{error:?}") };
            assert_eq!(refusal.status, 400);
            assert!(error.is_final(), "no client shall try that again");
            let body: Value = serde_json::from_str(&refusal.body).unwrap();
            assert_eq!(body["code"], code, "{version:?} {transports:?}");
            assert!(refusal.header("content-length").is_some());
            if code == 4008 {
                assert_eq!(refusal.header("x-a2c-error-code"), Some("4008"));
                assert_eq!(body["server_version"], "0.4.0");
                assert_eq!(body["client_version"], version.unwrap());
                assert_eq!(
                    (&body["min_supported"], &body["max_supported"]),
                    (&json!("0.4.0"), &json!("0.4.999"))
                );
            }
        }
    }
    assert_eq!(hub.hub.stats().handshakes_refused[&4008], 6);
    let dial = Dial::new(&hub.url()).unwrap().namespace("/smcp").query("a2c_version", "0.4.77");
    within(Client::connect(dial, the_world())).await.unwrap();
}

#[tokio::test]
async fn a_refused_websocket_is_closed_with_4900_and_polling_gets_the_reason() {
    let hub = start(Config { refusal: VersionRejection::Close, ..config() }).await;
    for version in [None, Some("four"), Some("0.3.0")] {
        let error = refused(&hub, version, Transports::WebSocket).await;
        let Error::Lost(Loss::Closed { code, reason }) = &error else { panic!("{error:?}") };
        assert_eq!((*code, reason.contains("polling")), (Some(4900), true), "{version:?}");
    }
    let error = refused(&hub, Some("0.3.0"), Transports::PollingThenWebSocket).await;
    let Error::Http(refusal) = &error else { panic!("{error:?}") };
    assert_eq!(refusal.header("x-a2c-error-code"), Some("4008"));
    let dial = hub.dial().transports(Transports::WebSocket);
    within(Client::connect(dial, the_world())).await.unwrap();
}

#[tokio::test]
async fn the_first_draft_has_no_gate() {
    let hub = start(Config { dialect: Dialect::V02, ..config() }).await;
    let dial = Dial::new(&hub.url()).unwrap().namespace("/smcp");
    within(Client::connect(dial, the_world())).await.unwrap();
}

async fn get(hub: &RunningHub, path: &str, token: Option<&str>) -> (u16, String) {
    get_as(hub, path, token, "*/*").await
}

async fn get_as(hub: &RunningHub, path: &str, token: Option<&str>, accept: &str) -> (u16, String) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut request = client.get(format!("{}{path}", hub.url())).header("accept", accept);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let response = within(request.send()).await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test]
async fn counters_are_there_for_people_and_machines() {
    let hub = start(config()).await;
    let (agent, _computer) = pair(&hub).await;
    agent.call("pc", "echo", "r", 5).await;
    agent.call("pc", "leak", "r", 5).await;
    agent.call("nobody", "echo", "r", 5).await;
    let (status, body) = get(&hub, "/smcp/stats", None).await;
    let stats: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 200);
    assert_eq!(stats["events"]["client:tool_call"], 3);
    assert_eq!(stats["codes"]["404"], 1);
    let tally = |requests: u64, failed: u64| json!({ "requests": requests, "failed": failed, "failed_in_a_row": failed });
    assert_eq!(stats["by_tool"]["echo"], tally(1, 0));
    assert_eq!(stats["by_computer"]["a/pc"], tally(2, 1));
    let here = &stats["present"][0];
    assert_eq!((&here["room"], &here["agent"]["name"]), (&json!("a"), &json!("bot")));
    assert_eq!(here["computers"][0]["tools"], Value::Null, "nobody has asked");
    assert_eq!(
        (&stats["rooms"], &stats["connections"], &stats["computers"]),
        (&json!(1), &json!(2), &json!(1))
    );
    let (status, text) = get(&hub, "/smcp/metrics", None).await;
    assert_eq!(status, 200);
    assert!(text.contains("smcp_failures_total{code=\"404\"} 1\n"), "{text}");
    let scraper = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    assert_eq!(get_as(&hub, "/smcp/stats", None, scraper).await, (200, text));
}

#[tokio::test]
async fn counters_are_for_those_who_know_the_secret() {
    let narrow = Token { rooms: Some(vec!["a".into()]), ..Token::shared("narrow") };
    let access = Access::Tokens(vec![Token::shared("right"), narrow]);
    let hub = start(Config { access, ..config() }).await;
    for path in ["/smcp/stats", "/smcp/metrics"] {
        assert_eq!(get(&hub, path, None).await.0, 401);
        assert_eq!(get(&hub, path, Some("wrong")).await.0, 401);
        assert_eq!(get(&hub, path, Some("narrow")).await.0, 401);
        assert_eq!(get(&hub, path, Some("right")).await.0, 200);
    }
}
