//! The journals in memory and in a SQLite file. `crash` starts this program again, as the process that is killed.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on fails where it stands, and says what it tried"
)]

mod check;
mod conformance;
mod crash;
mod damage;
mod docs;
mod file;
mod follow;
mod free_space;
mod model;
mod outside;
mod path;
mod sole_writer;
mod support;
mod url;
