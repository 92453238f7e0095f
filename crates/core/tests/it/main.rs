//! The fault catalog in every dialect, the turn, and what is counted, without a clock, a model or a tool.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on fails where it stands, and says what it tried"
)]

mod audiences;
mod dialects;
mod fault;
mod raised;
mod tally;
mod turn;
