//! The servers of a storm, the database pair that they share, and the faults that befall them.
//!
//! On a database every server has a process namespace of its own. Where namespaces of networks can be made, each server
//! and each database has one too, and a partition cuts the link between them ([`Network`]); elsewhere a proxy stands
//! before each server and before the database, and falls silent.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use budao_core::Fault;
use budao_journal::{Access, Backends, Journal};
use budao_journal_postgres::{Credentials, PostgresBackend};
use budao_runtime::world;
use budao_testkit::{
    postgres::{ADMINISTRATOR, PostgresServer},
    proxy::{ConnectionPlan, Ending, Lane, Proxy},
};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::cluster::{
    fixture::{Machine, Server, TOKEN},
    network::{self, Network, NetworkHost, PacketLoss, Subnet},
    writers::{Health, Loss},
};

/// The time between two faults.
const PAUSE: Duration = Duration::from_secs(2);
/// A frozen server stays frozen for longer than others believe it to be alive, and a link stays cut as long.
const FROZEN: Duration = Duration::from_secs(10);
/// Longer than the lease on a file, 15 s: others take the sessions of a server that is frozen so long, and it is fenced. It
/// is the longest of all faults.
pub(super) const FROZEN_PAST_LEASE: Duration = Duration::from_secs(18);
/// A standby follows its primary again within this time.
const STANDBY_RETURNS: Duration = Duration::from_secs(60);
/// A client asks another server if one does not answer within this time.
const PATIENCE: Duration = Duration::from_secs(4);

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
pub(super) enum Disruption {
    ServerKilled,
    ServerFrozen,
    ServerFrozenPastLease,
    ServerDrained,
    ServerCutOff(PacketLoss),
    ClientsCutOff(PacketLoss),
    DatabaseKilled,
    DatabaseFailedOver,
    /// The standby is cut off from its primary, so no append is confirmed meanwhile.
    StandbyCutOff(PacketLoss),
}

pub(super) const ON_FILE: &[Disruption] = &[
    Disruption::ServerKilled,
    Disruption::ClientsCutOff(PacketLoss::Both),
    Disruption::ServerFrozenPastLease,
    Disruption::ServerDrained,
];
pub(super) const ON_POSTGRES: &[Disruption] = &[
    Disruption::ServerKilled,
    Disruption::DatabaseKilled,
    Disruption::ServerCutOff(PacketLoss::Both),
    Disruption::ServerDrained,
    Disruption::ClientsCutOff(PacketLoss::Both),
    Disruption::DatabaseFailedOver,
    Disruption::ServerFrozen,
];
pub(super) const IN_A_NETWORK: &[Disruption] = &[
    Disruption::ServerKilled,
    Disruption::ServerCutOff(PacketLoss::Both),
    Disruption::DatabaseFailedOver,
    Disruption::ClientsCutOff(PacketLoss::Sent),
    Disruption::ServerDrained,
    Disruption::StandbyCutOff(PacketLoss::Both),
    Disruption::DatabaseKilled,
    Disruption::ServerFrozen,
    Disruption::ServerKilled,
    Disruption::ServerCutOff(PacketLoss::Received),
    Disruption::DatabaseFailedOver,
    Disruption::ClientsCutOff(PacketLoss::Both),
    Disruption::ServerDrained,
    Disruption::StandbyCutOff(PacketLoss::Sent),
    Disruption::DatabaseKilled,
    Disruption::ServerCutOff(PacketLoss::Sent),
    Disruption::DatabaseFailedOver,
    Disruption::ClientsCutOff(PacketLoss::Received),
    Disruption::StandbyCutOff(PacketLoss::Received),
];

/// The two databases; each failover exchanges them.
struct DatabasePair {
    primary: PostgresServer,
    standby: PostgresServer,
    /// Which of the two machines of a network has the primary.
    place: usize,
}

/// A database with a synchronous standby.
pub(super) struct Database {
    pair: Mutex<DatabasePair>,
    network: Option<Arc<Network>>,
    /// A proxy for each server; none in a network.
    proxies: Vec<Proxy>,
}

/// Runs this on a machine of the network, if there is one.
fn inside<T: Send>(
    network: Option<&Arc<Network>>,
    host: NetworkHost,
    work: impl FnOnce() -> T + Send,
) -> T {
    match network {
        Some(network) => network.inside(host, work),
        None => work(),
    }
}

/// A standby at this place, once it is the synchronous one.
fn follow(
    network: Option<&Arc<Network>>,
    primary: &PostgresServer,
    place: usize,
) -> PostgresServer {
    let standby = inside(network, NetworkHost::Database(place), || match network {
        None => primary.standby("second"),
        Some(_) => {
            let source = network::address(NetworkHost::Database(1 - place), Subnet::Replicas);
            primary.standby_at(source, "second", &network::addresses_of_database(place))
        }
    });
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'second'");
    primary.reload();
    standby
}

impl Database {
    /// None if PostgreSQL is not installed.
    pub(super) async fn start(servers: usize, network: Option<Arc<Network>>) -> Option<Self> {
        let primary = inside(network.as_ref(), NetworkHost::Database(0), || match network {
            None => PostgresServer::start(),
            Some(_) => PostgresServer::start_at(&network::addresses_of_database(0)),
        })?;
        let standby = follow(network.as_ref(), &primary, 1);
        let mut proxies = Vec::new();
        let count = if network.is_none() { servers } else { 0 };
        for number in 0..count {
            proxies.push(Proxy::start(primary.address(), number as u64).await.unwrap());
        }
        let pair = Mutex::new(DatabasePair { primary, standby, place: 0 });
        Some(Self { pair, network, proxies })
    }

    fn pair(&self) -> MutexGuard<'_, DatabasePair> {
        self.pair.lock().unwrap()
    }

    /// The address for an auditor, or for a server behind its proxy.
    fn url(&self, server: Option<usize>) -> String {
        // The standby that is promoted here is always the synchronous one.
        let options = "schema=budao&failover=lossless";
        if self.network.is_some() {
            let hosts =
                [0, 1].map(|it| network::address(NetworkHost::Database(it), Subnet::Database));
            let [first, second] = hosts;
            let hosts = format!("{first},{second}");
            return format!(
                "postgres://{ADMINISTRATOR}@{hosts}/postgres?{options}&sslmode=disable"
            );
        }
        let pair = self.pair();
        let address = server.map_or(pair.primary.address(), |index| self.proxies[index].address());
        format!("postgres://{ADMINISTRATOR}@{address}/postgres?{options}")
    }

    fn restart(&self) {
        let pair = self.pair();
        pair.primary.kill();
        let (network, host) = (self.network.as_ref(), NetworkHost::Database(pair.place));
        inside(network, host, || pair.primary.restart());
    }

    /// Kills the primary, promotes the standby, and gives it a new standby in the place of the old primary.
    fn fail_over(&self) {
        let mut pair = self.pair();
        pair.primary.kill();
        pair.standby.promote();
        for proxy in &self.proxies {
            proxy.redirect(pair.standby.address());
            proxy.cut_all(Ending::Reset);
        }
        let standby = follow(self.network.as_ref(), &pair.standby, pair.place);
        let promoted = std::mem::replace(&mut pair.standby, standby);
        pair.primary = promoted;
        pair.place = 1 - pair.place;
    }

    /// Waits until commits are confirmed again. Blocks.
    fn wait_until_confirming(&self) {
        let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        let began = Instant::now();
        while self.pair().primary.sql(synchronous) != "1" {
            assert!(began.elapsed() < STANDBY_RETURNS, "the standby did not come back");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The machine of the standby.
    fn standby(&self) -> NetworkHost {
        NetworkHost::Database(1 - self.pair().place)
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

/// The library that sets a clock for one process; a loud word if it is not installed, and in CI a failure.
fn faketime() -> Option<String> {
    let folders = ["/usr/lib/x86_64-linux-gnu/faketime", "/usr/lib/aarch64-linux-gnu/faketime"];
    let mut files = folders.into_iter().map(|folder| format!("{folder}/libfaketime.so.1"));
    let found = files.find(|file| std::path::Path::new(file).exists());
    if found.is_none() {
        let advice =
            "NOT TESTED: clocks that differ, as libfaketime is missing; `apt install faketime`";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
        println!("\n*** {advice} ***\n");
    }
    found
}

/// Servers that come and go, and clients that reach each of them.
pub(super) struct Servers {
    home: TempDir,
    database: Option<Database>,
    network: Option<Arc<Network>>,
    model: String,
    /// Held while a server drains, so nothing that runs with the clients may wait for it.
    running: Mutex<Vec<Server>>,
    pub(super) count: usize,
    /// A proxy before each server; none in a network, where clients reach the servers themselves.
    entrances: Vec<Proxy>,
    dice: Dice,
    pub(super) client: reqwest::Client,
    pub(super) health: Health,
}

impl Servers {
    pub(super) async fn start(
        database: Option<Database>,
        model: String,
        count: usize,
        seed: u64,
    ) -> Arc<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut servers = Self {
            home: tempfile::tempdir().unwrap(),
            network: database.as_ref().and_then(|database| database.network.clone()),
            database,
            model,
            running: Mutex::default(),
            count,
            entrances: Vec::new(),
            dice: Dice(AtomicU64::new(seed)),
            client: reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap(),
            health: Health::default(),
        };
        for index in 0..count {
            let server = servers.start_one(index);
            if servers.network.is_none() {
                let entrance = Proxy::start(server.address(), index as u64).await.unwrap();
                servers.entrances.push(entrance);
            }
            servers.running.lock().unwrap().push(server);
        }
        Arc::new(servers)
    }

    /// The directory in which the servers' tools work.
    pub(super) fn workspace(&self) -> &Path {
        self.home.path()
    }

    /// The journal, for an auditor.
    pub(super) async fn open_journal(&self) -> Result<Arc<dyn Journal>, Fault> {
        let credentials = Credentials { user: None, password: None, passfile: None };
        let backends = Backends::embedded().with(Arc::new(PostgresBackend::new(credentials)));
        backends.open(&self.journal(), Access::Existing, world::system()).await
    }

    /// The name under which a server takes leases. Blocks.
    fn holder(&self, index: usize) -> String {
        let address = self.running.lock().unwrap()[index].address().to_string();
        let reading = async {
            let journal = self.open_journal().await?;
            let census = journal.census("auditor").await?;
            journal.close().await;
            Ok::<_, Fault>(census)
        };
        let census = Handle::current().block_on(reading).unwrap();
        let nodes = census.nodes.into_iter().filter(|node| node.status.address.contains(&address));
        nodes.max_by_key(|node| node.status.started).expect("a running server is listed").holder
    }

    fn journal(&self) -> String {
        let file = self.home.path().join("journal.db").display().to_string();
        self.database.as_ref().map_or(file, |database| database.url(None))
    }

    fn start_one(&self, index: usize) -> Server {
        let url = self.database.as_ref().map(|database| database.url(Some(index)));
        let url = url.unwrap_or_else(|| self.journal());
        let hour_ahead = |library: String| {
            let names = ["LD_PRELOAD", "FAKETIME", "FAKETIME_DONT_FAKE_MONOTONIC"];
            names.into_iter().zip([library, "+1h".to_owned(), "1".to_owned()]).collect()
        };
        let is_skewed = self.database.is_some() && index == 1;
        let clock = is_skewed.then(faketime).flatten().map(hour_ahead).unwrap_or_default();
        let clock: Vec<(&str, String)> = clock;
        let clock: Vec<(&str, &str)> = clock.iter().map(|(name, it)| (*name, &**it)).collect();
        let machine = match (&self.network, &self.database) {
            (Some(_), _) => Machine::At(network::address_of_server(index)),
            (None, Some(_)) => Machine::Own,
            (None, None) => Machine::Shared,
        };
        let arguments = ["--token", TOKEN, "--permission", "auto"];
        inside(self.network.as_ref(), NetworkHost::Server(index), || {
            Server::start_on(machine, self.home.path(), &url, &self.model, &arguments, &clock)
        })
    }

    /// A number below this one.
    pub(super) fn roll(&self, sides: u64) -> u64 {
        self.dice.roll(sides)
    }

    pub(super) fn any_index(&self) -> usize {
        usize::try_from(self.dice.roll(self.count as u64)).unwrap()
    }

    fn url(&self, index: usize) -> String {
        let entrance = self.entrances.get(index).map(Proxy::address);
        format!("http://{}", entrance.unwrap_or_else(|| network::address_of_server(index)))
    }

    pub(super) fn any_url(&self) -> String {
        self.url(self.any_index())
    }

    /// The frames of a session after a position, as a server shows them; `None` if it does not answer.
    pub(super) async fn frames(&self, index: usize, session: &str, after: u64) -> Option<String> {
        let url = format!("{}/v1/sessions/{session}/frames?last_seq={after}", self.url(index));
        let response = self.client.get(url).bearer_auth(TOKEN).send().await.ok()?;
        response.error_for_status().ok()?.text().await.ok()
    }

    fn restart(&self, index: usize) {
        let server = self.start_one(index);
        if let Some(entrance) = self.entrances.get(index) {
            entrance.redirect(server.address());
        }
        self.running.lock().unwrap()[index] = server;
    }

    fn signal(&self, index: usize, signal: Signal) {
        self.running.lock().unwrap()[index].signal(signal);
    }

    /// Stops a server's process for a while. Blocks.
    fn freeze(&self, index: usize, time: Duration) {
        self.signal(index, Signal::STOP);
        std::thread::sleep(time);
        self.signal(index, Signal::CONT);
    }

    /// Causes a fault and mends it. Blocks.
    fn cause(&self, fault: Disruption) {
        let index = self.any_index();
        match fault {
            Disruption::ServerKilled => {
                self.health.lose(&self.holder(index), Loss::Dead);
                self.running.lock().unwrap()[index].kill();
                self.restart(index);
            }
            Disruption::ServerFrozen
            | Disruption::ServerFrozenPastLease
            | Disruption::ServerCutOff(_) => {
                let holder = self.holder(index);
                self.health.lose(&holder, Loss::Silent);
                self.silence_server(fault, index);
                self.health.regain(&holder);
            }
            Disruption::ServerDrained => {
                self.signal(index, Signal::TERM);
                self.running.lock().unwrap()[index].wait();
                self.restart(index);
            }
            Disruption::ClientsCutOff(loss) => {
                let link = (NetworkHost::Server(index), Subnet::Clients, loss);
                self.cut_off(link, self.entrances.get(index));
            }
            Disruption::StandbyCutOff(_)
            | Disruption::DatabaseKilled
            | Disruption::DatabaseFailedOver => {
                let database = self.database.as_ref().expect("no such fault on a file");
                self.health.set_database(true);
                self.disturb(fault, database);
                database.wait_until_confirming();
                self.health.set_database(false);
            }
        }
    }

    /// Lets a server write nothing for a while, and live. Blocks.
    fn silence_server(&self, fault: Disruption, index: usize) {
        match (fault, &self.database) {
            (Disruption::ServerCutOff(loss), Some(database)) => {
                let link = (NetworkHost::Server(index), Subnet::Database, loss);
                self.cut_off(link, database.proxies.get(index));
            }
            (Disruption::ServerFrozenPastLease, _) => self.freeze(index, FROZEN_PAST_LEASE),
            _ => self.freeze(index, FROZEN),
        }
    }

    /// Lets the database confirm nothing for a while. Blocks.
    fn disturb(&self, fault: Disruption, database: &Database) {
        match fault {
            Disruption::StandbyCutOff(loss) => {
                self.cut_off((database.standby(), Subnet::Replicas, loss), None);
            }
            Disruption::DatabaseFailedOver => database.fail_over(),
            _ => database.restart(),
        }
    }

    /// Cuts a link of the network for a while, or silences the proxy that stands for it. Blocks.
    fn cut_off(
        &self,
        (host, subnet, loss): (NetworkHost, Subnet, PacketLoss),
        proxy: Option<&Proxy>,
    ) {
        if let Some(network) = &self.network {
            network.cut(host, subnet, loss);
            std::thread::sleep(FROZEN);
            return network.mend(host, subnet, loss);
        }
        silence(proxy.expect("no such fault without a network"));
    }

    /// Causes faults in turn until it is time, beginning anywhere. Blocks.
    pub(super) fn cause_all(
        &self,
        faults: &[Disruption],
        until: Instant,
    ) -> BTreeMap<Disruption, u32> {
        let mut caused = BTreeMap::new();
        let first = usize::try_from(self.roll(faults.len() as u64)).unwrap();
        for fault in faults.iter().cycle().skip(first) {
            std::thread::sleep(PAUSE);
            if Instant::now() >= until {
                break;
            }
            self.cause(*fault);
            *caused.entry(*fault).or_default() += 1;
        }
        caused
    }
}
