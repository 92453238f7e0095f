//! What the WebSocket library alone costs on this machine: a server on axum that makes nothing and keeps nothing. It answers
//! as ours does, with frames of the same size that were ready beforehand, and hands the library as many at once as ours does.
//! What it costs no server on this library can go below.

use std::io::Write as _;

use axum::{
    Router,
    extract::{
        WebSocketUpgrade,
        ws::{Message, Utf8Bytes, WebSocket},
    },
    response::Response,
    routing::any,
};
use futures::SinkExt as _;

use crate::PIECE;

/// Frames that are handed over at once: about 64 KiB.
const AT_ONCE: usize = 85;
/// What is gathered before it is written, as our server has it.
const WRITE_BUFFER: usize = 64 * 1024;

/// Serves until its parent kills it.
pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("tokio");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut out = std::io::stdout();
        writeln!(out, "{address}").and_then(|()| out.flush()).expect("somebody listens");
        axum::serve(listener, Router::new().route("/ws", any(upgrade))).await.expect("serves");
    });
}

async fn upgrade(upgrade: WebSocketUpgrade) -> Response {
    let upgrade = upgrade.read_buffer_size(2 * 1024).write_buffer_size(WRITE_BUFFER);
    upgrade.on_upgrade(|socket| async move {
        // The client is gone, in whatever way.
        let _ = attend(socket).await;
    })
}

/// As large as a frame of ours.
fn piece() -> Utf8Bytes {
    let words = "x".repeat(PIECE);
    let ids = "0".repeat(290);
    format!(
        r#"{{"event":"agent.partial_answer","ids":"{ids}","content":"{words}","show":"{words}"}}"#
    )
    .into()
}

async fn attend(mut socket: WebSocket) -> Result<(), axum::Error> {
    socket.send(Message::text(r#"{"event":"system.connected"}"#)).await?;
    while let Some(Ok(message)) = socket.recv().await {
        let Message::Text(text) = message else { continue };
        if text.contains("user.create_session") {
            let created = r#"{"event":"agent.session_created","session_id":"floor"}"#;
            socket.send(Message::text(created)).await?;
        } else if text.contains("user.message") {
            let count = text.rsplit('"').nth(1).and_then(|count| count.parse().ok()).unwrap_or(1);
            flood(&mut socket, count).await?;
            let words = "x".repeat(PIECE * count);
            let end =
                format!(r#"{{"event":"agent.final_answer","content":"{words}","show":"{words}"}}"#);
            socket.send(Message::text(end)).await?;
        } else if text.contains("user.reconnect") {
            flood(&mut socket, 10_000).await?;
            socket.send(Message::text(r#"{"event":"system.notice","action":"replay"}"#)).await?;
        }
    }
    Ok(())
}

async fn flood(socket: &mut WebSocket, count: usize) -> Result<(), axum::Error> {
    let piece = piece();
    for number in 1..=count {
        socket.feed(Message::Text(piece.clone())).await?;
        if number % AT_ONCE == 0 {
            socket.flush().await?;
        }
    }
    socket.flush().await
}
