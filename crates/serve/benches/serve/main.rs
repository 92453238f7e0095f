//! What the session server costs, beside a server on the reference's library (Python `websockets`) and one on Socket.IO.
//!
//! Every server is a process of its own and its CPU time alone counts; the load comes from this process. Events come of
//! real runs: a client sends a message, a model streams that many pieces of 200 bytes, each is a record in the journal, is
//! projected, encoded and sent; the final answer repeats them, with us and with the peer.

#![expect(clippy::print_stderr, reason = "says what was not measured")]

mod crowd;
mod floor;
mod load;
mod process;
mod server;
mod wire;

use budao_testkit::bench::{Better, Measurement, emit};
use crowd::CrowdBehaviour;
use process::{Server, Storage};

/// The body of an event, in bytes.
const PIECE: usize = 200;
/// The argument that makes this program the server.
const SERVE: &str = "--serve";
/// The argument that makes it the bare library.
const FLOOR: &str = "--floor";
/// The argument that makes it a crowd.
const CROWD: &str = "--crowd";
/// The argument, after the journal, that lets little wait for each observer of the server.
const NARROW: &str = "narrow";
/// What one idle connection with its session may take.
const IDLE_BYTES: f64 = 10.0 * 1024.0;

/// What it may take from connect to a session that is ready, in microseconds of CPU.
const READY: [(&str, f64); 2] = [("serve/ready_memory", 60.0), ("serve/ready_durable", 200.0)];

/// Crowds, how many sessions are measured beside how many of them, and how many times as long their turns may take: the
/// middle one beside those who replay, the slowest of a hundred beside those who do not read.
const CROWDS: [(&str, CrowdBehaviour, usize, usize, f64); 3] = [
    ("serve/beside_replays", CrowdBehaviour::Replays, 10, 1_000, 1.1),
    ("serve/beside_returns", CrowdBehaviour::Returns, 10, 1_000, 1.1),
    ("serve/beside_stalled", CrowdBehaviour::Stalls, 100, 10_000, 2.0),
];

fn report(bench: &str, value: f64, unit: &str, bar: Option<f64>, better: Better, note: &str) {
    emit(&Measurement {
        bench: bench.to_owned(),
        value,
        unit: unit.to_owned(),
        bar,
        better,
        low: None,
        high: None,
        note: (!note.is_empty()).then(|| note.to_owned()),
    });
}

/// A cost in microseconds of the server's CPU.
fn cost(bench: &str, micros: f64, note: &str) {
    let bar = READY.iter().find(|(name, _)| *name == bench).map(|(_, micros)| *micros);
    report(bench, micros, "µs CPU", bar, Better::Lower, note);
}

/// A server of the reference's protocol: its benches' names, its start, and how much more than the slowest it gets to do.
type Contender = (&'static str, fn() -> Option<Server>, u32);

fn contenders() -> Vec<Contender> {
    vec![
        ("serve/{}_memory", || Some(Server::ours(Storage::Memory)), 8),
        ("serve/{}_durable", || Some(Server::ours(Storage::Durable)), 4),
        ("serve/{}_floor", || Some(Server::floor()), 8),
        ("peer/websockets/serve_{}", Server::websockets, 1),
    ]
}

fn main() {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some(SERVE) => {
            let (journal, mode) = (args.next(), args.next());
            return server::run(journal.as_deref().map(std::path::Path::new), mode.as_deref());
        }
        Some(CROWD) => {
            load::raise_descriptors();
            return crowd::run(args);
        }
        Some(FLOOR) => return floor::run(),
        _ => {}
    }
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    load::raise_descriptors();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("tokio");
    runtime.block_on(async {
        for (name, start, times) in contenders() {
            let named = |what: &str| name.replace("{}", what);
            let wanted =
                ["events_1", "events_100", "replay", "ready"].map(|what| wants(&named(what)));
            if !wanted.contains(&true) {
                continue;
            }
            let Some(server) = start() else { continue };
            let [events_1, events_100, replay, ready] = wanted;
            if events_1 {
                cost(
                    &named("events_1"),
                    load::events(&server, 1, 3 * times).await,
                    "for each event, one connection",
                );
            }
            if events_100 {
                cost(
                    &named("events_100"),
                    load::events(&server, 100, times).await,
                    "for each event, 100 connections",
                );
            }
            if replay {
                cost(
                    &named("replay"),
                    load::replay(&server, 3 * times).await,
                    "for each of 10 000 events, replayed from the first",
                );
            }
            if ready {
                cost(
                    &named("ready"),
                    load::ready(&server, 400 * times as usize).await,
                    "from connect to a session that is ready",
                );
            }
        }
        if wants("serve/fanout_durable") {
            let server = Server::ours(Storage::Durable);
            cost(
                "serve/fanout_durable",
                load::fan_out(&server, 500, 1000, 2).await,
                "for each delivery to 500 observers",
            );
        }
        if wants("peer/socketio-js/serve_fanout")
            && let Some(server) = Server::socketio()
        {
            cost(
                "peer/socketio-js/serve_fanout",
                load::fan_out_socketio(&server, 500, 1000).await,
                "for each delivery to 500 clients, nothing kept",
            );
        }
        if wants("serve/idle_connection") {
            let server = Server::ours(Storage::Durable);
            let (bytes, note) = load::idle(&server, 5_000).await;
            report("serve/idle_connection", bytes, "bytes", Some(IDLE_BYTES), Better::Lower, &note);
        }
        for (name, kind, sessions, crowd, bar) in CROWDS {
            if wants(name) {
                let measure_impact =
                    crowd::measure_impact(kind, sessions, crowd.min(load::most_lines())).await;
                let times = if kind == CrowdBehaviour::Stalls {
                    measure_impact.slowest
                } else {
                    measure_impact.middle
                };
                report(name, times, "times", Some(bar), Better::Lower, &measure_impact.note);
            }
        }
        if wants("serve/observers") {
            let server = Server::ours(Storage::Durable);
            let many = load::most_lines().min(10_000);
            let (served, note) = load::observers(&server, many, 50).await;
            report(
                "serve/observers",
                served,
                "observers",
                Some(many as f64),
                Better::Higher,
                &note,
            );
        }
    });
}
