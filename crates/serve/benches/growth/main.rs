//! Cost against size, one row per size: turns of one session, sessions in a file, observers of a session, tools of an agent,
//! and bytes of a tool's result. `cargo xtask bench growth --package budao-serve --write` draws the charts.
//!
//! CPU time, as in the benches of each part. Observers are connections to a server that is a process of its own; its CPU
//! alone counts.

#![expect(clippy::print_stderr, reason = "says what was not measured")]

mod agent;
mod sessions;

#[expect(dead_code, reason = "the bench `serve` uses the rest")]
#[path = "../serve/load.rs"]
mod load;
#[expect(dead_code, reason = "the bench `serve` uses the rest")]
#[path = "../serve/process.rs"]
mod process;
#[path = "../serve/server.rs"]
mod server;
#[expect(dead_code, reason = "the bench `serve` uses the rest")]
#[path = "../serve/wire.rs"]
mod wire;

use budao_testkit::bench::{Better, Measurement, emit};
use process::{Server, Storage};

/// The body of an event, in bytes.
const PIECE: usize = 200;
/// The argument that makes this program the server.
const SERVE: &str = "--serve";
/// As in the bench `serve`, which alone uses them.
const FLOOR: &str = "--floor";
const NARROW: &str = "narrow";

/// How many observers, how many pieces an answer has, and how many answers there are: a share of a second each.
const OBSERVERS: [(usize, u32, u32); 5] =
    [(1, 1_000, 20), (10, 1_000, 10), (100, 500, 4), (1_000, 100, 3), (10_000, 50, 1)];

/// A cost at one size, with the middle half of its rounds.
fn report(bench: &str, mut rounds: Vec<f64>, unit: &str, note: &str) {
    rounds.sort_by(f64::total_cmp);
    let at = |quarter: usize| rounds[(rounds.len() - 1) * quarter / 4];
    emit(&Measurement {
        bench: bench.to_owned(),
        value: at(2),
        unit: unit.to_owned(),
        bar: None,
        better: Better::Lower,
        low: (rounds.len() > 1).then(|| at(1)),
        high: (rounds.len() > 1).then(|| at(3)),
        note: Some(note.to_owned()),
    });
}

async fn observers() {
    for (count, pieces, answers) in OBSERVERS {
        let here = count.min(load::most_lines());
        if here < count {
            eprintln!("NOT MEASURED: {count} observers need as many descriptors");
            continue;
        }
        let server = Server::ours(Storage::Memory);
        let micros = load::fan_out(&server, count, pieces, answers).await;
        let note = "the server's CPU for each delivery of an event, the event itself included";
        report(&format!("growth/observers_{count}"), vec![micros], "µs CPU", note);
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some(SERVE) {
        return server::run(args.next().as_deref().map(std::path::Path::new), None);
    }
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    // A filter may name one size; all sizes of a row are measured together.
    let wants = |row: &str| {
        wanted.is_empty() || wanted.iter().any(|part| row.contains(part) || part.starts_with(row))
    };
    load::raise_descriptors();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
    runtime.block_on(async {
        if wants("growth/turns") {
            agent::turns().await;
        }
        if wants("growth/sessions") {
            sessions::measure().await;
        }
        if wants("growth/observers") {
            observers().await;
        }
        if wants("growth/tools") {
            agent::tools().await;
        }
        if wants("growth/results") {
            agent::results().await;
        }
    });
}
