//! The turn, played without a clock, a model or a tool: inputs in, events out.

mod deputy;
mod doubts;
mod edges;
mod elicitation;
mod ends;
mod fallback;
mod fold;
mod play;
mod promises;
mod questions;
mod remote;
mod replay;
mod retries;
mod settings;
mod slots;
mod spending;
mod timers;
mod waits;
mod walk;
