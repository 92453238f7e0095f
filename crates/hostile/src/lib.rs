//! Fuzz targets: every parser and decoder as one function over bytes, and a driver that feeds them.
//!
//! A [`Target`] panics if a promise does not hold, and returns otherwise. Three drivers call the same functions: the
//! tests of every run (the corpus and a bounded number of seeded mutations), `cargo xtask fuzz` for a chosen time, and
//! `cargo fuzz` with coverage (`fuzz/`), which needs a nightly compiler.

mod mutate;
mod play;
mod targets;

pub use mutate::{Mutator, SeededRng};
pub use play::{FailingInput, corpus, play};
pub use targets::{TARGETS, Target, target};
