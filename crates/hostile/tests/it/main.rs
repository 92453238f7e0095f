//! The security suites that need more than one crate, and a share of every fuzz target.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on fails where it stands, and says what it tried"
)]

mod injection;
mod reach;
mod share;
