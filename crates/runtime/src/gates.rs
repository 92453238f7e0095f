//! The gates of this process: one for each endpoint, model and credential, shared by all sessions.
//!
//! A gate decides (`budao_core::gate`); this module feeds it with the time and wakes the requests that it grants. One
//! task serves all gates: it sleeps until the earliest time at which any of them has something to do, and ends when
//! nothing waits.

mod suspended;
mod waiter;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
};

use budao_core::{
    event::{Seq, SessionId},
    fallback::ModelOutlook,
    fault::{Fact, Fault, Kind, Operation},
    gate::{
        Gate, GateAction, GateConfig, GateKey, GateStatus, HoldReason, HoldReport, Priority,
        Refusal, RequestEnd, Requester, Ticket,
    },
    time::Timestamp,
    world::World,
};
use budao_engine::SessionLoader;
use tokio::sync::Notify;

use crate::decider::NativeFactory;
use suspended::{SuspendedRequest, SuspendedRequests};
use waiter::{WaitUpdate, Waiter};

/// Upper bound of gates without requests. Beyond it, the least useful gate is dropped for a new one.
const GATES_MAX: usize = 256;

/// The gates of a runtime, by endpoint, model and credential.
#[derive(Debug)]
pub(crate) struct Gates {
    world: World,
    config: GateConfig,
    state: Mutex<GatesState>,
    /// Wakes the driver when something is due earlier than it knows.
    changed: Notify,
    /// Loads sessions that wait without being loaded; set with the first of them.
    loader: OnceLock<SessionLoader<NativeFactory>>,
}

#[derive(Debug, Default)]
struct GatesState {
    gates: BTreeMap<GateKey, GateSlot>,
    suspended: SuspendedRequests,
    /// Whether the driver runs.
    is_driven: bool,
    /// When the driver wakes next; absent while nothing is due.
    driven_until: Option<Timestamp>,
}

#[derive(Debug)]
struct GateSlot {
    gate: Gate,
    waiters: BTreeMap<Ticket, WaitReceiver>,
    /// The reason in the last log line about a shut gate.
    logged: Option<HoldReason>,
}

/// The receiver of a waiting request's updates.
#[derive(Debug)]
enum WaitReceiver {
    /// The task that makes the request.
    Task(Arc<Waiter>),
    /// A session that is not loaded.
    Suspended(SessionId),
}

/// The answer to a request for admission.
#[derive(Debug)]
pub(crate) enum AdmissionAnswer {
    /// The request may be made now.
    Granted(Permit),
    /// The request waits.
    Held(HeldRequest),
}

impl Gates {
    pub(crate) fn new(world: World, config: GateConfig) -> Arc<Self> {
        let (state, changed, loader) = (Mutex::default(), Notify::new(), OnceLock::new());
        Arc::new(Self { world, config, state, changed, loader })
    }

    /// Asks for admission.
    ///
    /// # Errors
    /// The fault of the service if the gate is shut and the request does not wait, or the bound on waiting requests.
    pub(crate) fn request(
        self: &Arc<Self>,
        key: &GateKey,
        requester: Requester,
    ) -> Result<AdmissionAnswer, Fault> {
        let now = self.world.clock.now();
        let mut state = self.lock();
        let slot = state.slot(key, &self.config, now);
        let ticket = slot.gate.request(requester, now).map_err(|refusal| match refusal {
            Refusal::Full(limit) => queue_full_fault(limit, key),
            Refusal::Shut(hold) => patience_fault(hold, key),
        })?;
        let waiter = Arc::new(Waiter::default());
        slot.waiters.insert(ticket, WaitReceiver::Task(Arc::clone(&waiter)));
        state.advance(key, now);
        let permit = self.permit(key.clone(), ticket);
        if waiter.is_granted() {
            return Ok(AdmissionAnswer::Granted(permit));
        }
        self.start_driver(&mut state, now);
        Ok(AdmissionAnswer::Held(HeldRequest { waiter, permit: Some(permit) }))
    }

    fn permit(self: &Arc<Self>, key: GateKey, ticket: Ticket) -> Permit {
        Permit { gates: Arc::clone(self), key, ticket, is_over: false }
    }

    /// Detaches the waiting request of a session from its task, so that the session can be unloaded. The request keeps
    /// its place. Returns false if it does not wait, or has news that its task did not take yet.
    pub(crate) fn suspend(
        &self,
        session: SessionId,
        key: &GateKey,
        head: Seq,
        wake_at: Timestamp,
    ) -> bool {
        let mut state = self.lock();
        let Some(slot) = state.gates.get_mut(key) else { return false };
        let &[ticket] = &slot.gate.waiting_requests(session)[..] else { return false };
        let Some(party) = slot.waiters.get_mut(&ticket) else { return false };
        if !matches!(party, WaitReceiver::Task(waiter) if waiter.detach()) {
            return false;
        }
        *party = WaitReceiver::Suspended(session);
        let request = SuspendedRequest::new(key.clone(), ticket, head, wake_at);
        state.suspended.insert(session, request);
        true
    }

    /// The task of a suspended session has ended: the session is loaded when there is a reason.
    pub(crate) fn after_unload(
        self: &Arc<Self>,
        session: SessionId,
        loader: SessionLoader<NativeFactory>,
    ) {
        // All sessions of these gates have the same host.
        drop(self.loader.set(loader));
        let now = self.world.clock.now();
        let mut state = self.lock();
        state.suspended.after_unload(session, now);
        self.start_driver(&mut state, now);
    }

    /// Whether the request of a session waits while the session is not loaded.
    pub(crate) fn is_suspended(&self, session: SessionId) -> bool {
        self.lock().suspended.contains(session)
    }

    /// Gives the request of a suspended session back to the session, which is loaded again. `None` if there is none, or
    /// if another process wrote the session since.
    pub(crate) fn claim(
        self: &Arc<Self>,
        session: SessionId,
        head: Seq,
    ) -> Option<(GateKey, AdmissionAnswer)> {
        let mut state = self.lock();
        let request = state.suspended.claim(session)?;
        let SuspendedRequest { key, ticket, update, .. } = request;
        let permit = self.permit(key.clone(), ticket);
        let admission = match update {
            Some(WaitUpdate::Granted) => AdmissionAnswer::Granted(permit),
            report => {
                let waiter = Arc::new(Waiter::default());
                report.into_iter().for_each(|report| waiter.send(report));
                if let Some(party) =
                    state.gates.get_mut(&key).and_then(|slot| slot.waiters.get_mut(&ticket))
                {
                    *party = WaitReceiver::Task(Arc::clone(&waiter));
                }
                AdmissionAnswer::Held(HeldRequest { waiter, permit: Some(permit) })
            }
        };
        drop(state);
        (request.head == head).then_some((key, admission))
    }

    /// Restores a hold from the records of a session; see [`Gate::restore`].
    pub(crate) fn restore(&self, key: &GateKey, fault: &Fault, until: Timestamp) {
        let now = self.world.clock.now();
        let mut state = self.lock();
        let slot = state.slot(key, &self.config, now);
        slot.gate.restore(fault, until, now);
        slot.log_change(key, now);
    }

    /// Changes the priority of the waiting requests of a session.
    pub(crate) fn set_priority(self: &Arc<Self>, session: SessionId, priority: Priority) {
        let now = self.world.clock.now();
        let mut state = self.lock();
        for slot in state.gates.values_mut() {
            slot.gate.set_priority(session, priority, now);
        }
        self.start_driver(&mut state, now);
    }

    /// Applies a change to a gate, then advances the gate to the current time.
    fn change<T>(
        self: &Arc<Self>,
        key: &GateKey,
        change: impl FnOnce(&mut Gate, Timestamp) -> T,
    ) -> Option<T> {
        let now = self.world.clock.now();
        let mut state = self.lock();
        let slot = state.gates.get_mut(key)?;
        let result = change(&mut slot.gate, now);
        state.advance(key, now);
        self.start_driver(&mut state, now);
        Some(result)
    }

    /// The state of every gate, for operators.
    pub(crate) fn status(&self) -> Vec<(GateKey, GateStatus)> {
        let now = self.world.clock.now();
        let mut state = self.lock();
        state.gates.retain(|_, slot| !slot.gate.is_forgettable(now));
        state.gates.iter().map(|(key, slot)| (key.clone(), slot.gate.status(now))).collect()
    }

    /// The state of a gate, for the choice of a model. A gate without requests so far is open.
    pub(crate) fn outlook(&self, key: &GateKey) -> ModelOutlook {
        let now = self.world.clock.now();
        let state = self.lock();
        let Some(slot) = state.gates.get(key) else { return ModelOutlook::default() };
        let status = slot.gate.status(now);
        let expected_wait = status.expected_wait(now);
        let last_error = status.last_error.filter(|_| !expected_wait.is_zero());
        ModelOutlook { expected_wait, fault: last_error.map(|(fault, _)| fault) }
    }

    /// Makes sure that the driver wakes in time.
    fn start_driver(self: &Arc<Self>, state: &mut GatesState, now: Timestamp) {
        let Some(next) = state.next_wake(now) else { return };
        if state.driven_until.is_some_and(|until| until <= next) {
            return;
        }
        state.driven_until = Some(next);
        match std::mem::replace(&mut state.is_driven, true) {
            true => self.changed.notify_one(),
            false => self.world.spawn.spawn(Box::pin(Arc::clone(self).run())),
        }
    }

    /// The driver: serves all gates until nothing waits.
    async fn run(self: Arc<Self>) {
        while let Some(until) = self.next_due() {
            let wait = until.since(self.world.clock.now());
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = self.world.clock.sleep(wait) => {}
            }
            self.advance_due(self.world.clock.now());
        }
    }

    /// One round of the driver: grants, reports and refuses the due requests, and loads their suspended sessions.
    fn advance_due(self: &Arc<Self>, now: Timestamp) {
        let mut state = self.lock();
        let GatesState { gates, suspended, .. } = &mut *state;
        for (key, slot) in gates {
            let news = slot.advance(key, now);
            news.into_iter().for_each(|(session, update)| suspended.notify(session, update, now));
        }
        let due = suspended.take_due(now);
        state.driven_until = state.next_wake(now);
        drop(state);
        for request in due.unclaimed {
            drop(self.permit(request.key, request.ticket));
        }
        if let Some(loader) = self.loader.get() {
            due.load.into_iter().for_each(|session| loader.load(session));
        }
    }

    /// When the driver wakes next. Without such a time the driver ends.
    fn next_due(&self) -> Option<Timestamp> {
        let mut state = self.lock();
        state.is_driven = state.driven_until.is_some();
        state.driven_until
    }

    fn lock(&self) -> MutexGuard<'_, GatesState> {
        self.state.lock().expect("no code panics while holding this")
    }
}

impl GatesState {
    fn slot(&mut self, key: &GateKey, config: &GateConfig, now: Timestamp) -> &mut GateSlot {
        if self.gates.len() >= GATES_MAX && !self.gates.contains_key(key) {
            self.gates.retain(|_, slot| !slot.gate.is_quiet(now));
        }
        if self.gates.len() >= GATES_MAX && !self.gates.contains_key(key) {
            self.forget_unused();
        }
        self.gates.entry(key.clone()).or_insert_with(|| GateSlot {
            gate: Gate::new(config.clone()),
            waiters: BTreeMap::new(),
            logged: None,
        })
    }

    /// Removes the idle gate whose last request is oldest, regardless of its state.
    fn forget_unused(&mut self) {
        let unused = self.gates.iter().filter(|(_, slot)| slot.gate.is_unused());
        let oldest =
            unused.min_by_key(|(_, slot)| slot.gate.last_used()).map(|(key, _)| key.clone());
        if let Some(key) = oldest {
            self.gates.remove(&key);
        }
    }

    /// Advances one gate and notifies its waiting requests and suspended sessions.
    fn advance(&mut self, key: &GateKey, now: Timestamp) {
        let Some(slot) = self.gates.get_mut(key) else { return };
        for (session, update) in slot.advance(key, now) {
            self.suspended.notify(session, update, now);
        }
    }

    fn next_wake(&self, now: Timestamp) -> Option<Timestamp> {
        let gates = self.gates.values().filter_map(|slot| slot.gate.next_wake(now));
        gates.chain(self.suspended.next_wake()).min()
    }
}

impl GateSlot {
    /// Advances the gate to `now` and notifies its waiters. Returns the updates for sessions that are not loaded.
    fn advance(&mut self, key: &GateKey, now: Timestamp) -> Vec<(SessionId, WaitUpdate)> {
        let mut news = Vec::new();
        for action in self.gate.advance(now) {
            let (ticket, update) = match action {
                GateAction::Grant(ticket) => (ticket, WaitUpdate::Granted),
                GateAction::Refuse(ticket, hold) => (ticket, WaitUpdate::Refused(Box::new(hold))),
                GateAction::Report(ticket, hold) => (ticket, WaitUpdate::Report(Box::new(hold))),
            };
            let is_over = !matches!(update, WaitUpdate::Report(_));
            match self.waiters.get(&ticket) {
                Some(WaitReceiver::Task(waiter)) => waiter.send(update),
                Some(WaitReceiver::Suspended(session)) => news.push((*session, update)),
                None => {}
            }
            if is_over {
                self.waiters.remove(&ticket);
            }
        }
        self.log_change(key, now);
        news
    }

    /// Logs that the gate shut or opened.
    fn log_change(&mut self, key: &GateKey, now: Timestamp) {
        let held = self.gate.held(now);
        match (std::mem::replace(&mut self.logged, held), held) {
            (None, Some(reason)) => {
                let GateStatus { until, waiting, .. } = self.gate.status(now);
                let until = until.map(|until| until.to_string());
                tracing::warn!(gate = %key, %reason, ?until, waiting, "gate shut");
            }
            (Some(reason), None) => tracing::info!(gate = %key, %reason, "gate open"),
            _ => {}
        }
    }
}

/// A request that waits. Dropping it withdraws the request, unless it was detached.
#[derive(Debug)]
pub(crate) struct HeldRequest {
    waiter: Arc<Waiter>,
    /// Absent once the wait is over.
    permit: Option<Permit>,
}

impl Drop for HeldRequest {
    fn drop(&mut self) {
        if let (true, Some(permit)) = (self.waiter.is_detached(), &mut self.permit) {
            permit.is_over = true;
        }
    }
}

impl HeldRequest {
    /// Waits for a grant, or for a report about the wait.
    ///
    /// # Errors
    /// The fault of the service if the gate shut and the request does not wait for that.
    pub(crate) async fn progress(mut self) -> Result<(AdmissionAnswer, Option<HoldReport>), Fault> {
        let update = self.waiter.next().await;
        if let WaitUpdate::Report(hold) = update {
            return Ok((AdmissionAnswer::Held(self), Some(*hold)));
        }
        let permit = self.permit.take().expect("a wait ends once");
        match update {
            WaitUpdate::Refused(hold) => Err(patience_fault(*hold, &permit.key)),
            _ => Ok((AdmissionAnswer::Granted(permit), None)),
        }
    }
}

/// The right to make one request. Dropping it before its end reports the request as abandoned.
#[derive(Debug)]
pub(crate) struct Permit {
    gates: Arc<Gates>,
    key: GateKey,
    ticket: Ticket,
    is_over: bool,
}

impl Permit {
    /// Reports the first part of the answer.
    pub(crate) fn report_start(&self) {
        self.gates.change(&self.key, |gate, now| gate.started(self.ticket, now));
    }

    /// Reports a complete answer.
    pub(crate) fn report_answer(mut self) {
        self.end(RequestEnd::Answered);
    }

    /// Reports a failure. Returns true if the request was a probe, which costs its session no try.
    pub(crate) fn report_failure(mut self, fault: &Fault) -> bool {
        self.end(RequestEnd::Failed(fault))
    }

    fn end(&mut self, end: RequestEnd<'_>) -> bool {
        self.is_over = true;
        let ticket = self.ticket;
        self.gates.change(&self.key, |gate, now| gate.finish(ticket, end, now)).unwrap_or(false)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let ticket = self.ticket;
        let mut state = self.gates.lock();
        if let Some(slot) = state.gates.get_mut(&self.key) {
            slot.waiters.remove(&ticket);
        }
        drop(state);
        self.gates.change(&self.key, |gate, now| {
            gate.withdraw(ticket);
            gate.finish(ticket, RequestEnd::Abandoned, now)
        });
    }
}

/// The fault of a request that does not wait for a gate that is shut: that of the service, with no try left.
fn patience_fault(hold: HoldReport, key: &GateKey) -> Fault {
    let fault = hold.fault.unwrap_or_else(|| {
        Fault::new(Kind::ModelOverloaded, Operation::ModelRequest)
            .with(Fact::Service, key.model.to_string())
            .with(Fact::Model, key.model.to_string())
    });
    fault.attempt(1, 1)
}

fn queue_full_fault(limit: u32, key: &GateKey) -> Fault {
    Fault::new(Kind::LimitReached, Operation::ModelRequest)
        .with(Fact::LimitName, "models.gate.waiting")
        .with(Fact::Limit, limit)
        .with(Fact::Unit, "requests")
        .with(Fact::Model, key.model.to_string())
}

#[cfg(test)]
mod tests;
