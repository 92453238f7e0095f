//! Exit codes of the program.

use std::process::ExitCode;

/// The table of exit codes in `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0   success
  1   failed for a reason outside this program
  2   invalid command line
  3   the turn ended early: cancelled, refused, or at a limit
  70  a bug in this program; please report it";

/// The result of a subcommand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The subcommand did its work.
    Success,
    /// The subcommand failed for a reason outside this program: the agent, the user or the machine.
    Failed,
    /// The command line is invalid or names something that does not exist.
    Usage,
    /// The turn ended early: cancelled, refused, or at a limit.
    Stopped,
    /// A bug in this program. The panic message is already on stderr.
    Bug,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Stopped => 3,
            Exit::Bug => 70,
        })
    }
}
