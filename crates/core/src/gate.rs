//! Admission control for one endpoint, model and credential: holds requests back instead of failing them.
//!
//! The gate is pure: callers pass the time in and perform the returned actions. A request asks with [`Gate::request`]
//! and is granted, reported or refused by [`Gate::advance`], which callers run after every call and at
//! [`Gate::next_wake`]. What holds requests: a hint of the service, a limit on requests in flight and on their rate,
//! and an outage, which one request at a time probes. No hold lasts longer than `hint_ceiling` without a probe.

mod config;
mod limit;
mod outage;
mod queue;
mod signal;
mod status;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, mem,
    sync::Arc,
    time::Duration,
};

use crate::{event::SessionId, fault::Fault, time::Timestamp};

pub use config::GateConfig;
pub use status::{GateStatus, HoldReason, HoldReport};

use limit::{InFlightLimit, RateLimit};
use outage::{Outage, RecentRequests};
use queue::{FairQueue, QueueEntry};
use signal::ServiceSignal;

/// The shortest time between two reports about one waiting request.
const REPORT_MIN: Duration = Duration::from_secs(5);

/// Identifies a gate. The credential is a hash, which does not reveal it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GateKey {
    /// The address of the service, or the name of a provider without one.
    pub endpoint: Arc<str>,
    /// The model's name as its provider knows it.
    pub model: Arc<str>,
    /// A short hash of the credential; empty if there is none.
    pub credential: Arc<str>,
}

impl fmt::Display for GateKey {
    /// `model at endpoint`, with the hash of the credential if there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.model, self.endpoint)?;
        match &*self.credential {
            "" => Ok(()),
            credential => write!(f, " with key {credential}"),
        }
    }
}

/// A request at a gate, unique within the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Whether a person waits for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The session has an observer.
    Interactive,
    /// Nobody observes the session.
    Background,
}

/// How far a request is willing to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Willingness {
    /// It waits until it is granted.
    Wait,
    /// It waits for capacity, and is refused while the gate is shut.
    WhileOpen,
    /// It does not wait: it is granted at once, or refused if the gate is shut.
    Never,
}

/// The party that makes a request.
#[derive(Clone, Debug)]
pub struct Requester {
    /// Sessions share the grants of their tenant.
    pub session: SessionId,
    /// Tenants share the grants of the gate.
    pub tenant: Arc<str>,
    /// Interactive requests come first.
    pub priority: Priority,
    /// How far the request is willing to wait.
    pub willingness: Willingness,
}

/// Why a gate refuses a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// So many requests wait that no further one may; the bound is `models.gate.waiting`.
    Full(u32),
    /// The gate is shut and the request does not wait.
    Shut(HoldReport),
}

/// The end of a granted request.
#[derive(Clone, Copy, Debug)]
pub enum RequestEnd<'a> {
    /// The answer is complete.
    Answered,
    /// The request failed.
    Failed(&'a Fault),
    /// The request was dropped before its end.
    Abandoned,
}

/// What the caller does after a change of the gate.
#[derive(Clone, Debug, PartialEq)]
pub enum GateAction {
    /// The request may be made now; [`Gate::finish`] must follow.
    Grant(Ticket),
    /// The request is refused, because the gate shut and it does not wait for that.
    Refuse(Ticket, HoldReport),
    /// The session learns that its request waits. The request keeps waiting.
    Report(Ticket, HoldReport),
}

/// Admission control for one endpoint, model and credential.
#[derive(Debug)]
pub struct Gate {
    config: GateConfig,
    tickets: u64,
    queue: FairQueue,
    waiting: BTreeMap<Ticket, WaitingRequest>,
    /// Times at which waiting requests are reported.
    reports: BTreeSet<(Timestamp, Ticket)>,
    /// Waiting requests that are refused when the gate shuts.
    while_open: BTreeSet<Ticket>,
    in_flight: BTreeMap<Ticket, RequestInFlight>,
    limit: InFlightLimit,
    rate: RateLimit,
    recent: RecentRequests,
    hold: Option<Hold>,
    outage: Option<Outage>,
    /// Refusals in a row, each after the hold of the one before, without an answer between.
    refusals: u32,
    last_error: Option<(Fault, Timestamp)>,
    actions: Vec<GateAction>,
}

#[derive(Debug)]
struct WaitingRequest {
    entry: QueueEntry,
    since: Timestamp,
    report_at: Option<Timestamp>,
}

#[derive(Debug)]
struct RequestInFlight {
    sent: Timestamp,
    cycle: u32,
    has_started: bool,
}

#[derive(Clone, Copy, Debug)]
struct Hold {
    since: Timestamp,
    until: Timestamp,
}

impl Gate {
    /// An open gate that knows nothing of its service. The caller has checked the configuration.
    #[must_use]
    pub fn new(config: GateConfig) -> Self {
        Self {
            tickets: 0,
            queue: FairQueue::new(config.background_share),
            waiting: BTreeMap::new(),
            reports: BTreeSet::new(),
            while_open: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            limit: InFlightLimit::new(&config),
            rate: RateLimit::new(),
            recent: RecentRequests::default(),
            hold: None,
            outage: None,
            refusals: 0,
            last_error: None,
            actions: Vec::new(),
            config,
        }
    }

    /// Asks for admission. [`Gate::advance`] grants it, now or later.
    ///
    /// # Errors
    /// When too many requests wait, or the gate is shut and the request does not wait for that.
    pub fn request(&mut self, requester: Requester, now: Timestamp) -> Result<Ticket, Refusal> {
        let may_probe = self.may_probe(now);
        let is_shut = self.is_shut(now) && !may_probe;
        let never_waits = requester.willingness == Willingness::Never;
        if is_shut && requester.willingness != Willingness::Wait {
            return Err(Refusal::Shut(self.hold_report(0, now)));
        }
        let most = usize::try_from(self.config.waiting).unwrap_or(usize::MAX);
        if !never_waits && self.queue.len() >= most {
            return Err(Refusal::Full(self.config.waiting));
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        match never_waits {
            true => {
                self.send(ticket, now);
                if let (true, Some(outage)) = (may_probe, &mut self.outage) {
                    outage.probe = Some(ticket);
                }
            }
            false => self.enqueue(ticket, requester, now),
        }
        Ok(ticket)
    }

    fn enqueue(&mut self, ticket: Ticket, requester: Requester, now: Timestamp) {
        let Requester { session, tenant, priority, willingness } = requester;
        let entry = self.queue.push(ticket, tenant, session, priority);
        if willingness == Willingness::WhileOpen {
            self.while_open.insert(ticket);
        }
        let visible = now.after(self.config.visible_after);
        let is_long = self.is_shut(now) && self.opens_at(now).is_none_or(|at| at >= visible);
        let report_at = match willingness {
            Willingness::Wait => Some(if is_long { now } else { visible }),
            Willingness::WhileOpen | Willingness::Never => None,
        };
        self.reports.extend(report_at.map(|at| (at, ticket)));
        self.waiting.insert(ticket, WaitingRequest { entry, since: now, report_at });
    }

    /// Withdraws a waiting request. Does nothing if it does not wait.
    pub fn withdraw(&mut self, ticket: Ticket) {
        if let Some(waiting) = self.forget(ticket) {
            self.queue.remove(&waiting.entry);
        }
    }

    /// Reports the first part of an answer: the service works, although the request goes on.
    pub fn started(&mut self, ticket: Ticket, now: Timestamp) {
        let Some(request) = self.in_flight.get_mut(&ticket) else { return };
        if !mem::replace(&mut request.has_started, true) {
            self.service_answered(now);
        }
    }

    /// Ends a granted request. Returns true if it failed as a probe, which costs its session no try.
    pub fn finish(&mut self, ticket: Ticket, end: RequestEnd<'_>, now: Timestamp) -> bool {
        let Some(request) = self.in_flight.remove(&ticket) else { return false };
        let is_probe = self.outage.as_ref().is_some_and(|outage| outage.probe == Some(ticket));
        match end {
            RequestEnd::Answered if request.has_started => {}
            RequestEnd::Answered => self.service_answered(now),
            RequestEnd::Abandoned => self.free_probe(ticket, now),
            RequestEnd::Failed(fault) => {
                let signal = ServiceSignal::of(fault, request.has_started);
                self.failed(ticket, &request, fault, signal, now);
                return is_probe && signal.is_of_service();
            }
        }
        false
    }

    /// Applies the time: returns everything that is due now.
    pub fn advance(&mut self, now: Timestamp) -> Vec<GateAction> {
        self.bound_holds(now);
        self.hold = self.hold.filter(|hold| hold.until > now);
        while let Some(is_probe) = self.may_send(now) {
            let Some(ticket) = self.queue.pop() else { break };
            if let Some(waiting) = self.forget(ticket) {
                self.queue.taken(&waiting.entry);
            }
            self.send(ticket, now);
            if let (true, Some(outage)) = (is_probe, &mut self.outage) {
                outage.probe = Some(ticket);
            }
        }
        if self.queue.len() == 0 {
            self.limit.stop_ramp();
        }
        if self.is_shut(now) {
            self.refuse_impatient(now);
        }
        self.report_due(now);
        mem::take(&mut self.actions)
    }

    /// When [`Gate::advance`] must run at the latest; absent while nothing is due with time alone.
    #[must_use]
    pub fn next_wake(&self, now: Timestamp) -> Option<Timestamp> {
        if self.queue.len() == 0 {
            return None;
        }
        let report = self.reports.first().map(|(at, _)| *at);
        let next = match (&self.hold, &self.outage) {
            (Some(hold), _) => Some(hold.until),
            (None, Some(outage)) if outage.probe.is_some() => None,
            (None, Some(outage)) => Some(outage.next_probe),
            (None, None) if self.is_full() => self.limit.ramp_at(),
            (None, None) => Some(self.rate.next_at(now, &self.config).unwrap_or(now)),
        };
        report.into_iter().chain(next).min()
    }

    /// The state for operators.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> GateStatus {
        let is_shut = self.is_shut(now);
        let since = self.outage.as_ref().map(|outage| outage.since);
        GateStatus {
            held: self.held(now),
            since: since.or(self.hold.map(|hold| hold.since)).filter(|_| is_shut),
            until: self.opens_at(now).filter(|_| is_shut),
            waiting: self.queue.len(),
            waiting_background: self.queue.background(),
            in_flight: self.in_flight.len(),
            limit: self.limit.get(),
            rate: self.rate.get(now, &self.config),
            last_error: self.last_error.clone(),
        }
    }

    /// Why the gate is shut; absent while it is open.
    #[must_use]
    pub fn held(&self, now: Timestamp) -> Option<HoldReason> {
        self.is_shut(now).then(|| self.reason())
    }

    /// Whether the gate keeps nothing worth remembering: nothing waits or runs, and no trouble is known.
    #[must_use]
    pub fn is_quiet(&self, now: Timestamp) -> bool {
        self.queue.len() == 0
            && self.in_flight.is_empty()
            && !self.is_shut(now)
            && self.rate.get(now, &self.config).is_none()
    }

    fn is_shut(&self, now: Timestamp) -> bool {
        self.outage.is_some() || self.hold.is_some_and(|hold| hold.until > now)
    }

    /// Whether the service is down and the next request may probe it.
    fn may_probe(&self, now: Timestamp) -> bool {
        let is_held = self.hold.is_some_and(|hold| hold.until > now);
        let is_due = |outage: &Outage| outage.probe.is_none() && outage.next_probe <= now;
        !is_held && self.outage.as_ref().is_some_and(is_due)
    }

    fn is_full(&self) -> bool {
        self.in_flight.len() >= usize::try_from(self.limit.get()).unwrap_or(usize::MAX)
    }

    fn reason(&self) -> HoldReason {
        match (&self.outage, &self.hold) {
            (Some(_), _) => HoldReason::Outage,
            (None, Some(_)) => HoldReason::RateLimit,
            (None, None) => HoldReason::Capacity,
        }
    }

    /// When the gate opens or probes, as far as it is known.
    fn opens_at(&self, now: Timestamp) -> Option<Timestamp> {
        let hold = self.hold.map(|hold| hold.until);
        match &self.outage {
            Some(outage) if outage.probe.is_some() => None,
            Some(outage) => Some(hold.map_or(outage.next_probe, |at| at.max(outage.next_probe))),
            None => hold.or_else(|| self.rate.next_at(now, &self.config)),
        }
    }

    /// Whether a request may be sent now, and whether it would be a probe.
    fn may_send(&mut self, now: Timestamp) -> Option<bool> {
        if self.queue.len() == 0 || self.hold.is_some() {
            return None;
        }
        if let Some(outage) = &self.outage {
            return (outage.probe.is_none() && outage.next_probe <= now).then_some(true);
        }
        if self.is_full() {
            self.limit.ramp(now, &self.config);
        }
        let may = !self.is_full() && self.rate.next_at(now, &self.config).is_none();
        may.then_some(false)
    }

    fn send(&mut self, ticket: Ticket, now: Timestamp) {
        let was_idle = self.in_flight.is_empty() && self.queue.len() == 0;
        let cycle = self.rate.sent(now, was_idle, &self.config);
        self.in_flight.insert(ticket, RequestInFlight { sent: now, cycle, has_started: false });
        self.actions.push(GateAction::Grant(ticket));
    }

    fn forget(&mut self, ticket: Ticket) -> Option<WaitingRequest> {
        let waiting = self.waiting.remove(&ticket)?;
        if let Some(at) = waiting.report_at {
            self.reports.remove(&(at, ticket));
        }
        self.while_open.remove(&ticket);
        Some(waiting)
    }

    /// Holds end in time even if the clock was set back.
    fn bound_holds(&mut self, now: Timestamp) {
        let latest = now.after(self.config.hint_ceiling);
        if let Some(hold) = &mut self.hold {
            hold.until = hold.until.min(latest);
        }
        if let Some(outage) = &mut self.outage {
            outage.next_probe = outage.next_probe.min(latest);
        }
    }

    fn service_answered(&mut self, now: Timestamp) {
        self.refusals = 0;
        if self.outage.take().is_some() {
            self.recent.clear();
            self.limit.restart(now);
        }
        self.recent.add(now, false, &self.config);
        self.limit.succeeded(self.in_flight.len(), &self.config);
    }

    fn failed(
        &mut self,
        ticket: Ticket,
        request: &RequestInFlight,
        fault: &Fault,
        signal: ServiceSignal,
        now: Timestamp,
    ) {
        if !signal.is_of_service() {
            self.free_probe(ticket, now);
            if signal == ServiceSignal::Alive && !request.has_started {
                self.service_answered(now);
            }
            return;
        }
        self.last_error = Some((fault.clone(), now));
        if self.rate.failed(request.cycle) {
            self.limit.restart(now);
        }
        let hint = fault.retry_hint().filter(|hint| !hint.is_zero());
        match signal {
            ServiceSignal::RateLimited => self.refused(ticket, request.sent, hint, now),
            _ => self.broke(ticket, request, signal, hint, now),
        }
    }

    /// Handles a rate limit: everybody waits until the service wants requests again.
    fn refused(&mut self, ticket: Ticket, sent: Timestamp, hint: Option<Duration>, now: Timestamp) {
        let is_probe = self.outage.as_ref().is_some_and(|outage| outage.probe == Some(ticket));
        let is_late = self.hold.is_some_and(|hold| sent <= hold.since);
        if !is_late {
            self.refusals = self.refusals.saturating_add(1);
        }
        let ceiling = self.config.hint_ceiling;
        let wait = hint.map_or(Duration::ZERO, |hint| hint.min(ceiling)).max(self.backoff(hint));
        let until = now.after(wait);
        if hint.is_some_and(|hint| hint > ceiling) {
            let outage = self.outage.get_or_insert_with(|| Outage::new(now, wait));
            outage.probe = outage.probe.filter(|probe| *probe != ticket);
            outage.next_probe = outage.next_probe.max(until);
            self.limit.trouble(now);
            return;
        }
        if is_probe {
            self.outage = None;
            self.recent.clear();
            self.limit.restart(now);
        }
        match (&mut self.hold, is_late) {
            (Some(hold), true) => hold.until = hold.until.max(until),
            (hold, _) => {
                let since = hold.map_or(now, |hold| hold.since);
                *hold = Some(Hold { since, until });
                match self.rate.refused(now, until, &self.config) {
                    true => self.limit.trouble(now),
                    false => self.limit.restart(now),
                }
            }
        }
    }

    /// The wait after a refusal that the service's own hint does not explain.
    fn backoff(&self, hint: Option<Duration>) -> Duration {
        // One refusal after a followed hint may be chance; from the second on the hint is too short.
        let steps = self.refusals.saturating_sub(if hint.is_some() { 2 } else { 1 });
        if hint.is_some() && self.refusals < 2 {
            return Duration::ZERO;
        }
        let factor = 1_u32.checked_shl(steps.min(16)).unwrap_or(u32::MAX);
        self.config.backoff.saturating_mul(factor).min(self.config.probe_max)
    }

    /// Handles an overload, a time-out or a failure of the service.
    fn broke(
        &mut self,
        ticket: Ticket,
        request: &RequestInFlight,
        signal: ServiceSignal,
        hint: Option<Duration>,
        now: Timestamp,
    ) {
        if signal.is_overload() {
            self.limit.reduce(request.sent, now, self.in_flight.len(), &self.config);
        } else {
            self.limit.trouble(now);
        }
        if request.has_started {
            return;
        }
        if !signal.is_overload() && !self.recent.has_success() {
            self.limit.shrink_by_one();
        }
        self.recent.add(now, true, &self.config);
        let hint = hint.unwrap_or_default().min(self.config.hint_ceiling);
        match &mut self.outage {
            Some(outage) if outage.probe == Some(ticket) => {
                outage.probe_failed(now, hint, &self.config);
            }
            Some(outage) => outage.next_probe = outage.next_probe.max(now.after(hint)),
            None if self.recent.show_outage(&self.config) => {
                self.outage = Some(Outage::new(now, self.config.probe_min.max(hint)));
            }
            None if !hint.is_zero() => {
                let since = self.hold.map_or(now, |hold| hold.since);
                let until = self.hold.map_or(now, |hold| hold.until).max(now.after(hint));
                self.hold = Some(Hold { since, until });
            }
            None => {}
        }
    }

    fn free_probe(&mut self, ticket: Ticket, now: Timestamp) {
        if let Some(outage) = &mut self.outage
            && outage.probe == Some(ticket)
        {
            outage.probe = None;
            outage.next_probe = now;
        }
    }

    fn refuse_impatient(&mut self, now: Timestamp) {
        for ticket in mem::take(&mut self.while_open) {
            if let Some(waiting) = self.forget(ticket) {
                self.queue.remove(&waiting.entry);
                let report = self.hold_report(0, now);
                self.actions.push(GateAction::Refuse(ticket, report));
            }
        }
    }

    fn report_due(&mut self, now: Timestamp) {
        let mut due = BTreeSet::new();
        while let Some((at, ticket)) = self.reports.first().copied()
            && at <= now
        {
            self.reports.pop_first();
            due.insert(ticket);
        }
        if due.is_empty() {
            return;
        }
        for (ticket, before) in self.queue.positions(&due) {
            self.plan_report(ticket, now);
            let report = self.hold_report(before, now);
            self.actions.push(GateAction::Report(ticket, report));
        }
    }

    /// Plans the next report: each after twice the time, and only if a person waits.
    fn plan_report(&mut self, ticket: Ticket, now: Timestamp) {
        let Some(waiting) = self.waiting.get_mut(&ticket) else { return };
        let again = now.after(now.since(waiting.since).max(REPORT_MIN));
        let is_watched = waiting.entry.priority == Priority::Interactive;
        waiting.report_at = is_watched.then_some(again);
        self.reports.extend(waiting.report_at.map(|at| (at, ticket)));
    }

    fn hold_report(&self, before: usize, now: Timestamp) -> HoldReport {
        let rate = self.rate.get(now, &self.config);
        let is_troubled = self.is_shut(now) || rate.is_some();
        let fault =
            self.last_error.as_ref().filter(|_| is_troubled).map(|(fault, _)| fault.clone());
        let hint_until =
            self.last_error.as_ref().filter(|_| self.is_shut(now)).and_then(|(fault, at)| {
                // A hint ends in time even if the clock was set back.
                fault.retry_hint().map(|hint| at.after(hint).min(now.after(hint)))
            });
        let (reason, until) = (self.reason(), self.opens_at(now));
        HoldReport { reason, until, hint_until, before, fault }
    }
}
