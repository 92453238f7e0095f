//! Counts the records of one session. A pure fold, so a restart gives the same result.

use std::time::Duration;

use budao_core::{
    Event, Fault, Kind, Record, Timestamp,
    event::{Epoch, Origin, Scope, Seq, SessionId, Stage, StopReason, TaskId},
    fault::Fact,
    message::CallId,
    tool::Outcome,
};

use super::ledger::{FaultEntry, FaultPath, FaultResolution, Name, StatsLedger};

/// Upper bound of a turn's faults whose resolution is tracked; further ones count as ignored.
const OPEN_FAULTS: usize = 256;
/// Upper bound of kinds in a path; later kinds are left out.
const PATH_KINDS: usize = 6;

/// The events that are counted, by their stored names. Other records are not decoded.
const COUNTED: [&str; 14] = [
    "session_opened",
    "turn_started",
    "turn_ended",
    "step_started",
    "model_answered",
    "tool_call_ended",
    "fault_raised",
    "plan_refused",
    "retry_scheduled",
    "recovered",
    "recovery_failed",
    "session_ended",
    "late_arrival_dropped",
    "observer_lost",
];

/// True if a stored event is counted.
pub(super) fn counts(body: &[u8]) -> bool {
    let name = body.strip_prefix(b"{\"").unwrap_or_default();
    COUNTED.iter().any(|counted| {
        name.strip_prefix(counted.as_bytes()).is_some_and(|rest| rest.starts_with(b"\""))
    })
}

/// A session's progress in the statistics, with its open turn.
#[derive(Debug)]
pub(super) struct SessionCounters {
    session: SessionId,
    pub(super) epoch: Option<Epoch>,
    /// All records up to this position are counted.
    pub(super) after: Seq,
    /// The time of the last counted record.
    pub(super) changed: Timestamp,
    stage: Option<Stage>,
    model: Option<Name>,
    turn: Option<Box<OpenTurn>>,
}

/// The state of the running turn.
#[derive(Debug, Default)]
struct OpenTurn {
    began: Option<Timestamp>,
    /// The time of the unanswered model request's first attempt.
    model_requested_at: Option<Timestamp>,
    faults: Vec<OpenFault>,
    path: Vec<Kind>,
    /// The subjects with a scheduled retry.
    retrying: Vec<FaultSubject>,
}

#[derive(Debug)]
struct OpenFault {
    seen: FaultEntry,
    about: FaultSubject,
}

/// The subject of a fault: a call, a task, or the model if both are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
struct FaultSubject {
    call: Option<CallId>,
    task: Option<TaskId>,
}

impl From<&Scope> for FaultSubject {
    fn from(scope: &Scope) -> Self {
        Self { call: scope.call.clone(), task: scope.task.clone() }
    }
}

impl SessionCounters {
    pub(super) fn new(session: SessionId) -> Self {
        Self {
            session,
            epoch: None,
            after: 0,
            changed: Timestamp::default(),
            stage: None,
            model: None,
            turn: None,
        }
    }

    pub(super) fn session(&self) -> SessionId {
        self.session
    }

    /// The faults of the running turn.
    pub(super) fn open_faults(&self) -> impl Iterator<Item = &FaultEntry> {
        self.turn.iter().flat_map(|turn| turn.faults.iter().map(|open| &open.seen))
    }

    /// Counts one record.
    pub(super) fn take(&mut self, record: &Record, ledger: &mut StatsLedger) {
        let at = record.at;
        match &record.event {
            Event::SessionOpened { origin: Some(Origin::Stage { stage, .. }), .. } => {
                self.stage = Some(*stage);
            }
            Event::TurnStarted { .. } => {
                self.close(ledger);
                self.turn = Some(Box::new(OpenTurn { began: Some(at), ..OpenTurn::default() }));
                ledger.turn_began(at);
            }
            Event::StepStarted { model, attempt, .. } => {
                let model = ledger.model(model);
                ledger.step(at, &model);
                self.model = Some(model);
                if *attempt == 1 {
                    self.turn_mut().model_requested_at = Some(at);
                }
            }
            Event::ModelAnswered { .. } => {
                if let Some(requested_at) = self.turn_mut().model_requested_at.take() {
                    ledger.answer(at, at.since(requested_at));
                }
            }
            Event::ToolCallEnded { call, tool, outcome, duration_ms } => {
                let (name, took) = (ledger.tool(tool), Duration::from_millis(*duration_ms));
                ledger.call(at, &name, outcome.fault().is_none(), took);
                let about = FaultSubject { call: Some(call.clone()), task: None };
                self.call_ended(at, &about, tool, outcome, ledger);
            }
            Event::FaultRaised { fault, scope } => self.record_fault(at, fault, scope, ledger),
            Event::PlanRefused { fault } => {
                let scope = Scope { stage: Some(Stage::Planning), ..Scope::default() };
                self.record_fault(at, fault, &scope, ledger);
            }
            Event::RetryScheduled { scope, .. } => {
                ledger.retry(at);
                let about = FaultSubject::from(scope);
                let turn = self.turn_mut();
                if !turn.retrying.contains(&about) && turn.retrying.len() < OPEN_FAULTS {
                    turn.retrying.push(about);
                }
            }
            Event::Recovered { elapsed_ms, scope, .. } => {
                ledger.recovery(at, *elapsed_ms);
                self.retries_ended(at, &scope.into(), true, ledger);
            }
            Event::RecoveryFailed { fault, scope } => {
                self.recovery_failed(at, fault, scope, ledger);
            }
            Event::TurnEnded { stop, fault, .. } => self.ended(at, *stop, fault.as_ref(), ledger),
            Event::SessionEnded { .. } => self.close(ledger),
            Event::LateArrivalDropped { .. } => ledger.late(at),
            Event::ObserverLost { .. } => ledger.lost(at),
            _ => {}
        }
    }

    fn turn_mut(&mut self) -> &mut OpenTurn {
        self.turn.get_or_insert_default()
    }

    fn record_fault(
        &mut self,
        at: Timestamp,
        fault: &Fault,
        scope: &Scope,
        ledger: &mut StatsLedger,
    ) {
        let computer = fault.hops().iter().rev().find(|hop| hop.role == "computer");
        let computer = computer
            .map(|hop| hop.name.as_str())
            .or_else(|| fault.detail().text(Fact::Computer))
            .map(|name| ledger.computer(name));
        let seen = FaultEntry {
            at,
            session: self.session,
            kind: fault.kind(),
            tool: scope.tool.as_deref().map(|tool| ledger.tool(tool)),
            model: self.model.clone(),
            stage: scope.stage.or(self.stage),
            computer,
            resolution: FaultResolution::Ignored,
        };
        ledger.record_fault(&seen, fault);
        let turn = self.turn_mut();
        if turn.path.last() != Some(&seen.kind) && turn.path.len() < PATH_KINDS {
            turn.path.push(seen.kind);
        }
        if turn.faults.len() < OPEN_FAULTS {
            turn.faults.push(OpenFault { seen, about: scope.into() });
        } else {
            ledger.faults([seen]);
        }
    }

    /// Counts a call's outcome: a fault, or the recovery of earlier faults. A call that succeeds after a failed call of
    /// the same tool counts as the model's correction.
    fn call_ended(
        &mut self,
        at: Timestamp,
        about: &FaultSubject,
        tool: &str,
        outcome: &Outcome,
        ledger: &mut StatsLedger,
    ) {
        if let Some(fault) = outcome.fault() {
            let scope =
                Scope { call: about.call.clone(), tool: Some(tool.to_owned()), ..Scope::default() };
            self.retries_ended(at, about, false, ledger);
            return self.record_fault(at, fault, &scope, ledger);
        }
        let mut first = None;
        for open in &mut self.turn_mut().faults {
            let is_same = open.about.call.is_some() && open.seen.tool.as_deref() == Some(tool);
            if is_same && open.seen.resolution == FaultResolution::Ignored {
                open.seen.resolution = FaultResolution::Recovered;
                first = first.or(Some(open.seen.at));
            }
        }
        if let Some(first) = first {
            let millis = u64::try_from(at.since(first).as_millis()).unwrap_or(u64::MAX);
            ledger.recovery(at, millis);
        }
    }

    /// Ends the retries of a subject: one succeeded, or no further one follows.
    fn retries_ended(
        &mut self,
        at: Timestamp,
        about: &FaultSubject,
        succeeded: bool,
        ledger: &mut StatsLedger,
    ) {
        let turn = self.turn_mut();
        if succeeded {
            turn.end_all(|open| open.about == *about, FaultResolution::Recovered);
        }
        let before = turn.retrying.len();
        turn.retrying.retain(|retried| retried != about);
        if turn.retrying.len() < before {
            ledger.retried(at, succeeded);
        }
    }

    fn recovery_failed(
        &mut self,
        at: Timestamp,
        fault: &Fault,
        scope: &Scope,
        ledger: &mut StatsLedger,
    ) {
        let about = FaultSubject::from(scope);
        self.retries_ended(at, &about, false, ledger);
        let is_known = self.turn_mut().faults.iter().any(|open| {
            open.seen.kind == fault.kind() && open.seen.resolution == FaultResolution::Ignored
        });
        if !is_known {
            self.record_fault(at, fault, scope, ledger);
        }
        let kind = fault.kind();
        let turn = self.turn_mut();
        turn.end_all(
            |open| open.about == about || open.seen.kind == kind,
            FaultResolution::NotRecovered,
        );
    }

    fn ended(
        &mut self,
        at: Timestamp,
        stop: StopReason,
        fault: Option<&Fault>,
        ledger: &mut StatsLedger,
    ) {
        if let Some(fault) = fault {
            let kind = fault.kind();
            let turn = self.turn_mut();
            let is_known = |open: &OpenFault| {
                open.seen.kind == kind && open.seen.resolution == FaultResolution::NotRecovered
            };
            if !turn.faults.iter().any(is_known) {
                self.recovery_failed(at, fault, &Scope::default(), ledger);
            }
        }
        if let Some(began) = self.turn_mut().began {
            ledger.turn_ended(at, stop, at.since(began));
        }
        let kinds = std::mem::take(&mut self.turn_mut().path);
        if !kinds.is_empty() {
            ledger.path(at, FaultPath { kinds, end: stop });
        }
        self.close(ledger);
    }

    /// Stores the faults of the finished turn.
    fn close(&mut self, ledger: &mut StatsLedger) {
        if let Some(turn) = self.turn.take() {
            ledger.faults(turn.faults.into_iter().map(|open| open.seen));
        }
    }
}

impl OpenTurn {
    fn end_all(&mut self, is_meant: impl Fn(&OpenFault) -> bool, resolution: FaultResolution) {
        for open in &mut self.faults {
            if open.seen.resolution == FaultResolution::Ignored && is_meant(open) {
                open.seen.resolution = resolution;
            }
        }
    }
}
