//! Frames as bytes: fragments, control frames between them, and everything the framing forbids. Where framing is
//! broken the connection ends with a code; the server goes on. `docs/compatibility.md` has this list as a table.

use std::{net::SocketAddr, time::Duration};

use rstest::rstest;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::fixture::{Fixture, Setup, TEST_TIMEOUT, runs};

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FIN: u8 = 0x80;

/// A frame a client sends: head, mask, masked payload.
fn frame(head: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x11, 0x22, 0x33, 0x44];
    let mut bytes = vec![head];
    match payload.len() {
        length @ 0..=125 => bytes.push(0x80 | length as u8),
        length @ 126..=65535 => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// A WebSocket spoken by hand.
struct RawWebSocket(TcpStream);

impl RawWebSocket {
    async fn connect(address: SocketAddr, extensions: &str) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "GET /ws HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{extensions}\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert!(!head.to_lowercase().contains("sec-websocket-extensions"), "{head}");
        let mut raw = Self(stream);
        assert_eq!(raw.event().await["event"], "system.connected");
        raw
    }

    async fn send(&mut self, bytes: &[u8]) {
        // A server that has had enough may have closed already.
        let _ = self.0.write_all(bytes).await;
    }

    /// The next frame: opcode and payload; none at the end of the line.
    async fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        tokio::time::timeout(TEST_TIMEOUT, self.read()).await.expect("in time")
    }

    async fn read(&mut self) -> Option<(u8, Vec<u8>)> {
        let head = self.0.read_u8().await.ok()?;
        let length = match self.0.read_u8().await.ok()? {
            126 => u64::from(self.0.read_u16().await.ok()?),
            127 => self.0.read_u64().await.ok()?,
            length => u64::from(length),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((head & 0x0f, payload))
    }

    async fn event(&mut self) -> Value {
        loop {
            match self.next().await {
                Some((TEXT, payload)) => return serde_json::from_slice(&payload).unwrap(),
                Some((PING, _)) => {}
                other => panic!("no event: {other:?}"),
            }
        }
    }

    /// The close code, or none if the line just ended.
    async fn end(&mut self) -> Option<u16> {
        loop {
            match self.next().await {
                Some((CLOSE, payload)) => {
                    return payload.get(..2).map(|code| u16::from_be_bytes([code[0], code[1]]));
                }
                Some(_) => {}
                None => return None,
            }
        }
    }
}

async fn start() -> Fixture {
    Setup::new(runs(1)).start().await
}

/// Others are served as before.
async fn lives(stage: Fixture) {
    let mut peer = stage.peer().await;
    peer.create().await;
    stage.stop().await;
}

fn create() -> Vec<u8> {
    json!({"event": "user.create_session", "content": {}}).to_string().into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_in_fragments_with_control_frames_between_them_is_one_message() {
    let stage = start().await;
    let mut raw = RawWebSocket::connect(stage.address, "").await;
    let text = create();
    for (index, byte) in text.iter().enumerate() {
        let opcode = if index == 0 { TEXT } else { 0 };
        let fin = if index + 1 == text.len() { FIN } else { 0 };
        raw.send(&frame(fin | opcode, &[*byte])).await;
        if index == 5 {
            raw.send(&frame(FIN | PING, b"still there?")).await;
        }
        if index == 9 {
            raw.send(&frame(FIN | PONG, b"unasked")).await;
        }
    }
    let mut names = Vec::new();
    while names.len() < 2 {
        let (opcode, payload) = raw.next().await.unwrap();
        match opcode {
            PONG => {
                assert_eq!(payload, b"still there?");
                names.push("pong".to_owned());
            }
            TEXT => {
                let event: Value = serde_json::from_slice(&payload).unwrap();
                names.push(event["event"].as_str().unwrap().to_owned());
            }
            _ => {}
        }
    }
    assert_eq!(names, ["pong", "agent.session_created"]);
    lives(stage).await;
}

#[rstest]
#[case::a_reserved_bit(frame(FIN | 0x40 | TEXT, b"{}"), &[1002])]
#[case::all_reserved_bits(frame(FIN | 0x70 | TEXT, b"{}"), &[1002])]
#[case::a_reserved_opcode(frame(FIN | 3, b"{}"), &[1002])]
#[case::a_reserved_control_opcode(frame(FIN | 11, b""), &[1002])]
#[case::a_long_ping(frame(FIN | PING, &[0; 126]), &[1002])]
#[case::a_ping_in_fragments(frame(PING, b"a"), &[1002])]
#[case::a_continuation_of_nothing(frame(FIN, b"{}"), &[1002])]
#[case::a_second_message_inside_the_first([frame(TEXT, b"{"), frame(FIN | TEXT, b"{}")].concat(), &[1002])]
#[case::no_mask(vec![FIN | TEXT, 2, b'{', b'}'], &[1002])]
#[case::a_close_frame_of_one_byte(frame(FIN | CLOSE, &[3]), &[1002])]
#[case::a_close_code_that_must_not_be_sent(frame(FIN | CLOSE, &1005_u16.to_be_bytes()), &[1002])]
#[case::a_close_code_nobody_knows(frame(FIN | CLOSE, &999_u16.to_be_bytes()), &[1002])]
#[case::a_close_reason_that_is_no_text(frame(FIN | CLOSE, &[3, 232, 0xff, 0xfe]), &[1002, 1007])]
#[case::text_that_is_no_text(frame(FIN | TEXT, &[0xff, 0xfe, 0xfd]), &[1007])]
#[case::a_character_split_and_broken([frame(TEXT, &[b'"', 0xe4, 0xbd]), frame(FIN, &[0x28, b'"'])].concat(), &[1007])]
#[case::a_surrogate(frame(FIN | TEXT, &[0xed, 0xa0, 0x80]), &[1007])]
#[case::a_gigabyte_announced([&[FIN | TEXT, 0xff][..], &(1_u64 << 30).to_be_bytes(), &[1, 2, 3, 4]].concat(), &[1009])]
#[case::the_largest_length_there_is([&[FIN | BINARY, 0xff][..], &u64::MAX.to_be_bytes(), &[1, 2, 3, 4]].concat(), &[1002, 1009])]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_framing_ends_the_connection_with_a_code_and_nothing_else(
    #[case] bytes: Vec<u8>,
    #[case] codes: &[u16],
) {
    let stage = start().await;
    let mut raw = RawWebSocket::connect(stage.address, "").await;
    raw.send(&bytes).await;
    let code = raw.end().await;
    assert!(code.is_some_and(|code| codes.contains(&code)), "closed with {code:?}, not {codes:?}");
    lives(stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_character_split_across_fragments_is_whole_again() {
    let stage = start().await;
    let mut raw = RawWebSocket::connect(stage.address, "").await;
    let text =
        json!({"event": "user.create_session", "content": {"session_name": "不倒"}}).to_string();
    let at = text.find('不').unwrap() + 1;
    let (one, two) = text.as_bytes().split_at(at);
    raw.send(&[frame(TEXT, one), frame(FIN, two)].concat()).await;
    assert_eq!(raw.event().await["event"], "agent.session_created");
    lives(stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compression_is_not_agreed_to_so_a_bomb_is_only_a_reserved_bit() {
    let stage = start().await;
    let mut raw =
        RawWebSocket::connect(stage.address, "Sec-WebSocket-Extensions: permessage-deflate\r\n")
            .await;
    // What a megabyte of spaces looks like deflated; never inflated here.
    raw.send(&frame(FIN | 0x40 | TEXT, &[0xec, 0xc1, 0x01, 0x01, 0, 0, 0, 0x80, 0x90, 0xfe])).await;
    assert_eq!(raw.end().await, Some(1002));
    lives(stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_fragments_end_at_the_limit() {
    let stage = start().await;
    let mut raw = RawWebSocket::connect(stage.address, "").await;
    let piece = vec![b' '; 1 << 20];
    raw.send(&frame(TEXT, &piece)).await;
    for _ in 0..20 {
        raw.send(&frame(0, &piece)).await;
    }
    assert_eq!(raw.end().await, Some(1009));
    lives(stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_drops_a_request_that_never_ends() {
    let setup = Setup::new(runs(1))
        .gateway(|limits| limits.request_head_timeout = Duration::from_millis(200));
    let stage = setup.start().await;
    let mut stream = TcpStream::connect(stage.address).await.unwrap();
    stream.write_all(b"GET /ws HTTP/1.1\r\nHost: loc").await.unwrap();
    let mut rest = Vec::new();
    let read = tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut rest)).await;
    assert!(read.is_ok(), "the server hung up");
    lives(stage).await;
}
