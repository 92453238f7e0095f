//! `budao-sim`: plays many seeds and prints, for each broken promise, the command that reproduces it.
#![allow(clippy::print_stdout, reason = "this is a program: its answer goes to stdout")]

use std::{
    collections::BTreeMap,
    fs, panic,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result};
use budao_sim::{Script, SimResult, World, run, shrink};
use clap::{Parser, ValueEnum as _};

/// Upper bound for the runs spent on shrinking one script.
const SHRINKING: usize = 400;

/// The real runtime on virtual time, with seeded faults and crashes
#[derive(Debug, Parser)]
#[command(name = "budao-sim")]
struct Args {
    /// How many seeds to play
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The world they are played in
    #[arg(long, default_value = "engine")]
    world: World,
    /// Play each seed twice: the same seed must give the same bytes
    #[arg(long)]
    twice: bool,
    /// Play a script instead, as a failure leaves it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "from"])]
    script: Option<PathBuf>,
    /// Stop after this many failing seeds
    #[arg(long, default_value_t = 5)]
    failures: usize,
    /// Where to put the shortened scripts of failures
    #[arg(long, value_name = "FOLDER", default_value = "target/sim")]
    out: PathBuf,
    /// Play one script or seed, and print every record that was kept
    #[arg(long)]
    story: bool,
    /// Stop after this many seconds, with as many seeds as were played
    #[arg(long, value_name = "SECONDS")]
    within: Option<u64>,
    /// Say which promises broke in how many seeds, and nothing else
    #[arg(long)]
    brief: bool,
}

impl Args {
    fn script_of(&self, seed: u64) -> Script {
        Script::in_world(seed, self.world)
    }
}

fn world_name(world: World) -> String {
    world.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    quiet_tools();
    if let Some(file) = &args.script {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let script: Script =
            serde_json::from_str(&text).with_context(|| file.display().to_string())?;
        return Ok(report_one(&Script { story: args.story, ..script }));
    }
    if args.story {
        return Ok(report_one(&Script { story: true, ..args.script_of(args.from) }));
    }
    let began = Instant::now();
    let found = RunState { began: Some(began), ..RunState::default() };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| work(&args, &found));
        }
    });
    report(&args, found, began)
}

/// Plays one script and prints its result in full.
fn report_one(script: &Script) -> ExitCode {
    let played = run(script);
    played.story.iter().for_each(|line| println!("{line}"));
    report_failure(script, &played);
    code(played.violations.is_empty())
}

/// Results shared by all threads.
#[derive(Default)]
struct RunState {
    began: Option<Instant>,
    next: AtomicU64,
    totals: Mutex<Totals>,
}

#[derive(Default)]
struct Totals {
    seeds: u64,
    records: usize,
    turns: usize,
    effects: usize,
    events: BTreeMap<String, usize>,
    failed: BTreeMap<u64, SimResult>,
    unlike: Vec<u64>,
}

fn work(args: &Args, found: &RunState) {
    loop {
        let index = found.next.fetch_add(1, Ordering::Relaxed);
        let enough = found.totals.lock().is_ok_and(|totals| totals.failed.len() >= args.failures);
        let late = args.within.zip(found.began);
        let late = late.is_some_and(|(most, began)| began.elapsed().as_secs() >= most);
        if index >= args.seeds || enough || late {
            return;
        }
        let seed = args.from + index;
        let script = args.script_of(seed);
        let played = run(&script);
        let again = args.twice.then(|| run(&script));
        let Ok(mut totals) = found.totals.lock() else { return };
        totals.seeds += 1;
        totals.records += played.records;
        totals.turns += played.turns;
        totals.effects += played.effects;
        for (name, count) in &played.events {
            *totals.events.entry(name.clone()).or_default() += count;
        }
        if again.is_some_and(|again| again.digest != played.digest) {
            totals.unlike.push(seed);
        }
        if !played.violations.is_empty() {
            totals.failed.insert(seed, played);
        }
    }
}

fn report(args: &Args, found: RunState, began: Instant) -> Result<ExitCode> {
    let totals = found.totals.into_inner().unwrap_or_default();
    if args.brief {
        brief(&totals);
    }
    for (seed, played) in totals.failed.iter().filter(|_| !args.brief) {
        let script = args.script_of(*seed);
        let world = world_name(args.world);
        println!(
            "seed {seed} breaks a promise; to see it again: cargo xtask sim --from {seed} --seeds 1 --world {world}"
        );
        let short = shrink(&script, played.violations[0].promise, SHRINKING);
        let file = args.out.join(format!("{seed}.json"));
        fs::create_dir_all(&args.out)?;
        fs::write(&file, serde_json::to_string_pretty(&short)?)?;
        println!(
            "  shortened from {} to {} steps: cargo xtask sim --script {}",
            script.steps.len(),
            short.steps.len(),
            file.display()
        );
        report_failure(&short, &run(&short));
    }
    for seed in &totals.unlike {
        println!("seed {seed} gives other bytes the second time");
    }
    if !args.brief {
        let events: Vec<_> =
            totals.events.iter().map(|(name, count)| format!("{name} {count}")).collect();
        println!("events: {}", events.join(", "));
    }
    println!(
        "{} seeds, {} records, {} turns, {} effects, {} failed, {} unlike, {:.1} s",
        totals.seeds,
        totals.records,
        totals.turns,
        totals.effects,
        totals.failed.len(),
        totals.unlike.len(),
        began.elapsed().as_secs_f64()
    );
    Ok(code(totals.failed.is_empty() && totals.unlike.is_empty()))
}

/// Prints one line per broken promise: number of seeds, first seed, promise.
fn brief(totals: &Totals) {
    let mut laws: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for (seed, played) in &totals.failed {
        // Only the first violation of a seed counts; later ones may follow from it.
        if let Some(first) = played.violations.first() {
            laws.entry(first.promise).or_insert((0, *seed)).0 += 1;
        }
    }
    let mut laws: Vec<_> = laws.into_iter().collect();
    laws.sort_by_key(|(_, (times, _))| std::cmp::Reverse(*times));
    for (promise, (times, seed)) in laws {
        println!("law\t{times}\t{seed}\t{promise}");
    }
}

fn report_failure(script: &Script, played: &SimResult) {
    for step in &script.steps {
        println!("    {:>7} ms  {:?}", step.at_ms, step.what);
    }
    for violation in &played.violations {
        println!("  ! {violation}");
    }
    println!("  {} records, digest {:08x}", played.records, played.digest);
}

/// Silences the panics of tools, which are deliberate and caught.
fn quiet_tools() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let said = info.payload().downcast_ref::<String>().map(String::as_str).unwrap_or_default();
        if !said.starts_with("the tool ") {
            usual(info);
        }
    }));
}

fn code(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
