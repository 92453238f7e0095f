//! `cargo xtask crash`: kills processes with SIGKILL, again and again, and checks the remaining state each time.
//!
//! The cases are tests, of which every run plays a share: a journal writer at random times, a journal during its
//! checkpoints, a turn at every named point, the real server, hub, computer and bridge; with `--postgres` a database
//! server instead, in every way that `docs/scaling.md` lists.

use anyhow::{Context as _, Result};

use crate::test_programs::{self, TestProgram};

/// Environment variable that makes the tests below kill more often than in a usual run.
const DEEP: &str = "BUDAO_CRASH_DEEP";

/// Environment variable with the number of kills at random times of a batch of calls.
const BATCH_KILLS: &str = "BUDAO_CRASH_BATCH_KILLS";

/// The tests that kill a journal's writer.
const JOURNAL: TestProgram = ("budao-journal", Some("it"));

/// The test program, its test filter, and the kind of process that is killed.
const OTHERS: [(TestProgram, &str, &str); 6] = [
    (JOURNAL, "in_the_middle_of_a_checkpoint", "a journal in its checkpoints"),
    (
        ("budao-runtime", Some("crash")),
        "",
        "a turn at every named point, and again while it gets up",
    ),
    (("budao-serve", Some("proof")), "killing::", "the server, with clients that come back"),
    (
        ("budao-cli", Some("it")),
        "killed::",
        "the hub and the computer of a room, in the middle of calls",
    ),
    (("budao-cli", Some("it")), "survives_the_death", "the bridge of an editor"),
    (
        ("budao-cli", Some("it")),
        "outlives_the_bridge",
        "the bridge in every way, while its CLI and shells write files",
    ),
];

/// Kills a journal writer `kills` times.
///
/// # Errors
/// When an acknowledged record is lost, duplicated or incomplete.
pub(crate) fn run(kills: u32) -> Result<()> {
    let tests = test_programs::tests([JOURNAL])?;
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().subsec_nanos();
    let mut command = tests.command(JOURNAL)?;
    command.args([
        "crash::survives_being_killed_while_many_sessions_write",
        "--exact",
        "--nocapture",
    ]);
    command.env("BUDAO_CRASH_KILLS", kills.to_string()).env("BUDAO_CRASH_SEED", seed.to_string());
    test_programs::run(&mut command)
        .with_context(|| format!("a killed journal broke its promise; the seed is {seed}"))
}

/// As [`run`], followed by all other crash tests.
///
/// # Errors
/// When a promise does not hold.
pub(crate) fn everywhere(kills: u32) -> Result<()> {
    let tests = test_programs::tests(OTHERS.map(|(which, ..)| which))?;
    println!("\na process that writes a journal, at random");
    run(kills)?;
    for (which, names, what) in OTHERS {
        println!("\n{what}");
        let mut command = tests.command(which)?;
        command.args([names, "--nocapture"]).env(DEEP, "1");
        test_programs::run(&mut command)
            .with_context(|| format!("what was killed did not get up as it should: {what}"))?;
    }
    println!("\na turn at random times, with 1, 2 and 8 slots for its calls");
    let mut command = tests.command(("budao-runtime", Some("crash")))?;
    command.env(BATCH_KILLS, kills.to_string());
    test_programs::run(&mut command).context("a batch that was killed broke its promise")
}

/// The tests of the journal on PostgreSQL.
const POSTGRES: TestProgram = ("budao-journal-postgres", Some("it"));

/// The modules of tests in which a database server fails, and how it fails.
const ON_POSTGRES: [(&str, &str); 9] = [
    ("failures::", "the server killed, silent, locked and failed over; answers cut at every byte"),
    ("connections::", "no free connection"),
    ("standby::", "the standby away, an old primary, an old snapshot"),
    ("server_errors::", "errors of the server: full, damaged, in conflict, read-only"),
    ("refusals::", "a server that cannot be used"),
    ("versions::", "tables that a newer version changes while an older one writes"),
    ("pgbouncer::", "a pooler between the server and its clients"),
    ("check::", "pages and records that are damaged"),
    ("restored::", "backups and dumps that lack what was confirmed"),
];

/// Runs every failure of a database server; it is killed `kills` times in the middle of appends.
///
/// # Errors
/// When a promise does not hold.
pub(crate) fn on_postgres(kills: u32) -> Result<()> {
    let tests = test_programs::tests([POSTGRES])?;
    for (names, what) in ON_POSTGRES {
        println!("\n{what}");
        let mut command = tests.command(POSTGRES)?;
        command.args([names, "--nocapture"]).env("BUDAO_CRASH_KILLS", kills.to_string());
        // Without a server these tests would pass unplayed.
        command.env("CI", "true");
        test_programs::run(&mut command)
            .with_context(|| format!("a promise was broken: {what}"))?;
    }
    Ok(())
}
