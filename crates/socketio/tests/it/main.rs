//! The session against servers: ours in this process, and those of others where they were fetched.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails where it should")]
#![allow(clippy::print_stderr, reason = "what was not tested, and figures, are said")]

mod acks;
mod common;
mod hub;
mod life;
mod scripted_server;
mod servers;
