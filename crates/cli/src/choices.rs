//! Flags with a fixed set of values. Clap refuses other values, lists the allowed ones and completes them.
//!
//! An enum of this crate derives `clap::ValueEnum`. An enum of another crate, which knows nothing of clap, uses [`one_of`].

use budao_acp::ExecutionError;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use strum::VariantArray;

/// The value of `--engine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum EngineName {
    /// The engine of this program.
    Native,
    /// The Claude CLI.
    Claude,
}

/// The value of `--execution-error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FailureReport {
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

/// A parser for the names of an enum's variants.
pub(crate) fn one_of<T>() -> impl TypedValueParser<Value = T>
where
    T: VariantArray + Copy + Into<&'static str> + std::str::FromStr + Send + Sync + 'static,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    PossibleValuesParser::new(T::VARIANTS.iter().map(|value| Into::<&'static str>::into(*value)))
        .try_map(|word| word.parse::<T>())
}
