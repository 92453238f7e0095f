//! Removes the steps that a failure does not need.

use crate::{play::run, script::Script};

/// The shortest script found that still breaks the same promise. Plays at most `tries` scripts.
#[must_use]
pub fn shrink(script: &Script, promise: &str, mut tries: usize) -> Script {
    let mut best = script.clone();
    let mut index = 0;
    while index < best.steps.len() && tries > 0 {
        let mut shorter = best.clone();
        shorter.steps.remove(index);
        tries -= 1;
        if breaks(&shorter, promise) {
            best = shorter;
            // A step that was needed before may be removable now.
            index = 0;
        } else {
            index += 1;
        }
    }
    best
}

fn breaks(script: &Script, promise: &str) -> bool {
    run(script).violations.iter().any(|violation| violation.promise == promise)
}
