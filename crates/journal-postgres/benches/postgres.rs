//! Appends beside `pgbench -N` on the same server, as `cargo xtask bench postgres` reads them: one JSON line per number.
//!
//! Both take turns, round after round, so that a slow second of the machine hits both. Every append is durable when it is
//! counted. The server has its default settings, with room for 200 connections and without a standby.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss, missing_docs)]

use std::{
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use budao_journal::{Access, Append, Journal};
use budao_journal_postgres::{Credentials, Postgres, PostgresOptions};
use budao_testkit::{
    bench::{Better, Measurement},
    postgres::PostgresServer,
    records, world,
};

const ROUNDS: usize = 4;
const ROUND: Duration = Duration::from_secs(4);
/// Sessions, and the bar of appends in multiples of `pgbench -N` transactions.
const CASES: [(u64, f64); 3] = [(1, 1.0), (16, 1.2), (128, 4.0)];

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    if !"postgres/appends postgres/client_cpu".contains(&filter) {
        return;
    }
    let Some(server) = PostgresServer::start_with(&[("max_connections", "200")]) else { return };
    pgbench(&server, &["-i", "-q", "-s", "10"]);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(measure(&server));
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

fn transactions_per_second(server: &PostgresServer, clients: u64) -> f64 {
    let (clients, seconds) = (clients.to_string(), ROUND.as_secs().to_string());
    let said = pgbench(server, &["-N", "-M", "prepared", "-n", "-c", &clients, "-T", &seconds]);
    let line = said.lines().find_map(|line| line.strip_prefix("tps = ")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// CPU time of this process.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    let ticks = fields.split_whitespace().skip(11).take(2).map(|text| text.parse::<u64>().unwrap());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// Appends a second, and microseconds of this process's CPU an append.
async fn appends_per_second(journal: &Arc<dyn Journal>, sessions: u64) -> (f64, f64) {
    let count = Arc::new(AtomicU64::new(0));
    let (began, used) = (Instant::now(), cpu());
    let writers: Vec<_> = (0..sessions)
        .map(|_| {
            let (journal, count) = (Arc::clone(journal), Arc::clone(&count));
            tokio::spawn(async move {
                let session = budao_core::event::SessionId(uuid::Uuid::new_v4());
                let lease = records::lease(&*journal, session, "writer").await;
                let mut head = 0;
                while began.elapsed() < ROUND {
                    let entries = records::entries(head, 1, 480);
                    head = journal.append(Append::new(&lease, head, entries)).await.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let count = count.load(Ordering::Relaxed) as f64;
    let micros = (cpu() - used).as_micros() as f64;
    (count / began.elapsed().as_secs_f64(), micros / count)
}

async fn measure(server: &PostgresServer) {
    let credentials = Credentials::default();
    let options = PostgresOptions::default();
    let url = server.url("budao");
    let opened = Postgres::open(&url, Access::Create, &credentials, world::system(), options).await;
    let journal: Arc<dyn Journal> = Arc::new(opened.unwrap());
    for (sessions, bar) in CASES {
        let (mut ratios, mut rates, mut client) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let base = tokio::task::block_in_place(|| transactions_per_second(server, sessions));
            let (rate, micros) = appends_per_second(&journal, sessions).await;
            ratios.push(rate / base);
            rates.push(rate);
            client.push(micros);
        }
        let note = format!("{:.0} appends/s; pgbench -N of the same rounds", median(&mut rates));
        let name = format!("postgres/appends_{sessions}");
        report(&name, &mut ratios, "× pgbench -N", bar, Better::Higher, note);
        if sessions == 128 {
            let name = "postgres/client_cpu_128";
            report(name, &mut client, "µs CPU", 8.0, Better::Lower, "an append".to_owned());
        }
    }
    journal.close().await;
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(name: &str, values: &mut [f64], unit: &str, bar: f64, better: Better, note: String) {
    let value = median(values);
    let measurement = Measurement {
        bench: name.to_owned(),
        value,
        unit: unit.to_owned(),
        bar: Some(bar),
        better,
        low: values.first().copied(),
        high: values.last().copied(),
        note: Some(note),
    };
    println!("{}", serde_json::to_string(&measurement).unwrap());
}
