//! Counts the records of one session. A pure fold, so a restart gives the same result.
//!
//! `core::tally` finds the faults and their resolutions; this fold adds their context.

use std::{collections::BTreeMap, time::Duration};

use budao_core::{
    Event, Fault, Kind, Record, Timestamp,
    activity::{Activity, ActivityFold, TurnContext},
    event::{Epoch, Origin, Scope, Seq, SessionId, Stage, StopReason},
    fault::Fact,
    message::CallId,
    spending,
    tally::{FaultResolution, FaultTally, TallyObserver},
};

use super::{
    ledger::{FaultEntry, FaultPath, MinuteCounters, Name},
    open_requests::{self, OpenRequest},
};

/// Upper bound of a turn's faults that wait for their resolution; further ones are stored without one.
const OPEN_FAULTS: usize = 256;
/// Upper bound of kinds in a path; later kinds are left out.
const PATH_KINDS: usize = 6;
/// Counts the tokens of a summary that comes before the first step of its session.
const UNKNOWN_MODEL: &str = "unknown";

/// The events that are counted, by their stored names. Other records are not decoded.
const COUNTED: [&str; 20] = [
    "annotated",
    "session_opened",
    "turn_started",
    "turn_ended",
    "step_started",
    "request_held",
    "request_released",
    "model_answered",
    "history_compacted",
    "tool_call_ended",
    "doubt_settled",
    "fault_raised",
    "plan_refused",
    "retry_scheduled",
    "recovered",
    "recovery_failed",
    "session_ended",
    "late_arrival_dropped",
    "observer_lost",
    "model_changed",
];

/// True if a stored event is counted.
pub(super) fn is_counted(body: &[u8]) -> bool {
    let name = body.strip_prefix(b"{\"").unwrap_or_default();
    COUNTED.iter().any(|counted| {
        name.strip_prefix(counted.as_bytes()).is_some_and(|rest| rest.starts_with(b"\""))
    })
}

/// A session's progress in the statistics, with its open turn.
#[derive(Debug)]
pub(super) struct SessionCounters {
    pub(super) epoch: Option<Epoch>,
    /// All records up to this position are counted.
    pub(super) after: Seq,
    /// The time of the last counted record.
    pub(super) changed: Timestamp,
    tally: FaultTally,
    fold: ActivityFold,
    turn: OpenTurn,
    doubts: Vec<OpenDoubt>,
    request: Option<OpenRequest>,
    /// The last record that a fork copied. Facts up to it count for the parent of the fork.
    copied: Seq,
}

/// A call whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenDoubt {
    pub(crate) session: SessionId,
    pub(crate) call: CallId,
    pub(crate) tool: String,
    /// When the call ended with an unknown outcome.
    pub(crate) since: Timestamp,
}

/// The context of the session's faults, and the running turn.
#[derive(Debug)]
struct OpenTurn {
    session: SessionId,
    stage: Option<Stage>,
    tenant: Option<Name>,
    user: Option<Name>,
    model: Option<Name>,
    /// The running step's request has no answer yet.
    is_unanswered: bool,
    /// The faults of the turn, by their number.
    faults: BTreeMap<u64, FaultEntry>,
    path: Vec<Kind>,
}

/// Passes the findings of the tally to the ledger.
struct LedgerObserver<'a> {
    /// The time of the record.
    at: Timestamp,
    turn: &'a mut OpenTurn,
    ledger: &'a mut MinuteCounters,
}

impl TallyObserver for LedgerObserver<'_> {
    fn on_raised(&mut self, number: u64, at: Timestamp, fault: &Fault, scope: &Scope) {
        let Self { turn, ledger, .. } = self;
        let seen = turn.fault_entry(at, fault, scope, ledger);
        ledger.record_fault(&seen, fault);
        if turn.path.last() != Some(&seen.kind) && turn.path.len() < PATH_KINDS {
            turn.path.push(seen.kind);
        }
        if turn.faults.len() < OPEN_FAULTS {
            turn.faults.insert(number, seen);
        } else {
            ledger.store_faults([seen]);
        }
    }

    fn on_resolved(&mut self, number: u64, resolution: FaultResolution) {
        if let Some(entry) = self.turn.faults.get_mut(&number) {
            entry.resolution = Some(resolution);
            let elapsed = self.at.since(entry.at).as_millis();
            entry.recovery_ms = (resolution == FaultResolution::Recovered)
                .then(|| u64::try_from(elapsed).unwrap_or(u64::MAX));
        }
    }

    fn on_recovered(&mut self, at: Timestamp, elapsed_ms: u64) {
        self.ledger.count_recovery(at, elapsed_ms);
    }

    fn on_retries_ended(&mut self, at: Timestamp, succeeded: bool) {
        self.ledger.count_retried(at, succeeded);
    }
}

impl SessionCounters {
    pub(super) fn new(session: SessionId) -> Self {
        Self {
            epoch: None,
            after: 0,
            changed: Timestamp::default(),
            tally: FaultTally::default(),
            fold: ActivityFold::default(),
            turn: OpenTurn {
                session,
                stage: None,
                tenant: None,
                user: None,
                model: None,
                is_unanswered: false,
                faults: BTreeMap::new(),
                path: Vec::new(),
            },
            doubts: Vec::new(),
            request: None,
            copied: 0,
        }
    }

    /// The model request of the running step.
    pub(super) fn request(&self) -> Option<&OpenRequest> {
        self.request.as_ref()
    }

    /// The calls in doubt, oldest first.
    pub(super) fn doubts(&self) -> &[OpenDoubt] {
        &self.doubts
    }

    /// Adds calls that ended with an unknown outcome, and removes those that a person settled. Not bounded here: a
    /// session with too many of them takes no message.
    fn update_doubts(&mut self, at: Timestamp, event: &Event) {
        match event {
            Event::ToolCallEnded { call, tool, outcome, .. } if outcome.is_in_doubt() => {
                let (session, call, tool) = (self.session(), call.clone(), tool.clone());
                self.doubts.push(OpenDoubt { session, call, tool, since: at });
            }
            Event::DoubtSettled { call, .. } => self.doubts.retain(|doubt| doubt.call != *call),
            _ => {}
        }
    }

    pub(super) fn session(&self) -> SessionId {
        self.turn.session
    }

    /// The faults of the running turn.
    pub(super) fn open_faults(&self) -> impl Iterator<Item = &FaultEntry> {
        self.turn.faults.values()
    }

    /// Counts one record.
    pub(super) fn take(&mut self, record: &Record, ledger: &mut MinuteCounters) {
        let (at, event) = (record.at, &record.event);
        if let Event::SessionOpened { origin: Some(Origin::Fork { copied, .. }), .. } = event {
            self.copied = *copied;
        } else if record.seq <= self.copied {
            return;
        }
        self.update_doubts(at, event);
        open_requests::apply(&mut self.request, at, event, ledger);
        if let Event::TurnStarted { .. } = event {
            self.turn.store_turn_faults(ledger);
            ledger.count_turn(at);
        }
        let mut observer = LedgerObserver { at, turn: &mut self.turn, ledger };
        self.tally.apply(event, at, &mut observer);
        let context = self.fold.turn();
        if let Some(activity) = self.fold.apply(event, at, record.turn) {
            self.turn.count_activity(activity, at, context, ledger);
        }
    }
}

impl OpenTurn {
    /// Counts one activity: steps, calls, usage, retries and the turn's end. Faults are counted by the tally.
    fn count_activity(
        &mut self,
        activity: Activity<'_>,
        at: Timestamp,
        context: Option<TurnContext>,
        ledger: &mut MinuteCounters,
    ) {
        match activity {
            Activity::SessionOpened { settings, origin } => {
                if let Some(Origin::Stage { stage, .. }) = origin {
                    self.stage = Some(*stage);
                }
                let named = |name: &'_ str| !name.is_empty();
                self.tenant = Some(settings.tenant())
                    .filter(|it| named(it))
                    .map(|it| ledger.intern_tenant(it));
                self.user =
                    Some(settings.owner()).filter(|it| named(it)).map(|it| ledger.intern_user(it));
            }
            Activity::StepStarted { model, .. } => {
                let model = ledger.intern_model(model);
                // The request before it failed.
                self.settle_request(at, ledger);
                self.is_unanswered = true;
                ledger.count_step(at, &model);
                self.model = Some(model);
            }
            Activity::Annotated { topic, data } if topic == spending::TOPIC => {
                if let (Some(cost), Some(model)) = (data["cost"].as_u64(), data["model"].as_str()) {
                    let model = ledger.intern_model(model);
                    ledger.set_currency(data["currency"].as_str().unwrap_or_default());
                    let key = data["key"].as_str().unwrap_or_default();
                    ledger.count_cost(at, (&model, key), self.tenant.as_ref(), cost);
                }
            }
            Activity::Answered { usage, .. } => {
                self.is_unanswered = false;
                if let Some(model) = self.model.clone() {
                    ledger.count_usage(at, &model, usage);
                }
                if let Some(requested_at) = context.and_then(|turn| turn.requested_at) {
                    ledger.record_answer_time(at.since(requested_at));
                }
            }
            // A summary is a request to the model, too; its tokens are counted with its cost.
            Activity::Compacted { usage, .. } if usage.total_tokens() > 0 => {
                let model = self.model.clone();
                let model = model.unwrap_or_else(|| ledger.intern_model(UNKNOWN_MODEL));
                ledger.count_usage(at, &model, usage);
            }
            Activity::CallEnded { tool, outcome, duration_ms, .. } => {
                let (name, took) = (ledger.intern_tool(tool), Duration::from_millis(duration_ms));
                ledger.count_call(at, &name, outcome.fault().is_none(), took);
            }
            Activity::RetryScheduled { .. } => ledger.count_retry(at),
            Activity::TurnEnded { stop, .. } => {
                let took = context.map(|turn| at.since(turn.started_at));
                self.count_turn_end(at, stop, took, ledger);
            }
            Activity::SessionEnded { .. } => self.store_turn_faults(ledger),
            Activity::LateResultDropped { .. } => ledger.count_late_result(),
            Activity::ModelChanged { from, to, reason, .. } => {
                let (from, to) = (ledger.intern_model(from), ledger.intern_model(to));
                ledger.count_model_change(&from, &to, reason);
            }
            Activity::ObserverLost { .. } => ledger.count_lost_observer(),
            _ => {}
        }
    }

    /// A fault with its context.
    fn fault_entry(
        &self,
        at: Timestamp,
        fault: &Fault,
        scope: &Scope,
        ledger: &mut MinuteCounters,
    ) -> FaultEntry {
        let computer = fault.hops().iter().rev().find(|hop| hop.role == "computer");
        let computer = computer
            .map(|hop| hop.name.as_str())
            .or_else(|| fault.detail().text(Fact::Computer))
            .map(|name| ledger.intern_computer(name));
        FaultEntry {
            at,
            session: self.session,
            kind: fault.kind(),
            tool: scope.tool.as_deref().map(|tool| ledger.intern_tool(tool)),
            model: self.model.clone(),
            stage: scope.stage.or(self.stage),
            computer,
            endpoint: fault.address().map(|address| ledger.intern_endpoint(address)),
            node: fault.server().map(|server| ledger.intern_node(&server.node)),
            version: fault.server().map(|server| ledger.intern_version(&server.version)),
            tenant: self.tenant.clone(),
            user: self.user.clone(),
            resolution: None,
            recovery_ms: None,
        }
    }

    fn count_turn_end(
        &mut self,
        at: Timestamp,
        stop: StopReason,
        took: Option<Duration>,
        ledger: &mut MinuteCounters,
    ) {
        self.settle_request(at, ledger);
        if let Some(took) = took {
            ledger.record_turn_time(stop, took);
        }
        let kinds = std::mem::take(&mut self.path);
        if !kinds.is_empty() {
            ledger.count_path(at, FaultPath { kinds, end: stop });
        }
        self.store_turn_faults(ledger);
    }

    /// Counts the running step's request if it ended without an answer.
    fn settle_request(&mut self, at: Timestamp, ledger: &mut MinuteCounters) {
        if std::mem::take(&mut self.is_unanswered) {
            ledger.count_unanswered(at);
        }
    }

    /// Stores the faults of the finished turn.
    fn store_turn_faults(&mut self, ledger: &mut MinuteCounters) {
        ledger.store_faults(std::mem::take(&mut self.faults).into_values());
        self.path.clear();
    }
}
