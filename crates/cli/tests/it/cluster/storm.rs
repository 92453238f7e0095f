//! Servers on one journal under faults, with clients that talk to any of them, and then the records against the laws.
//!
//! Every few seconds a server is killed, frozen, drained, or cut off from the database or from its clients, or the
//! database is killed or fails over to its synchronous standby. On a database, the clock of one server is an hour ahead
//! if libfaketime is installed. A client repeats a message under its id at another server until it is accepted, and then
//! waits for its end. Meanwhile each session is read at any server, and no two reads may contradict each other
//! ([`Register`]). Afterwards every accepted message must be there once, with one end. On a database every server has a
//! process namespace of its own and reaches the others' proxies only. `BUDAO_CLUSTER_SECONDS` sets how long the faults
//! go on.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use budao_core::event::{Event, SessionId};
use budao_journal::{Access, Backends, Journal, PageLimits, fold};
use budao_journal_postgres::{Credentials, PostgresBackend};
use budao_runtime::world;
use budao_testkit::{
    postgres::PostgresServer,
    provider::Provider,
    proxy::{ConnectionPlan, Ending, Lane, Proxy},
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::{
    fixture::{Machine, Server, TOKEN, answer},
    history::Register,
};

/// How long the faults go on in a usual run: long enough for each kind once.
const SECONDS: u64 = 25;
const SECONDS_ON_POSTGRES: u64 = 45;
/// The time between two faults.
const PAUSE: Duration = Duration::from_secs(2);
/// A frozen server stays frozen for longer than others believe it to be alive.
const FROZEN: Duration = Duration::from_secs(10);
/// A client asks another server if one does not answer within this time.
const PATIENCE: Duration = Duration::from_secs(4);
/// When all servers and the database are well, every message is accepted and ended within this time.
const SETTLED: Duration = Duration::from_secs(75);
const CLIENTS: u64 = 6;
/// The time between two reads of a session.
const READ_PAUSE: Duration = Duration::from_millis(250);

/// A repeatable source of choices.
struct Dice(AtomicU64);

impl Dice {
    fn roll(&self, sides: u64) -> u64 {
        let next = |seed: u64| {
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
        };
        let seed = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |seed| Some(next(seed)));
        (next(seed.unwrap_or(0)) >> 33) % sides
    }
}

/// A fault that happens again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Disruption {
    ServerKilled,
    ServerFrozen,
    ServerDrained,
    ServerCutOff,
    ClientsCutOff,
    DatabaseKilled,
    DatabaseFailedOver,
}

const ON_FILE: [Disruption; 4] = [
    Disruption::ServerKilled,
    Disruption::ClientsCutOff,
    Disruption::ServerFrozen,
    Disruption::ServerDrained,
];
const ON_POSTGRES: [Disruption; 7] = [
    Disruption::ServerKilled,
    Disruption::DatabaseKilled,
    Disruption::ServerCutOff,
    Disruption::ServerDrained,
    Disruption::ClientsCutOff,
    Disruption::DatabaseFailedOver,
    Disruption::ServerFrozen,
];

/// A database with a synchronous standby, and a proxy before it for each server.
struct Database {
    primary: PostgresServer,
    standby: PostgresServer,
    is_failed_over: AtomicBool,
    proxies: Vec<Proxy>,
}

impl Database {
    /// None if PostgreSQL is not installed.
    async fn start(servers: usize) -> Option<Self> {
        let primary = PostgresServer::start()?;
        let standby = primary.standby("second");
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'second'");
        primary.reload();
        let mut proxies = Vec::new();
        for number in 0..servers {
            proxies.push(Proxy::start(primary.address(), number as u64).await.unwrap());
        }
        Some(Self { primary, standby, is_failed_over: AtomicBool::new(false), proxies })
    }

    fn current(&self) -> &PostgresServer {
        match self.is_failed_over.load(Ordering::SeqCst) {
            true => &self.standby,
            false => &self.primary,
        }
    }

    fn url(&self) -> String {
        self.current().url("budao")
    }

    fn url_of(&self, server: usize) -> String {
        self.primary.url_at(self.proxies[server].address(), "budao")
    }

    fn restart(&self) {
        self.current().kill();
        self.current().restart();
    }

    /// Promotes the standby, once; later calls restart it.
    fn fail_over(&self) {
        if self.is_failed_over.load(Ordering::SeqCst) {
            return self.restart();
        }
        self.primary.kill();
        self.standby.promote();
        self.is_failed_over.store(true, Ordering::SeqCst);
        for proxy in &self.proxies {
            proxy.redirect(self.standby.address());
            proxy.cut_all(Ending::Reset);
        }
    }
}

/// Lets nothing through for a while, without a word to either side. Blocks.
fn silence(proxy: &Proxy) {
    let silent = Lane::default().cut(0, Ending::Silence);
    proxy.plan(move |_| ConnectionPlan { up: silent, down: silent });
    proxy.cut_all(Ending::Silence);
    std::thread::sleep(FROZEN);
    proxy.plan(|_| ConnectionPlan::clean());
    proxy.cut_all(Ending::Reset);
}

/// The library that sets a clock for one process, if it is installed.
fn faketime() -> Option<String> {
    let folders = ["/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime"];
    let files = folders.map(|folder| format!("{folder}/libfaketime.so.1"));
    files.into_iter().find(|file| std::path::Path::new(file).exists())
}

/// Servers that come and go, and a proxy between each and its clients.
struct Servers {
    home: TempDir,
    database: Option<Database>,
    model: String,
    running: Mutex<Vec<Server>>,
    /// Where clients reach each server.
    entrances: Vec<Proxy>,
    dice: Dice,
    client: reqwest::Client,
}

impl Servers {
    async fn start(
        database: Option<Database>,
        model: String,
        count: usize,
        seed: u64,
    ) -> Arc<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut servers = Self {
            home: tempfile::tempdir().unwrap(),
            database,
            model,
            running: Mutex::default(),
            entrances: Vec::new(),
            dice: Dice(AtomicU64::new(seed)),
            client: reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap(),
        };
        for index in 0..count {
            let server = servers.start_one(index);
            let entrance = Proxy::start(server.address(), index as u64).await.unwrap();
            servers.entrances.push(entrance);
            servers.running.lock().unwrap().push(server);
        }
        Arc::new(servers)
    }

    /// The journal as an auditor reads it.
    fn journal(&self) -> String {
        let file = self.home.path().join("journal.db").display().to_string();
        self.database.as_ref().map_or(file, Database::url)
    }

    fn start_one(&self, index: usize) -> Server {
        let url = self.database.as_ref().map(|database| database.url_of(index));
        let url = url.unwrap_or_else(|| self.journal());
        let hour_ahead = |library: String| {
            let names = ["LD_PRELOAD", "FAKETIME", "FAKETIME_DONT_FAKE_MONOTONIC"];
            names.into_iter().zip([library, "+1h".to_owned(), "1".to_owned()]).collect()
        };
        let is_skewed = self.database.is_some() && index == 1;
        let clock = is_skewed.then(faketime).flatten().map(hour_ahead).unwrap_or_default();
        let clock: Vec<(&str, String)> = clock;
        let clock: Vec<(&str, &str)> = clock.iter().map(|(name, it)| (*name, &**it)).collect();
        let machine = if self.database.is_some() { Machine::Own } else { Machine::Shared };
        let token = ["--token", TOKEN];
        Server::start_on(machine, self.home.path(), &url, &self.model, &token, &clock)
    }

    fn any_index(&self) -> usize {
        usize::try_from(self.dice.roll(self.entrances.len() as u64)).unwrap()
    }

    fn url(&self, index: usize) -> String {
        format!("http://{}", self.entrances[index].address())
    }

    fn any_url(&self) -> String {
        self.url(self.any_index())
    }

    /// The frames of a session after a position, as a server shows them; `None` if it does not answer.
    async fn frames(&self, index: usize, session: &str, after: u64) -> Option<String> {
        let url = format!("{}/v1/sessions/{session}/frames?last_seq={after}", self.url(index));
        let response = self.client.get(url).bearer_auth(TOKEN).send().await.ok()?;
        response.error_for_status().ok()?.text().await.ok()
    }

    fn restart(&self, index: usize) {
        let server = self.start_one(index);
        self.entrances[index].redirect(server.address());
        self.running.lock().unwrap()[index] = server;
    }

    fn signal(&self, index: usize, signal: Signal) {
        self.running.lock().unwrap()[index].signal(signal);
    }

    /// Causes a fault and mends it. Blocks.
    fn cause(&self, fault: Disruption) {
        let index = self.any_index();
        match (fault, &self.database) {
            (Disruption::ServerKilled, _) => {
                self.running.lock().unwrap()[index].kill();
                self.restart(index);
            }
            (Disruption::ServerFrozen, _) => {
                self.signal(index, Signal::STOP);
                std::thread::sleep(FROZEN);
                self.signal(index, Signal::CONT);
            }
            (Disruption::ServerDrained, _) => {
                self.signal(index, Signal::TERM);
                self.running.lock().unwrap()[index].wait();
                self.restart(index);
            }
            (Disruption::ClientsCutOff, _) => silence(&self.entrances[index]),
            (Disruption::ServerCutOff, Some(database)) => silence(&database.proxies[index]),
            (Disruption::DatabaseKilled, Some(database)) => database.restart(),
            (Disruption::DatabaseFailedOver, Some(database)) => database.fail_over(),
            (_, None) => unreachable!("no such fault on a file"),
        }
    }

    /// Posts at any server until one accepts. Refusals that no repetition mends fail the test.
    async fn post(&self, path: &str, id: &str, body: &Value, until: &Deadline) -> Value {
        let mut last = String::new();
        while until.is_ahead() {
            let url = format!("{}{path}", self.any_url());
            let request = self.client.post(url).bearer_auth(TOKEN).header("idempotency-key", id);
            match request.json(body).send().await {
                Ok(response) if response.status().is_success() => {
                    if let Ok(found) = response.json().await {
                        return found;
                    }
                }
                Ok(response) => {
                    let status = response.status();
                    last = format!("{status}: {}", response.text().await.unwrap_or_default());
                    let is_passing =
                        status.is_server_error() || [408, 409, 429].contains(&status.as_u16());
                    assert!(is_passing, "{path}: {last}");
                }
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{path} was never accepted: {last}");
    }

    /// Waits until the session has had `turns` turns and none runs.
    async fn ended(&self, session: &str, turns: u64, until: &Deadline) {
        let mut last = Value::Null;
        while until.is_ahead() {
            let url = format!("{}/v1/sessions/{session}", self.any_url());
            if let Ok(response) = self.client.get(url).bearer_auth(TOKEN).send().await
                && let Ok(found) = response.json::<Value>().await
            {
                if found["turns"] == turns && found["status"] != "running" {
                    return;
                }
                last = found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("turn {turns} of {session} never ended: {last}");
    }
}

/// The end of the faults, and of the patience after them.
struct Deadline {
    faults: Instant,
    settled: Instant,
}

impl Deadline {
    fn is_ahead(&self) -> bool {
        Instant::now() < self.settled
    }
}

/// The messages that one client sent; each was accepted and has ended.
struct Conversation {
    session: SessionId,
    messages: Vec<String>,
    register: Arc<Register>,
    /// The longest time from the beginning of a message to its end.
    longest: Duration,
}

/// Reads a session at any server, again and again, until the conversation is over.
async fn observe(servers: Arc<Servers>, session: String, register: Arc<Register>) {
    while !register.is_closed() {
        let index = servers.any_index();
        let floor = register.begin_read(usize::try_from(servers.dice.roll(20)).unwrap());
        if let Some(text) = servers.frames(index, &session, floor.after).await {
            register.end_read(&floor, &text, &format!("session {session}, server {index}"));
        }
        tokio::time::sleep(READ_PAUSE).await;
    }
}

async fn converse(servers: Arc<Servers>, number: u64, until: Arc<Deadline>) -> Conversation {
    let opened = servers.post("/v1/sessions", &format!("open-{number}"), &json!({}), &until).await;
    let session = opened["session_id"].as_str().unwrap().to_owned();
    let (mut messages, mut longest) = (Vec::new(), Duration::ZERO);
    let register = Arc::new(Register::default());
    let watched = Arc::clone(&register);
    let observer = tokio::spawn(observe(Arc::clone(&servers), session.clone(), watched));
    while Instant::now() < until.faults {
        let id = format!("message-{number}-{}", messages.len());
        let path = format!("/v1/sessions/{session}/messages");
        let began = Instant::now();
        register.send(&id);
        servers.post(&path, &id, &json!({ "content": id }), &until).await;
        register.accept(&id);
        messages.push(id);
        servers.ended(&session, messages.len() as u64, &until).await;
        longest = longest.max(began.elapsed());
        assert!(!observer.is_finished(), "a read contradicted another one: see above");
    }
    register.close();
    observer.await.unwrap();
    Conversation { session: session.parse().unwrap(), messages, register, longest }
}

/// Reads all of a session at every server: each shows everything that was ever read. Returns the number of reads.
async fn check_reads(servers: &Servers, conversation: &Conversation, until: &Deadline) -> u64 {
    let session = conversation.session.to_string();
    let mut reads = 0;
    for index in 0..servers.entrances.len() {
        let who = format!("session {session}, server {index}, at the end");
        let text = loop {
            assert!(until.is_ahead(), "{who}: no answer");
            if let Some(text) = servers.frames(index, &session, 0).await {
                break text;
            }
        };
        reads = conversation.register.check_all(&text, &who);
    }
    reads
}

/// Reads a session's records: positions without gaps, each message once, each turn with one end, nothing left over.
async fn check(journal: &dyn Journal, conversation: &Conversation) {
    let Conversation { session, messages, .. } = conversation;
    let (mut seq, mut accepted, mut open, mut ended) = (0, BTreeMap::new(), None, 0);
    loop {
        let limits = PageLimits { records: 1_000, bytes: 1 << 20 };
        let page = journal.read(*session, seq, limits).await.unwrap();
        if page.records.is_empty() {
            break;
        }
        for stored in &page.records {
            let record = stored.record().unwrap();
            assert_eq!(record.seq, seq + 1, "{session}: positions have no gaps");
            seq = record.seq;
            match record.event {
                Event::MessageAccepted { command, .. } => {
                    *accepted.entry(command.to_string()).or_insert(0) += 1;
                }
                Event::TurnStarted { .. } => {
                    assert_eq!(open.replace(seq), None, "{session}: one turn at a time");
                }
                Event::TurnEnded { .. } => {
                    assert!(open.take().is_some(), "{session}: an end belongs to a turn");
                    ended += 1;
                }
                _ => {}
            }
        }
    }
    let expected: BTreeMap<String, i32> = messages.iter().map(|id| (id.clone(), 1)).collect();
    assert_eq!(accepted, expected, "{session}: every message once");
    assert_eq!((open, ended), (None, messages.len()), "{session}: one end for each message");
    assert_eq!(journal.inbox(*session).await.unwrap(), [], "{session}: no command waits");
    fold(journal, *session).await.unwrap();
}

/// Causes faults in turn until it is time, beginning anywhere.
fn cause_faults(
    servers: &Servers,
    faults: &[Disruption],
    until: Instant,
) -> BTreeMap<Disruption, u32> {
    let mut caused = BTreeMap::new();
    let first = usize::try_from(servers.dice.roll(faults.len() as u64)).unwrap();
    for fault in faults.iter().cycle().skip(first) {
        std::thread::sleep(PAUSE);
        if Instant::now() >= until {
            break;
        }
        servers.cause(*fault);
        *caused.entry(*fault).or_default() += 1;
    }
    caused
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

async fn storm(
    database: Option<Database>,
    count: usize,
    faults: &'static [Disruption],
    seconds: u64,
) {
    let seconds = setting("BUDAO_CLUSTER_SECONDS").unwrap_or(seconds);
    let seed = setting("BUDAO_CLUSTER_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("BUDAO_CLUSTER_SEED={seed} BUDAO_CLUSTER_SECONDS={seconds}");
    let provider = Provider::answering(|_| answer().after(Duration::from_millis(150))).await;
    let model = format!("openai:m@{}/v1", provider.url());
    let servers = Servers::start(database, model, count, seed).await;
    let end = Instant::now() + Duration::from_secs(seconds);
    let until = Arc::new(Deadline { faults: end, settled: end + FROZEN + SETTLED });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| tokio::spawn(converse(Arc::clone(&servers), number, Arc::clone(&until))))
        .collect();
    let causing = Arc::clone(&servers);
    let causing = move || cause_faults(&causing, faults, end);
    let caused = tokio::task::spawn_blocking(causing).await.unwrap();
    let mut conversations = Vec::new();
    for client in clients {
        conversations.push(client.await.unwrap());
    }
    let mut reads = 0;
    for conversation in &conversations {
        reads += check_reads(&servers, conversation, &until).await;
    }
    let credentials = Credentials { user: None, password: None, passfile: None };
    let backends = Backends::embedded().with(Arc::new(PostgresBackend::new(credentials)));
    let opened = backends.open(&servers.journal(), Access::Existing, world::system()).await;
    let journal = opened.unwrap();
    for conversation in &conversations {
        check(&*journal, conversation).await;
    }
    journal.close().await;
    let messages: usize = conversations.iter().map(|all| all.messages.len()).sum();
    let longest = conversations.iter().map(|all| all.longest).max().unwrap_or_default();
    println!("{messages} messages, {reads} reads, longest turn {longest:.1?}, faults: {caused:?}");
    assert!(messages > 0 && !caused.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_servers_on_postgres_lose_nothing_and_do_nothing_twice_under_faults() {
    let Some(database) = Database::start(3).await else { return };
    storm(Some(database), 3, &ON_POSTGRES, SECONDS_ON_POSTGRES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_on_one_file_lose_nothing_and_do_nothing_twice_under_faults() {
    storm(None, 2, &ON_FILE, SECONDS).await;
}
