//! Kills at random times of a batch, with 1, 2 and 8 slots, with and without a tool that can find out.
//!
//! Goal: wherever a process dies, no effect is repeated, only calls that had begun are in doubt, and a tool that can find
//! out leaves none. Method: each victim kills itself with SIGKILL after a random time; the next life goes on from what is
//! left and is killed too; the last one ends the turn. `BUDAO_CRASH_BATCH_KILLS` sets the number of kills and leaves the
//! other cases out.

use std::{path::Path, time::Duration};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use crate::{batches, killing};

const KILLS: &str = "BUDAO_CRASH_BATCH_KILLS";
const AFTER: &str = "BUDAO_CRASH_AFTER_US";

/// Kills of every check; `cargo xtask crash` asks for more.
const KILLS_USUAL: u32 = 150;
/// Lives of one session that are killed.
const LIVES: usize = 3;
/// Calls of a batch: more than slots.
const CALLS: usize = 10;
/// Sessions after which the length of a life is measured again: the machine may be busy.
const MEASURED_EVERY: u32 = 40;

/// Ends this process after the time that the inspector chose, if it chose one.
pub(crate) fn arm() {
    let Some(micros) = std::env::var(AFTER).ok().and_then(|text| text.parse().ok()) else { return };
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_micros(micros));
        killing::die();
    });
}

/// Whether only these kills are wanted, and how many is said.
pub(crate) fn is_alone() -> bool {
    std::env::var_os(KILLS).is_some()
}

/// Kills victims until there are enough kills. Returns kills, calls in doubt and sessions.
pub(crate) fn inspect_all() -> (u32, usize, u32) {
    let wanted =
        std::env::var(KILLS).ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS_USUAL);
    let seed: u64 = rand::random();
    let (mut kills, mut in_doubt, mut sessions) = (0, 0, 0);
    let mut span = Duration::ZERO;
    while kills < wanted {
        if sessions % MEASURED_EVERY == 0 {
            span = length_of_a_life();
        }
        let slots = [1, 2, 8][sessions as usize % 3];
        let reconcile = sessions / 3 % 2 == 1;
        let scene =
            format!("seed {seed}, session {sessions}, {slots} slots, reconcile {reconcile}");
        let mut dice = StdRng::seed_from_u64(seed.wrapping_add(sessions.into()));
        let (more, unknown) = scene_of((slots, reconcile), &scene, span, &mut dice);
        (kills, in_doubt, sessions) = (kills + more, in_doubt + unknown, sessions + 1);
    }
    (kills, in_doubt, sessions)
}

/// The time that a life takes which nobody ends. Kills fall into it.
fn length_of_a_life() -> Duration {
    let directory = tempfile::tempdir().expect("a directory");
    let began = std::time::Instant::now();
    assert!(life(directory.path(), 2, false, None).status.success(), "an ordinary life ends well");
    began.elapsed()
}

fn scene_of(
    (slots, reconcile): (usize, bool),
    scene: &str,
    span: Duration,
    dice: &mut StdRng,
) -> (u32, usize) {
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let mut kills = 0;
    for _ in 0..LIVES {
        let after = dice.random_range(0..span.as_micros().max(1));
        let output = life(directory, slots, reconcile, Some(after));
        if output.status.success() {
            break;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{scene}: {said}");
        kills += 1;
    }
    if !directory.join("session").exists() {
        return (kills, 0);
    }
    let last = life(directory, slots, reconcile, None);
    let said = String::from_utf8_lossy(&last.stderr);
    assert!(last.status.success(), "{scene}: the last life failed: {said}");
    let runtime = tokio::runtime::Runtime::new().expect("a tokio runtime");
    let outcomes = runtime.block_on(crate::inspect(directory, scene, CALLS));
    let unknown = outcomes.values().filter(|outcome| outcome.is_in_doubt()).count();
    let not_done = outcomes.values().filter(|outcome| !outcome.is_done()).count();
    let ledger = std::fs::read_to_string(directory.join("ledger")).unwrap_or_default();
    let never_done = outcomes.len().saturating_sub(ledger.lines().count());
    let most = if reconcile { 0 } else { slots * kills as usize };
    assert!(unknown <= most, "{scene}: {unknown} in doubt after {kills} kills");
    assert!(never_done <= not_done, "{scene}: {never_done} never done, {not_done} said so");
    (kills, unknown)
}

fn life(
    directory: &Path,
    slots: usize,
    reconcile: bool,
    after: Option<u128>,
) -> std::process::Output {
    let mut command = batches::victim(directory, slots, reconcile);
    command.env(batches::CALLS, CALLS.to_string());
    if let Some(after) = after {
        command.env(AFTER, after.to_string());
    }
    command.output().expect("the victim runs")
}
