//! PgBouncer before a server of a test's own. Where it is not installed, [`PgBouncer::start`] says so loudly.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use super::{ADMINISTRATOR, PostgresServer};
use crate::port;

/// What it says when clients can connect.
const READY: &str = "process up";

/// Which transactions of a client have the same connection to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// All transactions have the same one.
    Session,
    /// Each may have another one. The statements that clients prepared follow them if the version can do that.
    Transaction,
}

/// A running PgBouncer. Dropping it ends it.
#[derive(Debug)]
pub struct PgBouncer {
    process: Child,
    address: SocketAddr,
    knows_prepared_statements: bool,
}

impl PgBouncer {
    /// Starts one before `server`; `None` if it is not installed.
    ///
    /// # Panics
    /// If it does not start; in CI also if it is not installed.
    #[must_use]
    pub fn start(server: &PostgresServer, mode: PoolMode) -> Option<Self> {
        let program = installed()?;
        let knows_prepared_statements = version(&program) >= (1, 21);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port::free()));
        let file = server.directory.path().join(format!("pgbouncer-{}.ini", address.port()));
        let users = file.with_extension("users");
        fs::write(&users, format!("\"{ADMINISTRATOR}\" \"\"\n")).expect("a temporary directory");
        let mut settings = format!(
            "[databases]\npostgres = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
             default_pool_size = 60\npool_mode = {}\n",
            server.port,
            address.port(),
            users.display(),
            if mode == PoolMode::Session { "session" } else { "transaction" },
        );
        if knows_prepared_statements {
            settings += "max_prepared_statements = 200\n";
        }
        fs::write(&file, settings).expect("a temporary directory");
        let mut command = server.as_owner(Command::new(program));
        command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let process = command.spawn().expect("PgBouncer runs");
        let mut pooler = Self { process, address, knows_prepared_statements };
        let mut lines = BufReader::new(pooler.process.stderr.take().expect("piped")).lines();
        let mut said = Vec::new();
        while let Some(Ok(line)) = lines.next() {
            said.push(line);
            if said.last().is_some_and(|line| line.contains(READY)) {
                // Its later output is read, so that it never blocks.
                std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
                return Some(pooler);
            }
        }
        panic!("PgBouncer did not start:\n{}", said.join("\n"));
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether prepared statements work with [`PoolMode::Transaction`].
    #[must_use]
    pub fn knows_prepared_statements(&self) -> bool {
        self.knows_prepared_statements
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[expect(clippy::print_stderr, reason = "a test that was not run is said so")]
fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = folders.map(|folder| folder.join("pgbouncer")).find(|program| program.exists());
    if found.is_none() {
        let advice =
            "NOT TESTED: PgBouncer is missing; install it, for example `apt install pgbouncer`";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
        eprintln!("\n*** {advice} ***\n");
    }
    found
}

/// Major and minor version: it prints `PgBouncer 1.18.0` first.
fn version(program: &Path) -> (u32, u32) {
    let output = Command::new(program).arg("--version").output().expect("PgBouncer runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = text.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}
