//! The Claude CLI as an engine: one child process per session, JSON lines in both directions.
//!
//! [`machine`] decides and is pure: lines and commands in, events and actions out. [`Claude`] implements
//! [`Engine`](budao_core::engine::Engine) with it: one task per session owns the lease, the records and the process.
//! Its records are the same domain events as those of the native loop, so every gateway works with either.

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
#[cfg(feature = "probe")]
#[doc(hidden)]
pub mod probe;
pub mod wire;

pub use budao_engine::HolderLiveness;
pub use engine::{Claude, ClaudeConfig, ENGINE_LABEL, ENGINE_NAME};
pub use launch::{CliProgram, LaunchSpec, Launcher, RunningCli, arguments};
pub use machine::{CliTimeouts, Launch};

/// Model name that leaves the choice to the CLI; no `--model` is passed.
pub const DEFAULT_MODEL: &str = "default";

/// Name of the CLI in faults.
pub(crate) const PROGRAM: &str = "claude";
/// Name of the CLI's model service in faults.
pub(crate) const SERVICE: &str = "Anthropic";
