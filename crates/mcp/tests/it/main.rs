//! The crate from outside: against a server that misbehaves, against HTTP servers that do, and against a
//! server of others.
#![expect(clippy::unwrap_used, reason = "a test that unwraps in vain has failed")]
#![expect(clippy::print_stderr, reason = "what was not tested is told")]

mod calls;
mod common;
mod conformance;
mod defence;
mod eras;
mod everything;
mod life;
mod login;
mod net;
mod published;
mod python;
mod questions;
mod resources;
mod tasks;
