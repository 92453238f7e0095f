//! What happens from outside, as data: made from a seed, written down, shortened.

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
}

/// A whole simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Script {
    /// Decides everything the steps do not: the model's answers, how tools fare, how long things take.
    pub seed: u64,
    /// What is played.
    #[serde(default)]
    pub world: World,
    /// Sessions people talk to.
    pub sessions: usize,
    /// Processes that share the journal.
    pub processes: usize,
    /// Do processes know which others are gone? If not, leases must run out.
    pub liveness: bool,
    /// Bounds are small enough to be met.
    pub tight: bool,
    /// Some prompts make the model repeat one and the same mistake.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stubborn: bool,
    /// In the order of their times.
    pub steps: Vec<Step>,
    /// Is every record to be told?
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub story: bool,
}

/// Something that happens from outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Names it, whatever else is taken away.
    pub id: usize,
    /// When, in virtual milliseconds.
    pub at_ms: u64,
    /// What.
    pub what: ScriptAction,
}

/// The things that happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptAction {
    /// Somebody sends a message; perhaps twice, under one id.
    Say {
        /// To which session.
        session: usize,
        /// Through which process first.
        via: usize,
        /// Also a second time.
        twice: bool,
    },
    /// Somebody takes a message back.
    Withdraw {
        /// From which session.
        session: usize,
        /// Which: the step that sent it.
        of: usize,
    },
    /// Somebody asks for plan → solve → aggregate.
    Plan {
        /// Of which session.
        session: usize,
        /// And wants to confirm the plan.
        confirm: bool,
    },
    /// Somebody stops the turn.
    Cancel {
        /// Of which session.
        session: usize,
        /// Through which process first.
        via: usize,
    },
    /// Somebody closes the session.
    Close {
        /// Which.
        session: usize,
    },
    /// Somebody answers what is asked at that moment.
    Decide {
        /// In which session.
        session: usize,
        /// With yes?
        allow: bool,
    },
    /// A process is killed between two steps of its work, and started again.
    Kill {
        /// Which.
        process: usize,
        /// How long it is away.
        away_ms: u64,
    },
    /// A process is asked to stop, and started again.
    Stop {
        /// Which.
        process: usize,
        /// How long it is away.
        away_ms: u64,
    },
    /// The disk misbehaves.
    Disk {
        /// How.
        trouble: DiskFault,
        /// For how long.
        for_ms: u64,
    },
    /// The wall clock jumps.
    Jump {
        /// By this much; back if negative.
        by_ms: i64,
    },
    /// Whoever watches a session is cut off and comes back.
    Cut {
        /// Which session.
        session: usize,
        /// How long it is away.
        away_ms: u64,
    },
    /// Whoever watches a session reads nothing for a while.
    Doze {
        /// Which session.
        session: usize,
        /// How long.
        for_ms: u64,
    },
}

/// How a disk misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskFault {
    /// Nothing fits any more but what ends something.
    Full,
    /// Writes are made, and then reported as failed.
    Unconfirmed,
    /// Writes are not made.
    Refusing,
    /// Every second write is refused.
    Flaky,
    /// Reads fail.
    Unreadable,
    /// Everything takes long.
    Slow,
}

impl Script {
    /// The script of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        Self::in_world(seed, World::Engine)
    }

    /// The script of a seed in a world of one's choice.
    #[must_use]
    pub fn in_world(seed: u64, world: World) -> Self {
        let mut script = Self { world, ..Self::plain(seed) };
        let mut dice = chance(seed, "more");
        script.stubborn = dice.random_bool(0.3);
        script.steps.extend(more(&mut dice, &script.steps));
        script.steps.sort_by_key(|step| step.at_ms);
        script
    }

    /// The same without second thoughts: nobody takes anything back, comes in a crowd, or falls twice in a row.
    /// Seeds that once found something are kept as these.
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
            // Bursts and long silences: faults that fall together find the most.
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

/// What some steps bring with them: a message is taken back or comes with others, a process dies again while it
/// gets up.
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

fn trouble(dice: &mut StdRng) -> DiskFault {
    use DiskFault::{Flaky, Full, Refusing, Slow, Unconfirmed, Unreadable};
    *pick(dice, &[Full, Unconfirmed, Refusing, Flaky, Unreadable, Slow])
}

/// One of these.
pub(crate) fn pick<'a, T>(dice: &mut StdRng, from: &'a [T]) -> &'a T {
    &from[dice.random_range(0..from.len())]
}
