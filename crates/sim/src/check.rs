//! Promises that did not hold, gathered as they are seen.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

/// A promise that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub promise: &'static str,
    /// Where it was seen not to hold.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.seen)
    }
}

/// What was seen so far. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Violations(Arc<Mutex<Vec<Violation>>>);

/// More of them say nothing new.
const MOST: usize = 20;

impl Violations {
    pub(crate) fn add(&self, promise: &'static str, seen: impl FnOnce() -> String) {
        let mut all = self.0.lock().expect("nobody panics with it");
        if all.len() < MOST {
            all.push(Violation { promise, seen: seen() });
        }
    }

    /// Notes it unless `holds`.
    pub(crate) fn expect(&self, holds: bool, promise: &'static str, seen: impl FnOnce() -> String) {
        if !holds {
            self.add(promise, seen);
        }
    }

    pub(crate) fn all(&self) -> Vec<Violation> {
        self.0.lock().expect("nobody panics with it").clone()
    }
}
