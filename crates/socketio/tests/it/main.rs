//! The session against servers: ours in this process, and those of others where they were fetched.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails where it should")]

mod acks;
mod common;
mod hub;
mod life;
mod servers;
