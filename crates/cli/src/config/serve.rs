//! The tables that only `budao serve` reads: `[serve]` and `[alerts]`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use budao_remote::WorkerLimits;
use budao_serve::{
    Limits as ServeLimits,
    alerts::{Rules, Threshold},
};
use serde::{Deserialize, Serialize};

/// Alerts about critical, unrecoverable or frequent faults.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AlertsConfig {
    /// URL that alerts are posted to; without one there are no alerts.
    #[serde(skip_serializing)]
    webhook: Option<SecretText>,
    /// Milliseconds between two checks for new faults.
    #[serde(skip_serializing_if = "Option::is_none")]
    check_interval: Option<u64>,
    /// Milliseconds between two alerts about the same fault, at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_interval: Option<u64>,
    /// Milliseconds after which a call whose outcome is unknown raises an alert; absent or 0 for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    doubt_after: Option<u64>,
    /// Rates of faults that raise an alert.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    threshold: Vec<Threshold>,
}

/// A text that `Debug` does not print.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
struct SecretText(String);

impl std::fmt::Debug for SecretText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl AlertsConfig {
    /// The alert rules for the server; none without a webhook. The cursor file lies beside the journal; a
    /// journal without a file has none.
    pub(crate) fn to_alerts(&self, journal: Option<&Path>) -> Option<budao_serve::alerts::Alerts> {
        let mut rules = Rules { threshold: self.threshold.clone(), ..Rules::default() };
        rules.check_interval =
            self.check_interval.map_or(rules.check_interval, Duration::from_millis);
        rules.min_interval = self.min_interval.map_or(rules.min_interval, Duration::from_millis);
        rules.doubt_after = self.doubt_after.map_or(rules.doubt_after, Duration::from_millis);
        let cursor = journal.map(|journal| {
            let mut name = journal.as_os_str().to_owned();
            name.push("-alerts");
            name.into()
        });
        let webhook = self.webhook.clone()?.0.into();
        Some(budao_serve::alerts::Alerts { webhook, cursor, rules })
    }
}

/// The `[serve]` table. Every key except `limits` and `workers` is also a flag.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ServeConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt_secret: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt_key: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jwt_audience: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    origin: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    host: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    state_key: Vec<PathBuf>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    allow_model: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_disconnect: Option<String>,
    /// Limits of the gateway.
    pub(crate) limits: ServeLimits,
    /// Bounds for programs that offer tools.
    pub(crate) workers: WorkerLimits,
}

impl ServeConfig {
    /// The table with the defaults of its flags, to show it.
    pub(super) fn with_defaults(self) -> Self {
        Self { listen: Some(crate::serve::LISTEN.to_owned()), ..self }
    }
}
