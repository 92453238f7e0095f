//! Collects the promises that were broken during a simulation.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

/// A promise that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise in words; equal texts mean the same promise.
    pub promise: &'static str,
    /// The state that broke it: session, position, values.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.seen)
    }
}

/// The violations found so far. Clones share one list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Violations(Arc<Mutex<Vec<Violation>>>);

/// Upper bound for the list; further violations are dropped.
const MOST: usize = 20;

impl Violations {
    pub(crate) fn add(&self, promise: &'static str, seen: impl FnOnce() -> String) {
        let mut all = self.0.lock().expect("nobody panics with it");
        if all.len() < MOST {
            all.push(Violation { promise, seen: seen() });
        }
    }

    /// Adds a violation unless `holds`. `seen` runs only then.
    pub(crate) fn expect(&self, holds: bool, promise: &'static str, seen: impl FnOnce() -> String) {
        if !holds {
            self.add(promise, seen);
        }
    }

    pub(crate) fn all(&self) -> Vec<Violation> {
        self.0.lock().expect("nobody panics with it").clone()
    }
}
