//! What others feel of a crowd: how long turns of some sessions take, alone and beside clients that replay for ever or that
//! do not read. Suites T13 and T14 of `docs/security.md` as waiting times.
//!
//! Server, crowd and who measures are three processes. They share the machine all the same, so what the server itself
//! used is told beside.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, future, stream};
use tokio::time::Instant;

use crate::{
    load::{AT_ONCE, Client, reconnect},
    process::Server,
    wire::{ReadControl, WireConnection, holds},
};

/// Pieces of an answer of those who are measured.
const PIECES: u32 = 20;
/// What the crowd reads: a history of a thousand events and more.
const HISTORY: u32 = 1_000;
/// How long those who are measured go on, alone and beside the crowd.
const SPAN: Duration = Duration::from_secs(15);

/// How a crowd behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrowdBehaviour {
    /// Asks for everything, reads it, asks again, for ever.
    Replays,
    /// The same on a new line each time.
    Returns,
    /// Asks for a session, half of them for its history, and reads nothing.
    Stalls,
}

impl CrowdBehaviour {
    const ALL: [(&'static str, Self); 3] =
        [("replays", Self::Replays), ("returns", Self::Returns), ("stalls", Self::Stalls)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

/// The crowd, as a process: `KIND ADDRESS COUNT`, the sessions and their heads on stdin, one a line. Prints when all are connected, and how
/// many histories were read to the end when stdin ends.
pub(crate) fn run(mut args: impl Iterator<Item = String>) {
    let mut word = || args.next().expect("kind, address and count");
    let (name, address, count) = (word(), word(), word());
    let kind =
        CrowdBehaviour::ALL.iter().find(|(known, _)| *known == name).expect("a kind of crowd").1;
    let address: SocketAddr = address.parse().expect("an address");
    let count: usize = count.parse().expect("a number");
    let received = || io::stdin().lines().map_while(Result::ok);
    let sessions: Vec<String> = received().take_while(|line| !line.is_empty()).collect();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
    let done = Arc::new(AtomicU64::new(0));
    runtime.block_on(async {
        let ended = tokio::task::spawn_blocking(move || received().for_each(drop));
        let members = (0..count).map(|number| {
            let (session, done) = (sessions[number % sessions.len()].clone(), Arc::clone(&done));
            let (session, head) = session.split_once(' ').expect("a session and its head");
            // Those who replay, and every other one of those who stand still, want it from the beginning.
            let is_late =
                kind == CrowdBehaviour::Stalls && (number / sessions.len()).is_multiple_of(2);
            let after = if is_late { head.parse().expect("a number") } else { 0 };
            let ask = reconnect(session, after);
            async move {
                let line = enter(kind, address).await;
                drop(tokio::spawn(behave(kind, address, ask, line, done)));
            }
        });
        stream::iter(members).buffer_unordered(AT_ONCE).collect::<()>().await;
        say("in");
        let _ = ended.await;
        say(&done.load(Ordering::Relaxed).to_string());
    });
}

/// Connects. A client that comes too fast gets a retry time and connects again.
async fn enter(kind: CrowdBehaviour, address: SocketAddr) -> WireConnection {
    let began = Instant::now();
    loop {
        let line = match kind {
            CrowdBehaviour::Stalls => WireConnection::narrow(address, "/ws").await,
            CrowdBehaviour::Replays | CrowdBehaviour::Returns => {
                WireConnection::connect(address, "/ws").await
            }
        };
        match line {
            Ok(line) => return line,
            Err(_) if began.elapsed() < SPAN => tokio::time::sleep(SPAN / 100).await,
            Err(error) => {
                // A panic would wait for the thread that reads stdin.
                eprintln!("somebody does not get in: {error}");
                std::process::exit(1);
            }
        }
    }
}

fn say(line: &str) {
    let mut out = io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

async fn behave(
    kind: CrowdBehaviour,
    address: SocketAddr,
    ask: String,
    mut line: WireConnection,
    done: Arc<AtomicU64>,
) {
    if kind == CrowdBehaviour::Stalls {
        let _ = line.send(&ask).await;
        return future::pending().await;
    }
    loop {
        let replayed = async {
            line.send(&ask).await?;
            let is_over = |frame: &[u8]| {
                holds(frame, b"\"action\":\"replay\"") || holds(frame, b"\"limit_name\"")
            };
            line.read_frames(
                |frame| if is_over(frame) { ReadControl::Stop } else { ReadControl::Continue },
            )
            .await
        };
        let replayed = replayed.await;
        done.fetch_add(u64::from(replayed.is_ok()), Ordering::Relaxed);
        while kind == CrowdBehaviour::Returns || replayed.is_err() {
            // A client that is disconnected reconnects.
            let _ = line.close().await;
            if let Ok(fresh) = WireConnection::connect(address, "/ws").await {
                line = fresh;
                break;
            }
        }
    }
}

/// A running crowd.
struct Crowd {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<std::process::ChildStdout>,
}

impl Crowd {
    /// Starts one and waits until all clients are connected.
    fn start(kind: CrowdBehaviour, server: &Server, count: usize, observed: &[Client]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args([crate::CROWD, kind.name(), &server.address.to_string()]);
        command.arg(count.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a crowd starts");
        let mut to = child.stdin.take().expect("it is piped");
        for Client { session, head, .. } in observed {
            writeln!(to, "{session} {head}").expect("it listens");
        }
        writeln!(to).expect("it listens");
        let from = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut crowd = Self { child, to: Some(to), from };
        assert_eq!(crowd.read_line(), "in");
        crowd
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it speaks");
        line.trim().to_owned()
    }

    /// Ends it. Returns how many histories were read to the end.
    fn end(mut self) -> String {
        drop(self.to.take());
        self.read_line()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long turns took, and how much of one core the server used.
struct TurnLatencies {
    all: Vec<Duration>,
    cores: f64,
}

impl TurnLatencies {
    fn at(&self, share: f64) -> f64 {
        self.all[((self.all.len() - 1) as f64 * share) as usize].as_secs_f64()
    }

    fn render_counts(&self) -> String {
        let milli = |share| self.at(share) * 1e3;
        let (half, most, cores) = (milli(0.5), milli(0.99), self.cores);
        format!("{half:.2} ms (p99 {most:.2} ms, {cores:.2} cores of the server)")
    }
}

/// Everybody has a turn every so often, not all at the same moment, whatever the last one took.
async fn turns(server: &Server, clients: &mut [Client], every: Duration) -> TurnLatencies {
    let (began, used) = (Instant::now(), server.cpu());
    let count = clients.len() as u32;
    let each = clients.iter_mut().zip(0..).map(|(client, number)| async move {
        let mut all = Vec::new();
        let mut due = began + every * number / count;
        while due < began + SPAN {
            tokio::time::sleep_until(due).await;
            client.ask(PIECES).await?;
            client.answer().await?;
            // From when it was due: a client that waits is late for the next one, and that counts.
            all.push(due.elapsed());
            due += every;
        }
        io::Result::Ok(all)
    });
    let each = future::try_join_all(each).await.expect("turns go on");
    let mut all = each.concat();
    all.sort_unstable();
    let cores = (server.cpu() - used).as_secs_f64() / began.elapsed().as_secs_f64();
    TurnLatencies { all, cores }
}

/// What a crowd does to others: how much longer the middle turn and the slowest of a hundred take, and the story.
pub(crate) struct CrowdImpact {
    pub(crate) middle: f64,
    pub(crate) slowest: f64,
    pub(crate) note: String,
}

/// Turns of so many sessions, alone and beside a crowd.
pub(crate) async fn measure_impact(
    kind: CrowdBehaviour,
    sessions: usize,
    crowd: usize,
) -> CrowdImpact {
    let server = Server::bounded(kind == CrowdBehaviour::Stalls);
    let opened = stream::iter((0..sessions).map(|_| Client::connect(&server)));
    let opened: Vec<_> = opened.buffer_unordered(AT_ONCE).collect().await;
    let mut clients: Vec<Client> = opened.into_iter().collect::<io::Result<_>>().expect("all in");
    let mut other = Client::connect(&server).await.expect("gets in");
    if kind != CrowdBehaviour::Stalls {
        other.ask(HISTORY).await.expect("is asked");
        other.answer().await.expect("is answered");
    }
    let every = Duration::from_millis(10) * sessions as u32;
    turns(&server, &mut clients, every).await;
    let alone = turns(&server, &mut clients, every).await;
    let before = server.resident();
    let observed =
        if kind == CrowdBehaviour::Stalls { &clients[..] } else { std::slice::from_ref(&other) };
    let gathering = Crowd::start(kind, &server, crowd, observed);
    let first = turns(&server, &mut clients, every).await;
    let beside = turns(&server, &mut clients, every).await;
    let grown = server.resident().saturating_sub(before) / 1024;
    let done = gathering.end();
    let note = format!(
        "{} turns of {sessions} sessions: {} alone; beside {crowd} clients, in the first {SPAN:?} {}, then {}; {done} \
         histories read, {grown} KiB more in memory",
        alone.all.len(),
        alone.render_counts(),
        first.render_counts(),
        beside.render_counts(),
    );
    let (worst_middle, worst) = (beside.at(0.5), beside.at(0.99));
    CrowdImpact { middle: worst_middle / alone.at(0.5), slowest: worst / alone.at(0.99), note }
}
