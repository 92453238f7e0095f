//! The turn, played without a clock, a model or a tool: inputs in, events out.

mod play;
mod promises;
mod walk;
