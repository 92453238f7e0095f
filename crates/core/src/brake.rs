//! The brake: stops a model that repeats itself, and never one that makes progress.
//!
//! Its state is folded from the outcomes of one turn's calls. An exact repetition of an *invalid* call is answered
//! without running; the third one ends the turn. A limited number of failures in a row ends it too. Progress resets the
//! brake: a success, or a kind of failure not seen since the last success.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{fault::Kind, limits::Limits};

/// The brake's state within one turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Brake {
    /// Invalid calls since the last progress, each with its count.
    invalid: BTreeMap<String, u32>,
    /// Kinds of failure since the last success.
    kinds: BTreeSet<Kind>,
    /// Failed steps since the last progress.
    failures: u32,
}

/// Why the brake ends a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrakeTrip {
    /// The same invalid call was made this many times.
    SameInvalidCall(u32),
    /// This many failures occurred in a row.
    FailuresInARow(u32),
}

impl Brake {
    /// How often this exact invalid call was made since the last progress.
    #[must_use]
    pub fn repeats(&self, key: &str) -> u32 {
        self.invalid.get(key).copied().unwrap_or(0)
    }

    /// Records a step in which a call succeeded.
    pub fn note_success(&mut self) {
        *self = Self::default();
    }

    /// Records a step in which every call failed. The model has not read any of the failures yet, so they count as one,
    /// and identical invalid calls count once. An invalid call that never ran adds its key to its kind.
    pub fn note_failures(&mut self, failed: impl IntoIterator<Item = (Kind, Option<String>)>) {
        let mut keys = BTreeSet::new();
        let mut progress = false;
        for (kind, invalid) in failed {
            // The brake's own fault is not a new kind of failure; it repeats an earlier one.
            progress |= kind != Kind::RepeatedCallStopped && self.kinds.insert(kind);
            keys.extend(invalid);
        }
        if progress {
            self.invalid.clear();
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        for key in keys {
            let count = self.invalid.entry(key).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Whether the turn must end, and why.
    #[must_use]
    pub fn trip(&self, limits: &Limits) -> Option<BrakeTrip> {
        let most = self.invalid.values().copied().max().unwrap_or(0);
        if most >= limits.identical_invalid_calls {
            Some(BrakeTrip::SameInvalidCall(most))
        } else if self.failures >= limits.failures_in_a_row {
            Some(BrakeTrip::FailuresInARow(self.failures))
        } else {
            None
        }
    }
}

/// The key that equal calls share: the tool and the arguments, compared as JSON values where they parse.
#[must_use]
pub fn call_key(tool: &str, arguments: &str) -> String {
    let mut key = format!("{tool} ");
    match serde_json::from_str::<Value>(arguments) {
        Ok(value) => canonical(&value, &mut key),
        Err(_) => key.push_str(arguments.trim()),
    }
    // Keys are kept in memory and in snapshots, so a long key is replaced by its hash.
    if key.len() > 256 { hash(&key) } else { key }
}

/// JSON with sorted keys, independent of the order of the map type.
fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for key in keys {
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                canonical(&map[key], out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn hash(text: &str) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid(brake: &mut Brake, arguments: &str) {
        brake.note_failures([(Kind::InvalidArguments, Some(call_key("t", arguments)))]);
    }

    #[test]
    fn the_third_identical_invalid_call_ends_the_turn() {
        let (mut brake, limits) = (Brake::default(), Limits::default());
        invalid(&mut brake, r#"{"a":1,"b":2}"#);
        assert_eq!(brake.trip(&limits), None);
        let again = |arguments| (Kind::RepeatedCallStopped, Some(call_key("t", arguments)));
        brake.note_failures([again(r#"{"b":2, "a":1}"#)]);
        assert_eq!(brake.trip(&limits), None);
        brake.note_failures([again(r#"{"a":1,"b":2}"#)]);
        assert_eq!(brake.trip(&limits), Some(BrakeTrip::SameInvalidCall(3)));
    }

    #[test]
    fn two_invalid_calls_in_turns_do_not_slip_through() {
        let (mut brake, limits) = (Brake::default(), Limits::default());
        for _ in 0..3 {
            assert_eq!(brake.trip(&limits), None);
            invalid(&mut brake, "{}");
            invalid(&mut brake, r#"{"a":1}"#);
        }
        assert!(brake.trip(&limits).is_some());
    }

    #[test]
    fn different_failing_calls_end_after_a_budget() {
        let (mut brake, limits) = (Brake::default(), Limits::default());
        for number in 0..8 {
            assert_eq!(brake.trip(&limits), None, "{number}");
            brake.note_failures([(Kind::ToolSaidNo, None)]);
        }
        assert_eq!(brake.trip(&limits), Some(BrakeTrip::FailuresInARow(8)));
    }

    #[test]
    fn many_failures_in_one_step_are_one_failure() {
        let (mut brake, limits) = (Brake::default(), Limits::default());
        let same = || (Kind::InvalidArguments, Some(call_key("t", "{}")));
        brake.note_failures((0..20).map(|_| same()));
        assert_eq!(brake.trip(&limits), None, "the model has not heard of it yet");
        assert_eq!(brake.repeats(&call_key("t", "{}")), 1);
    }

    #[test]
    fn progress_lets_go() {
        let (mut brake, limits) = (Brake::default(), Limits::default());
        for _ in 0..1000 {
            for _ in 0..2 {
                invalid(&mut brake, "{}");
            }
            for _ in 0..7 {
                brake.note_failures([(Kind::ToolSaidNo, None)]);
            }
            assert_eq!(brake.trip(&limits), None);
            brake.note_success();
        }
    }

    #[test]
    fn a_brake_never_grows_past_its_budget() {
        let mut brake = Brake::default();
        for number in 0..1000 {
            invalid(&mut brake, &number.to_string());
        }
        assert!(brake.trip(&Limits::default()).is_some());
    }
}
