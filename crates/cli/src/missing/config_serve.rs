//! In a program without `budao serve`: its tables are accepted, because one file may serve several programs.

use std::collections::BTreeMap;

use budao_remote::WorkerLimits;
use serde::{Deserialize, Serialize};
use toml::Value;

/// The `[alerts]` table, unread.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct AlertsConfig(BTreeMap<String, Value>);

/// The `[serve]` table, of which only `workers` is read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServeConfig {
    /// Bounds for programs that offer tools.
    pub(crate) workers: WorkerLimits,
}

impl ServeConfig {
    /// The table as it is: its other keys have no defaults here.
    pub(super) fn with_defaults(self) -> Self {
        self
    }
}
