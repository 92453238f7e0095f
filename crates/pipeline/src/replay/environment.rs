//! The environments in which a recorded decision may have been made.

use std::{sync::Arc, time::Duration};

use budao_core::{
    event::{Event, Record},
    fallback::ModelOutlook,
    fault::{Fault, NodeIdentity},
    limits::Limits,
    session::Session,
    trace::Trace,
    turn::Env,
};

/// How long the gates of a variant stay shut; longer than any bound for changing the model.
const SHUT: Duration = Duration::from_secs(24 * 3600);
/// The gate that opens first among shut ones.
const SHUT_LESS: Duration = Duration::from_secs(60);

/// What a decision depends on and no record has.
#[derive(Clone, Debug)]
pub(super) struct Environment<'a> {
    limits: &'a Limits,
    is_observed: bool,
    busy_slots: usize,
    outlooks: Vec<ModelOutlook>,
    trace: Trace,
    server: Option<Arc<NodeIdentity>>,
}

impl<'a> Environment<'a> {
    /// The usual environment first: observed, with free slots and open gates.
    pub(super) fn variants(
        session: &Session,
        rest: &[Record],
        limits: &'a Limits,
    ) -> impl Iterator<Item = Self> {
        let trace = trace_of_turn(rest);
        let server = server_of(rest);
        let gates = gates(session, rest);
        let slots = 0..=limits.parallel_calls;
        slots.flat_map(move |busy_slots| {
            let (gates, server) = (gates.clone(), server.clone());
            [true, false].into_iter().flat_map(move |is_observed| {
                let server = server.clone();
                gates.clone().into_iter().map(move |outlooks| Self {
                    limits,
                    is_observed,
                    busy_slots,
                    outlooks,
                    trace,
                    server: server.clone(),
                })
            })
        })
    }

    pub(super) fn env(&self, first: &Record, jitter: f64) -> Env<'_> {
        Env {
            now: first.at,
            jitter,
            is_observed: self.is_observed,
            busy_slots: self.busy_slots,
            trace: self.trace,
            outlooks: &self.outlooks,
            limits: self.limits,
            server: self.server.as_ref(),
        }
    }
}

/// The trace that a turn without one of its own got.
fn trace_of_turn(rest: &[Record]) -> Trace {
    let group = rest.iter().take_while(|record| record.at == rest[0].at);
    let mut started = group.filter(|record| matches!(record.event, Event::TurnStarted { .. }));
    started.next().map_or(rest[0].trace, |record| record.trace)
}

/// The server that made the decision, if one of its records names it.
fn server_of(rest: &[Record]) -> Option<Arc<NodeIdentity>> {
    let group = rest.iter().take_while(|record| record.at == rest[0].at);
    group.filter_map(|record| record.event.fault()?.server()).next().cloned()
}

/// All gates open; one open and the others shut; all shut and one that opens first.
fn gates(session: &Session, rest: &[Record]) -> Vec<Vec<ModelOutlook>> {
    let count = session.settings.models().count();
    if count < 2 {
        return vec![Vec::new()];
    }
    let fault = recorded_fault(rest);
    let outlook = |expected_wait| ModelOutlook { expected_wait, fault: fault.clone() };
    let mut gates = vec![Vec::new()];
    for chosen in 0..count {
        for wait in [Duration::ZERO, SHUT_LESS] {
            let of = |position| outlook(if position == chosen { wait } else { SHUT });
            gates.push((0..count).map(of).collect());
        }
    }
    gates.push((0..count).map(|_| outlook(SHUT)).collect());
    gates.push((0..count).map(|_| outlook(Duration::ZERO)).collect());
    gates
}

/// The failure of a service that the decision names.
fn recorded_fault(rest: &[Record]) -> Option<Fault> {
    let group = rest.iter().take_while(|record| record.at == rest[0].at);
    group.into_iter().find_map(|record| match &record.event {
        Event::ModelChanged { fault: Some(fault), .. } | Event::RecoveryFailed { fault, .. } => {
            Some(fault.clone())
        }
        _ => None,
    })
}
