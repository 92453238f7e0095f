//! The simulator: the real core, runtime, tools and journal contract on virtual time and seeded chance.
//!
//! A [`Script`] says what happens from outside: what people say, when processes are killed, how the disk
//! and the clocks misbehave. It follows from a seed, and the same script gives the same bytes. [`run`] plays
//! it to its end, lets everything come to rest, and says in [`SimResult`] which promises did not hold. [`shrink`]
//! takes away whatever a failure does not need.
//!
//! What is real: deciding, performing, retrying, leasing, resuming, sealing, following. What is played: the
//! model, the tools, the people, and the disk's moods. A kill drops every task of a process between two
//! steps of its work; what the disk had taken by then stays, what it had not is gone.

mod check;
#[cfg(feature = "gateways")]
mod client;
mod disk;
#[cfg(feature = "gateways")]
mod editor;
mod laws;
mod model;
mod people;
mod play;
#[cfg(feature = "gateways")]
#[allow(clippy::unwrap_used, dead_code, reason = "it is shared with tests, which use more of it")]
#[path = "../../claude/tests/it/played.rs"]
mod played;
mod process;
mod script;
mod shrink;
#[cfg(feature = "gateways")]
mod smcp_world;
mod tools;
mod world;

pub use check::Violation;
pub use play::{SimResult, run};
pub use script::{DiskFault, Script, ScriptAction, Step, World};
pub use shrink::shrink;
