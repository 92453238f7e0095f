//! `budao-hostile`: feeds targets for a chosen time and keeps the inputs that make one fail. `cargo xtask fuzz` starts
//! it.

#![allow(clippy::print_stdout, reason = "this is a program: its answer goes to stdout")]

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use budao_hostile::{TARGETS, Target, corpus, play, target};
use clap::Parser;

/// An input that takes longer counts as a hang.
const HANG: Duration = Duration::from_secs(20);

/// Feed parsers and decoders hostile input.
#[derive(Debug, Parser)]
struct Args {
    /// Which; all of them if none is named
    targets: Vec<String>,
    /// For how long, each
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The seed of the mutations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Feed this file once instead, and make it small if it breaks a promise
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Where what breaks a target is kept
    #[arg(long, value_name = "FOLDER", default_value = "target/fuzz")]
    keep: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.input.is_none() {
        // A panic is reported once, after its input was shrunk.
        std::panic::set_hook(Box::new(|_| {}));
    }
    let mut wanted: Vec<&Target> = Vec::new();
    for name in &args.targets {
        let Some(target) = target(name) else {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            println!("no target `{name}`; there are: {}", names.join(", "));
            return ExitCode::FAILURE;
        };
        wanted.push(target);
    }
    if wanted.is_empty() {
        wanted.extend(TARGETS);
    }
    let broken = wanted.into_iter().filter(|target| !run(target, &args)).count();
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Feeds one target. Returns true if no input failed.
fn run(target: &'static Target, args: &Args) -> bool {
    if let Some(file) = &args.input {
        return once(target, file, args);
    }
    let inputs = corpus(target);
    let until = Instant::now() + Duration::from_secs(args.seconds);
    let now = watch(target.name, args.keep.clone());
    let seen = |input: &[u8]| {
        let mut now = now.lock().unwrap_or_else(PoisonError::into_inner);
        *now = Some((Instant::now(), input.to_vec()));
    };
    let played = play(target, &inputs, args.seed, u64::MAX, Some(until), seen);
    *now.lock().unwrap_or_else(PoisonError::into_inner) = None;
    match played {
        Ok(tried) => {
            println!(
                "{:<10} {tried:>10} inputs in {} s, seed {}: nothing broke",
                target.name, args.seconds, args.seed
            );
            true
        }
        Err(broken) => report_failure(target, &broken, args),
    }
}

/// Feeds one file. Returns true if it passes; otherwise the panic is printed in full and the file is shrunk.
fn once(target: &Target, file: &std::path::Path, args: &Args) -> bool {
    let input = match std::fs::read(file) {
        Ok(input) => input,
        Err(error) => {
            println!("{}: {error}", file.display());
            return false;
        }
    };
    if std::panic::catch_unwind(|| (target.run)(&input)).is_ok() {
        println!("{}: nothing broke", target.name);
        return true;
    }
    std::panic::set_hook(Box::new(|_| {}));
    match play(target, &[input], 0, 0, None, |_| {}) {
        Ok(_) => println!("{}: it did not break again", target.name),
        Err(broken) => drop(report_failure(target, &broken, args)),
    }
    false
}

/// Prints a failure and keeps its input. Always returns false, the result of [`run`] for a failed target.
fn report_failure(target: &Target, broken: &budao_hostile::FailingInput, args: &Args) -> bool {
    let file = save_input(&args.keep, target.name, "broken", &broken.input);
    println!("{}: broke after {} inputs: {}", target.name, broken.tried, broken.message);
    println!("  kept in {0}; cargo xtask fuzz {1} --input {0}", file.display(), target.name);
    println!("  once mended, it belongs into fuzz/corpus/{}", target.name);
    false
}

/// The input being processed and its start time; `None` between inputs.
type CurrentInput = Arc<Mutex<Option<(Instant, Vec<u8>)>>>;

/// Ends the program if one input hangs: that is a failure too, and the hung thread cannot report it.
fn watch(name: &'static str, keep: PathBuf) -> CurrentInput {
    let now: CurrentInput = Arc::default();
    let watched = Arc::downgrade(&now);
    thread::spawn(move || {
        while let Some(watched) = watched.upgrade() {
            let fed = watched.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some((since, input)) = fed
                && since.elapsed() > HANG
            {
                let file = save_input(&keep, name, "slow", &input);
                println!("{name}: one input took more than {HANG:?}; kept in {}", file.display());
                std::process::exit(2);
            }
            drop(watched);
            thread::sleep(Duration::from_secs(1));
        }
    });
    now
}

fn save_input(folder: &std::path::Path, name: &str, what: &str, input: &[u8]) -> PathBuf {
    let digest =
        budao_core::trace::Trace::from_random(input.iter().fold(1, |sum: u128, byte| {
            sum.wrapping_mul(1_000_003).wrapping_add(u128::from(*byte))
        }));
    let file = folder.join(format!("{name}-{what}-{digest}"));
    if let Err(error) = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&file, input))
    {
        println!("  it could not be kept: {error}");
    }
    file
}
