//! Hostile input: every parser and decoder as one function over bytes, and a player that feeds them.
//!
//! A [`Target`] panics if a promise does not hold and returns otherwise; that is all a fuzzer needs to know. The same
//! functions are fed by the tests of every run (the corpus and a bounded number of seeded mutations), by
//! `cargo xtask fuzz` for as long as one likes, and by `cargo fuzz` with coverage (`fuzz/`), where a nightly compiler is.

mod mutate;
mod play;
mod targets;

pub use mutate::{Mutator, SeededRng};
pub use play::{FailingInput, corpus, play};
pub use targets::{TARGETS, Target, target};
