//! Durable turns on a PostgreSQL server: ours in a process of its own, and those of peers, all through a proxy that counts.
//!
//! `cargo xtask bench postgres --peers` names the peers. A peer is a program that says `ready`, waits for a line, runs
//! [`TURNS`] turns of a new conversation and prints the CPU time of a turn in microseconds, again and again. A round trip
//! is a request after an answer on the same connection. Background traffic of both sides counts.

use std::{
    io::{BufRead as _, BufReader, Lines, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
};

use budao_journal::Access;
use budao_journal_postgres::{Credentials, Postgres, PostgresOptions};
use budao_runtime::world;
use budao_testkit::{
    bench::{Better, Measurement, emit},
    postgres::PostgresServer,
    round_trips::CountingProxy,
};

use super::{TURNS, agent, cpu_per, turns};

const ROUNDS: usize = 5;
const PARENT: &str = "--postgres";
const CHILD: &str = "--postgres-turns";
/// By how much a turn must be cheaper than that of the best peer, in CPU or in round trips.
const BAR: f64 = 10.0;

/// Runs what the command line asks for; false if that is no part of this module.
pub(super) async fn main() -> bool {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some(CHILD) => run_turns(&args[2]).await,
        Some(PARENT) => measure(&args[2..]),
        _ => return false,
    }
    true
}

/// What a peer does, for us.
async fn run_turns(url: &str) {
    let credentials = Credentials::default();
    let (access, options) = (Access::Create, PostgresOptions::default());
    let opened = Postgres::open(url, access, &credentials, world::system(), options).await;
    let agent = agent(Arc::new(opened.expect("opens")));
    let session = agent.session().await.expect("opens");
    turns(&session, TURNS).await;
    for _ in 0..ROUNDS {
        println!("ready");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).expect("a line");
        let session = agent.session().await.expect("opens");
        println!("{}", cpu_per(TURNS, turns(&session, TURNS)).await);
    }
}

/// A program that runs turns when it is told to.
struct TurnProgram {
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl TurnProgram {
    fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let input = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, input, lines }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("the program goes on").expect("text")
    }

    /// CPU time and round trips of a turn.
    fn round(&mut self, proxy: &CountingProxy) -> (f64, f64) {
        assert_eq!(self.line(), "ready");
        let before = proxy.round_trips();
        self.input.write_all(b"\n").expect("it reads");
        let cpu = self.line().parse().expect("a number");
        (cpu, (proxy.round_trips() - before) as f64 / f64::from(TURNS))
    }
}

impl Drop for TurnProgram {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A system with what its turns cost, round by round.
struct System {
    name: String,
    program: TurnProgram,
    proxy: CountingProxy,
    cpu: Vec<f64>,
    round_trips: Vec<f64>,
}

/// The command of a system on the database behind this address.
fn command(peer: Option<(&str, &str)>, address: &str, database: &str) -> Command {
    let url = format!("postgresql://postgres@{address}/{database}");
    match peer {
        Some((python, script)) => {
            let mut command = Command::new(python);
            command.args(["-B", "-W", "ignore", script, &url]);
            command
        }
        None => {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command.args([CHILD, &url.replace("postgresql", "postgres")]);
            command
        }
    }
}

/// Each system has a database and a proxy of its own; they take turns.
fn measure(args: &[String]) {
    let Some(server) = PostgresServer::start() else { return };
    let peers = args.iter().filter_map(|arg| arg.strip_prefix("--peer=")).map(|peer| {
        let mut parts = peer.splitn(3, '=');
        let mut next = || parts.next().expect("NAME=PYTHON=SCRIPT");
        (next(), Some((next(), next())))
    });
    let mut systems: Vec<System> = std::iter::once(("budao", None))
        .chain(peers)
        .enumerate()
        .map(|(number, (name, peer))| {
            let database = format!("turns{number}");
            server.sql(&format!("CREATE DATABASE {database}"));
            let proxy = CountingProxy::start(server.address());
            let command = command(peer, &proxy.address().to_string(), &database);
            let program = TurnProgram::start(command);
            System { name: name.to_owned(), program, proxy, cpu: vec![], round_trips: vec![] }
        })
        .collect();
    for _ in 0..ROUNDS {
        for system in &mut systems {
            let (cpu, round_trips) = system.program.round(&system.proxy);
            system.cpu.push(cpu);
            system.round_trips.push(round_trips);
        }
    }
    report(&systems);
}

fn line(bench: String, values: &[f64], unit: &str, bar: Option<f64>, better: Better, note: &str) {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    emit(&Measurement {
        bench,
        value: values[values.len() / 2],
        unit: unit.into(),
        bar,
        better,
        low: values.first().copied(),
        high: values.last().copied(),
        note: Some(note.into()),
    });
}

/// What each costs, and by how much ours is below the best of the others, round by round.
fn report(systems: &[System]) {
    for system in systems {
        let note = "client process; one turn, one call, durable on PostgreSQL";
        let bench = format!("turn/postgres_cpu/{}", system.name);
        line(bench, &system.cpu, "µs CPU", None, Better::Lower, note);
        let bench = format!("turn/postgres_round_trips/{}", system.name);
        line(bench, &system.round_trips, "round trips", None, Better::Lower, "a turn");
    }
    let Some((ours, peers)) = systems.split_first().filter(|(_, peers)| !peers.is_empty()) else {
        return;
    };
    let factors = |of: fn(&System) -> &Vec<f64>| -> Vec<f64> {
        let best = |round: usize| peers.iter().map(|peer| of(peer)[round]).fold(f64::MAX, f64::min);
        (0..ROUNDS).map(|round| best(round) / of(ours)[round]).collect()
    };
    let note = "how many times less than the best peer; the bar is for CPU or round trips";
    let cpu = factors(|system| &system.cpu);
    line("turn/postgres_cpu_factor".into(), &cpu, "×", Some(BAR), Better::Higher, note);
    let trips = factors(|system| &system.round_trips);
    line("turn/postgres_round_trips_factor".into(), &trips, "×", None, Better::Higher, note);
}
