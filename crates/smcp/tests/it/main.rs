//! Hub, agent and computer against each other: ours, and those of others where they were fetched.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails where it should")]
#![allow(clippy::print_stderr, reason = "what was not tested, and figures, are said")]

mod agent;
mod broken_lines;
mod cancels;
mod chaos;
mod common;
mod computer;
mod finder;
mod handshake;
mod identity;
mod isolation;
mod matrix;
mod owner;
mod pairs;
mod peers;
mod python;
mod python_things;
mod raw_frames;
mod reconcile;
mod requests;
mod resources;
mod sign_in;
mod slow;
mod sse;
mod storm;
