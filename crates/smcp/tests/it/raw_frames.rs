//! What no well-behaved client sends: frames of any size and any bytes. The hub stays, and so does everybody else.

use budao_smcp::wire::PROTOCOL;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async, tungstenite::Message};

use crate::common::{RunningHub, config, pair, start, within};

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A WebSocket whose namespace is connected.
pub(crate) async fn connected(hub: &RunningHub) -> Socket {
    let url = format!(
        "ws://127.0.0.1:{}/socket.io/?EIO=4&transport=websocket&a2c_version={PROTOCOL}",
        hub.port
    );
    let (mut socket, _) = within(connect_async(url)).await.unwrap();
    assert!(text(&mut socket).await.starts_with('0'));
    send_text(&mut socket, "40/smcp,{}").await;
    assert!(text(&mut socket).await.starts_with("40/smcp,"));
    socket
}

pub(crate) async fn send_text(socket: &mut Socket, text: &str) {
    within(socket.send(Message::text(text))).await.unwrap();
}

pub(crate) async fn text(socket: &mut Socket) -> String {
    loop {
        match within(socket.next()).await.unwrap().unwrap() {
            Message::Text(text) if text.as_str() == "2" => send_text(socket, "3").await,
            Message::Text(text) => return text.as_str().to_owned(),
            Message::Close(frame) => panic!("closed: {frame:?}"),
            _ => {}
        }
    }
}

fn join(padding: usize) -> String {
    let request =
        json!({ "role": "computer", "name": "raw", "office_id": "raw", "x": "x".repeat(padding) });
    format!("42/smcp,7{}", json!(["server:join_office", request]))
}

#[tokio::test]
async fn another_namespace_is_refused_with_a_trace() {
    let hub = start(config()).await;
    let mut socket = connected(&hub).await;
    send_text(&mut socket, "40/other,{}").await;
    let refused = text(&mut socket).await;
    let body = refused.strip_prefix("44/other,").expect("a refusal");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["message"], "Invalid namespace");
    assert_eq!(body["data"]["details"]["field"], "namespace", "{body}");
    assert_eq!(body["data"]["details"]["trace_id"].as_str().map(str::len), Some(32), "{body}");
}

#[tokio::test]
async fn above_the_soft_bound_it_is_answered_and_above_the_hard_one_closed_with_a_reason() {
    let hub = start(config()).await;
    let (agent, _computer) = pair(&hub).await;
    let mut socket = connected(&hub).await;
    send_text(&mut socket, &join(2 << 20)).await;
    let answer = text(&mut socket).await;
    assert!(answer.starts_with("43/smcp,7[") && answer.contains("\"code\":400"), "{answer}");
    send_text(&mut socket, &join(0)).await;
    assert_eq!(text(&mut socket).await, "43/smcp,7[true,null]", "the connection stays");

    send_text(&mut socket, &join(9 << 20)).await;
    let reason = text(&mut socket).await;
    assert!(reason.starts_with("43/smcp,7[") && reason.contains("\"limit\":8388608"), "{reason}");
    assert_eq!(text(&mut socket).await, "41/smcp,", "then it is closed");
    assert_eq!(agent.call("pc", "echo", "after", 5).await["isError"], false, "others are served");
    within(async {
        while hub.hub.stats().connections > 2 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A small generator: what is sent depends on the seed alone.
struct SeededRng(u64);

impl SeededRng {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// A frame that was a good one once.
fn mutated(dice: &mut SeededRng) -> Vec<u8> {
    let seeds = [
        join(0),
        r#"42/smcp,1["client:tool_call",{"agent":"a","req_id":"r","computer":"pc","tool_name":"t","params":{},"timeout":5}]"#.into(),
        r#"42/smcp,2["client:get_tools",{"agent":"a","req_id":"r","computer":"pc"}]"#.into(),
        r#"42/smcp,3["server:list_room",{"agent":"a","req_id":"r","office_id":"raw"}]"#.into(),
        r#"42/smcp,["server:tool_call_cancel",{"agent":"a","req_id":"r"}]"#.into(),
        r#"42/smcp,["server:update_tool_list",{"computer":"raw"}]"#.into(),
        r#"43/smcp,1[{"content":[],"isError":false}]"#.into(),
        r#"451-/smcp,9["client:tool_call",{"_placeholder":true,"num":0}]"#.into(),
        "40/smcp,{}".into(),
        "3".into(),
    ];
    let mut bytes = seeds[dice.roll(seeds.len())].clone().into_bytes();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len().max(1)).min(bytes.len());
        match dice.roll(5) {
            0 if at < bytes.len() => bytes[at] = u8::try_from(dice.roll(128)).unwrap(),
            1 => bytes.truncate(at),
            2 => bytes.insert(at, b"[]{}\",:0-9\\/"[dice.roll(12)]),
            3 => bytes.splice(at..at, b"[".repeat(dice.roll(400))).for_each(drop),
            _ if at < bytes.len() => drop(bytes.remove(at)),
            _ => {}
        }
    }
    bytes
}

/// Sends thousands of frames that are nearly right. Nothing hangs, nothing panics, the pair beside it is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_bytes_of_a_client_end_the_hub_or_delay_other_clients() {
    let frames = if std::env::var_os("BUDAO_FULL").is_some() { 200_000 } else { 3_000 };
    let seed = 7_331;
    eprintln!("seed {seed}");
    let mut dice = SeededRng(seed);
    let hub = start(config()).await;
    let (agent, _computer) = pair(&hub).await;
    let mut socket = connected(&hub).await;
    for number in 0..frames {
        let bytes = mutated(&mut dice);
        let message = match String::from_utf8(bytes) {
            Ok(text) => Message::text(text),
            Err(error) => Message::Binary(error.into_bytes().into()),
        };
        // A frame may cost the connection it came on, and nothing else.
        if socket.send(message).await.is_err() {
            socket = connected(&hub).await;
        }
        while let Some(Some(received)) = futures::FutureExt::now_or_never(socket.next()) {
            if !matches!(received, Ok(Message::Text(_) | Message::Ping(_) | Message::Pong(_))) {
                socket = connected(&hub).await;
                break;
            }
        }
        if number % 500 == 0 {
            let answer = agent.call("pc", "echo", &format!("r{number}"), 5).await;
            assert_eq!(answer["isError"], false, "{answer}");
        }
    }
    drop(socket);
    assert_eq!(agent.call("pc", "echo", "last", 5).await["isError"], false);
    assert_eq!(hub.hub.stats().calls_under_way, 0);
}
