//! Pipelines and sub-agents with scripted models, on a journal in memory, under a paused clock.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agents;
mod fixture;
mod promises;
mod restarts;
