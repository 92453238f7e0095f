//! The built-in tools: files inside a workspace, commands, and the list of things to do.
//!
//! Files are reached through a directory handle ([`Workspace`]), never by checking a path and then
//! opening it. Commands run under a launcher ([`crate::launch`]) that ends with the last of their
//! descendants. What a session has seen of a file, and its list of things to do, are facts of the session
//! and not of these tools: they are told as notes and read back from the session's memory.

mod bash;
mod budget;
mod define;
mod diff;
mod edit;
mod encoding;
mod glob;
mod grep;
mod io_errors;
mod multi_edit;
mod nearest;
mod read;
mod store;
mod todo;
mod walk;
mod workspace;
mod write;

use std::{sync::Arc, time::Duration};

pub use bash::{Environment, Shells};
pub use workspace::Workspace;

use crate::{
    contract::Tool,
    launch::{Confinement, Launcher},
};
use define::erase;

/// How the built-in tools are set up.
#[derive(Clone, Debug)]
pub struct BuiltinOptions {
    /// The program that runs commands. Without one, a command runs in a process group of its own: what
    /// leaves the group (`setsid`) can outlive its call, and a death of this process can leave it behind.
    pub launcher: Option<Launcher>,
    /// Where commands may read and write, besides the workspace. Needs a launcher and a kernel that can do
    /// it; otherwise commands are refused.
    pub confine: Option<Confinement>,
    /// The background shells. Keep a clone to end a session's shells; they all end with the last clone.
    pub shells: Shells,
    /// The environment of commands.
    pub environment: Environment,
    /// How long a command may take unless it says otherwise.
    pub timeout: Duration,
    /// The most it may ask for.
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

/// The built-in tools over a workspace.
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
