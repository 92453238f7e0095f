//! The session host: the one writer of a session, and a complete engine on the host.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on fails where it stands, and says what it tried"
)]

mod echo_engine;
mod writer;
