//! Pipelines and sub-agents with scripted models, on a journal in memory, under a paused clock.

mod agents;
mod fixture;
mod promises;
mod restarts;
