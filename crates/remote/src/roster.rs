//! The roster of [`Workers`](crate::Workers): connected processes and open calls, without I/O.
//!
//! Every method returns the messages that follow from it; the caller sends them after it has released the lock.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use budao_core::{
    event::SessionId,
    fault::Fault,
    remote::{RemoteCall, ToolRoute, WorkerClaim},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::{
    calls::{CallKey, CallOffer, CallPurpose, CancelReason, OpenCall, WorkerMessage},
    offers::{ConnectedTool, OfferScope},
    peer_notes::{PeerAnswer, PeerCancel, PeerOutput},
    peers::{ForeignCall, LostCall, PeerCounts},
    workers::{ClaimCheck, WorkerLink, not_open},
};

/// The most calls that other servers are asked to stop.
const CANCELS_MAX: usize = 1_024;
/// The most restored claims that wait for their work to start.
const RESTORED_MAX: usize = 65_536;

/// Messages to send, each with the connection of its worker.
pub(crate) type Deliveries = Vec<(Arc<dyn WorkerLink>, WorkerMessage)>;

/// Names a process across all tenants. Two users may choose the same id; their processes have nothing in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ProcessKey {
    pub(crate) tenant: Arc<str>,
    /// The user whose process it is, as `tenant/user`.
    pub(crate) owner: Arc<str>,
    pub(crate) id: Arc<str>,
}

impl ProcessKey {
    /// The process that claimed a call of this tenant.
    fn of_claim(tenant: &Arc<str>, claim: &WorkerClaim) -> Self {
        let (owner, id) = (claim.by.as_str().into(), claim.worker.as_str().into());
        Self { tenant: Arc::clone(tenant), owner, id }
    }
}

/// The tenant, the tool and the version that calls wait for.
type QueueKey = (Arc<str>, String, String);

/// One process of a worker.
#[derive(Debug)]
pub(crate) struct RosterProcess {
    pub(crate) name: String,
    pub(crate) scope: OfferScope,
    /// The version of each tool that the process runs.
    pub(crate) tools: BTreeMap<String, String>,
    pub(crate) capacity: usize,
    /// The connection, with its id; absent while the process is away.
    pub(crate) link: Option<(String, Arc<dyn WorkerLink>)>,
    /// The number of the newest connection on which the process offered.
    pub(crate) newest: u64,
    /// Calls that the process has claimed.
    pub(crate) held: BTreeSet<CallKey>,
    /// Calls that the process was offered and has not claimed.
    pub(crate) offered: BTreeSet<CallKey>,
    /// What the process said it holds when it last connected, and what it claimed since.
    pub(crate) declared: BTreeSet<(CallKey, u32)>,
    pub(crate) is_draining: bool,
    /// Since when the process is away.
    pub(crate) gone: Option<Timestamp>,
}

impl RosterProcess {
    /// A process that claimed a call before this server started, and is not back yet.
    pub(crate) fn absent(name: &str, now: Timestamp) -> Self {
        Self {
            name: name.to_owned(),
            scope: OfferScope::Tenant,
            tools: BTreeMap::new(),
            capacity: 0,
            link: None,
            newest: 0,
            held: BTreeSet::new(),
            offered: BTreeSet::new(),
            declared: BTreeSet::new(),
            is_draining: false,
            gone: Some(now),
        }
    }

    /// Takes what the process says it holds. Returns the calls that it held and does not declare.
    pub(crate) fn declare(&mut self, declared: BTreeSet<(CallKey, u32)>) -> Vec<CallKey> {
        self.declared = declared;
        let keys: BTreeSet<&CallKey> = self.declared.iter().map(|(key, _)| key).collect();
        self.held.iter().filter(|key| !keys.contains(key)).cloned().collect()
    }

    fn load(&self) -> usize {
        self.held.len() + self.offered.len()
    }

    /// Whether the process offers this version of the tool to this session.
    pub(crate) fn runs(&self, session: SessionId, tool: &str, route: &ToolRoute) -> bool {
        let is_in_scope = match &self.scope {
            OfferScope::Tenant => true,
            OfferScope::Session(only) => *only == session,
        };
        is_in_scope && self.name == route.worker && self.tools.get(tool) == Some(&route.version)
    }

    /// Whether the process can be offered this call now.
    fn takes(&self, offer: &CallOffer) -> bool {
        let is_there = self.link.is_some() && !self.is_draining;
        is_there
            && self.load() < self.capacity
            && self.runs(offer.key.session, &offer.tool, &offer.route)
    }
}

/// All workers and open calls of this server.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    pub(crate) processes: BTreeMap<ProcessKey, RosterProcess>,
    pub(crate) calls: BTreeMap<CallKey, OpenCall>,
    /// Calls that no process could take, in the order in which they came.
    waiting: BTreeMap<QueueKey, VecDeque<CallKey>>,
    /// Claims and reports of an earlier process of the server, until the work of their calls starts.
    restored: BTreeMap<CallKey, (u32, RemoteCall)>,
    /// Open calls by tenant.
    pub(crate) open: BTreeMap<Arc<str>, usize>,
    /// Calls of sessions on other servers that were offered to processes here.
    pub(crate) foreign: BTreeMap<CallKey, ForeignCall>,
    /// Calls that processes on other servers should stop, and since when.
    pub(crate) cancels: Vec<(Timestamp, PeerCancel)>,
    /// Progress of calls of sessions on other servers, and since when it is shown.
    pub(crate) outputs: Vec<(Timestamp, PeerOutput)>,
    /// What was found out about calls of sessions on other servers.
    pub(crate) answers: Vec<(Timestamp, PeerAnswer)>,
    /// What the other servers count for the bounds of each tenant.
    pub(crate) elsewhere: PeerCounts,
    /// Calls of sessions on other servers whose process here is gone.
    pub(crate) lost_elsewhere: Vec<LostCall>,
}

impl Roster {
    /// Open calls of a tenant, on all servers.
    pub(crate) fn open_calls(&self, tenant: &str) -> usize {
        let here = self.open.get(tenant).copied().unwrap_or(0);
        here.saturating_add(self.elsewhere.open_of(tenant))
    }

    /// The tools that connected processes offer to all sessions of a tenant.
    pub(crate) fn connected_tools(&self, tenant: &str) -> BTreeSet<ConnectedTool> {
        let offering = self.processes.iter().filter(|(id, it)| {
            *id.tenant == *tenant && it.link.is_some() && it.scope == OfferScope::Tenant
        });
        let tool = |id: &ProcessKey, worker: &RosterProcess, name: &String| ConnectedTool {
            name: name.clone(),
            worker: worker.name.clone(),
            owner: id.owner.to_string(),
        };
        offering
            .flat_map(|(id, worker)| worker.tools.keys().map(move |name| tool(id, worker, name)))
            .collect()
    }

    /// The tenants with a connected process.
    pub(crate) fn connected_tenants(&self) -> BTreeSet<Arc<str>> {
        let connected = self.processes.iter().filter(|(_, worker)| worker.link.is_some());
        connected.map(|(id, _)| Arc::clone(&id.tenant)).collect()
    }

    /// Checks that a process may claim a call, and says who decides about the claim.
    ///
    /// # Errors
    /// The call is not open for this process.
    pub(crate) fn check_claim(
        &self,
        id: &ProcessKey,
        key: &CallKey,
        attempt: u32,
    ) -> Result<ClaimCheck, Fault> {
        let not_offered = || not_open(key, "it was not offered to this worker");
        let worker = self.processes.get(id);
        let declares = worker.is_some_and(|it| it.declared.contains(&(key.clone(), attempt)));
        if let Some(foreign) = self.foreign.get(key) {
            let (offer, is_its_offer) = (&foreign.offer, foreign.process == *id);
            return match is_its_offer && offer.attempt == attempt {
                true => Ok(ClaimCheck::Open(offer.purpose)),
                // The process claimed it on an earlier connection. That claim may still become durable, so only the
                // session can refuse its repetition, even if another process was offered the call since.
                false if declares && offer.purpose == CallPurpose::Run => Ok(ClaimCheck::Declared),
                false => Err(not_offered()),
            };
        }
        let Some(call) = self.calls.get(key).filter(|call| call.tenant == id.tenant) else {
            return declares
                .then_some(ClaimCheck::Declared)
                .ok_or_else(|| not_open(key, "it is over"));
        };
        if call.offer.attempt != attempt {
            return Err(not_open(key, "it is another attempt"));
        }
        let claim = call.claim();
        if claim.as_ref().is_some_and(|other| other != id) {
            return Err(not_open(key, "another worker has claimed it"));
        }
        // An earlier process of the server may have offered it.
        let offer = &call.offer;
        let was_offered =
            || declares && worker.is_some_and(|it| it.runs(key.session, &offer.tool, &offer.route));
        match claim.is_some() || call.offered_to.contains(id) || was_offered() {
            true => Ok(ClaimCheck::Open(offer.purpose)),
            false => Err(not_offered()),
        }
    }

    /// Whether a process on this connection declared the call, or claims it now.
    pub(crate) fn declares(&self, connection: &str, key: &CallKey) -> bool {
        let uses =
            |worker: &&RosterProcess| worker.link.as_ref().is_some_and(|(id, _)| id == connection);
        self.processes
            .values()
            .filter(uses)
            .any(|it| it.declared.iter().any(|(known, _)| known == key))
    }

    /// Takes the durable state of a call, as the session recorded it. Returns the process to wait for if one claimed the
    /// call that is not connected here: it left before its claim was durable, or is not back since a restart.
    pub(crate) fn record(
        &mut self,
        key: &CallKey,
        attempt: u32,
        remote: &RemoteCall,
        now: Timestamp,
    ) -> Option<ProcessKey> {
        let Some(call) = self.calls.get(key).filter(|call| call.offer.attempt == attempt) else {
            let is_news = remote.claim.is_some() || remote.report.is_some();
            if is_news && self.restored.len() < RESTORED_MAX {
                self.restored.insert(key.clone(), (attempt, remote.clone()));
            }
            return None;
        };
        let claim = remote.claim.as_ref().map(|it| ProcessKey::of_claim(&call.tenant, it));
        let name = call.offer.route.worker.clone();
        let others = call.offered_to.clone();
        call.status.send_modify(|status| {
            status.claim.clone_from(&claim);
            status.report.clone_from(&remote.report);
        });
        for other in others.into_iter().chain(claim.clone()) {
            if let Some(worker) = self.processes.get_mut(&other) {
                worker.offered.remove(key);
            }
        }
        let id = claim.filter(|_| remote.report.is_none())?;
        self.hold(key, attempt, id, &name, now)
    }

    /// Marks a call as held by the process that claimed it: it is here, is awaited, or says that it does not hold it.
    fn hold(
        &mut self,
        key: &CallKey,
        attempt: u32,
        id: ProcessKey,
        name: &str,
        now: Timestamp,
    ) -> Option<ProcessKey> {
        let worker =
            self.processes.entry(id.clone()).or_insert_with(|| RosterProcess::absent(name, now));
        worker.held.insert(key.clone());
        if worker.link.is_none() {
            // A claim is a sign of life, perhaps by another server: the grace begins anew.
            worker.gone = Some(now);
            return Some(id);
        }
        if !worker.declared.contains(&(key.clone(), attempt)) {
            self.lose(key, &id);
        }
        None
    }

    /// Opens a call. Returns the messages, and the process to wait for if one claimed the call before this server
    /// started and is not back.
    pub(crate) fn open(
        &mut self,
        call: OpenCall,
        now: Timestamp,
    ) -> (Deliveries, Option<ProcessKey>) {
        let (key, attempt) = (call.offer.key.clone(), call.offer.attempt);
        let tenant = Arc::clone(&call.tenant);
        let is_run = call.offer.purpose == CallPurpose::Run;
        // A call that this server offered for another one is its own now.
        self.foreign.remove(&key);
        if self.calls.insert(key.clone(), call).is_none() {
            *self.open.entry(tenant).or_default() += 1;
        }
        let mut out = Deliveries::new();
        let restored = self.restored.remove(&key).filter(|(of, _)| is_run && *of == attempt);
        match restored {
            Some((_, remote)) => (out, self.record(&key, attempt, &remote, now)),
            None => {
                self.dispatch(&key, &mut out);
                (out, None)
            }
        }
    }

    /// Offers a call to the process with the fewest calls, or lets it wait.
    pub(crate) fn dispatch(&mut self, key: &CallKey, out: &mut Deliveries) {
        let Some(call) = self.calls.get(key).filter(|call| call.claim().is_none()) else { return };
        let (tenant, offer) = (Arc::clone(&call.tenant), Arc::clone(&call.offer));
        let asked = call.offered_to.clone();
        match self.free_worker(&tenant, &offer, &asked) {
            Some((id, link)) => {
                if let Some(worker) = self.processes.get_mut(&id) {
                    worker.offered.insert(key.clone());
                }
                let worker_id = Arc::clone(&id.id);
                if let Some(call) = self.calls.get_mut(key) {
                    call.offered_to.push(id);
                }
                out.push((link, WorkerMessage::Call { worker_id, offer }));
            }
            None => {
                let queue = (tenant, offer.tool.to_string(), offer.route.version.clone());
                let waiting = self.waiting.entry(queue).or_default();
                if !waiting.contains(key) {
                    waiting.push_back(key.clone());
                }
            }
        }
    }

    /// Offers an unclaimed call to one more process; without one, again to the process that was asked last.
    pub(crate) fn offer_again(&mut self, key: &CallKey, out: &mut Deliveries) {
        let before = out.len();
        self.dispatch(key, out);
        let Some(call) = self.calls.get(key).filter(|call| call.claim().is_none()) else { return };
        if out.len() > before {
            return;
        }
        let Some(id) = call.offered_to.last() else { return };
        let worker = self.processes.get(id);
        if let Some((_, link)) = worker.and_then(|worker| worker.link.as_ref()) {
            let (worker_id, offer) = (Arc::clone(&id.id), Arc::clone(&call.offer));
            out.push((Arc::clone(link), WorkerMessage::Call { worker_id, offer }));
        }
    }

    /// The process with the fewest calls that takes this one and was not asked yet.
    pub(crate) fn free_worker(
        &self,
        tenant: &Arc<str>,
        offer: &CallOffer,
        asked: &[ProcessKey],
    ) -> Option<(ProcessKey, Arc<dyn WorkerLink>)> {
        let first =
            ProcessKey { tenant: Arc::clone(tenant), owner: Arc::from(""), id: Arc::from("") };
        let of_tenant = self.processes.range(first..).take_while(|(id, _)| id.tenant == *tenant);
        let (id, worker) = of_tenant
            .filter(|(id, worker)| !asked.contains(id) && worker.takes(offer))
            .min_by_key(|(_, worker)| worker.load())?;
        let (_, link) = worker.link.as_ref()?;
        Some((id.clone(), Arc::clone(link)))
    }

    /// Offers waiting calls to a process that has room.
    pub(crate) fn dispatch_to(&mut self, id: &ProcessKey, out: &mut Deliveries) {
        if self.waiting.is_empty() {
            return;
        }
        let Some(worker) = self.processes.get(id) else { return };
        let queues: Vec<QueueKey> = worker
            .tools
            .iter()
            .map(|(tool, version)| (Arc::clone(&id.tenant), tool.clone(), version.clone()))
            .filter(|queue| self.waiting.contains_key(queue))
            .collect();
        for queue in queues {
            while let Some(key) = self.waiting.get_mut(&queue).and_then(VecDeque::pop_front) {
                let before = out.len();
                self.dispatch(&key, out);
                if self.calls.contains_key(&key) && out.len() == before {
                    break;
                }
            }
            if self.waiting.get(&queue).is_some_and(VecDeque::is_empty) {
                self.waiting.remove(&queue);
            }
        }
    }

    /// Ends a call that no process has to run any more. A process that holds it is told why.
    pub(crate) fn close(
        &mut self,
        key: &CallKey,
        serial: u64,
        (reason, now): (CancelReason, Timestamp),
    ) -> Deliveries {
        let mut out = Deliveries::new();
        if self.calls.get(key).is_none_or(|call| call.serial != serial) {
            return out;
        }
        let Some(call) = self.calls.remove(key) else { return out };
        let attempt = call.offer.attempt;
        let tenant = Arc::clone(&call.tenant);
        if let Some(count) = self.open.get_mut(&tenant) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&tenant);
            }
        }
        let (claim, is_reported) = {
            let status = call.status.borrow();
            (status.claim.clone(), status.report.is_some() || status.reconciliation.is_some())
        };
        if let (Some(id), false) = (&claim, is_reported) {
            self.cancel_elsewhere(id, (key, attempt), reason, now);
        }
        for id in call.offered_to.iter().chain(&claim) {
            let Some(worker) = self.processes.get_mut(id) else { continue };
            worker.offered.remove(key);
            worker.declared.remove(&(key.clone(), attempt));
            let was_held = worker.held.remove(key);
            if let (Some((_, link)), true, false) = (&worker.link, was_held, is_reported) {
                let (worker_id, key) = (Arc::clone(&id.id), key.clone());
                let message = WorkerMessage::Cancel { worker_id, key, attempt, reason };
                out.push((Arc::clone(link), message));
            }
        }
        self.stop_waiting(key, &call);
        for id in call.offered_to.iter().chain(&claim) {
            self.dispatch_to(id, &mut out);
        }
        out
    }

    fn stop_waiting(&mut self, key: &CallKey, call: &OpenCall) {
        let offer = &call.offer;
        let queue = (Arc::clone(&call.tenant), offer.tool.to_string(), offer.route.version.clone());
        let Some(waiting) = self.waiting.get_mut(&queue) else { return };
        waiting.retain(|other| other != key);
        if waiting.is_empty() {
            self.waiting.remove(&queue);
        }
    }

    /// Asks the process that holds a call to stop it.
    pub(crate) fn cancel(
        &mut self,
        key: &CallKey,
        reason: CancelReason,
        now: Timestamp,
    ) -> Deliveries {
        let Some(call) = self.calls.get(key) else { return Deliveries::new() };
        let Some(id) = call.claim() else { return Deliveries::new() };
        let attempt = call.offer.attempt;
        self.cancel_elsewhere(&id, (key, attempt), reason, now);
        let worker = self.processes.get(&id);
        let Some((_, link)) = worker.and_then(|worker| worker.link.as_ref()) else {
            return Deliveries::new();
        };
        let (worker_id, key) = (id.id, key.clone());
        vec![(Arc::clone(link), WorkerMessage::Cancel { worker_id, key, attempt, reason })]
    }

    /// Tells the other servers to stop a call, unless its process is connected here.
    fn cancel_elsewhere(
        &mut self,
        id: &ProcessKey,
        (key, attempt): (&CallKey, u32),
        reason: CancelReason,
        now: Timestamp,
    ) {
        let worker = self.processes.get(id);
        let is_here = worker.is_some_and(|worker| worker.link.is_some());
        if !is_here && self.cancels.len() < CANCELS_MAX {
            self.cancels.push((now, PeerCancel::new(id, key, attempt, reason)));
        }
    }

    /// Records that the process which claimed a call is gone for good.
    pub(crate) fn lose(&mut self, key: &CallKey, id: &ProcessKey) {
        if let Some(worker) = self.processes.get_mut(id) {
            worker.held.remove(key);
        }
        if let Some(foreign) = self.foreign.get(key).filter(|foreign| foreign.process == *id) {
            self.lost_elsewhere.push((key.clone(), foreign.offer.attempt, id.clone()));
            self.foreign.remove(key);
        }
        if let Some(call) = self.calls.get(key)
            && call.claim().as_ref() == Some(id)
        {
            call.status.send_modify(|status| status.is_lost = true);
        }
    }

    /// Takes the connection away from the processes that used it. Their unclaimed offers go to others.
    pub(crate) fn disconnect(
        &mut self,
        connection: &str,
        now: Timestamp,
    ) -> (Deliveries, Vec<ProcessKey>) {
        let uses =
            |worker: &RosterProcess| worker.link.as_ref().is_some_and(|(id, _)| id == connection);
        let gone: Vec<ProcessKey> = self
            .processes
            .iter()
            .filter(|(_, worker)| uses(worker))
            .map(|(id, _)| id.clone())
            .collect();
        let mut out = Deliveries::new();
        for id in &gone {
            let Some(worker) = self.processes.get_mut(id) else { continue };
            (worker.link, worker.gone) = (None, Some(now));
            for key in std::mem::take(&mut worker.offered) {
                if let Some(call) = self.calls.get_mut(&key) {
                    call.offered_to.retain(|other| other != id);
                }
                self.foreign.remove(&key);
                self.dispatch(&key, &mut out);
            }
        }
        (out, gone)
    }

    /// Forgets a process that has been away since `gone`; the calls that it held are lost.
    pub(crate) fn expire(&mut self, id: &ProcessKey, gone: Timestamp) {
        if self.processes.get(id).is_none_or(|worker| worker.gone != Some(gone)) {
            return;
        }
        let Some(worker) = self.processes.remove(id) else { return };
        for key in &worker.held {
            self.lose(key, id);
        }
    }
}
