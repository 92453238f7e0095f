//! The Claude CLI as an engine: one child process per session, JSON lines both ways, turns told apart.
//!
//! [`machine`] decides, and is pure: lines and commands in, events and actions out. [`Claude`] is the
//! [`Engine`](budao_core::engine::Engine) around it: one task a session, which owns the lease, the journal's
//! records and the process. Records are the same domain events as those of the native loop, so every gateway
//! works with either.

mod answer_draft;
mod cli_process;
mod decider;
mod engine;
pub mod find;
mod launch;
pub mod machine;
mod outcome;
pub mod outgoing;
pub mod permissions;
#[doc(hidden)]
pub mod probe;
mod sanitize;
pub mod wire;

pub use budao_engine::HolderLiveness;
pub use engine::{Claude, ClaudeConfig, ENGINE_LABEL, ENGINE_NAME};
pub use launch::{CliProgram, LaunchSpec, Launcher, RunningCli, arguments};
pub use machine::{CliTimeouts, Launch};

/// The model that is the CLI's own choice: then it is told none.
pub const DEFAULT_MODEL: &str = "default";

/// What the CLI is called in faults.
pub(crate) const PROGRAM: &str = "claude";
/// What its model service is called in faults.
pub(crate) const SERVICE: &str = "Anthropic";
