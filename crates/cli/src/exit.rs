//! How the program ends, as the shell sees it.

use std::process::ExitCode;

/// The table people read in `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  0   fine
  1   it did not work, and the reason lies outside of this program
  2   the command line is not right
  3   the turn ended before its end: cancelled, refused, or at a limit
  70  a mistake in this program; please report it";

/// How a subcommand ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what it was asked for.
    Success,
    /// It did not, for a reason outside of this program: the agent, the user, the machine.
    Failed,
    /// It was asked for something that does not exist.
    Usage,
    /// The turn ended before its end: cancelled, refused, or at a limit.
    Stopped,
    /// A mistake of ours. The panic has said what it knows.
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
