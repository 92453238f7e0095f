//! Hub, agent and computer against each other: ours, and those of others where they were fetched.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails where it should")]
#![allow(clippy::print_stderr, reason = "what was not tested, and figures, are said")]

mod agent;
mod chaos;
mod common;
mod computer;
mod handshake;
mod isolation;
mod matrix;
mod owner;
mod python;
mod python_things;
mod sign_in;
mod things;
