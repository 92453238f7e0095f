//! `cargo xtask chaos`: runs clients over connections that keep breaking, for a chosen time, and then audits the
//! result. Every test run plays a short share of the same storms.

use anyhow::{Context as _, Result};

use crate::test_programs::{self, TestProgram};

/// The storm tests: program, test name, and participants.
const STORMS: [(TestProgram, &str, &str); 3] = [
    (
        ("budao-serve", Some("proof")),
        "chaos::a_storm_of_disconnects_loses_nothing_and_repeats_nothing",
        "a server and its observers",
    ),
    (
        ("budao-serve", Some("proof")),
        "chaos::a_storm_on_the_lines_of_clients_and_of_the_model_loses_nothing_and_repeats_nothing",
        "the same with a model service; every history is audited against what was heard",
    ),
    (
        ("budao-smcp", Some("it")),
        "storm::a_storm_of_broken_lines_and_dying_hubs_leaves_every_call_with_one_end_of_its_own",
        "an agent, two computers and hubs that die",
    ),
];

/// Runs all storms, `minutes` in total, from this seed if one is given.
///
/// # Errors
/// When an event was lost, repeated or out of order, or a call has no outcome or that of another call.
pub(crate) fn run(minutes: u32, seed: Option<u64>) -> Result<()> {
    let seconds = u64::from(minutes) * 60 / STORMS.len() as u64;
    let tests = test_programs::tests(STORMS.map(|(which, ..)| which))?;
    for (which, test, who) in STORMS {
        println!("\n{who}, for {seconds} s");
        let mut command = tests.command(which)?;
        command.args(["--exact", test, "--nocapture"]);
        command.env("BUDAO_CHAOS_SECONDS", seconds.to_string());
        if let Some(seed) = seed {
            command.env("BUDAO_SEED", seed.to_string());
        }
        test_programs::run(&mut command)
            .context("the storm found something; `--seed` with the seed above repeats its cuts")?;
    }
    Ok(())
}
