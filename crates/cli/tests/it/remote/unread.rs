//! Clients that answer every ping and read nothing: the hub's memory stays within its bounds, and everybody else is served.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use budao_testkit::program::Process;
use serde_json::{Value, json};

use crate::remote::common::{TOKEN, hub, memory};

/// What the hub may take: 64 MiB wait for one connection, and it needs some itself.
const MEMORY_MAX: u64 = 220 << 20;

/// A WebSocket by hand, so that it reads only when it wants to.
struct Raw(TcpStream);

impl Raw {
    fn connect(url: &str) -> Self {
        let address = url.strip_prefix("http://").unwrap().trim_end_matches('/');
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
        let request = format!(
            "GET /socket.io/?EIO=4&transport=websocket&a2c_version=0.4.0 HTTP/1.1\r\nHost: {address}\r\n\
             Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        let mut raw = Self(stream);
        assert!(raw.read().unwrap().starts_with('0'));
        raw.say(&format!("40/smcp,{}", json!({ "token": TOKEN }))).unwrap();
        assert!(raw.read().unwrap().starts_with("40/smcp,"));
        raw
    }

    fn join(url: &str, role: &str, name: &str, room: &str) -> Self {
        let mut raw = Self::connect(url);
        let wish = json!({ "role": role, "name": name, "office_id": room });
        raw.say(&format!("42/smcp,0{}", json!(["server:join_office", wish]))).unwrap();
        loop {
            let received = raw.read().unwrap();
            if received.starts_with("43/smcp,0") {
                assert_eq!(received, "43/smcp,0[true,null]");
                return raw;
            }
        }
    }

    /// Sends a text frame, masked as clients do, with a mask of zeroes.
    fn say(&mut self, text: &str) -> std::io::Result<()> {
        let mut frame = vec![0x81];
        match text.len() {
            length @ 0..=125 => frame.push(0x80 | u8::try_from(length).unwrap()),
            length @ 126..=65_535 => {
                frame.push(0x80 | 126);
                frame.extend(u16::try_from(length).unwrap().to_be_bytes());
            }
            length => {
                frame.push(0x80 | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        self.0.write_all(&frame)
    }

    /// The next text frame; nothing when the connection is closed. Pings are answered.
    fn read(&mut self) -> Option<String> {
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head).ok()?;
            let length = match head[1] & 0x7f {
                126 => {
                    let mut bytes = [0; 2];
                    self.0.read_exact(&mut bytes).ok()?;
                    u64::from(u16::from_be_bytes(bytes))
                }
                127 => {
                    let mut bytes = [0; 8];
                    self.0.read_exact(&mut bytes).ok()?;
                    u64::from_be_bytes(bytes)
                }
                length => u64::from(length),
            };
            let mut body = vec![0; usize::try_from(length).unwrap()];
            self.0.read_exact(&mut body).ok()?;
            match (head[0] & 0x0f, String::from_utf8(body).unwrap_or_default()) {
                (1, text) if text == "2" => self.say("3").ok()?,
                (1, text) => return Some(text),
                (8, _) => return None,
                _ => {}
            }
        }
    }

    fn call(&mut self, id: usize, params: &Value) -> std::io::Result<()> {
        let call = json!({
            "agent": "bot", "req_id": format!("r{id}"), "computer": "pc", "tool_name": "t",
            "params": params, "timeout": 60,
        });
        self.say(&format!("42/smcp,{id}{}", json!(["client:tool_call", call])))
    }
}

/// Answers every call with so many bytes, until the hub is gone.
fn serve(mut computer: Raw, bytes: usize) {
    let answer =
        json!([{ "content": [{ "type": "text", "text": "x".repeat(bytes) }] }]).to_string();
    while let Some(received) = computer.read() {
        let Some(rest) = received.strip_prefix("42/smcp,") else { continue };
        let id: String = rest.chars().take_while(char::is_ascii_digit).collect();
        if !id.is_empty() && computer.say(&format!("43/smcp,{id}{answer}")).is_err() {
            return;
        }
    }
}

/// The hub's counters.
fn stats(url: &str) -> Value {
    let address = url.strip_prefix("http://").unwrap().trim_end_matches('/');
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!(
        "GET /smcp/stats HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// Calls of a pair that reads, in another room, are answered.
fn others_are_served(url: &str) {
    let computer = Raw::join(url, "computer", "pc", "other");
    std::thread::spawn(move || serve(computer, 10));
    let mut agent = Raw::join(url, "agent", "bot", "other");
    agent.call(7, &json!({})).unwrap();
    let answer = agent.read().unwrap();
    assert!(answer.starts_with("43/smcp,7[") && answer.contains("xxxxxxxxxx"), "{answer}");
}

/// Watches the hub's memory while `work` runs, and gives the most there was.
fn most_memory(hub: &Process, work: impl FnOnce()) -> u64 {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(memory(hub));
                std::thread::sleep(Duration::from_millis(20));
            }
            most
        });
        work();
        is_over.store(true, Ordering::Relaxed);
        watching.join().unwrap()
    })
}

#[test]
fn an_agent_that_answers_pings_and_reads_nothing_is_closed_before_the_hub_grows() {
    let (hub, url) = hub(&[]);
    let computer = Raw::join(&url, "computer", "pc", "room");
    std::thread::spawn(move || serve(computer, 3_000_000));
    let mut agent = Raw::join(&url, "agent", "bot", "room");
    let mut closed = None;
    let most = most_memory(&hub, || {
        let end = Instant::now() + Duration::from_secs(60);
        for id in 0..400 {
            let received = agent.call(id, &json!({})).and_then(|()| agent.say("3"));
            if received.is_err() || Instant::now() > end {
                closed = received.err();
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let seen = stats(&url);
    eprintln!("at most {} MB; {}", most >> 20, seen["closed_slow"]);
    assert!(most < MEMORY_MAX, "{} MB", most >> 20);
    let closed = closed.expect("the connection is closed").kind();
    let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset, ErrorKind::WouldBlock];
    assert!(gone.contains(&closed), "{closed:?}");
    assert_eq!(seen["closed_slow"]["queue_bytes_max"], 1, "the reason is counted: {seen}");
    others_are_served(&url);
}

#[test]
fn a_computer_that_reads_none_of_its_requests_costs_their_callers_an_answer_and_the_hub_nothing() {
    let (hub, url) = hub(&[]);
    let mut computer = Raw::join(&url, "computer", "pc", "room");
    let mut agent = Raw::join(&url, "agent", "bot", "room");
    let mut refusal = None;
    let most = most_memory(&hub, || {
        let params = json!({ "text": "x".repeat(1_000_000) });
        for id in 0..300 {
            agent.call(id, &params).unwrap();
            computer.say("3").unwrap();
        }
        refusal = agent.read();
    });
    eprintln!("at most {} MB", most >> 20);
    assert!(most < MEMORY_MAX, "{} MB", most >> 20);
    let refusal = refusal.expect("the agent is answered");
    assert!(refusal.contains("queue_bytes_max"), "{refusal}");
    assert!(refusal.contains("\"retryable\":true"), "it did not begin: {refusal}");
    others_are_served(&url);
}

#[test]
fn a_room_full_of_unread_notices_does_not_grow_the_hub() {
    let (hub, url) = hub(&[]);
    let mut agent = Raw::join(&url, "agent", "bot", "room");
    let mut computer = Raw::join(&url, "computer", "pc", "room");
    let most = most_memory(&hub, || {
        let notice = json!(["server:update_tool_list", { "computer": "pc" }]).to_string();
        let notice = format!("42/smcp,{notice}");
        for number in 0..300_000 {
            computer.say(&notice).unwrap();
            if number % 10_000 == 0 {
                let _ = agent.say("3");
            }
        }
    });
    eprintln!("at most {} MB; {}", most >> 20, stats(&url)["closed_slow"]);
    assert!(most < MEMORY_MAX, "{} MB", most >> 20);
    others_are_served(&url);
}
