//! Plan → solve → aggregate, played without children: inputs in, events out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod ends;
mod plans;
mod play;
mod promises;
mod prompts;
mod stops;
mod walk;
