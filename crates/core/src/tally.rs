//! Counts a session's faults and how each was resolved: the one place where such numbers come from.
//!
//! A failed attempt is one fault. A retry that succeeds recovers every fault of its operation in the turn; a call that
//! succeeds recovers the earlier failures of the same tool in the turn, because the model corrected itself. A fault
//! that ends its turn or its retries is not recovered. The turn goes on without the operation of any other fault.

use serde::{Deserialize, Serialize};

use crate::{
    event::{Event, Scope, Stage, TaskId},
    fault::{Fault, Kind},
    message::CallId,
    time::Timestamp,
    tool::Outcome,
};

/// Upper bound of a turn's faults whose resolution is tracked. Further ones are counted and never resolved.
const OPEN_MAX: usize = 256;

/// A session's fault counts. A fault that is neither recovered nor not recovered did not stop its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultCounts {
    /// All faults of the session, recovered or not.
    pub faults: u64,
    /// Faults whose operation succeeded later, by a retry or by a corrected call.
    pub recovered: u64,
    /// Faults that ended their turn, their task or their retries.
    pub not_recovered: u64,
}

/// How a fault was resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultResolution {
    /// A later attempt succeeded.
    Recovered,
    /// No further attempt follows.
    NotRecovered,
}

/// Receives the changes of a tally. Faults are numbered from 1 in the order of a session's records.
pub trait TallyObserver {
    /// A fault was raised.
    fn on_raised(&mut self, number: u64, at: Timestamp, fault: &Fault, scope: &Scope) {
        let _ = (number, at, fault, scope);
    }

    /// A fault of the running turn was resolved.
    fn on_resolved(&mut self, number: u64, resolution: FaultResolution) {
        let _ = (number, resolution);
    }

    /// An operation succeeded, this many milliseconds after it first failed.
    fn on_recovered(&mut self, at: Timestamp, elapsed_ms: u64) {
        let _ = (at, elapsed_ms);
    }

    /// An operation that was retried succeeded, or will not be tried again.
    fn on_retries_ended(&mut self, at: Timestamp, succeeded: bool) {
        let _ = (at, succeeded);
    }
}

impl TallyObserver for () {}

/// The fold behind [`FaultCounts`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultTally {
    #[serde(flatten)]
    counts: FaultCounts,
    /// The faults of the running turn that are not resolved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    open: Vec<OpenFault>,
    /// The operations of the running turn that are being retried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    retrying: Vec<FaultSubject>,
    /// The kinds of the running turn's faults that were not recovered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    final_kinds: Vec<Kind>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OpenFault {
    number: u64,
    at: Timestamp,
    kind: Kind,
    about: FaultSubject,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
}

/// The subject of a fault: a call, a task, or the model if both are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct FaultSubject {
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<CallId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<TaskId>,
}

impl From<&Scope> for FaultSubject {
    fn from(scope: &Scope) -> Self {
        Self { call: scope.call.clone(), task: scope.task.clone() }
    }
}

impl FaultTally {
    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    /// Counts one event. The caller passes a session's events in order.
    pub fn apply(&mut self, event: &Event, at: Timestamp, observer: &mut impl TallyObserver) {
        match event {
            Event::TurnStarted { .. } | Event::SessionEnded { .. } => self.close_turn(),
            Event::FaultRaised { fault, scope } => self.raise(at, fault, scope, observer),
            Event::PlanRefused { fault } => {
                let scope = Scope { stage: Some(Stage::Planning), ..Scope::default() };
                self.raise(at, fault, &scope, observer);
            }
            Event::ToolCallEnded { call, tool, outcome, .. } => {
                let (call, tool) = (Some(call.clone()), Some(tool.clone()));
                let scope = Scope { call, tool, ..Scope::default() };
                self.call_ended(at, &scope, outcome, observer);
            }
            Event::RetryScheduled { scope, .. } => {
                let about = FaultSubject::from(scope);
                if !self.retrying.contains(&about) && self.retrying.len() < OPEN_MAX {
                    self.retrying.push(about);
                }
            }
            Event::Recovered { elapsed_ms, scope, .. } => {
                let about = FaultSubject::from(scope);
                observer.on_recovered(at, *elapsed_ms);
                self.resolve(|open| open.about == about, FaultResolution::Recovered, observer);
                self.end_retries(at, &about, true, observer);
            }
            Event::RecoveryFailed { fault, scope } => self.give_up(at, fault, scope, observer),
            Event::TurnEnded { fault, .. } => {
                if let Some(fault) = fault
                    && !self.final_kinds.contains(&fault.kind())
                {
                    self.give_up(at, fault, &Scope::default(), observer);
                }
                self.close_turn();
            }
            _ => {}
        }
    }

    fn raise(
        &mut self,
        at: Timestamp,
        fault: &Fault,
        scope: &Scope,
        observer: &mut impl TallyObserver,
    ) {
        self.counts.faults += 1;
        let number = self.counts.faults;
        observer.on_raised(number, at, fault, scope);
        if self.open.len() < OPEN_MAX {
            let (kind, about, tool) = (fault.kind(), scope.into(), scope.tool.clone());
            self.open.push(OpenFault { number, at, kind, about, tool });
        }
    }

    fn call_ended(
        &mut self,
        at: Timestamp,
        scope: &Scope,
        outcome: &Outcome,
        observer: &mut impl TallyObserver,
    ) {
        if let Some(fault) = outcome.fault() {
            self.end_retries(at, &scope.into(), false, observer);
            return self.raise(at, fault, scope, observer);
        }
        let is_same = |open: &OpenFault| open.about.call.is_some() && open.tool == scope.tool;
        let first = self.open.iter().find(|open| is_same(open)).map(|open| open.at);
        self.resolve(is_same, FaultResolution::Recovered, observer);
        if let Some(first) = first {
            let elapsed = u64::try_from(at.since(first).as_millis()).unwrap_or(u64::MAX);
            observer.on_recovered(at, elapsed);
        }
    }

    /// Resolves a fault that no further attempt follows, and counts it if no record raised it before.
    fn give_up(
        &mut self,
        at: Timestamp,
        fault: &Fault,
        scope: &Scope,
        observer: &mut impl TallyObserver,
    ) {
        let (about, kind) = (FaultSubject::from(scope), fault.kind());
        self.end_retries(at, &about, false, observer);
        if !self.open.iter().any(|open| open.kind == kind) {
            self.raise(at, fault, scope, observer);
        }
        let is_meant = |open: &OpenFault| open.about == about || open.kind == kind;
        self.resolve(is_meant, FaultResolution::NotRecovered, observer);
    }

    fn end_retries(
        &mut self,
        at: Timestamp,
        about: &FaultSubject,
        succeeded: bool,
        observer: &mut impl TallyObserver,
    ) {
        let before = self.retrying.len();
        self.retrying.retain(|retried| retried != about);
        if self.retrying.len() < before {
            observer.on_retries_ended(at, succeeded);
        }
    }

    fn resolve(
        &mut self,
        is_meant: impl Fn(&OpenFault) -> bool,
        resolution: FaultResolution,
        observer: &mut impl TallyObserver,
    ) {
        for open in self.open.extract_if(.., |open| is_meant(open)) {
            observer.on_resolved(open.number, resolution);
            match resolution {
                FaultResolution::Recovered => self.counts.recovered += 1,
                FaultResolution::NotRecovered => {
                    self.counts.not_recovered += 1;
                    if !self.final_kinds.contains(&open.kind) {
                        self.final_kinds.push(open.kind);
                    }
                }
            }
        }
    }

    fn close_turn(&mut self) {
        self.open.clear();
        self.retrying.clear();
        self.final_kinds.clear();
    }
}
