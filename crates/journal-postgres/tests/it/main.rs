//! The journal in PostgreSQL, on a server that the tests start.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on fails where it stands, and says what it tried"
)]

mod check;
mod conformance;
mod connections;
mod copy;
mod failures;
mod model;
mod pgbouncer;
mod refusals;
mod restored;
mod retention;
mod server_errors;
mod standby;
mod support;
mod versions;
