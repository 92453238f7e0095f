//! The simulator: the real core, runtime, tools and journal contract on virtual time and seeded randomness.
//!
//! A [`Script`] lists the external events: messages, kills of processes, faults of the disk and the clocks. It follows
//! from a seed, and the same script gives the same bytes. [`run`] plays it, waits until all work has ended, and returns
//! the broken promises in a [`SimResult`]. [`shrink`] removes the steps that a failure does not need.
//!
//! Deciders, work, retries, leases, resumption, seals and observers are real. The model, the tools, the people and the
//! disk's faults are played. A kill drops every task of a process at an await point: confirmed writes survive, the rest
//! is lost.

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
mod process;
mod script;
mod services_world;
mod shrink;
#[cfg(feature = "gateways")]
mod smcp_world;
mod tools;
#[cfg(feature = "gateways")]
mod workers_world;
mod world;

use budao_core::{event::Record, limits::Limits};

pub use check::Violation;
pub use play::{SimResult, run, run_recorded};
pub use script::{DiskFault, Script, ScriptAction, Step, World};
pub use shrink::shrink;

/// Checks the records of one session that ended, whoever wrote them: every law of a history, and that today's rules decide
/// again what the records say.
#[must_use]
pub fn check_history(history: &[Record], limits: &Limits) -> Vec<Violation> {
    let violations = check::Violations::default();
    laws::of_session(history, limits, &violations);
    if let Some(first) = history.first() {
        laws::of_replay(first.session, history, limits, &violations);
    }
    violations.all()
}
