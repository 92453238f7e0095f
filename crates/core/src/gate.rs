//! Admission control for one endpoint, model and credential: holds requests back instead of failing them.
//!
//! The gate is pure: callers pass the time in and perform the returned actions. A request asks with [`Gate::request`]
//! and is granted, reported or refused by [`Gate::advance`], which callers run after every call and at
//! [`Gate::next_wake`]. What holds requests: a hint of the service, a limit on requests in flight and on their rate,
//! and an outage, which one request at a time probes. No hold lasts longer than `hint_ceiling` without a probe. A clock
//! that is set back stops no wait: within a gate, time never runs back.

mod clock;
mod config;
mod limit;
mod outage;
mod outcome;
mod queue;
mod report;
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

use clock::GateClock;
use limit::{InFlightLimit, RateLimit};
use outage::{Outage, RecentRequests};
use queue::{FairQueue, QueueEntry};
use report::KnownState;
use signal::ServiceSignal;

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

impl Priority {
    /// The priority of a session's requests.
    #[must_use]
    pub fn of(is_observed: bool) -> Self {
        if is_observed { Self::Interactive } else { Self::Background }
    }
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
    clock: GateClock,
    tickets: u64,
    queue: FairQueue,
    waiting: BTreeMap<Ticket, WaitingRequest>,
    /// Waiting requests by session, for changes of their priority.
    by_session: BTreeSet<(SessionId, Ticket)>,
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
    /// A lone refusal whose hint holds everybody, until the service answers a request that was sent after it.
    lone_refusal: Option<LoneRefusal>,
    /// Grants so far; the order in which requests are sent.
    grants: u64,
    /// The latest grant that the service accepted.
    accepted: u64,
    /// How far a refusal may be chance: grows with each accepted request and shrinks with each refusal.
    credit: u32,
    last_error: Option<(Fault, Timestamp)>,
    /// When requests of background work are reported again if their sessions know an outdated state.
    refresh_at: Option<Timestamp>,
    /// Whether a request was sent; until then, [`Gate::restore`] may bring back what a past process knew.
    has_sent: bool,
    last_used: Timestamp,
    actions: Vec<GateAction>,
}

#[derive(Debug)]
struct WaitingRequest {
    entry: QueueEntry,
    since: Timestamp,
    report_at: Option<Timestamp>,
    /// What the session was told last; absent before the first report.
    known: Option<KnownState>,
}

#[derive(Debug)]
struct RequestInFlight {
    session: SessionId,
    sent: Timestamp,
    /// The number of its grant.
    grant: u64,
    cycle: u32,
    has_started: bool,
}

impl RequestInFlight {
    /// Its session, the number of its grant and that of its cycle.
    fn identity(&self) -> (SessionId, u64, u32) {
        (self.session, self.grant, self.cycle)
    }
}

/// What the gate knew before a refusal that may concern one request only.
#[derive(Debug)]
struct LoneRefusal {
    /// The grant of the refused request.
    grant: u64,
    rate: RateLimit,
    limit: InFlightLimit,
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
            clock: GateClock::default(),
            tickets: 0,
            queue: FairQueue::new(config.background_share),
            waiting: BTreeMap::new(),
            by_session: BTreeSet::new(),
            reports: BTreeSet::new(),
            while_open: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            limit: InFlightLimit::new(&config),
            rate: RateLimit::new(),
            recent: RecentRequests::default(),
            hold: None,
            outage: None,
            refusals: 0,
            lone_refusal: None,
            grants: 0,
            accepted: 0,
            credit: outcome::LONE_REFUSAL,
            last_error: None,
            refresh_at: None,
            has_sent: false,
            last_used: Timestamp::default(),
            actions: Vec::new(),
            config,
        }
    }

    /// Asks for admission. [`Gate::advance`] grants it, now or later.
    ///
    /// # Errors
    /// When too many requests wait, or the gate is shut and the request does not wait for that.
    pub fn request(&mut self, requester: Requester, now: Timestamp) -> Result<Ticket, Refusal> {
        let now = self.clock.read(now);
        self.last_used = now;
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
                self.send(ticket, requester.session, now);
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
        self.by_session.insert((session, ticket));
        if willingness == Willingness::WhileOpen {
            self.while_open.insert(ticket);
        }
        let visible = now.after(self.config.visible_after);
        let is_long = self.is_shut(now) && self.opens_at(now).is_none_or(|at| at >= visible);
        let report_at = if is_long { now } else { report::on_grid(visible) };
        self.reports.insert((report_at, ticket));
        let report_at = Some(report_at);
        self.waiting.insert(ticket, WaitingRequest { entry, since: now, report_at, known: None });
    }

    /// Brings back what a session's records say of a hold, so that a restart is no reason for a burst of requests: one
    /// request probes the service after `until`. Does nothing once this gate has sent a request of its own.
    pub fn restore(&mut self, fault: &Fault, until: Timestamp, now: Timestamp) {
        let now = self.clock.read(now);
        let signal = ServiceSignal::of(fault, false);
        if self.has_sent || !signal.is_of_service() {
            return;
        }
        self.last_used = now;
        let reason = signal.hold_reason();
        let probe_at = until.max(now).min(now.after(self.config.hint_ceiling));
        let outage = self.outage.get_or_insert_with(|| Outage::new(now, Duration::ZERO, reason));
        outage.next_probe = outage.next_probe.max(probe_at);
        // The hint is over at `until`; what the record says of it is that of an earlier time.
        let known = fault.clone().retry_after(until.since(now));
        self.last_error.get_or_insert((known, now));
    }

    /// Changes the priority of the waiting requests of a session, which keep their order.
    pub fn set_priority(&mut self, session: SessionId, priority: Priority, now: Timestamp) {
        let now = self.clock.read(now);
        for ticket in self.waiting_requests(session) {
            let Some(waiting) = self.waiting.get_mut(&ticket) else { continue };
            if waiting.entry.priority != priority {
                self.queue.set_priority(ticket, &mut waiting.entry, priority);
                self.plan_report(ticket, now);
            }
        }
    }

    /// The waiting requests of a session.
    #[must_use]
    pub fn waiting_requests(&self, session: SessionId) -> Vec<Ticket> {
        let all = (session, Ticket(0))..=(session, Ticket(u64::MAX));
        self.by_session.range(all).map(|(_, ticket)| *ticket).collect()
    }

    /// Withdraws a waiting request. Does nothing if it does not wait.
    pub fn withdraw(&mut self, ticket: Ticket) {
        if let Some(waiting) = self.forget(ticket) {
            self.queue.remove(&waiting.entry);
        }
    }

    /// Reports the first part of an answer: the service works, although the request goes on.
    pub fn started(&mut self, ticket: Ticket, now: Timestamp) {
        let now = self.clock.read(now);
        let Some(request) = self.in_flight.get_mut(&ticket) else { return };
        let identity = request.identity();
        if !mem::replace(&mut request.has_started, true) {
            self.service_answered(identity, now);
        }
    }

    /// Ends a granted request. Returns true if it failed as a probe, which costs its session no try.
    pub fn finish(&mut self, ticket: Ticket, end: RequestEnd<'_>, now: Timestamp) -> bool {
        let now = self.clock.read(now);
        self.last_used = now;
        let Some(request) = self.in_flight.remove(&ticket) else { return false };
        let is_probe = self.outage.as_ref().is_some_and(|outage| outage.probe == Some(ticket));
        match end {
            RequestEnd::Answered if request.has_started => {}
            RequestEnd::Answered => self.service_answered(request.identity(), now),
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
        let now = self.clock.read(now);
        self.hold = self.hold.filter(|hold| hold.until > now);
        if self.hold.is_none() {
            self.lone_refusal = None;
        }
        while let Some(is_probe) = self.may_send(now) {
            let Some(ticket) = self.queue.pop() else { break };
            let Some(waiting) = self.forget(ticket) else { break };
            self.queue.taken(&waiting.entry);
            self.send(ticket, waiting.entry.session, now);
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
        let now = self.clock.peek(now);
        let report = self.reports.first().map(|(at, _)| *at);
        let next = match (&self.hold, &self.outage) {
            (Some(hold), _) => Some(hold.until),
            (None, Some(outage)) if outage.probe.is_some() => None,
            (None, Some(outage)) => Some(outage.next_probe),
            (None, None) if self.is_full() => self.limit.ramp_at(),
            (None, None) => Some(self.rate.next_at(now, &self.config).unwrap_or(now)),
        };
        let refresh = self.refresh_at.filter(|_| self.queue.background() > 0);
        let first = report.into_iter().chain(next).chain(refresh).min();
        first.map(|at| self.clock.outside(at))
    }

    /// The state for operators.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> GateStatus {
        let now = self.clock.peek(now);
        let is_shut = self.is_shut(now);
        let outside = |at: Timestamp| self.clock.outside(at);
        let since = self.outage.as_ref().map(|outage| outage.since);
        GateStatus {
            held: is_shut.then(|| self.reason()),
            since: since.or(self.hold.map(|hold| hold.since)).filter(|_| is_shut).map(outside),
            until: self.opens_at(now).filter(|_| is_shut).map(outside),
            waiting: self.queue.len(),
            waiting_background: self.queue.background(),
            in_flight: self.in_flight.len(),
            limit: self.limit.get(),
            rate: self.rate.get(now, &self.config),
            last_error: self.last_error.clone().map(|(fault, at)| (fault, outside(at))),
        }
    }

    /// Why the gate is shut; absent while it is open.
    #[must_use]
    pub fn held(&self, now: Timestamp) -> Option<HoldReason> {
        self.is_shut(self.clock.peek(now)).then(|| self.reason())
    }

    /// Whether the gate keeps nothing worth remembering: nothing waits or runs, and no trouble is known.
    #[must_use]
    pub fn is_quiet(&self, now: Timestamp) -> bool {
        let inside = self.clock.peek(now);
        let is_carefree = !self.is_shut(inside) && self.rate.get(inside, &self.config).is_none();
        self.is_forgettable(now) || (self.is_unused() && is_carefree)
    }

    /// Whether nothing waits or runs, and nobody asked for so long that every hold is over.
    #[must_use]
    pub fn is_forgettable(&self, now: Timestamp) -> bool {
        let idle = self.clock.peek(now).since(self.last_used);
        self.is_unused() && idle > self.config.hint_ceiling
    }

    /// Whether nothing waits or runs.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        self.queue.len() == 0 && self.in_flight.is_empty()
    }

    /// When a request last asked or ended, by the gate's own clock.
    #[must_use]
    pub fn last_used(&self) -> Timestamp {
        self.last_used
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
            (Some(outage), _) => outage.reason,
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

    fn send(&mut self, ticket: Ticket, session: SessionId, now: Timestamp) {
        self.has_sent = true;
        let was_idle = self.in_flight.is_empty() && self.queue.len() == 0;
        let cycle = self.rate.sent(now, was_idle, &self.config);
        self.grants += 1;
        let grant = self.grants;
        let request = RequestInFlight { session, sent: now, grant, cycle, has_started: false };
        self.in_flight.insert(ticket, request);
        self.actions.push(GateAction::Grant(ticket));
    }

    fn forget(&mut self, ticket: Ticket) -> Option<WaitingRequest> {
        let waiting = self.waiting.remove(&ticket)?;
        if let Some(at) = waiting.report_at {
            self.reports.remove(&(at, ticket));
        }
        self.by_session.remove(&(waiting.entry.session, ticket));
        self.while_open.remove(&ticket);
        Some(waiting)
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
}
