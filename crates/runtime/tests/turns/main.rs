//! Whole turns against a scripted model, on a journal in memory, under a paused clock.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bounds;
mod failing;
mod fallback;
mod fixture;
mod heals;
mod hooks;
mod hostile;
mod once;
mod promises;
mod shapes;
mod stops;
mod storms;
mod timers;
mod waits;
