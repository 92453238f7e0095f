//! Kills itself for the project: `journal-victim KILLS [SEED]` starts a writer, kills it with SIGKILL, and
//! judges what is left, KILLS times. `cargo xtask crash` runs it.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/support/victim.rs"]
mod victim;

use std::process::Command;

fn main() {
    if let Ok(role) = std::env::var("JOURNAL_VICTIM") {
        return victim::play(&role);
    }
    let mut arguments = std::env::args().skip(1);
    let kills = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(300);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    let seed = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(u64::from(now));
    println!("seed {seed}");
    let directory = tempfile::tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    victim::crash(&|| Command::new(&this), kills, seed, directory.path());
    println!("{kills} kills: every acknowledged record is there, none is doubled, none is half");
}
