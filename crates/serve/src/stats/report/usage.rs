//! Tokens and costs of a window.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{super::ledger::Minute, add_counts, ratio};
use crate::project::currency_units;

/// Tokens and costs of the model requests in the window, as the services report them.
#[derive(Clone, Debug, Default, Serialize, utoipa::ToSchema)]
pub(crate) struct UsageTotals {
    /// Tokens that models read, cached ones included.
    input_tokens: u64,
    /// The part of `input_tokens` that came from the caches of the services.
    cached_tokens: u64,
    /// Tokens that models wrote.
    output_tokens: u64,
    /// Share of the tokens read that came from caches, 0 to 1; null if none were read.
    cache_hit_rate: Option<f64>,
    /// What the requests cost, in units of `currency`; absent without prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<f64>,
    /// The currency of the costs; absent without prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    currency: Option<String>,
    /// Tokens and costs by model.
    by_model: BTreeMap<String, ModelUsage>,
    /// Costs by tenant, in units of `currency`.
    cost_by_tenant: BTreeMap<String, f64>,
    /// Costs by API key, named by a part of its hash, in units of `currency`.
    cost_by_key: BTreeMap<String, f64>,
}

/// Tokens and costs of one model.
#[derive(Clone, Debug, Default, Serialize, utoipa::ToSchema)]
pub(crate) struct ModelUsage {
    /// Tokens that the model read, cached ones included.
    input_tokens: u64,
    /// The part of `input_tokens` that came from the service's cache.
    cached_tokens: u64,
    /// Tokens that the model wrote.
    output_tokens: u64,
    /// The part of all tokens that is an estimate, because the service did not report a usable count.
    estimated_tokens: u64,
    /// Share of the tokens read that came from the cache, 0 to 1; null if none were read.
    cache_hit_rate: Option<f64>,
    /// What the requests cost, in units of the currency.
    cost: f64,
}

impl UsageTotals {
    pub(super) fn new(minutes: &[&Minute], currency: &str) -> Self {
        let mut totals = Self::default();
        let (mut micros, mut by_model_micros) = (0_u64, BTreeMap::<&str, u64>::new());
        let mut by_tenant_micros = BTreeMap::<&str, u64>::new();
        let mut by_key_micros = BTreeMap::<&str, u64>::new();
        for minute in minutes {
            for (model, usage) in &minute.usage {
                let row = totals.by_model.entry(model.to_string()).or_default();
                row.input_tokens += usage.input_tokens;
                row.cached_tokens += usage.cached_tokens.min(usage.input_tokens);
                row.output_tokens += usage.output_tokens;
                row.estimated_tokens += usage.estimated_tokens;
            }
            add_counts(&mut by_model_micros, &minute.cost_by_model);
            add_counts(&mut by_tenant_micros, &minute.cost_by_tenant);
            add_counts(&mut by_key_micros, &minute.cost_by_key);
        }
        for (model, cost) in by_model_micros {
            micros += cost;
            totals.by_model.entry(model.to_owned()).or_default().cost = currency_units(cost);
        }
        for row in totals.by_model.values_mut() {
            row.cache_hit_rate = ratio(row.cached_tokens, row.input_tokens);
            totals.input_tokens += row.input_tokens;
            totals.cached_tokens += row.cached_tokens;
            totals.output_tokens += row.output_tokens;
        }
        totals.cache_hit_rate = ratio(totals.cached_tokens, totals.input_tokens);
        let units = |micros: BTreeMap<&str, u64>| {
            let costs = micros.into_iter();
            costs.map(|(name, cost)| (name.to_owned(), currency_units(cost))).collect()
        };
        totals.cost_by_tenant = units(by_tenant_micros);
        totals.cost_by_key = units(by_key_micros);
        totals.cost = (!currency.is_empty()).then(|| currency_units(micros));
        totals.currency = (!currency.is_empty()).then(|| currency.to_owned());
        totals
    }
}
