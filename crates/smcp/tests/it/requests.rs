//! HTTP requests that take their time, are very large, or show a wrong token.

use std::time::{Duration, Instant};

use budao_smcp::{
    server::{Access, Config, Token},
    wire::PROTOCOL,
};
use budao_socketio::{Client, Error};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::common::{RunningHub, config, pair, start, the_world, within};

fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap()
}

/// A polling client: the address of its session, with the namespace connected.
async fn polling(hub: &RunningHub, http: &reqwest::Client) -> String {
    let url = format!("{}/socket.io/?EIO=4&transport=polling&a2c_version={PROTOCOL}", hub.url());
    let open = within(http.get(&url).send()).await.unwrap().text().await.unwrap();
    let open: serde_json::Value = serde_json::from_str(&open[1..]).unwrap();
    let url = format!("{url}&sid={}", open["sid"].as_str().unwrap());
    within(http.post(&url).body("40/smcp,{}").send()).await.unwrap();
    wait_for_packet(http, &url, "40/smcp,").await;
    url
}

/// Polls until a packet begins like this. A ping may come before it.
async fn wait_for_packet(http: &reqwest::Client, url: &str, start: &str) -> String {
    loop {
        let response = within(http.get(url).send()).await.unwrap();
        assert_eq!(response.status(), 200);
        let packets = response.text().await.unwrap();
        let mut packets = packets.split('\u{1e}');
        if let Some(packet) = packets.find(|packet| packet.starts_with(start)) {
            return packet.to_owned();
        }
    }
}

#[tokio::test]
async fn a_poll_of_nine_megabytes_gets_its_answer() {
    let hub = start(config()).await;
    let http = http();
    let url = polling(&hub, &http).await;
    let request =
        json!({ "role": "computer", "name": "x", "office_id": "a", "x": "x".repeat(9 << 20) });
    let sent = format!("42/smcp,7{}", json!(["server:join_office", request]));
    let status = within(http.post(&url).body(sent).send()).await.unwrap().status();
    assert_eq!(status, 200);
    let answer = wait_for_packet(&http, &url, "43/smcp,7[").await;
    assert!(answer.contains("\"limit\":8388608"), "{answer}");
    // Beyond the transport's own limit the request itself says so.
    let url = polling(&hub, &http).await;
    let response = within(http.post(&url).body("4".repeat(17 << 20)).send()).await.unwrap();
    assert_eq!(response.status(), 413);
    let body: serde_json::Value = response.json().await.unwrap();
    assert_eq!(
        (&body["code"], &body["details"]["limit"]),
        (&json!(400), &json!(16 << 20)),
        "{body}"
    );
}

async fn dribble(hub: &RunningHub, bytes: &str) -> String {
    let mut line = TcpStream::connect(("127.0.0.1", hub.port)).await.unwrap();
    line.write_all(bytes.as_bytes()).await.unwrap();
    let mut text = String::new();
    within(line.read_to_string(&mut text)).await.unwrap();
    text
}

#[tokio::test]
async fn a_request_that_does_not_end_is_hung_up_on() {
    let mut config = config();
    config.limits.request_head = Duration::from_millis(200);
    config.limits.request_body = Duration::from_millis(200);
    let hub = start(config).await;
    let (agent, _computer) = pair(&hub).await;
    assert_eq!(dribble(&hub, "").await, "", "not a word");
    assert_eq!(dribble(&hub, "GET /socket.io/?EIO=4 HTTP/1.1\r\nHost: h\r\nX-A: b").await, "");
    let http = http();
    let url = polling(&hub, &http).await;
    let path = url.split_once("/socket.io").unwrap().1;
    let head = format!(
        "POST /socket.io{path} HTTP/1.1\r\nHost: h\r\nContent-Length: 99\r\nConnection: close\r\n\r\n42/"
    );
    let answer = dribble(&hub, &head).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("request_body"), "{answer}");
    assert_eq!(agent.call("pc", "echo", "r", 5).await["isError"], false, "others go on");
}

async fn guess(hub: &RunningHub, token: &str) -> Result<Client, Error> {
    let dial = hub.dial().auth(json!({ "token": token }));
    within(Client::connect(dial, the_world())).await.map(|(client, _)| client)
}

#[tokio::test]
async fn wrong_tokens_slow_down_only_the_guesser() {
    let access = Access::Tokens(vec![Token::shared("right")]);
    let mut config = Config { access, ..config() };
    config.limits.wrong_token_pause = Duration::from_millis(150);
    let hub = start(config).await;
    let began = Instant::now();
    for number in 0..8 {
        let refused = guess(&hub, &format!("wrong {number}")).await.unwrap_err();
        assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
    }
    assert!(began.elapsed() >= Duration::from_millis(4 * 150), "{:?}", began.elapsed());
    // Guesses at the same time wait for each other, and the right token for none of them.
    let guesses = futures::future::join_all((0..10).map(|_| guess(&hub, "wrong")));
    let neighbour = async {
        // By now the guesses are under way.
        while hub.hub.stats().codes.get(&401).copied().unwrap_or_default() < 18 {
            tokio::task::yield_now().await;
        }
        guess(&hub, "right").await.unwrap();
        Instant::now()
    };
    let last = async {
        guesses.await;
        Instant::now()
    };
    let (neighbour, last) = tokio::join!(neighbour, last);
    assert!(neighbour < last, "the neighbour was in before the last guess was answered");
}
