//! Selects faults by one column of the report, to find the sessions that they hit.

use std::{collections::BTreeMap, str::FromStr};

use budao_core::{
    Fault, Kind, Timestamp,
    event::SessionId,
    fault::{Fact, Operation},
};

use super::ledger::FaultEntry;

/// The faults of one bar of the statistics: `model:gpt-5`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FaultSelector {
    column: FaultColumn,
    name: String,
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
        let parts = text.split_once(':');
        let selected = parts.and_then(|(column, name)| {
            Some(Self { column: column.parse().ok()?, name: name.to_owned() })
        });
        selected.ok_or_else(|| {
            let columns =
                "code, tool, model, stage, computer, endpoint, node, version, tenant or user, a colon and a name";
            Fault::new(Kind::BadRequest, Operation::ServeRequest)
                .with(Fact::Field, "hit")
                .with(Fact::Expected, columns)
                .with(Fact::Received, text.chars().take(40).collect::<String>())
        })
    }
}

impl FaultSelector {
    fn matches(&self, entry: &FaultEntry) -> bool {
        let name = match self.column {
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
        name == Some(self.name.as_str())
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
