//! Flags of `budao acp` with a fixed set of values.

use budao_acp::ExecutionError;

/// The value of `--engine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum EngineName {
    /// The engine of this program.
    Native,
    /// The Claude CLI.
    Claude,
}

/// The value of `--execution-error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum FailureReport {
    /// A failed turn is a JSON-RPC error.
    Error,
    /// A failed turn has the stop reason `refusal`.
    Refusal,
}

impl From<FailureReport> for ExecutionError {
    fn from(report: FailureReport) -> Self {
        match report {
            FailureReport::Error => Self::Error,
            FailureReport::Refusal => Self::Refusal,
        }
    }
}
