//! Heavy proofs on a real server: real sockets, a bad line between, and clients that must not notice.
//!
//! Every test is named after what it promises. Seeds are printed; `BUDAO_SEED` repeats one.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails where it should")]
#![allow(clippy::print_stderr, reason = "a seed must be seen")]

mod bad_input;
mod chaos;
mod children;
mod commands;
mod crowd;
mod cuts;
mod fixture;
mod flow;
mod framing;
mod gaps;
mod killing;
mod languages;
mod pipeline;
mod program;
mod states;
