//! A PostgreSQL server of a test's own: unprivileged, in a temporary directory, gone with the test.
//!
//! The binaries come from the path or from `/usr/lib/postgresql/*/bin`. Where there are none, [`PostgresServer::start`]
//! says so loudly and returns `None`; in CI it panics. The server ends when the pipe that this process holds ends, so
//! a killed test leaves no server behind.

mod backup;
pub mod pgbouncer;
mod small_disk;

use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    net::{Ipv4Addr, SocketAddr},
    os::unix::{fs::chown, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc},
    time::Duration,
};

use crate::port;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

/// How long a server may take to start, with recovery after a crash.
const READY: Duration = Duration::from_secs(60);
/// What the server prints when clients can connect; a standby ends it with `read-only connections`.
const READY_LINES: [&str; 2] = [
    "database system is ready to accept connections",
    "database system is ready to accept read-only connections",
];
/// What the server prints last when it could not start, and what it says about a port that is in use.
const SHUT_DOWN: &str = "LOG:  database system is shut down";
const TAKEN: &str = "Address already in use";
/// Ports that are tried.
const PORTS: u32 = 5;
/// The shell around a server: ends it when the pipe from this process ends, and removes its files unless told to keep
/// them. So a test that is killed leaves nothing behind.
const GUARD: &str = "\"$@\" & server=$!; read -r word; kill -QUIT $server; wait $server; \
    [ \"$word\" = keep ] || rm -rf \"$0\"";
/// PostgreSQL's usual port, which a server in a network of a test's own has.
const PORT: u16 = 5432;
/// The superuser of the server.
pub const ADMINISTRATOR: &str = "postgres";
/// A role whose connections over TCP need a password; a test creates it.
pub const ROLE_WITH_PASSWORD: &str = "secured";

/// A running server. Dropping it stops it and removes its files.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    owner: Option<(u32, u32)>,
    /// Where it listens besides its socket.
    addresses: Vec<Ipv4Addr>,
    port: u16,
    settings: Vec<(String, String)>,
    process: Mutex<Option<Child>>,
    small_disk: small_disk::SmallDisk,
    directory: TempDir,
}

impl PostgresServer {
    /// Starts a server with default settings, or returns `None` if PostgreSQL is not installed.
    ///
    /// # Panics
    /// If the server does not start; in CI also if PostgreSQL is not installed.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts a server with these settings.
    ///
    /// # Panics
    /// As [`PostgresServer::start`].
    #[must_use]
    pub fn start_with(settings: &[(&str, &str)]) -> Option<Self> {
        Self::create(settings, &[Ipv4Addr::LOCALHOST])
    }

    /// Starts a server that listens at these addresses of a network of the test's own, at PostgreSQL's usual port. It
    /// trusts the networks of 256 addresses around them.
    ///
    /// # Panics
    /// As [`PostgresServer::start`].
    #[must_use]
    pub fn start_at(addresses: &[Ipv4Addr]) -> Option<Self> {
        Self::create(&[], addresses)
    }

    fn create(settings: &[(&str, &str)], addresses: &[Ipv4Addr]) -> Option<Self> {
        let mut server = Self::prepare(settings, addresses)?;
        server.start_first();
        Some(server)
    }

    /// Makes the files of a server that does not run yet.
    fn prepare(settings: &[(&str, &str)], addresses: &[Ipv4Addr]) -> Option<Self> {
        let programs = installed()?;
        let directory = tempfile::Builder::new().prefix("budao-pg").tempdir();
        let directory = directory.expect("a temporary directory");
        let owner = unprivileged();
        if let Some((user, group)) = owner {
            chown(directory.path(), Some(user), Some(group)).expect("root may change the owner");
        }
        let settings = settings.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        let (port, process) = (0, Mutex::new(None));
        let addresses = addresses.to_vec();
        let small_disk = None;
        let server =
            Self { programs, owner, addresses, port, settings, process, small_disk, directory };
        server.initialize();
        Some(server)
    }

    /// A server that the tests of this process share. It ends with the process.
    ///
    /// # Panics
    /// As [`PostgresServer::start`].
    #[must_use]
    pub fn shared() -> Option<Arc<Self>> {
        static SHARED: OnceLock<Option<Arc<PostgresServer>>> = OnceLock::new();
        SHARED.get_or_init(|| Self::start().map(Arc::new)).clone()
    }

    /// Starts a standby that follows this server by streaming. It is synchronous if this server's
    /// `synchronous_standby_names` names it.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn standby(&self, name: &str) -> Self {
        let socket = self.socket().display().to_string();
        self.standby_of(&socket, name, &[Ipv4Addr::LOCALHOST])
    }

    /// Starts a standby that listens at these addresses and follows this server from its `source` address.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn standby_at(&self, source: Ipv4Addr, name: &str, addresses: &[Ipv4Addr]) -> Self {
        self.standby_of(&source.to_string(), name, addresses)
    }

    fn standby_of(&self, source: &str, name: &str, addresses: &[Ipv4Addr]) -> Self {
        let mut standby = self.copy(source, name, addresses, &["--write-recovery-conf"]);
        standby.start_first();
        standby
    }

    /// A base backup of this server, which does not run.
    fn copy(&self, source: &str, name: &str, addresses: &[Ipv4Addr], options: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("budao-pg").tempdir();
        let directory = directory.expect("a temporary directory");
        if let Some((user, group)) = self.owner {
            chown(directory.path(), Some(user), Some(group)).expect("root may change the owner");
        }
        let (programs, owner) = (self.programs.clone(), self.owner);
        let (port, process) = (0, Mutex::new(None));
        // A standby refuses to start with room for less than its primary has.
        let is_room = |setting: &&(String, String)| setting.0.starts_with("max_");
        let settings = self.settings.iter().filter(is_room).cloned().collect();
        let addresses = addresses.to_vec();
        let small_disk = None;
        let copy =
            Self { programs, owner, addresses, port, settings, process, small_disk, directory };
        let source = format!(
            "host={source} port={} user={ADMINISTRATOR} application_name={name}",
            self.port
        );
        let copied = copy
            .program("pg_basebackup")
            .args(["--no-sync", "--checkpoint=fast", "--dbname", &source])
            .args(options)
            .arg("--pgdata")
            .arg(copy.data())
            .output()
            .expect("pg_basebackup runs");
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        copy
    }

    /// Makes a standby the primary, and waits until it takes writes.
    ///
    /// # Panics
    /// If `pg_ctl` fails.
    pub fn promote(&self) {
        self.control(&["promote", "-w"]);
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn program(&self, name: &str) -> Command {
        self.as_owner(Command::new(self.programs.join(name)))
    }

    fn as_owner(&self, mut command: Command) -> Command {
        if let Some((user, group)) = self.owner {
            command.uid(user).gid(group);
        }
        self.in_directory(command)
    }

    /// The command in the server's directory, without the environment of this process.
    fn in_directory(&self, mut command: Command) -> Command {
        command.current_dir(self.directory.path()).env_clear().env("PATH", "/usr/bin:/bin");
        command
    }

    fn initialize(&self) {
        let made = self
            .program("initdb")
            .args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C"])
            .args(["--username", ADMINISTRATOR, "--pgdata"])
            .arg(self.data())
            .output()
            .expect("initdb runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut access = format!(
            "host all {ROLE_WITH_PASSWORD} 127.0.0.1/32 scram-sha-256\n\
             local all all trust\nhost all all 127.0.0.1/32 trust\nlocal replication all trust\n"
        );
        for address in self.addresses.iter().filter(|address| !address.is_loopback()) {
            access += &format!("host all,replication all {address}/24 trust\n");
        }
        fs::write(self.data().join("pg_hba.conf"), access).expect("its own file");
    }

    /// Starts the server for the first time. On loopback, another process can take a free port before the server does;
    /// then it gets another one.
    fn start_first(&mut self) {
        if !self.addresses.iter().all(Ipv4Addr::is_loopback) {
            self.port = PORT;
            return self.restart();
        }
        for _ in 0..PORTS {
            self.port = port::free();
            match self.try_start() {
                Ok(()) => return,
                Err(said) => assert!(said.contains(TAKEN), "PostgreSQL did not start:\n{said}"),
            }
        }
        panic!("PostgreSQL found no free port");
    }

    /// Starts the server again at the same address, and waits until clients can connect.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&self) {
        self.try_start().unwrap_or_else(|said| panic!("PostgreSQL did not start:\n{said}"));
    }

    /// Starts the server; if it does not become ready, returns what it said.
    fn try_start(&self) -> Result<(), String> {
        let mut process = lock(&self.process);
        let mut command = self.shell(&["-c", GUARD]);
        command.arg(self.directory.path()).arg(self.programs.join("postgres"));
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string()]);
        let addresses: Vec<String> = self.addresses.iter().map(Ipv4Addr::to_string).collect();
        command.arg("-k").arg(self.directory.path()).args(["-h", &addresses.join(",")]);
        for (name, value) in &self.settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the server runs");
        let lines = BufReader::new(child.stderr.take().expect("piped"));
        let ready = wait_until_ready(lines);
        if ready.is_err() {
            // The shell around the server ends with its input.
            let _ = child.stdin.take().map(|mut stdin| stdin.write_all(b"keep\n"));
            let _ = child.wait();
            return ready;
        }
        *process = Some(child);
        ready
    }

    /// Writes a file beside the server's data that only the server can read, such as its private key.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn install(&self, name: &str, content: &[u8]) {
        use std::os::unix::fs::PermissionsExt as _;
        let file = self.data().join(name);
        fs::write(&file, content).expect("its own directory");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its own file");
        if let Some((user, group)) = self.owner {
            chown(&file, Some(user), Some(group)).expect("root may change the owner");
        }
    }

    /// Kills every process of the server at once, as a crash does.
    ///
    /// # Panics
    /// If the server does not run.
    pub fn kill(&self) {
        let main = self.main_process();
        // A stopped one starts no further process between the look and the kill.
        signal(main, Signal::STOP);
        let mut all = children_of(main);
        all.push(main);
        for process in &all {
            signal(*process, Signal::KILL);
        }
        while all.iter().any(|process| is_alive(*process)) {
            std::thread::yield_now();
        }
        self.reap();
    }

    /// Stops the server in order; clients are disconnected.
    ///
    /// # Panics
    /// If `pg_ctl` fails.
    pub fn stop(&self) {
        self.control(&["stop", "-w", "-m", "fast"]);
        self.reap();
    }

    /// Stops the server at once, without a checkpoint; its next start recovers from the log.
    ///
    /// # Panics
    /// If `pg_ctl` fails.
    pub fn stop_at_once(&self) {
        self.control(&["stop", "-w", "-m", "immediate"]);
        self.reap();
    }

    /// Makes the server read its configuration again.
    ///
    /// # Panics
    /// If `pg_ctl` fails.
    pub fn reload(&self) {
        self.control(&["reload"]);
    }

    fn control(&self, words: &[&str]) {
        let done = self.program("pg_ctl").args(words).arg("-D").arg(self.data()).output();
        let done = done.expect("pg_ctl runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Ends the shell around the server and waits for it.
    fn reap(&self) {
        if let Some(mut child) = lock(&self.process).take() {
            if let Some(mut pipe) = child.stdin.take() {
                // A guard that ended already needs no word.
                let _ = pipe.write_all(b"keep\n");
            }
            let _ = child.wait();
        }
    }

    fn main_process(&self) -> i32 {
        let file = fs::read_to_string(self.data().join("postmaster.pid"));
        let file = file.expect("the server runs");
        file.lines().next().and_then(|line| line.trim().parse().ok()).expect("a process id")
    }

    /// CPU time of all processes of the server so far, those that have ended included.
    ///
    /// # Panics
    /// If the server does not run.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        let main = self.main_process();
        let children = children_of(main).into_iter().map(|child| cpu_ticks(child, 2));
        // Ticks of 10 ms on every Linux in use.
        Duration::from_millis(10 * (cpu_ticks(main, 4) + children.sum::<u64>()))
    }

    /// The address for clients over TCP: the first one where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        let address = self.addresses.first().copied().unwrap_or(Ipv4Addr::LOCALHOST);
        SocketAddr::from((address, self.port))
    }

    /// The directory of the server's socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        self.directory.path()
    }

    /// The address of a journal in a schema of this server, over TCP.
    #[must_use]
    pub fn url(&self, schema: &str) -> String {
        self.url_at(self.address(), schema)
    }

    /// The address of a journal behind a proxy.
    #[must_use]
    pub fn url_at(&self, address: SocketAddr, schema: &str) -> String {
        format!("postgres://{ADMINISTRATOR}@{address}/postgres?schema={schema}")
    }

    /// Runs SQL as the administrator and returns its output: a row a line, columns separated by `|`.
    ///
    /// # Panics
    /// If it fails.
    pub fn sql(&self, sql: &str) -> String {
        let done = self.psql().args(["-c", sql]).output().expect("psql runs");
        assert!(done.status.success(), "{sql}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }

    /// A `psql` that reads statements from its input, as the administrator.
    #[must_use]
    pub fn psql(&self) -> Command {
        let mut command = self.program("psql");
        command.args(["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-U", ADMINISTRATOR]);
        command.arg("-h").arg(self.socket()).args(["-p", &self.port.to_string(), "postgres"]);
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.reap();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The directory of the binaries; a loud word and `None` if there is none.
fn installed() -> Option<PathBuf> {
    let has_server = |directory: &PathBuf| directory.join("initdb").exists();
    let mut debian: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    debian.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian's directory has all programs side by side, a path may have some of them.
    let found = debian.into_iter().rev().chain(std::env::split_paths(&path)).find(has_server);
    if found.is_none() {
        report_missing();
    }
    found
}

#[expect(clippy::print_stderr, reason = "a test that was not run is said so")]
fn report_missing() {
    let advice = "NOT TESTED: PostgreSQL is missing; install its server, for example `apt install postgresql`";
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
    eprintln!("\n*** {advice} ***\n");
}

/// The user and group that the server runs as; `None` if this process is unprivileged itself.
fn unprivileged() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let nobody = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_nobody = fields.next() == Some("nobody");
        let mut numbers = fields.skip(1).map(str::parse);
        is_nobody.then(|| Some((numbers.next()?.ok()?, numbers.next()?.ok()?))).flatten()
    });
    Some(nobody.unwrap_or((65_534, 65_534)))
}

/// Sends a signal; a process that ended by itself meanwhile is as dead.
fn signal(process: i32, signal: Signal) {
    if let Some(process) = Pid::from_raw(process) {
        let _ = rustix::process::kill_process(process, signal);
    }
}

/// Whether a process still runs; one that only waits for its parent does not.
fn is_alive(process: i32) -> bool {
    stat_of(process).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// The ids of a process's children.
fn children_of(parent: i32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| parent_of(*id) == Some(parent)).collect()
}

/// CPU time of a process in ticks: the first `fields` of user, system, and the same of its children that have ended.
fn cpu_ticks(process: i32, fields: usize) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(fields);
    ticks.filter_map(|text| text.parse::<u64>().ok()).sum()
}

fn parent_of(process: i32) -> Option<i32> {
    stat_of(process).map(|(_, parent)| parent)
}

/// The state and the parent of a process.
fn stat_of(process: i32) -> Option<(String, i32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold spaces; the state and the parent follow it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

/// Waits for the server's own word that it is ready; its later output is read so that it never blocks.
fn wait_until_ready(lines: BufReader<impl io::Read + Send + 'static>) -> Result<(), String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in lines.lines().map_while(Result::ok) {
            // After the word nobody listens any more.
            let _ = sender.send(line);
        }
    });
    let mut said = Vec::new();
    loop {
        match receiver.recv_timeout(READY) {
            Ok(line) if READY_LINES.iter().any(|ready| line.contains(ready)) => return Ok(()),
            Ok(line) => {
                let is_last = line.contains(SHUT_DOWN);
                said.push(line);
                if is_last {
                    return Err(said.join("\n"));
                }
            }
            Err(_) => return Err(said.join("\n")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_server_starts_again_with_its_data_and_a_dropped_one_leaves_nothing() {
        let Some(server) = PostgresServer::start() else { return };
        server.sql("CREATE TABLE t(n int); INSERT INTO t VALUES (7)");
        let main = server.main_process();
        assert!(!children_of(main).is_empty());
        server.kill();
        assert!(!is_alive(main), "it is gone");
        server.restart();
        assert_eq!(server.sql("SELECT n FROM t"), "7");
        let directory = server.directory.path().to_owned();
        drop(server);
        assert!(!directory.exists());
    }
}
