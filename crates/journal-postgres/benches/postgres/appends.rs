//! Appends of 1, 16 and 128 sessions, with commands, and with a synchronous standby.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use budao_core::{
    event::{Answer, Event, Seq, SessionId},
    trace::Trace,
};
use budao_journal::{Append, Entry, Journal, Lease, conformance::fixture::message};
use budao_testkit::{
    bench::{Better, cpu_time},
    postgres::PostgresServer,
    records, world,
};

use crate::{
    Figure, WEIGHT,
    database::{Counters, pgbench_rate},
    median, micros, open,
};

const ROUNDS: usize = 4;
const ROUND: Duration = Duration::from_secs(4);
/// Appends without a command between two with one.
const COMMAND_EVERY: Seq = 4;

/// What one round measured.
#[derive(Clone, Copy, Debug)]
struct Round {
    appends: f64,
    rate: f64,
    client_micros: f64,
    server_micros: f64,
}

/// What sessions append in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Records,
    /// Each fourth append takes a command and answers it.
    RecordsAndCommands,
}

/// The event that every append of this bench writes. It is made once: its making is no cost of an append.
fn event() -> Arc<Event> {
    let data = serde_json::json!("x".repeat(WEIGHT));
    Arc::new(Event::Annotated { topic: "test.bench".into(), data })
}

fn entry(event: &Arc<Event>, seq: Seq) -> Entry {
    let trace = Trace::from_random(u128::from(seq) + 1);
    Entry { at: world::system().clock.now(), trace, turn: 1, event: Arc::clone(event) }
}

fn append(lease: &Lease, head: Seq, event: &Arc<Event>, content: Content) -> Append {
    let mut append = Append::new(lease, head, vec![entry(event, head + 1)]);
    if content == Content::RecordsAndCommands && head.is_multiple_of(COMMAND_EVERY) {
        let command = message(&format!("command-{head}"), "x");
        append.direct_commands.push((command, Answer::Accepted { at: head + 1 }));
    }
    append
}

/// One round of `sessions` new sessions that append as fast as they are answered.
async fn round(
    server: &PostgresServer,
    journal: &Arc<dyn Journal>,
    sessions: u64,
    content: Content,
) -> Round {
    let (count, event) = (Arc::new(AtomicU64::new(0)), event());
    let mut leases = Vec::new();
    for _ in 0..sessions {
        let session = SessionId(uuid::Uuid::new_v4());
        leases.push(records::lease(&**journal, session, "writer").await);
    }
    let (began, client, served) = (Instant::now(), cpu_time(), server.cpu_time());
    let writers: Vec<_> = leases
        .into_iter()
        .map(|lease| {
            let (journal, count) = (Arc::clone(journal), Arc::clone(&count));
            let event = Arc::clone(&event);
            tokio::spawn(async move {
                let mut head = 0;
                while began.elapsed() < ROUND {
                    let next = append(&lease, head, &event, content);
                    head = journal.append(next).await.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let appends = count.load(Ordering::Relaxed) as f64;
    Round {
        appends,
        rate: appends / began.elapsed().as_secs_f64(),
        client_micros: micros(cpu_time() - client) / appends,
        server_micros: micros(server.cpu_time() - served) / appends,
    }
}

/// Rounds of appends, each after a round of `pgbench -N`; also the rates of the latter.
async fn rounds(
    server: &PostgresServer,
    journal: &Arc<dyn Journal>,
    sessions: u64,
    content: Content,
) -> (Vec<Round>, Vec<f64>) {
    let (mut rounds, mut bases) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let base = || pgbench_rate(server, sessions, ROUND);
        bases.push(tokio::task::block_in_place(base));
        rounds.push(round(server, journal, sessions, content).await);
    }
    (rounds, bases)
}

const APPENDS_1: Figure =
    Figure { name: "appends_1", unit: "× pgbench -N", bar: 1.0, better: Better::Higher };
const APPENDS_16: Figure = Figure { name: "appends_16", bar: 1.2, ..APPENDS_1 };
const APPENDS_128: Figure = Figure { name: "appends_128", bar: 4.0, ..APPENDS_1 };
const COMMANDS_128: Figure = Figure { name: "appends_128_with_commands", bar: 3.5, ..APPENDS_1 };
const SERVER_CPU: Figure =
    Figure { name: "appends_128_server_cpu", unit: "µs CPU", bar: 40.0, better: Better::Lower };
const CLIENT_CPU: Figure = Figure { name: "appends_128_client_cpu", bar: 8.0, ..SERVER_CPU };
const SYNCS: Figure =
    Figure { name: "appends_128_syncs", unit: "syncs", bar: 0.03, better: Better::Lower };
const WAL: Figure =
    Figure { name: "appends_128_wal", unit: "B + payload", bar: 300.0, better: Better::Lower };
const STANDBY: Figure =
    Figure { name: "standby_128", unit: "× without standby", bar: 0.6, better: Better::Higher };

fn report_ratio(figure: &Figure, rounds: &[Round], bases: &[f64]) {
    let ratios = rounds.iter().zip(bases).map(|(round, base)| round.rate / base).collect();
    let mut rates: Vec<f64> = rounds.iter().map(|round| round.rate).collect();
    rates.sort_by(f64::total_cmp);
    let note = format!("{:.0} appends/s; `pgbench -N` of the same rounds", median(&rates));
    figure.report(ratios, note);
}

/// Appends beside `pgbench`, and what one costs.
pub(crate) async fn measure(server: &PostgresServer) {
    let journal = open(&server.url("budao")).await;
    for (sessions, figure) in [(1, APPENDS_1), (16, APPENDS_16)] {
        let (rounds, bases) = rounds(server, &journal, sessions, Content::Records).await;
        report_ratio(&figure, &rounds, &bases);
    }
    let (mut syncs, mut wal) = (Vec::new(), Vec::new());
    let (mut all, mut bases) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let base = || pgbench_rate(server, 128, ROUND);
        bases.push(tokio::task::block_in_place(base));
        let before = Counters::read(server).await;
        let round = round(server, &journal, 128, Content::Records).await;
        let after = Counters::read(server).await;
        syncs.push((after.syncs - before.syncs) / round.appends);
        wal.push((after.wal_bytes - before.wal_bytes) / round.appends - payload());
        all.push(round);
    }
    report_ratio(&APPENDS_128, &all, &bases);
    let each = |pick: fn(&Round) -> f64| all.iter().map(pick).collect::<Vec<f64>>();
    SERVER_CPU.report(each(|round| round.server_micros), "of all processes, an append".into());
    let note = "of this process, an append; updating the views included";
    CLIENT_CPU.report(each(|round| round.client_micros), note.into());
    SYNCS.report(syncs, "of the write-ahead log, an append".into());
    WAL.report(wal, format!("an append of {:.0} bytes; the views included", payload()));
    let (rounds, bases) = rounds(server, &journal, 128, Content::RecordsAndCommands).await;
    report_ratio(&COMMANDS_128, &rounds, &bases);
    journal.close().await;
}

/// The bytes of a record as it is encoded.
fn payload() -> f64 {
    let mut bytes = Vec::new();
    event().encode_into(&mut bytes);
    bytes.len() as f64
}

/// Appends on a server with a synchronous standby, in turns with appends on the one without.
pub(crate) async fn measure_with_standby(server: &PostgresServer) {
    let Some(primary) = PostgresServer::start_with(&[("max_connections", "300")]) else { return };
    let _standby = primary.standby("second");
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'second'");
    primary.reload();
    let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    while primary.sql(synchronous) != "1" {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (alone, paired) = (open(&server.url("alone")).await, open(&primary.url("paired")).await);
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let without = round(server, &alone, 128, Content::Records).await;
        let with = round(&primary, &paired, 128, Content::Records).await;
        ratios.push(with.rate / without.rate);
    }
    STANDBY.report(ratios, "both servers on one machine and one disk".into());
    alone.close().await;
    paired.close().await;
}
