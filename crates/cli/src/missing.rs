//! The parts of this program that are cargo features, and the answer of a program that was built without one of them.
//!
//! A module whose part is missing is replaced by the one of the same name in `missing/`, which has the same functions.

use budao_core::{
    Fault, Kind, Lang,
    fault::{Fact, Operation},
};
use strum::VariantArray;

use crate::texts::fill;

/// A part of the program. Its name is that of the cargo feature.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, VariantArray, strum::EnumString, strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum ProgramPart {
    Acp,
    Claude,
    Documents,
    Postgres,
    Serve,
    Smcp,
    Traces,
}

impl ProgramPart {
    fn is_built_in(self) -> bool {
        match self {
            Self::Acp => cfg!(feature = "acp"),
            Self::Claude => cfg!(feature = "claude"),
            Self::Documents => cfg!(feature = "documents"),
            Self::Postgres => cfg!(feature = "postgres"),
            Self::Serve => cfg!(feature = "serve"),
            Self::Smcp => cfg!(feature = "smcp"),
            Self::Traces => cfg!(feature = "traces"),
        }
    }
}

/// Not built into this program; run it to see how to get it
#[derive(Debug, clap::Args)]
pub(crate) struct CommandArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<String>,
}

/// The version for `--version`, with the names of missing parts.
pub(crate) fn version() -> String {
    let parts = ProgramPart::VARIANTS.iter().filter(|part| !part.is_built_in());
    let names: Vec<&str> = parts.map(Into::into).collect();
    let version = env!("CARGO_PKG_VERSION");
    if names.is_empty() {
        version.to_owned()
    } else {
        format!("{version} (without {})", names.join(", "))
    }
}

/// The fault of a command or setting whose part is missing.
#[allow(dead_code, reason = "a program with all parts refuses none")]
pub(crate) fn fault(part: ProgramPart, setting: &'static str) -> Fault {
    let name: &str = part.into();
    Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
        .with(Fact::ConfigKey, setting)
        .with(Fact::Capability, name)
        .with_cause(format!("this program was built without `{name}`: {}", install(name)))
}

/// The text about a fault of [`fault`]; none for any other fault.
pub(crate) fn describe(fault: &Fault, lang: Lang) -> Option<String> {
    let part: ProgramPart = fault.detail().text(Fact::Capability)?.parse().ok()?;
    let setting = fault.detail().text(Fact::ConfigKey)?;
    if fault.kind() != Kind::ConfigurationWrong {
        return None;
    }
    let name: &str = part.into();
    let args =
        [("setting", setting.into()), ("part", name.into()), ("command", install(name).into())];
    Some(fill(lang, "missing-part", &args))
}

fn install(name: &str) -> String {
    format!("cargo install budao-cli --features {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_part_is_named_with_the_command_that_builds_it_in() {
        for part in ProgramPart::VARIANTS {
            let name: &str = part.into();
            for lang in [Lang::En, Lang::Zh] {
                let text = describe(&fault(*part, "--setting"), lang).unwrap();
                assert!(
                    text.contains("`--setting`") && text.contains(&format!("`{name}`")),
                    "{text}"
                );
                assert!(
                    text.contains(&format!("cargo install budao-cli --features {name}")),
                    "{text}"
                );
            }
        }
        let other = Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig);
        assert_eq!(describe(&other.with(Fact::ConfigKey, "--model"), Lang::En), None);
    }

    #[test]
    fn the_version_names_what_is_missing_and_nothing_else() {
        for part in ProgramPart::VARIANTS {
            assert_eq!(version().contains(<&str>::from(part)), !part.is_built_in(), "{part:?}");
        }
    }
}
