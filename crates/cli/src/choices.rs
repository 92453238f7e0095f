//! Flags with a fixed set of values. Clap refuses other values, lists the allowed ones and completes them.
//!
//! An enum of this crate derives `clap::ValueEnum`. An enum of another crate, which knows nothing of clap, uses [`one_of`].

use clap::builder::{PossibleValuesParser, TypedValueParser};
use strum::VariantArray;

/// A parser for the names of an enum's variants.
pub(crate) fn one_of<T>() -> impl TypedValueParser<Value = T>
where
    T: VariantArray + Copy + Into<&'static str> + std::str::FromStr + Send + Sync + 'static,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    PossibleValuesParser::new(T::VARIANTS.iter().map(|value| Into::<&'static str>::into(*value)))
        .try_map(|word| word.parse::<T>())
}
