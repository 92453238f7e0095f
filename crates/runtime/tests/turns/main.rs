//! Whole turns against a scripted model, on a journal in memory, under a paused clock.

mod heals;
mod promises;
mod stage;
