//! The model requests of open turns, derived from the records: under way, or held by a gate.
//!
//! A server reports the gates that it has. A reader of the journal has none; it groups the open requests of all
//! processes by their model instead.

use std::collections::BTreeMap;

use budao_core::{Event, Timestamp, gate::HoldReason};
use serde::Serialize;

use super::ledger::{MinuteCounters, Name};

/// The request of a session's running step.
#[derive(Clone, Debug)]
pub(super) struct OpenRequest {
    model: Name,
    hold: Option<HoldRecord>,
    /// The code of the service's last failure in this turn.
    last_error: Option<&'static str>,
}

/// The last record of a held request.
#[derive(Clone, Copy, Debug)]
struct HoldRecord {
    reason: HoldReason,
    since: Timestamp,
    reported: Timestamp,
    until: Option<Timestamp>,
}

/// Applies one event to the request of a session.
pub(super) fn apply(
    request: &mut Option<OpenRequest>,
    at: Timestamp,
    event: &Event,
    ledger: &mut MinuteCounters,
) {
    match event {
        Event::StepStarted { model, .. } => {
            let last_error = request.take().and_then(|request| request.last_error);
            *request =
                Some(OpenRequest { model: ledger.intern_model(model), hold: None, last_error });
        }
        Event::RequestHeld { reason, until, fault, .. } => {
            let Some(request) = request else { return };
            let since = request.hold.map_or(at, |hold| hold.since);
            request.hold = Some(HoldRecord { reason: *reason, since, reported: at, until: *until });
            request.last_error = fault.as_ref().map(|it| it.row().code).or(request.last_error);
        }
        Event::RequestReleased { .. } => {
            if let Some(request) = request {
                request.hold = None;
            }
        }
        Event::FaultRaised { fault, .. } => {
            if let Some(request) = request {
                request.last_error = Some(fault.row().code);
            }
        }
        Event::ModelAnswered { .. } | Event::TurnEnded { .. } | Event::SessionEnded { .. } => {
            *request = None;
        }
        _ => {}
    }
}

/// The open requests to one model, over all processes that write the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelLoad {
    /// The model, as the configuration spells it.
    pub model: String,
    /// `held` if a gate keeps requests back because of a rate limit or an outage, else `open`.
    pub state: &'static str,
    /// Why requests are held: `rate_limit` or `outage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// Since when a request is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// When the gate opens or probes the service next, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Requests that wait.
    pub waiting: usize,
    /// Requests under way.
    pub in_flight: usize,
    /// The code of the last failure of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<&'static str>,
}

/// Groups open requests by model, in the order of the models' names.
pub(super) fn group<'a>(requests: impl Iterator<Item = &'a OpenRequest>) -> Vec<ModelLoad> {
    let mut groups: BTreeMap<&Name, Vec<&OpenRequest>> = BTreeMap::new();
    for request in requests {
        groups.entry(&request.model).or_default().push(request);
    }
    groups.into_iter().map(|(model, requests)| load_of_model(model, &requests)).collect()
}

fn load_of_model(model: &Name, requests: &[&OpenRequest]) -> ModelLoad {
    let holds = || requests.iter().filter_map(|request| request.hold);
    let shut = || holds().filter(|hold| hold.reason != HoldReason::Capacity);
    // The newest record knows best when the gate opens.
    let newest = shut().max_by_key(|hold| hold.reported);
    let waiting = holds().count();
    ModelLoad {
        model: model.to_string(),
        state: if newest.is_some() { "held" } else { "open" },
        reason: newest.map(|hold| hold.reason.into()),
        since: shut().map(|hold| hold.since).min().map(|at| at.to_string()),
        until: newest.and_then(|hold| hold.until).map(|at| at.to_string()),
        waiting,
        in_flight: requests.len() - waiting,
        last_error: requests.iter().find_map(|request| request.last_error),
    }
}
