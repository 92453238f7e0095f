//! The CLI as an engine: played over a pipe, played as a process, and the real one.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails where it should")]
#![allow(clippy::print_stderr, reason = "seeds are printed, and what was not tested is said")]

mod check;
mod clock;
mod common;
mod faults;
#[allow(dead_code, reason = "shared with tests that plan more")]
mod interleavings;
mod machine;
mod process;
mod real;
mod stopping;
mod turns;
