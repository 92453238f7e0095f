//! The built-in tools: files in a workspace, shell commands, and the to-do list.
//!
//! Files are opened through a directory handle ([`Workspace`]), never by checking a path first. Commands run under a
//! supervisor ([`crate::launch`]) that exits after the last of their descendants. The tools keep no session state:
//! the file states a session has seen and its to-do list are recorded as notes and read back from the session's
//! memory.

mod bash;
mod budget;
mod define;
mod diff;
mod documents;
mod edit;
mod edit_evidence;
mod encoding;
mod glob;
mod grep;
mod io_errors;
mod multi_edit;
mod nearest;
mod read;
mod store;
mod timers;
mod todo;
mod walk;
mod workspace;
mod write;

use std::{sync::Arc, time::Duration};

pub use bash::{Environment, Shells};
pub use documents::EditorDocuments;
pub use workspace::Workspace;

use crate::{
    contract::Tool,
    launch::{Confinement, Launcher},
};
use define::erase;

/// Settings of the built-in tools.
#[derive(Clone, Debug)]
pub struct BuiltinOptions {
    /// The program that supervises commands. Without one, a command runs in its own process group: a process that
    /// leaves the group (`setsid`) can outlive its call, and commands can outlive a crash of this process.
    pub launcher: Option<Launcher>,
    /// Paths that commands may read and write, besides the workspace. Needs a launcher and a kernel with Landlock;
    /// otherwise commands are refused.
    pub confine: Option<Confinement>,
    /// The background shells. Keep a clone to end a session's shells; all shells end when the last clone is dropped.
    pub shells: Shells,
    /// The environment variables of commands.
    pub environment: Environment,
    /// Timeout of a command that sets none.
    pub timeout: Duration,
    /// The longest timeout a command may set.
    pub timeout_max: Duration,
}

impl Default for BuiltinOptions {
    fn default() -> Self {
        Self {
            launcher: None,
            confine: None,
            shells: Shells::default(),
            environment: Environment::default(),
            timeout: Duration::from_secs(120),
            timeout_max: Duration::from_secs(600),
        }
    }
}

/// Creates the tools with which a model wakes its own session. They need a session ([`crate::SessionTimers`]).
#[must_use]
pub fn timer_tools() -> Vec<Arc<dyn Tool>> {
    vec![erase(timers::WakeAt), erase(timers::TimersList), erase(timers::TimerCancel)]
}

/// Creates the built-in tools for a workspace.
#[must_use]
pub fn tools(workspace: &Workspace, options: &BuiltinOptions) -> Vec<Arc<dyn Tool>> {
    let bash = bash::Bash::new(workspace.clone(), options.clone());
    vec![
        erase(read::FsRead(workspace.clone())),
        erase(write::FsWrite(workspace.clone())),
        erase(edit::FsEdit(workspace.clone())),
        erase(multi_edit::FsMultiEdit(workspace.clone())),
        erase(glob::FsGlob(workspace.clone())),
        erase(grep::FsGrep(workspace.clone())),
        erase(bash::BashRun(bash.clone())),
        erase(bash::BashLogs(bash.clone())),
        erase(bash::BashKill(bash)),
        erase(todo::TodoRead),
        erase(todo::TodoWrite),
    ]
}
