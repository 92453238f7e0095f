//! The laws of calls that workers run. They compare the records with the ledger and with what the processes know.

use std::collections::BTreeMap;

use budao_core::{
    event::{CallStart, Event, Record},
    fault::{Fact, Fault, Kind},
    message::CallId,
    tool::Outcome,
};

use super::{WORKER, book::WorkerBook};
use crate::check::Violations;

/// A call as its records have it.
#[derive(Debug, Default)]
struct CallRecord {
    tool: String,
    /// The number of the last attempt that started.
    attempt: u32,
    /// The attempts that were claimed, and the processes that claimed them.
    claims: Vec<(u32, String)>,
    ends: Vec<Outcome>,
}

impl CallRecord {
    fn fault(&self) -> Option<&Fault> {
        self.ends.first().and_then(Outcome::fault)
    }
}

/// Checks all calls of one session.
pub(super) fn of_calls(
    history: &[Record],
    book: &WorkerBook,
    ledger: &BTreeMap<String, u32>,
    violations: &Violations,
) {
    let Some(session) = history.first().map(|record| record.session.to_string()) else { return };
    let (begun, reports) = (book.count_starts(), book.reports());
    for (id, call) in read(history, violations) {
        let key = format!("{session}.{id}");
        let law = |holds: bool, promise: &'static str| {
            violations.expect(holds, promise, || format!("{key}: {call:?}"));
        };
        let times = |of: &BTreeMap<String, u32>| of.get(&key).copied().unwrap_or_default();
        law(call.ends.len() == 1, "a call of a worker has one end");
        if call.tool == "pay" {
            law(times(&begun) <= 1, "a call that may not be repeated begins once");
            law(call.claims.len() <= 1, "a claimed call is never offered again");
        }
        let is_effect = call.tool == "pay" || call.tool == "check";
        law(!is_effect || times(ledger) <= 1, "no effect of a worker takes place twice");
        let name = (session.clone(), id.to_string());
        let is_done = matches!(call.ends.first(), Some(Outcome::Done(_)));
        law(!is_done || times(ledger) > 0, "what is called done was done");
        if let Some(accepted) = reports.get(&name).filter(|it| it.content["result"].is_object()) {
            let is_end = is_done || book.may_have_lost(accepted);
            law(is_end, "an accepted result is the end of its call");
            law(accepted.content["result"]["did"] == key.as_str(), "a result belongs to its call");
        }
        law(
            is_explained(&call, &name, (times(&begun), times(ledger), book)),
            "doubt only where the outcome is unknown",
        );
    }
}

/// Whether the fault of a call says what its processes know.
fn is_explained(
    call: &CallRecord,
    (session, id): &(String, String),
    (begun, did, book): (u32, u32, &WorkerBook),
) -> bool {
    let Some(fault) = call.fault() else { return true };
    let names_worker = fault.detail().text(Fact::Worker) == Some(WORKER);
    let is_gone = |claims: &[(u32, String)]| claims.iter().any(|(_, worker)| book.is_gone(worker));
    let are_gone = || call.claims.iter().all(|(_, worker)| book.is_gone(worker));
    match fault.kind() {
        // A call that certainly did not happen is offered once more.
        Kind::WorkerMissing if call.tool == "check" => {
            names_worker && call.claims.iter().all(|(attempt, _)| *attempt < call.attempt)
        }
        Kind::WorkerMissing => names_worker && begun == 0 && call.claims.is_empty(),
        Kind::WorkerLost => names_worker && is_gone(&call.claims),
        Kind::OutcomeUnknown => is_gone(&call.claims),
        Kind::DeadlinePassed => book.hangs(session, id),
        // The function was stopped in doubt, and the server that told it to stop was killed before it took the report.
        // The next one has the report, and takes it for the function's own failure.
        Kind::ToolFailed if book.was_stopped(session, id) => true,
        // The processes of all attempts are gone, and none of them did anything.
        Kind::ToolFailed => call.tool == "check" && call.attempt > 1 && did == 0 && are_gone(),
        // The function said no, or a person cancelled the turn.
        Kind::ToolSaidNo | Kind::Cancelled => true,
        _ => false,
    }
}

/// Reads the calls of a history.
fn read(history: &[Record], violations: &Violations) -> BTreeMap<CallId, CallRecord> {
    let mut calls: BTreeMap<CallId, CallRecord> = BTreeMap::new();
    for record in history {
        match &record.event {
            Event::ToolCallStarted(CallStart { call, tool, attempt, .. }) => {
                let known = calls.entry(call.clone()).or_default();
                let is_claimed = known.tool == "pay" && !known.claims.is_empty();
                violations.expect(!is_claimed, "a claimed call is never offered again", || {
                    format!("{} {call}: {known:?}", record.session)
                });
                known.tool.clone_from(tool);
                known.attempt = *attempt;
            }
            Event::ToolCallClaimed { call, attempt, worker, .. } => {
                let known = calls.entry(call.clone()).or_default();
                let is_first = known.claims.iter().all(|(of, _)| of != attempt);
                violations.expect(
                    is_first && *attempt == known.attempt,
                    "one process has an attempt",
                    || format!("{} {call} {attempt} {worker}: {known:?}", record.session),
                );
                known.claims.push((*attempt, worker.clone()));
            }
            Event::ToolCallEnded { call, outcome, .. } => {
                calls.entry(call.clone()).or_default().ends.push(outcome.clone());
            }
            _ => {}
        }
    }
    calls
}
