//! Selects faults by one column of the report and by their outcome, to find the sessions that they hit.

use std::{collections::BTreeMap, str::FromStr};

use budao_core::{
    Fault, Kind, Timestamp,
    event::SessionId,
    fault::{Fact, Operation},
    tally::FaultResolution,
};

use super::ledger::FaultEntry;

/// The faults of one bar of the statistics: `model:gpt-5`; `any` selects all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FaultSelector {
    /// The column and the name in it; `None` selects every fault.
    row: Option<(FaultColumn, String)>,
    /// `None` selects every outcome.
    outcome: Option<FaultResolution>,
}

/// A column by which the report counts faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
enum FaultColumn {
    Code,
    Tool,
    Model,
    Stage,
    Computer,
    Endpoint,
    Node,
    Version,
    Tenant,
    User,
}

impl FromStr for FaultSelector {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        if text == "any" {
            return Ok(Self { row: None, outcome: None });
        }
        let parts = text.split_once(':');
        let row = parts.and_then(|(column, name)| Some((column.parse().ok()?, name.to_owned())));
        let columns = "any; or code, tool, model, stage, computer, endpoint, node, version, tenant or user, a colon and a name";
        let row = row.ok_or_else(|| bad_query_fault("hit", columns, text))?;
        Ok(Self { row: Some(row), outcome: None })
    }
}

fn bad_query_fault(field: &'static str, expected: &'static str, received: &str) -> Fault {
    Fault::new(Kind::BadRequest, Operation::ServeRequest)
        .with(Fact::Field, field)
        .with(Fact::Expected, expected)
        .with(Fact::Received, received.chars().take(40).collect::<String>())
}

impl FaultSelector {
    /// Selects only faults with this outcome: `recovered` or `not_recovered`.
    ///
    /// # Errors
    /// `bad_request` for any other text.
    pub(crate) fn with_outcome(self, outcome: &str) -> Result<Self, Fault> {
        let outcome = match outcome {
            "recovered" => FaultResolution::Recovered,
            "not_recovered" => FaultResolution::NotRecovered,
            other => return Err(bad_query_fault("outcome", "recovered or not_recovered", other)),
        };
        Ok(Self { outcome: Some(outcome), ..self })
    }

    fn matches(&self, entry: &FaultEntry) -> bool {
        if self.outcome.is_some() && self.outcome != entry.resolution {
            return false;
        }
        let Some((column, wanted)) = &self.row else { return true };
        let name = match column {
            FaultColumn::Code => Some(entry.kind.row().code),
            FaultColumn::Tool => entry.tool.as_deref(),
            FaultColumn::Model => entry.model.as_deref(),
            FaultColumn::Stage => entry.stage.map(Into::into),
            FaultColumn::Computer => entry.computer.as_deref(),
            FaultColumn::Endpoint => entry.endpoint.as_deref(),
            FaultColumn::Node => entry.node.as_deref(),
            FaultColumn::Version => entry.version.as_deref(),
            FaultColumn::Tenant => entry.tenant.as_deref(),
            FaultColumn::User => entry.user.as_deref(),
        };
        name == Some(wanted.as_str())
    }

    /// The sessions of the selected faults with the time of the last one; the latest first.
    pub(super) fn sessions<'a>(
        &self,
        faults: impl Iterator<Item = &'a FaultEntry>,
        from: Option<Timestamp>,
        until: Option<Timestamp>,
    ) -> Vec<(Timestamp, SessionId)> {
        let mut last = BTreeMap::new();
        for entry in faults.filter(|entry| self.matches(entry)) {
            let is_in_time = from.is_none_or(|from| entry.at >= from)
                && until.is_none_or(|until| entry.at < until);
            if is_in_time {
                let at = last.entry(entry.session).or_insert(entry.at);
                *at = (*at).max(entry.at);
            }
        }
        let mut found: Vec<_> = last.into_iter().map(|(session, at)| (at, session)).collect();
        found.sort_unstable_by(|one, other| other.cmp(one));
        found
    }
}
