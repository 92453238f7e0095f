//! The load: what clients do, and what it cost the server.

use std::{
    io,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, future, stream};

use crate::{
    process::Server,
    wire::{ReadControl, WireConnection, is},
};

/// Pieces of one answer.
const PIECES: u32 = 1_000;
/// Messages to one session; then another one is opened, so that no history grows without end.
const MESSAGES: u32 = 10;
/// Connections that are made at once.
pub(crate) const AT_ONCE: usize = 100;
/// Descriptors a process needs besides its connections.
const SPARE: u64 = 500;

const CREATED: &str = "agent.session_created";
const PARTIAL: &str = "agent.partial_answer";
const FINAL: &str = "agent.final_answer";

/// As many descriptors as the system allows.
pub(crate) fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// How many connections one process can have.
pub(crate) fn most_lines() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit.saturating_sub(SPARE)).unwrap_or(0))
}

/// A client with a session of its own.
pub(crate) struct Client {
    line: WireConnection,
    pub(crate) session: String,
    /// Where the last answer stands.
    pub(crate) head: u64,
}

impl Client {
    pub(crate) async fn connect(server: &Server) -> io::Result<Self> {
        let mut line = WireConnection::connect(server.address, "/ws").await?;
        line.send(r#"{"event":"user.create_session","content":{}}"#).await?;
        let created = line.until(CREATED).await?;
        let session = field(&created, "session_id").expect("it names the session");
        Ok(Self { line, session, head: 0 })
    }

    /// A client that observes a session it did not make, after everything so far.
    async fn observe(server: &Server, session: &str) -> io::Result<Self> {
        let mut line = WireConnection::connect(server.address, "/ws").await?;
        line.send(&reconnect(session, 0)).await?;
        line.until("\"replay\"").await?;
        Ok(Self { line, session: session.to_owned(), head: 0 })
    }

    pub(crate) async fn ask(&mut self, pieces: u32) -> io::Result<()> {
        let session = &self.session;
        let message =
            format!(r#"{{"event":"user.message","session_id":"{session}","content":"{pieces}"}}"#);
        self.line.send(&message).await
    }

    /// Hears an answer and counts its pieces.
    pub(crate) async fn answer(&mut self) -> io::Result<u32> {
        let (mut pieces, mut head) = (0, None);
        let (counted, seen) = (&mut pieces, &mut head);
        self.line
            .read_frames(move |frame| {
                *counted += u32::from(is(frame, PARTIAL));
                if is(frame, FINAL) {
                    *seen = number(&String::from_utf8_lossy(frame), "seq");
                    return ReadControl::Stop;
                }
                ReadControl::Continue
            })
            .await?;
        self.head = head.unwrap_or(self.head);
        Ok(pieces)
    }

    async fn converse(&mut self) -> io::Result<()> {
        self.ask(PIECES).await?;
        // The last piece may be empty and say that it is the last.
        let pieces = self.answer().await?;
        assert!((PIECES..=PIECES + 1).contains(&pieces), "{pieces} pieces came");
        Ok(())
    }
}

/// Asks for everything after a position.
pub(crate) fn reconnect(session: &str, after: u64) -> String {
    format!(
        r#"{{"event":"user.reconnect","session_id":"{session}","content":{{"last_seq":{after}}}}}"#
    )
}

/// The text of a field, with or without a space before it.
fn field(frame: &str, name: &str) -> Option<String> {
    let (_, rest) = frame.split_once(&format!("\"{name}\":"))?;
    rest.split('"').nth(1).map(str::to_owned)
}

/// The number in a field.
fn number(frame: &str, name: &str) -> Option<u64> {
    let (_, rest) = frame.split_once(&format!("\"{name}\":"))?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// What the server used for some work, in microseconds for each.
async fn cost(server: &Server, count: u64, work: impl Future<Output = io::Result<()>>) -> f64 {
    let before = server.cpu();
    work.await.expect("the load is served");
    (server.cpu() - before).as_secs_f64() * 1e6 / count as f64
}

/// Conversations on so many connections at once, each so often a new session.
pub(crate) async fn events(server: &Server, connections: u32, sessions: u32) -> f64 {
    // One connection has long conversations, many have short ones: the same number of events.
    let messages = if connections == 1 { MESSAGES } else { 1 };
    let one = || async {
        for _ in 0..sessions {
            let mut client = Client::connect(server).await?;
            for _ in 0..messages {
                client.converse().await?;
            }
            client.line.close().await?;
        }
        io::Result::Ok(())
    };
    Client::connect(server).await.expect("warms up").converse().await.expect("warms up");
    let count = u64::from(connections) * u64::from(sessions * messages * PIECES);
    let all = async { future::try_join_all((0..connections).map(|_| one())).await.map(drop) };
    cost(server, count, all).await
}

/// A history of ten thousand events, sent from its beginning so many times.
pub(crate) async fn replay(server: &Server, times: u32) -> f64 {
    let mut client = Client::connect(server).await.expect("connects");
    for _ in 0..MESSAGES {
        client.converse().await.expect("is answered");
    }
    let count = u64::from(MESSAGES * PIECES);
    let work = async {
        for _ in 0..times {
            let mut line = WireConnection::connect(server.address, "/ws").await?;
            line.send(&reconnect(&client.session, 0)).await?;
            let mut received = 0;
            let counted = &mut received;
            line.read_frames(move |frame| {
                *counted += u64::from(is(frame, PARTIAL));
                let is_over =
                    is(frame, "system.notice") && crate::wire::holds(frame, b"\"replay\"");
                if is_over { ReadControl::Stop } else { ReadControl::Continue }
            })
            .await?;
            assert!((count..=count + u64::from(MESSAGES)).contains(&received), "{received} came");
            line.close().await?;
        }
        Ok(())
    };
    cost(server, count * u64::from(times), work).await
}

/// Connections that are made and get a session each; all stay open until the last has one.
pub(crate) async fn ready(server: &Server, count: usize) -> f64 {
    let work = async {
        let opened = stream::iter((0..count).map(|_| Client::connect(server)));
        let opened: Vec<_> = opened.buffer_unordered(AT_ONCE).collect().await;
        opened.into_iter().collect::<io::Result<Vec<Client>>>()
    };
    let before = server.cpu();
    let clients = work.await.expect("all get in");
    let spent = server.cpu() - before;
    close(clients).await;
    spent.as_secs_f64() * 1e6 / count as f64
}

async fn close(clients: impl IntoIterator<Item = Client>) {
    for mut client in clients {
        let _ = client.line.close().await;
    }
}

/// Observers of one session, and who made it.
async fn audience(server: &Server, observers: usize) -> (Client, Vec<Client>) {
    let sender = Client::connect(server).await.expect("connects");
    let joined = stream::iter((0..observers).map(|_| Client::observe(server, &sender.session)));
    let joined: Vec<_> = joined.buffer_unordered(AT_ONCE).collect().await;
    let audience = joined.into_iter().collect::<io::Result<Vec<Client>>>().expect("all get in");
    (sender, audience)
}

/// One answer to all observers, and how many heard all of it.
async fn send_to_all(sender: &mut Client, audience: &mut [Client], pieces: u32) -> usize {
    sender.ask(pieces).await.expect("is sent");
    let receiving = audience.iter_mut().chain([sender]).map(Client::answer);
    let received = future::join_all(receiving).await;
    let received: Vec<_> = received.into_iter().collect::<io::Result<_>>().expect("all are served");
    received.into_iter().filter(|count| *count == pieces).count() - 1
}

/// Deliveries of one session's events to many observers.
pub(crate) async fn fan_out(server: &Server, observers: usize, pieces: u32, times: u32) -> f64 {
    let (mut sender, mut audience) = audience(server, observers).await;
    let count = observers as u64 * u64::from(pieces * times);
    let work = async {
        for _ in 0..times {
            assert_eq!(send_to_all(&mut sender, &mut audience, pieces).await, observers);
        }
        Ok(())
    };
    cost(server, count, work).await
}

/// The same of a Socket.IO server: packets to all clients, and one that marks the end.
pub(crate) async fn fan_out_socketio(server: &Server, clients: usize, pieces: u32) -> f64 {
    let join = || async {
        let path = "/socket.io/?EIO=4&transport=websocket";
        let mut line = WireConnection::connect(server.address, path).await?;
        line.send("40").await?;
        line.until("40{").await?;
        io::Result::Ok(line)
    };
    let joined: Vec<_> =
        stream::iter((0..clients).map(|_| join())).buffer_unordered(AT_ONCE).collect().await;
    let mut lines =
        joined.into_iter().collect::<io::Result<Vec<WireConnection>>>().expect("all get in");
    let mut sender = join().await.expect("gets in");
    let work = async {
        sender.send(&format!("42[\"go\",{pieces}]")).await?;
        let receiving = lines.iter_mut().map(|line| async move {
            let mut received = 0;
            let counted = &mut received;
            line.read_frames(move |frame| {
                *counted += u32::from(is(frame, PARTIAL));
                if is(frame, FINAL) { ReadControl::Stop } else { ReadControl::Continue }
            })
            .await?;
            assert_eq!(received, pieces);
            io::Result::Ok(())
        });
        future::try_join_all(receiving).await.map(drop)
    };
    cost(server, clients as u64 * u64::from(pieces), work).await
}

/// What an idle connection with its session takes: growth over many. Then they leave, and as many come again: what an
/// allocator keeps is used again, what leaks is not.
pub(crate) async fn idle(server: &Server, count: usize) -> (f64, String) {
    let open = |count| async move {
        let opened = stream::iter((0..count).map(|_| Client::connect(server)));
        let opened: Vec<_> = opened.buffer_unordered(AT_ONCE).collect().await;
        opened.into_iter().collect::<io::Result<Vec<Client>>>().expect("all get in")
    };
    close(open(AT_ONCE).await).await;
    settle(server).await;
    let before = server.resident();
    let clients = open(count).await;
    settle(server).await;
    let full = server.resident();
    close(clients).await;
    settle(server).await;
    let left = server.resident();
    let clients = open(count).await;
    settle(server).await;
    let again = server.resident();
    close(clients).await;
    let each = full.saturating_sub(before) as f64 / count as f64;
    let kib = |bytes: u64| bytes / 1024;
    let note = format!(
        "{count} connections: {} KiB before, {} with all idle, {} after all had left, {} with as many again",
        kib(before),
        kib(full),
        kib(left),
        kib(again)
    );
    (each, note)
}

/// Waits until the server's memory has not changed for longer than it keeps what is idle.
async fn settle(server: &Server) {
    const STILL: Duration = Duration::from_secs(7);
    let (mut last, mut since) = (server.resident(), Instant::now());
    let deadline = Instant::now() + Duration::from_secs(40);
    while since.elapsed() < STILL && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(250)).await;
        let now = server.resident();
        if now.abs_diff(last) > 64 * 1024 {
            (last, since) = (now, Instant::now());
        }
    }
}

/// How many of so many observers get everything, and in which time.
pub(crate) async fn observers(server: &Server, count: usize, pieces: u32) -> (f64, String) {
    let (mut sender, mut audience) = audience(server, count).await;
    let began = Instant::now();
    let received = send_to_all(&mut sender, &mut audience, pieces).await;
    let took = began.elapsed().as_secs_f64();
    (received as f64, format!("each got {pieces} events and the answer, all within {took:.1} s"))
}
