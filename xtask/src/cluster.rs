//! `cargo xtask cluster`: servers on one journal, with a fault every few seconds, for a chosen time, and then an audit of
//! the records. Every test run plays a short share of the same.

use anyhow::{Context as _, Result};

use crate::test_programs::{self, TestProgram};

const PROGRAM: TestProgram = ("budao-cli", Some("it"));

/// The tests and their servers.
const STORMS: [(&str, &str); 2] = [
    (
        "cluster::storm::three_servers_on_postgres_lose_nothing_and_do_nothing_twice_under_faults",
        "three servers on one PostgreSQL",
    ),
    (
        "cluster::storm::two_servers_on_one_file_lose_nothing_and_do_nothing_twice_under_faults",
        "two servers on one file",
    ),
];

/// Runs each storm for `minutes`, from this seed if one is given.
///
/// # Errors
/// When an accepted message is missing, there twice, or without exactly one end.
pub(crate) fn run(minutes: u64, seed: Option<u64>) -> Result<()> {
    let tests = test_programs::tests([PROGRAM])?;
    for (test, who) in STORMS {
        println!("\n{who}, for {minutes} minutes");
        let mut command = tests.command(PROGRAM)?;
        command.args(["--exact", test, "--nocapture"]);
        command.env("BUDAO_CLUSTER_SECONDS", (minutes * 60).to_string());
        if let Some(seed) = seed {
            command.env("BUDAO_CLUSTER_SEED", seed.to_string());
        }
        test_programs::run(&mut command).context(
            "the storm found something; `--seed` with the seed above repeats its faults",
        )?;
    }
    Ok(())
}
