//! Model lists: a session asks the first model of its list that can be asked, and the next one while it cannot.
//!
//! The turn decides (`turn::fallback`); this module has its inputs, its reasons and the rules for lists.

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    fault::{Fact, Fault, Kind, Operation},
    limits::millis,
};

/// The most models in the list of a session.
pub const MODELS_MAX: usize = 8;

/// When a session asks the next model of its list. Durations are configured in milliseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FallbackConfig {
    /// The next model is asked when the gate of a model is expected to stay shut for longer than this, or when a
    /// request has waited for it for this long.
    #[serde(with = "millis")]
    pub after: Duration,
    /// Whether the next model is asked when the content filter of a service refuses a request.
    pub on_content_filter: bool,
}

impl Default for FallbackConfig {
    fn default() -> Self {
        Self { after: Duration::from_secs(10), on_content_filter: false }
    }
}

/// What the gate of a model reports to a decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelOutlook {
    /// How long the gate is expected to stay shut; zero if a request can be made now.
    pub expected_wait: Duration,
    /// The last failure of the service while its gate is shut.
    pub fault: Option<Fault>,
}

/// Why a session asks another model of its list.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    strum::IntoStaticStr,
    strum::Display,
    strum::EnumString,
    strum::VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ModelChangeReason {
    /// The gate of the model is expected to stay shut for longer than the bound, or a request waited that long.
    GateShut,
    /// All tries of a round failed.
    TriesUsed,
    /// The service asks for a longer wait than the turn has patience.
    PatienceExceeded,
    /// The history is too long for the model.
    ContextTooLong,
    /// The service does not know the model.
    UnknownModel,
    /// The quota or credit of the account is spent.
    QuotaSpent,
    /// The content filter of the service refused the request.
    ContentFiltered,
    /// The model, which is not the first of its list, failed for another permanent reason.
    Unusable,
    /// A model that stands earlier in the list can be asked again.
    Returned,
}

impl ModelChangeReason {
    /// The reason to ask another model after a permanent fault; none if another model would not help.
    #[must_use]
    pub fn of_permanent(kind: Kind, config: &FallbackConfig) -> Option<Self> {
        match kind {
            Kind::ContextTooLong => Some(Self::ContextTooLong),
            Kind::UnknownModel => Some(Self::UnknownModel),
            Kind::ModelQuota => Some(Self::QuotaSpent),
            Kind::ModelRefused if config.on_content_filter => Some(Self::ContentFiltered),
            _ => None,
        }
    }

    /// Whether the model that is left is not asked again in the same turn.
    #[must_use]
    pub fn rules_out(self) -> bool {
        matches!(
            self,
            Self::ContextTooLong
                | Self::UnknownModel
                | Self::QuotaSpent
                | Self::ContentFiltered
                | Self::Unusable
        )
    }
}

/// Splits `a,b` into model names.
///
/// # Errors
/// `configuration_wrong` under `key`, as [`check_models`].
pub fn split_models(key: &str, text: &str) -> Result<Vec<String>, Fault> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    check_models(key, &names)?;
    Ok(names)
}

/// Checks a list of models: no empty name, no name twice, at most [`MODELS_MAX`].
///
/// # Errors
/// `configuration_wrong` under `key`; it names what is wrong.
pub fn check_models(key: &str, names: &[String]) -> Result<(), Fault> {
    let wrong = |expected: String, received: String| {
        Err(Fault::new(Kind::ConfigurationWrong, Operation::LoadConfig)
            .with(Fact::ConfigKey, key.to_owned())
            .with(Fact::Expected, expected)
            .with(Fact::Received, received))
    };
    if names.len() > MODELS_MAX {
        let expected = format!("a list of at most {MODELS_MAX} models");
        return wrong(expected, format!("{} models", names.len()));
    }
    // One empty name alone is the default model of some engines.
    if names.len() > 1 && names.iter().any(String::is_empty) {
        return wrong(
            "a list with a model before and after each comma".to_owned(),
            names.join(","),
        );
    }
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(name.as_str())) {
        Some(twice) => wrong(
            format!("a list that names each model once, and `{twice}` is in it twice"),
            format!("{twice} twice"),
        ),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;
    use crate::{fault::text, lang::Lang};

    #[test]
    fn every_change_is_reported_in_both_languages() {
        let lines = |lang| -> String {
            let reasons = ModelChangeReason::VARIANTS.iter();
            reasons.map(|reason| text::model_changed(*reason, "a", "b", lang) + "\n").collect()
        };
        insta::assert_snapshot!("model_changes", lines(Lang::En) + &lines(Lang::Zh));
    }

    fn refused(text: &str) -> String {
        let fault = split_models("--model", text).unwrap_err();
        assert_eq!(fault.kind(), Kind::ConfigurationWrong);
        assert_eq!(fault.detail().text(Fact::ConfigKey), Some("--model"));
        let fact = |name| fault.detail().text(name).unwrap().to_owned();
        format!("{}; got {}", fact(Fact::Expected), fact(Fact::Received))
    }

    #[test]
    fn a_list_of_models_is_split_at_its_commas() {
        assert_eq!(split_models("--model", "a").unwrap(), ["a"]);
        assert_eq!(
            split_models("--model", "a, b@http://x:1/v1 ,c").unwrap(),
            ["a", "b@http://x:1/v1", "c"]
        );
        assert_eq!(split_models("--model", "").unwrap(), [""], "the default of an engine");
    }

    #[test]
    fn an_invalid_list_of_models_is_refused_with_the_reason() {
        assert_eq!(
            refused("a,a"),
            "a list that names each model once, and `a` is in it twice; got a twice"
        );
        assert_eq!(refused("a,"), "a list with a model before and after each comma; got a,");
        assert_eq!(refused(",a"), "a list with a model before and after each comma; got ,a");
        assert_eq!(refused("a,b,c,d,e,f,g,h,i"), "a list of at most 8 models; got 9 models");
    }

    #[test]
    fn only_faults_that_another_model_can_cure_are_reasons() {
        let usual = FallbackConfig::default();
        let of = |kind| ModelChangeReason::of_permanent(kind, &usual);
        assert_eq!(of(Kind::ModelQuota), Some(ModelChangeReason::QuotaSpent));
        assert_eq!(of(Kind::ModelRefused), None, "not without permission");
        assert_eq!(of(Kind::ModelAuthentication), None);
        let allowed = FallbackConfig { on_content_filter: true, ..usual };
        let reason = ModelChangeReason::of_permanent(Kind::ModelRefused, &allowed);
        assert_eq!(reason, Some(ModelChangeReason::ContentFiltered));
    }
}
