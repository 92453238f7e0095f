//! Kills at random times of a batch, with 1, 2 and 8 slots, with and without a tool that can find out.
//!
//! Goal: wherever a process dies, no effect is repeated, only calls that had begun are in doubt, and a tool that can find
//! out leaves none. Method: each victim kills itself with SIGKILL after a random time; the next life goes on from what is
//! left and is killed too; the last one ends the turn. `BUDAO_CRASH_BATCH_KILLS` sets the number of kills and leaves the
//! other cases out; `BUDAO_CRASH_SEED` repeats a run.

use std::{
    fmt,
    path::Path,
    time::{Duration, Instant},
};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use crate::{BatchOutcomes, batches, killing};

const SEED: &str = "BUDAO_CRASH_SEED";
const KILLS: &str = "BUDAO_CRASH_BATCH_KILLS";
const AFTER: &str = "BUDAO_CRASH_AFTER_US";
/// The word before the length of a life without a kill, in microseconds.
const LIVED: &str = "lived";

/// Kills of every check; `cargo xtask crash` asks for more.
const KILLS_USUAL: u32 = 200;
/// Lives of one session that are killed.
const LIVES: usize = 3;
/// Calls of a batch: more than slots.
const CALLS: usize = 10;
/// Sessions after which the length of a life is measured again: the machine may be busy.
const MEASURED_EVERY: u32 = 20;

/// Ends this process after the time that the inspector chose, if it chose one. Returns the time of this call.
pub(crate) fn arm() -> Instant {
    if let Some(micros) = std::env::var(AFTER).ok().and_then(|text| text.parse().ok()) {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(micros));
            killing::die();
        });
    }
    Instant::now()
}

/// Tells the inspector how long this process lived after it was armed.
pub(crate) fn report_life(armed: Instant) {
    println!("{LIVED} {}", armed.elapsed().as_micros());
}

/// Whether only these kills are wanted, and how many is said.
pub(crate) fn is_alone() -> bool {
    std::env::var_os(KILLS).is_some()
}

/// What became of the calls of all sessions.
#[derive(Debug, Default)]
pub(crate) struct StormCounts {
    seed: u64,
    kills: u32,
    sessions: u32,
    calls: usize,
    /// Calls whose effect is in the ledger.
    done: usize,
    /// Effects beyond the first of a call.
    repeated: usize,
    /// Calls without an effect.
    never_done: usize,
    /// Of these, the calls whose result tells the model that they did not happen.
    said_undone: usize,
    in_doubt: usize,
    /// Calls in doubt whose start is not recorded.
    in_doubt_not_begun: usize,
}

impl fmt::Display for StormCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, kills, sessions, calls, done, repeated, .. } = self;
        let Self { never_done, said_undone, in_doubt, in_doubt_not_begun, .. } = self;
        write!(
            f,
            "{kills} kills of {sessions} sessions, seed {seed}: of {calls} calls {done} done, {repeated} repeated, \
             {never_done} never done ({said_undone} of them said so, the others in doubt), {in_doubt} in doubt, \
             {in_doubt_not_begun} of them not begun"
        )
    }
}

impl StormCounts {
    fn add(&mut self, scene: (usize, bool), name: &str, kills: u32, batch: &BatchOutcomes) {
        let (slots, reconcile) = scene;
        let outcomes = batch.outcomes.values();
        let in_doubt = outcomes.clone().filter(|outcome| outcome.is_in_doubt()).count();
        let said_undone = outcomes.filter(|it| !it.is_done() && !it.is_in_doubt()).count();
        let never_done = batch.outcomes.len() - batch.done();
        let most = if reconcile { 0 } else { slots * kills as usize };
        assert!(in_doubt <= most, "{name}: {in_doubt} in doubt after {kills} kills");
        let unsaid = never_done > said_undone + in_doubt;
        assert!(!unsaid, "{name}: {never_done} never done, {said_undone} + {in_doubt} said so");
        let not_begun = batch.in_doubt_not_begun();
        assert_eq!(not_begun, 0, "{name}: calls are in doubt that had not begun");
        self.calls += batch.outcomes.len();
        self.done += batch.done();
        self.repeated += batch.repeated();
        self.never_done += never_done;
        self.said_undone += said_undone;
        self.in_doubt += in_doubt;
        self.in_doubt_not_begun += not_begun;
    }
}

/// Kills victims until there are enough kills.
pub(crate) fn inspect_all() -> StormCounts {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let wanted = number(KILLS).unwrap_or(KILLS_USUAL.into());
    let seed = number(SEED).unwrap_or_else(rand::random);
    println!("  at random: {wanted} kills, seed {seed}");
    let mut counts = StormCounts { seed, ..StormCounts::default() };
    let mut span = Duration::ZERO;
    while u64::from(counts.kills) < wanted {
        let session = counts.sessions;
        if session.is_multiple_of(MEASURED_EVERY) {
            span = length_of_a_life();
        }
        let slots = [1, 2, 8][session as usize % 3];
        let reconcile = session / 3 % 2 == 1;
        let name = format!("seed {seed}, session {session}, {slots} slots, reconcile {reconcile}");
        let mut dice = StdRng::seed_from_u64(seed.wrapping_add(session.into()));
        let (kills, batch) = scene_of((slots, reconcile), &name, span, &mut dice);
        if let Some(batch) = batch {
            counts.add((slots, reconcile), &name, kills, &batch);
        }
        (counts.kills, counts.sessions) = (counts.kills + kills, session + 1);
    }
    counts
}

/// The time that a life takes without a kill, from the moment at which a kill could come. Kills fall into it.
fn length_of_a_life() -> Duration {
    let directory = tempfile::tempdir().expect("a directory");
    let output = life(directory.path(), 2, false, None);
    assert!(output.status.success(), "an ordinary life ends well");
    let text = String::from_utf8_lossy(&output.stdout);
    let lived = text.lines().find_map(|line| line.strip_prefix(LIVED));
    let micros =
        lived.and_then(|text| text.trim().parse().ok()).expect("it says how long it lived");
    Duration::from_micros(micros)
}

fn scene_of(
    (slots, reconcile): (usize, bool),
    scene: &str,
    span: Duration,
    dice: &mut StdRng,
) -> (u32, Option<BatchOutcomes>) {
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
        return (kills, None);
    }
    let last = life(directory, slots, reconcile, None);
    let said = String::from_utf8_lossy(&last.stderr);
    assert!(last.status.success(), "{scene}: the last life failed: {said}");
    let runtime = tokio::runtime::Runtime::new().expect("a tokio runtime");
    (kills, Some(runtime.block_on(crate::inspect(directory, scene, CALLS))))
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
