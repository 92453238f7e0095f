//! What was counted, minute by minute, within bounds.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use budao_core::{
    Kind, Timestamp,
    event::{SessionId, Stage, StopReason},
};

/// The longest window that can be asked for; what is older is let go.
pub(super) const KEPT: Duration = Duration::from_hours(7 * 24);
/// Faults, recoveries and paths kept; the oldest minutes go first.
const ROWS: usize = 100_000;
/// Names of each sort that are told apart; the rest is [`OTHER`].
const NAMES: usize = 200;
/// Characters of a name.
const NAME_CHARS: usize = 80;
/// Stands for every name that came when there was no more room.
pub(super) const OTHER: &str = "other";

/// The name of a tool, a model or a computer.
pub(super) type Name = Arc<str>;

/// One fault, where it was met and how it ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) at: Timestamp,
    pub(super) session: SessionId,
    pub(super) kind: Kind,
    pub(super) tool: Option<Name>,
    pub(super) model: Option<Name>,
    pub(super) stage: Option<Stage>,
    pub(super) computer: Option<Name>,
    pub(super) fate: Fate,
}

/// How a fault ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Fate {
    /// Its turn went on, or is still going on, without it.
    #[default]
    Passed,
    /// Another try worked: the runtime's, or a changed call of the model.
    Recovered,
    /// It ended its turn.
    GivenUp,
}

/// The faults of a turn in order, and how it ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Path {
    pub(super) kinds: Vec<Kind>,
    pub(super) end: StopReason,
}

/// What came in one minute.
#[derive(Clone, Debug, Default)]
pub(super) struct Minute {
    pub(super) faults: Vec<Seen>,
    pub(super) recoveries: Vec<u64>,
    pub(super) paths: Vec<Path>,
    /// Tries that were made again.
    pub(super) retries: u64,
    /// Of things that were tried again: those that worked in the end, and those that did not.
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) turns: u64,
    pub(super) steps: BTreeMap<Name, u64>,
    pub(super) calls: BTreeMap<Name, u64>,
}

impl Minute {
    fn rows(&self) -> usize {
        self.faults.len() + self.recoveries.len() + self.paths.len()
    }
}

/// Everything that was counted.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    minutes: BTreeMap<i64, Minute>,
    rows: usize,
    /// Before this, something was let go for want of room.
    pub(super) cut_at: Option<Timestamp>,
    tools: Names,
    models: Names,
    computers: Names,
}

/// Names that were seen, each kept once.
#[derive(Debug, Default)]
struct Names(BTreeSet<Name>);

impl Names {
    fn get(&mut self, name: &str) -> Name {
        let name: String = name.chars().take(NAME_CHARS).collect();
        if let Some(known) = self.0.get(name.as_str()) {
            return Arc::clone(known);
        }
        if self.0.len() >= NAMES {
            return OTHER.into();
        }
        let name: Name = name.into();
        self.0.insert(Arc::clone(&name));
        name
    }
}

impl Ledger {
    pub(super) fn tool(&mut self, name: &str) -> Name {
        self.tools.get(name)
    }

    pub(super) fn model(&mut self, name: &str) -> Name {
        self.models.get(name)
    }

    pub(super) fn computer(&mut self, name: &str) -> Name {
        self.computers.get(name)
    }

    /// The minute of this time, to be added to.
    pub(super) fn at(&mut self, at: Timestamp) -> &mut Minute {
        self.minutes.entry(minute(at)).or_default()
    }

    /// Takes over what a turn met.
    pub(super) fn faults(&mut self, faults: impl IntoIterator<Item = Seen>) {
        for seen in faults {
            self.at(seen.at).faults.push(seen);
            self.rows += 1;
        }
    }

    pub(super) fn recovery(&mut self, at: Timestamp, millis: u64) {
        self.at(at).recoveries.push(millis);
        self.rows += 1;
    }

    pub(super) fn path(&mut self, at: Timestamp, path: Path) {
        self.at(at).paths.push(path);
        self.rows += 1;
    }

    /// The minutes from this time on, oldest first.
    pub(super) fn since(&self, since: Timestamp) -> impl Iterator<Item = &Minute> {
        self.minutes.range(minute(since)..).map(|(_, minute)| minute)
    }

    /// Lets go what is too old or too much.
    pub(super) fn trim(&mut self, now: Timestamp) {
        let oldest = minute(before(now, KEPT));
        while let Some(entry) = self.minutes.first_entry() {
            let is_old = *entry.key() < oldest;
            if !is_old && self.rows <= ROWS {
                return;
            }
            let (at, gone) = entry.remove_entry();
            self.rows -= gone.rows();
            if !is_old {
                self.cut_at = Some(Timestamp::from_micros((at + 1).saturating_mul(MICROS)));
            }
        }
    }
}

const MICROS: i64 = 60_000_000;

fn minute(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(MICROS)
}

/// So long before.
pub(super) fn before(at: Timestamp, length: Duration) -> Timestamp {
    let micros = i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(at.as_micros().saturating_sub(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(at: Timestamp) -> Seen {
        Seen {
            at,
            session: SessionId(uuid::Uuid::nil()),
            kind: Kind::DiskFull,
            tool: None,
            model: None,
            stage: None,
            computer: None,
            fate: Fate::Passed,
        }
    }

    #[test]
    fn too_many_faults_push_out_the_oldest_and_it_is_said_from_when_on_all_are_there() {
        let mut ledger = Ledger::default();
        let start = Timestamp::from_micros(1_794_729_600_000_000);
        for number in 0..3_u64 {
            let at = start.after(Duration::from_mins(number));
            ledger.faults((0..ROWS / 2).map(|_| seen(at)));
        }
        ledger.trim(start.after(Duration::from_mins(3)));
        assert_eq!(ledger.rows, ROWS / 2 * 2);
        assert_eq!(ledger.cut_at, Some(start.after(Duration::from_mins(1))));
    }

    #[test]
    fn what_is_older_than_the_longest_window_is_let_go_without_a_word() {
        let mut ledger = Ledger::default();
        let start = Timestamp::from_micros(1_794_729_600_000_000);
        ledger.faults([seen(start)]);
        ledger.trim(start.after(KEPT + Duration::from_mins(2)));
        assert_eq!((ledger.rows, ledger.minutes.len(), ledger.cut_at), (0, 0, None));
    }

    #[test]
    fn names_beyond_the_bound_share_one() {
        let mut ledger = Ledger::default();
        for number in 0..NAMES {
            ledger.tool(&format!("tool_{number}"));
        }
        assert_eq!(&*ledger.tool("one more"), OTHER);
        assert_eq!(&*ledger.tool("tool_7"), "tool_7");
    }
}
