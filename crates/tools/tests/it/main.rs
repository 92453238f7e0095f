//! Tools: the built-in set, the path of a call, hostile schemas, and what a refusal teaches. `call_path` starts this program
//! again where a test needs limits of its own.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on fails where it stands, and says what it tried"
)]

mod builtin;
mod call_path;
mod lossless;
mod schemas;
mod teaching;
