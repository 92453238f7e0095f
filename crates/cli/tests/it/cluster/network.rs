//! A network of machines in one: each machine is a network namespace, and veth pairs join it to bridges in a namespace
//! of the test's own. Its addresses exist in these namespaces only, and no packet leaves them.
//!
//! Two machines that a link joins can be cut off from each other: the link is down, or loses what one side sends. Neither
//! side is told. The namespaces end with the test: a shell that waits for the end of a pipe removes them, after a SIGKILL
//! too. If that shell was killed as well, the next test removes them.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr},
    os::fd::AsFd as _,
    process::{Child, Command, Stdio},
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Begins the name of every namespace; the owner's process follows, and the host.
const PREFIX: &str = "budao-test";
/// Kills what still runs in namespaces, and removes them.
const REMOVE: &str = "for name in \"$@\"; do ip netns pids $name 2>&1 | xargs -r kill -9; \
    ip netns delete $name; done";
/// The port of every server; each has an address of its own.
const SERVER_PORT: u16 = 4000;

/// A machine of the network.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NetworkHost {
    /// The machine of the test itself: its clients, its model service, and the auditor of the journal.
    Test,
    Server(usize),
    Database(usize),
}

/// A part of the network with a bridge of its own, so that a machine can lose one part and keep the others.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subnet {
    Clients,
    Models,
    Database,
    /// Between the two databases.
    Replicas,
}

/// What a cut link loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PacketLoss {
    /// The link is down.
    Both,
    /// What the machine sends.
    Sent,
    /// What is sent to the host.
    Received,
}

impl NetworkHost {
    /// The last part of its addresses.
    fn number(self) -> u8 {
        let (first, index) = match self {
            Self::Test => (1, 0),
            Self::Server(index) => (10, index),
            Self::Database(index) => (20, index),
        };
        first + u8::try_from(index).unwrap()
    }

    fn name(self) -> String {
        match self {
            Self::Test => "clients".to_owned(),
            Self::Server(index) => format!("server{index}"),
            Self::Database(index) => format!("database{index}"),
        }
    }

    fn subnets(self) -> &'static [Subnet] {
        match self {
            Self::Test | Self::Server(_) => &[Subnet::Clients, Subnet::Models, Subnet::Database],
            Self::Database(_) => &[Subnet::Database, Subnet::Replicas],
        }
    }
}

impl Subnet {
    const ALL: [Self; 4] = [Self::Clients, Self::Models, Self::Database, Self::Replicas];

    /// The third part of its addresses.
    fn number(self) -> u8 {
        match self {
            Self::Clients => 1,
            Self::Models => 2,
            Self::Database => 3,
            Self::Replicas => 4,
        }
    }

    /// The name of its bridge, and of a machine's interface to it.
    fn name(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Models => "models",
            Self::Database => "database",
            Self::Replicas => "replicas",
        }
    }

    /// The bridge's end of a machine's link.
    fn port(self, host: NetworkHost) -> String {
        format!("{}-{}", host.number(), self.name())
    }
}

/// Namespaces that exist as long as this value.
#[derive(Debug)]
pub(crate) struct Network {
    /// The prefix of the names of this network's namespaces.
    prefix: String,
    /// The shell that removes the namespaces when its input ends.
    guard: Option<Child>,
}

impl Network {
    /// A network of this many servers and two databases, or the reason why there is none.
    ///
    /// In CI, root must be able to make one.
    pub(crate) fn create(servers: usize) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can make network namespaces".to_owned());
        }
        remove_abandoned();
        let made = Self::make(servers);
        let is_ci = std::env::var("CI").as_deref() == Ok("true");
        assert!(!is_ci || made.is_ok(), "network namespaces are required in CI: {made:?}");
        made
    }

    fn make(servers: usize) -> Result<Self, String> {
        let owner = std::process::id();
        let started = start_of(owner).ok_or("/proc shows no start of this process")?;
        let mut network = Self { prefix: format!("{PREFIX}-{owner}-{started}"), guard: None };
        let mut hosts = vec![NetworkHost::Test, NetworkHost::Database(0), NetworkHost::Database(1)];
        hosts.extend((0..servers).map(NetworkHost::Server));
        let mut names: Vec<String> = hosts.iter().map(|it| network.namespace(*it)).collect();
        names.push(network.bridges());
        let guard = format!("read -r word; {REMOVE}");
        network.guard = Some(shell(&guard, &names).map_err(|error| error.to_string())?);
        for name in &names {
            ip(&format!("netns add {name}"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        for subnet in Subnet::ALL {
            let (at, bridge) = (network.bridges(), subnet.name());
            ip(&format!("-n {at} link add {bridge} type bridge"))?;
            ip(&format!("-n {at} link set {bridge} up"))?;
        }
        for host in hosts {
            for subnet in host.subnets() {
                network.join(host, *subnet)?;
            }
        }
        Ok(network)
    }

    /// Joins a machine to a subnet.
    fn join(&self, host: NetworkHost, subnet: Subnet) -> Result<(), String> {
        let (own, bridges, name) = (self.namespace(host), self.bridges(), subnet.name());
        let (port, address) = (subnet.port(host), address(host, subnet));
        ip(&format!("-n {bridges} link add {port} type veth peer name {name} netns {own}"))?;
        ip(&format!("-n {bridges} link set {port} master {name} up"))?;
        ip(&format!("-n {own} address add {address}/24 dev {name}"))?;
        ip(&format!("-n {own} link set {name} up"))
    }

    fn namespace(&self, host: NetworkHost) -> String {
        format!("{}-{}", self.prefix, host.name())
    }

    /// The namespace of the bridges.
    fn bridges(&self) -> String {
        format!("{}-bridges", self.prefix)
    }

    /// Runs this on a thread of the host. Threads and processes that it starts stay on the host.
    pub(crate) fn inside<T: Send>(&self, host: NetworkHost, work: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/var/run/netns/{}", self.namespace(host))).unwrap();
        let work = move || {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        };
        let ended = std::thread::scope(|scope| scope.spawn(work).join());
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Cuts a machine's link to a subnet. Neither side is told.
    pub(crate) fn cut(&self, host: NetworkHost, subnet: Subnet, loss: PacketLoss) {
        self.change(host, subnet, loss, ("down", "add")).unwrap();
    }

    /// Mends a link that was cut like this.
    pub(crate) fn mend(&self, host: NetworkHost, subnet: Subnet, loss: PacketLoss) {
        self.change(host, subnet, loss, ("up", "delete")).unwrap();
    }

    fn change(
        &self,
        host: NetworkHost,
        subnet: Subnet,
        loss: PacketLoss,
        (link, loses_all): (&str, &str),
    ) -> Result<(), String> {
        let (own, bridges) = (self.namespace(host), self.bridges());
        let (port, name) = (subnet.port(host), subnet.name());
        match loss {
            PacketLoss::Both => ip(&format!("-n {bridges} link set {port} {link}")),
            PacketLoss::Sent => {
                tc(&format!("-n {own} qdisc {loses_all} dev {name} root blackhole"))
            }
            PacketLoss::Received => {
                tc(&format!("-n {bridges} qdisc {loses_all} dev {port} root blackhole"))
            }
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }
}

/// A machine's address in a subnet.
pub(crate) fn address(host: NetworkHost, subnet: Subnet) -> Ipv4Addr {
    Ipv4Addr::new(10, 213, subnet.number(), host.number())
}

/// Where a database listens: for its clients, and for its standby.
pub(crate) fn addresses_of_database(index: usize) -> [Ipv4Addr; 2] {
    [Subnet::Database, Subnet::Replicas].map(|subnet| address(NetworkHost::Database(index), subnet))
}

/// Where a server listens for clients.
pub(crate) fn address_of_server(index: usize) -> SocketAddr {
    (address(NetworkHost::Server(index), Subnet::Clients), SERVER_PORT).into()
}

fn ip(words: &str) -> Result<(), String> {
    run("ip", words)
}

fn tc(words: &str) -> Result<(), String> {
    run("tc", words)
}

fn run(program: &str, words: &str) -> Result<(), String> {
    let done = Command::new(program).args(words.split(' ')).output();
    let done = done.map_err(|error| format!("{program}: {error}; `apt install iproute2`"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    done.status.success().then_some(()).ok_or_else(|| format!("{program} {words}: {said}"))
}

/// Starts a shell with a pipe for its input.
fn shell(script: &str, words: &[String]) -> std::io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, "sh"]).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// When a process started, in ticks since the machine did; `None` if it is gone.
fn start_of(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold spaces; the start is the twentieth field after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Removes the namespaces of tests that are gone, and kills what runs in them.
fn remove_abandoned() {
    let Ok(entries) = fs::read_dir("/var/run/netns") else { return };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let abandoned: Vec<String> = names.filter(|name| is_abandoned(name)).collect();
    if !abandoned.is_empty() {
        let removed = shell(REMOVE, &abandoned).and_then(|mut shell| shell.wait());
        println!("removed the namespaces of an earlier test: {abandoned:?}, {removed:?}");
    }
}

/// Whether this names a namespace of a test that is gone.
fn is_abandoned(name: &str) -> bool {
    let owner = name.strip_prefix(PREFIX).and_then(|rest| {
        let mut parts = rest.strip_prefix('-')?.split('-');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    });
    owner.is_some_and(|(owner, started): (u32, u64)| start_of(owner) != Some(started))
}
