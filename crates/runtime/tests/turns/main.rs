//! Whole turns against a scripted model, on a journal in memory, under a paused clock.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../support/around.rs"]
mod around;
mod bounds;
mod failing;
mod heals;
mod hooks;
mod hostile;
mod promises;
mod stage;
mod stops;
