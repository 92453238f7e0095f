//! Whole turns against a scripted model, on a journal in memory, under a paused clock.

mod bounds;
mod failing;
mod fallback;
mod fixture;
mod heals;
mod hooks;
mod hostile;
mod on_disk;
mod once;
mod promises;
mod shapes;
mod spending;
mod stops;
mod storms;
mod streaming;
mod suspended;
mod timers;
mod waits;
