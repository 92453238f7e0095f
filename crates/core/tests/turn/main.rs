//! The turn, played without a clock, a model or a tool: inputs in, events out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fold;
mod play;
mod promises;
mod walk;
