//! The external events of a simulation as data: generated from a seed, saved as JSON, shortened.

use rand::{RngExt as _, rngs::StdRng};
use serde::{Deserialize, Serialize};

use crate::world::chance;

/// What is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum World {
    /// Processes with the native engine on one journal, and people who talk to them directly.
    #[default]
    Engine,
    /// The same, and clients of the session server: cut off, slow, repeating themselves.
    Served,
    /// An editor on the bridge, with the native engine or the Claude CLI behind it.
    Editor,
    /// Rooms of agents and computers on the SMCP hub.
    Smcp,
    /// Many sessions and model services that are limited, overloaded or down.
    Services,
    /// Workers with tools of their own, which come, go, misbehave and die, on servers that are killed.
    Workers,
}

/// A whole simulation. The same script always gives the same result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Script {
    /// Decides everything the steps leave open: the model's answers, the results of tools, all delays.
    pub seed: u64,
    /// The components that are simulated.
    #[serde(default)]
    pub world: World,
    /// Number of sessions.
    pub sessions: usize,
    /// Number of processes that share the journal.
    pub processes: usize,
    /// If true, a process knows which others are dead; otherwise it must wait for their leases to expire.
    pub liveness: bool,
    /// Uses limits that a simulation reaches often.
    pub tight: bool,
    /// Some prompts make the model repeat one invalid call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stubborn: bool,
    /// The steps, sorted by time.
    pub steps: Vec<Step>,
    /// Collects every record as a line of [`SimResult::story`](crate::SimResult::story).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub story: bool,
}

/// One external event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Stays the same when other steps are removed; it is also the mark of a message.
    pub id: usize,
    /// Time of the step in virtual milliseconds since the start.
    pub at_ms: u64,
    /// The event itself.
    pub what: ScriptAction,
}

/// The kinds of external events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptAction {
    /// A person sends a message.
    Say {
        /// Index of the session.
        session: usize,
        /// Index of the process that gets it first.
        via: usize,
        /// Sends it a second time with the same id.
        twice: bool,
    },
    /// A person withdraws a message.
    Withdraw {
        /// Index of the session.
        session: usize,
        /// The id of the step that sent the message.
        of: usize,
    },
    /// A person starts a pipeline: plan, solve, aggregate.
    Plan {
        /// Index of the session.
        session: usize,
        /// The person must confirm the plan.
        confirm: bool,
    },
    /// A person cancels the turn.
    Cancel {
        /// Index of the session.
        session: usize,
        /// Index of the process that gets it first.
        via: usize,
    },
    /// A person sets a timer that fires once.
    Timer {
        /// Index of the session.
        session: usize,
        /// Index of the process that gets it first.
        via: usize,
        /// Milliseconds until it fires.
        after_ms: u64,
    },
    /// A person cancels a timer.
    CancelTimer {
        /// Index of the session.
        session: usize,
        /// The id of the step that set the timer.
        of: usize,
    },
    /// A person closes the session.
    Close {
        /// Index of the session.
        session: usize,
    },
    /// A person answers the questions that are open at this moment.
    Decide {
        /// Index of the session.
        session: usize,
        /// True allows, false denies.
        allow: bool,
    },
    /// A process is killed at an await point and started again.
    Kill {
        /// Index of the process.
        process: usize,
        /// Virtual milliseconds until the restart.
        away_ms: u64,
    },
    /// A process is shut down in order and started again.
    Stop {
        /// Index of the process.
        process: usize,
        /// Virtual milliseconds until the restart.
        away_ms: u64,
    },
    /// The disk has a fault.
    Disk {
        /// The kind of the fault.
        trouble: DiskFault,
        /// Duration in virtual milliseconds.
        for_ms: u64,
    },
    /// The wall clock jumps; virtual time does not.
    Jump {
        /// Milliseconds of the jump; negative is backwards.
        by_ms: i64,
    },
    /// The observers of a session lose their connections and reconnect.
    Cut {
        /// Index of the session.
        session: usize,
        /// Virtual milliseconds until they reconnect.
        away_ms: u64,
    },
    /// A process of a worker is killed, and another one starts.
    KillWorker {
        /// Index of the process.
        worker: usize,
    },
    /// A process of a worker loses its connection and connects again.
    CutWorker {
        /// Index of the process.
        worker: usize,
        /// Virtual milliseconds until then.
        away_ms: u64,
    },
    /// A process of a worker takes no new calls and ends; another one starts.
    DrainWorker {
        /// Index of the process.
        worker: usize,
    },
    /// The observers of a session stop reading for a while.
    Doze {
        /// Index of the session.
        session: usize,
        /// Duration in virtual milliseconds.
        for_ms: u64,
    },
}

/// A kind of disk fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskFault {
    /// Writes fail with `disk_full`, except those that end or release something.
    Full,
    /// Writes are made, and reported as failed.
    Unconfirmed,
    /// Writes fail with `journal_busy` and are not made.
    Refusing,
    /// Every second write fails with `journal_busy`.
    Flaky,
    /// Reads fail with `journal_busy`.
    Unreadable,
    /// Operations wait up to 2 s of virtual time.
    Slow,
}

impl Script {
    /// The script of a seed in [`World::Engine`].
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self::in_world(seed, World::Engine)
    }

    /// The script of a seed in this world.
    #[must_use]
    pub fn in_world(seed: u64, world: World) -> Self {
        if world == World::Workers {
            return Self::with_workers(seed);
        }
        let mut script = Self { world, ..Self::plain(seed) };
        let mut dice = chance(seed, "more");
        script.stubborn = dice.random_bool(0.3);
        script.steps.extend(more(&mut dice, &script.steps));
        if let World::Engine | World::Served = world {
            let timers = timers(&mut chance(seed, "timers"), &script.steps);
            script.steps.extend(timers);
        }
        script.steps.sort_by_key(|step| step.at_ms);
        script
    }

    /// A script of [`World::Workers`]: few messages, and many kills while their calls are open.
    fn with_workers(seed: u64) -> Self {
        let mut dice = chance(seed, "script of workers");
        let plain = Self::plain(seed);
        let mut steps = Vec::new();
        let mut at_ms = 2_000;
        for index in 0..dice.random_range(12..=44) {
            at_ms += match dice.random_range(0..10) {
                0..5 => dice.random_range(0..40),
                5..9 => dice.random_range(0..900),
                _ => dice.random_range(0..6_000),
            };
            let what = match index {
                0 => say(&mut dice, plain.sessions),
                _ => of_workers(&mut dice, plain.sessions),
            };
            steps.push(Step { id: index, at_ms, what });
        }
        Self { world: World::Workers, tight: false, steps, ..plain }
    }

    /// A script without withdrawals, bursts of messages, and kills during a restart. Seeds that found a bug before
    /// those existed are kept in this form.
    #[must_use]
    pub fn plain(seed: u64) -> Self {
        let mut dice = chance(seed, "script");
        let sessions = dice.random_range(1..=3);
        let processes = dice.random_range(1..=2);
        let liveness = dice.random_bool(0.5);
        let tight = dice.random_bool(0.3);
        let count = dice.random_range(2..=14);
        let mut at_ms = 0;
        let mut steps = Vec::new();
        for index in 0..count {
            // Bursts and long pauses: faults close together find the most bugs.
            at_ms += match dice.random_range(0..10) {
                0..4 => dice.random_range(0..30),
                4..8 => dice.random_range(0..2_000),
                8 => dice.random_range(0..20_000),
                _ => dice.random_range(0..200_000),
            };
            let what = if index == 0 { say(&mut dice, sessions) } else { any(&mut dice, sessions) };
            steps.push(Step { id: index, at_ms, what });
        }
        let world = World::Engine;
        Self {
            seed,
            world,
            sessions,
            processes,
            liveness,
            tight,
            steps,
            stubborn: false,
            story: false,
        }
    }
}

/// Steps that follow others: the withdrawal of a message, a burst of messages, a second kill during a restart.
fn more(dice: &mut StdRng, steps: &[Step]) -> Vec<Step> {
    let mut all = Vec::new();
    let mut add = |at_ms, what| all.push(Step { id: steps.len() + all.len(), at_ms, what });
    for step in steps {
        match step.what {
            ScriptAction::Say { session, .. } if dice.random_bool(0.15) => {
                let after = *pick(dice, &[0, 1, 30, 400, 3_000]);
                add(step.at_ms + after, ScriptAction::Withdraw { session, of: step.id });
            }
            ScriptAction::Say { session, via, .. } if dice.random_bool(0.08) => {
                for _ in 0..dice.random_range(2..=6) {
                    add(step.at_ms, ScriptAction::Say { session, via, twice: false });
                }
            }
            ScriptAction::Kill { process, away_ms } if dice.random_bool(0.2) => {
                let after = away_ms + *pick(dice, &[0, 1, 2, 9, 80]);
                add(
                    step.at_ms + after,
                    ScriptAction::Kill { process, away_ms: *pick(dice, &[0, 1, 90]) },
                );
            }
            _ => {}
        }
    }
    all
}

/// Timers after some messages, with kills around the time at which they fire, and cancellations.
fn timers(dice: &mut StdRng, steps: &[Step]) -> Vec<Step> {
    let mut all = Vec::new();
    let mut add = |at_ms, what| {
        all.push(Step { id: steps.len() + all.len(), at_ms, what });
        steps.len() + all.len() - 1
    };
    for step in steps {
        let ScriptAction::Say { session, via, .. } = step.what else { continue };
        if !dice.random_bool(0.2) {
            continue;
        }
        let after_ms = *pick(dice, &[1, 40, 900, 15_000, 90_000, 400_000]);
        let of = add(step.at_ms, ScriptAction::Timer { session, via, after_ms });
        let due = step.at_ms + after_ms;
        if dice.random_bool(0.4) {
            let at_ms = (due + *pick(dice, &[0, 1, 2, 5, 40])).saturating_sub(2);
            let away_ms = *pick(dice, &[0, 1, 90, 20_000]);
            add(at_ms, ScriptAction::Kill { process: via, away_ms });
        }
        if dice.random_bool(0.1) {
            add(
                due.saturating_sub(*pick(dice, &[0, 1, 30])),
                ScriptAction::CancelTimer { session, of },
            );
        }
    }
    all
}

fn say(dice: &mut StdRng, sessions: usize) -> ScriptAction {
    ScriptAction::Say {
        session: dice.random_range(0..sessions),
        via: dice.random_range(0..2),
        twice: dice.random_bool(0.2),
    }
}

fn any(dice: &mut StdRng, sessions: usize) -> ScriptAction {
    let session = dice.random_range(0..sessions);
    let via = dice.random_range(0..2);
    let away_ms = *pick(dice, &[0, 1, 50, 400, 3_000, 20_000]);
    let for_ms = *pick(dice, &[1, 20, 300, 5_000, 60_000]);
    match dice.random_range(0..100) {
        0..34 => say(dice, sessions),
        34..38 => ScriptAction::Plan { session, confirm: dice.random_bool(0.4) },
        38..48 => ScriptAction::Cancel { session, via },
        48..50 => ScriptAction::Close { session },
        50..56 => ScriptAction::Decide { session, allow: dice.random_bool(0.7) },
        56..76 => ScriptAction::Kill { process: via, away_ms },
        76..80 => ScriptAction::Stop { process: via, away_ms },
        80..89 => ScriptAction::Disk { trouble: trouble(dice), for_ms },
        89..93 => ScriptAction::Jump {
            by_ms: *pick(dice, &[-3_600_000, -16_000, -1, 16_000, 90_000_000]),
        },
        93..97 => ScriptAction::Cut { session, away_ms },
        _ => ScriptAction::Doze { session, for_ms },
    }
}

fn of_workers(dice: &mut StdRng, sessions: usize) -> ScriptAction {
    let (session, via) = (dice.random_range(0..sessions), dice.random_range(0..2));
    let worker = dice.random_range(0..4);
    let away_ms = *pick(dice, &[0, 1, 50, 400, 3_000, 20_000]);
    match dice.random_range(0..100) {
        0..16 => say(dice, sessions),
        16..19 => ScriptAction::Cancel { session, via },
        19..44 => ScriptAction::Kill { process: via, away_ms: away_ms.min(3_000) },
        44..76 => ScriptAction::KillWorker { worker },
        76..94 => ScriptAction::CutWorker { worker, away_ms },
        _ => ScriptAction::DrainWorker { worker },
    }
}

fn trouble(dice: &mut StdRng) -> DiskFault {
    use DiskFault::{Flaky, Full, Refusing, Slow, Unconfirmed, Unreadable};
    *pick(dice, &[Full, Unconfirmed, Refusing, Flaky, Unreadable, Slow])
}

/// A random element of `from`, which must not be empty.
pub(crate) fn pick<'a, T>(dice: &mut StdRng, from: &'a [T]) -> &'a T {
    &from[dice.random_range(0..from.len())]
}
