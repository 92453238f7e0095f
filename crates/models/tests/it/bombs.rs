//! Packed bombs: an answer that is small on the line and huge when unpacked costs no more than its bound.

use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::support::{Signal, request, world};
use budao_core::{
    limits::Limits,
    message::{Block, Piece},
};
use budao_models::{Anthropic, Model, OpenAi, ask};
use flate2::{Compression, write::GzEncoder};
use futures::StreamExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// Bombs in a usual run, and with `BUDAO_FULL`.
const SOME: usize = 6;
const ALL: usize = 100;
/// What an answer may come to here.
const ANSWER_BYTES: usize = 256 * 1024;
/// What the bombs come to when they are unpacked.
const UNPACKED: usize = 16 << 20;

fn packed(unit: &[u8], bytes: usize) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    let block = unit.repeat((64 * 1024 / unit.len()).max(1));
    for _ in 0..bytes / block.len() {
        out.write_all(&block).unwrap();
    }
    out.finish().unwrap()
}

/// What is packed: silence, words without end, one word without end, a tree, an error's body, bombs in bombs.
fn bomb(case: usize) -> (&'static str, &'static str, Vec<u8>) {
    let events = "200 OK\r\ncontent-type: text/event-stream";
    let json = "200 OK\r\ncontent-type: application/json";
    let delta = br#"data: {"choices":[{"index":0,"delta":{"content":"aaaaaaaaaaaaaaaa"}}]}"#;
    let delta = [delta, &b"\n\n"[..]].concat();
    match case % 6 {
        0 => (events, "gzip", packed(b": keep alive\n", UNPACKED)),
        1 => (events, "gzip", packed(&delta, UNPACKED)),
        2 => (events, "gzip", packed(b"a", UNPACKED)),
        3 => (json, "gzip", packed(b"[", UNPACKED)),
        4 => {
            ("500 Oops\r\ncontent-type: application/json", "gzip", packed(b"{\"error\":", UNPACKED))
        }
        _ => {
            let mut twice = GzEncoder::new(Vec::new(), Compression::fast());
            twice.write_all(&packed(b"b", UNPACKED)).unwrap();
            (events, "gzip, gzip", twice.finish().unwrap())
        }
    }
}

/// Answers every request with a bomb, and counts what could be sent of them.
async fn serve(sent: Arc<AtomicU64>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for case in 0.. {
            let (mut line, _) = listener.accept().await.unwrap();
            let (head, encoding, body) = bomb(case / 2);
            let mut heard = [0; 16 * 1024];
            let _ = line.read(&mut heard).await;
            let head = format!(
                "HTTP/1.1 {head}\r\ncontent-encoding: {encoding}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            let _ = line.write_all(head.as_bytes()).await;
            let _ = line.write_all(&body).await;
            sent.fetch_add(body.len() as u64, Ordering::Relaxed);
        }
    });
    address
}

/// Goal: what is unpacked is bounded, not only what comes over the line. Method: bombs of a hundred times the bound and
/// more, as every sort of answer, on both wires; what comes of each is a fault, and no more than the bound before it.
#[tokio::test]
async fn a_packed_bomb_is_unpacked_to_its_bound() {
    let count = if std::env::var_os("BUDAO_FULL").is_some() { ALL } else { SOME };
    let sent = Arc::new(AtomicU64::new(0));
    let address = serve(Arc::clone(&sent)).await;
    let limits = Arc::new(Limits { model_answer_bytes: ANSWER_BYTES, ..Limits::default() });
    let world = world(Arc::new(Signal::default()));
    for case in 0..count {
        let key = Some("k".into());
        let model: Box<dyn Model> = match case % 2 {
            0 => Box::new(OpenAi::new("m", Some(&address), key, &world, limits.clone()).unwrap()),
            _ => {
                Box::new(Anthropic::new("m", Some(&address), key, &world, limits.clone()).unwrap())
            }
        };
        let (mut said, mut fault) = (0, None);
        match ask(&*model, request("hello")).await {
            Ok(mut pieces) => {
                while let Some(piece) = pieces.next().await {
                    match piece {
                        Ok(Piece::Text(text) | Piece::Thought(text)) => said += text.len(),
                        Ok(Piece::Block(Block::Text(text))) => said += text.len(),
                        Ok(_) => {}
                        Err(error) => fault = Some(error),
                    }
                }
            }
            Err(error) => fault = Some(error),
        }
        let fault = fault.unwrap_or_else(|| panic!("bomb {case} was taken for an answer"));
        assert!(said <= 3 * ANSWER_BYTES, "bomb {case}: {said} bytes came of it");
        assert!(fault.to_string().len() < 16 * 1024, "bomb {case}: a fault is short");
    }
    let sent = sent.load(Ordering::Relaxed);
    eprintln!(
        "security T12: {count} bombs, {sent} bytes on the line for {UNPACKED} each, {ANSWER_BYTES} allowed"
    );
}
