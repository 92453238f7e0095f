//! What the server itself counts, and `pgbench` beside us.

use std::{path::Path, process::Command, time::Duration};

use budao_testkit::postgres::PostgresServer;

/// A backend reports its counters at most this late.
const REPORTED: Duration = Duration::from_millis(1500);

/// The server's counters at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters {
    pub(crate) syncs: f64,
    pub(crate) wal_bytes: f64,
}

impl Counters {
    /// Waits until all backends have reported, and reads.
    pub(crate) async fn read(server: &PostgresServer) -> Self {
        tokio::time::sleep(REPORTED).await;
        let row = server.sql("SELECT wal_sync, wal_bytes FROM pg_stat_wal");
        let (syncs, wal_bytes) = row.split_once('|').unwrap();
        Self { syncs: syncs.parse().unwrap(), wal_bytes: wal_bytes.parse().unwrap() }
    }
}

/// Creates the tables of `pgbench`.
pub(crate) fn prepare_pgbench(server: &PostgresServer) {
    pgbench(server, &["-i", "-q", "-s", "10"]);
}

/// The program beside `psql`, on the same server over TCP.
fn pgbench(server: &PostgresServer, args: &[&str]) -> String {
    let psql = server.psql();
    let program = Path::new(psql.get_program()).with_file_name("pgbench");
    let mut command = Command::new(program);
    command.args(["-h", "127.0.0.1", "-U", "postgres", "-p"]);
    command.arg(server.address().port().to_string()).args(args).arg("postgres");
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Transactions of `pgbench -N` a second. Blocks.
pub(crate) fn pgbench_rate(server: &PostgresServer, clients: u64, time: Duration) -> f64 {
    let (clients, seconds) = (clients.to_string(), time.as_secs().to_string());
    let said = pgbench(server, &["-N", "-M", "prepared", "-n", "-c", &clients, "-T", &seconds]);
    let line = said.lines().find_map(|line| line.strip_prefix("tps = "));
    let rate = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    rate.unwrap_or_else(|| panic!("the machine is too busy for `pgbench`: {said}"))
}
