//! The waiting requests of a gate: fair by tenant, then by session, then first come, first served.
//!
//! Tenants share the grants equally, and so do the sessions of a tenant, by virtual time: a tenant or session that was
//! served moves behind those that were not. Interactive requests come before background ones, which still get one of
//! `background_share` grants while they wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Priority, Ticket};
use crate::event::SessionId;

/// The order of a request within its tenant: the round of its session, then its arrival.
type Place = (u64, u64);

/// All requests that wait at one gate.
#[derive(Debug)]
pub(super) struct FairQueue {
    interactive: PriorityQueue,
    background: PriorityQueue,
    background_share: u32,
    /// Grants to interactive requests since the last one to background work.
    interactive_in_a_row: u32,
    arrivals: u64,
}

#[derive(Debug, Default)]
struct PriorityQueue {
    tenants: BTreeMap<Arc<str>, TenantQueue>,
    /// Tenants with waiting requests, by virtual time.
    order: BTreeSet<(u64, Arc<str>)>,
    virtual_time: u64,
    /// Virtual times of tenants that were served and do not wait, as long as they are ahead of the queue's.
    served: BTreeMap<Arc<str>, u64>,
    waiting: usize,
}

#[derive(Debug, Default)]
struct TenantQueue {
    requests: BTreeMap<Place, Ticket>,
    sessions: BTreeMap<SessionId, SessionShare>,
    virtual_time: u64,
    round: u64,
}

/// A session's requests in a tenant's queue.
#[derive(Clone, Copy, Debug)]
struct SessionShare {
    last_round: u64,
    waiting: u32,
}

/// Where a waiting request stands; its ticket's owner keeps it for the removal.
#[derive(Clone, Debug)]
pub(super) struct QueueEntry {
    pub(super) tenant: Arc<str>,
    pub(super) session: SessionId,
    pub(super) priority: Priority,
    place: Place,
}

impl FairQueue {
    pub(super) fn new(background_share: u32) -> Self {
        Self {
            interactive: PriorityQueue::default(),
            background: PriorityQueue::default(),
            background_share,
            interactive_in_a_row: 0,
            arrivals: 0,
        }
    }

    /// Adds a request. One that failed as a probe goes to the end, so that another request probes the service next.
    pub(super) fn push(
        &mut self,
        ticket: Ticket,
        tenant: Arc<str>,
        session: SessionId,
        priority: Priority,
    ) -> QueueEntry {
        self.arrivals += 1;
        let arrival = self.arrivals;
        let place = self.of(priority).push(ticket, &tenant, session, arrival);
        QueueEntry { tenant, session, priority, place }
    }

    pub(super) fn remove(&mut self, entry: &QueueEntry) {
        self.of(entry.priority).remove(entry);
    }

    /// Takes the request that is next.
    pub(super) fn pop(&mut self) -> Option<Ticket> {
        let owed = self.interactive_in_a_row.saturating_add(1) >= self.background_share;
        let takes_background =
            self.background.waiting > 0 && (owed || self.interactive.waiting == 0);
        if takes_background {
            self.interactive_in_a_row = 0;
            return self.background.pop();
        }
        if self.background.waiting > 0 {
            self.interactive_in_a_row = self.interactive_in_a_row.saturating_add(1);
        }
        self.interactive.pop()
    }

    pub(super) fn len(&self) -> usize {
        self.interactive.waiting + self.background.waiting
    }

    pub(super) fn background(&self) -> usize {
        self.background.waiting
    }

    /// Moves a waiting request to the other priority. It keeps its place by arrival.
    pub(super) fn set_priority(
        &mut self,
        ticket: Ticket,
        entry: &mut QueueEntry,
        priority: Priority,
    ) {
        self.remove(entry);
        let arrival = entry.place.1;
        entry.place = self.of(priority).push(ticket, &entry.tenant, entry.session, arrival);
        entry.priority = priority;
    }

    /// How many requests are before each of these, in the same order. One walk over the queue for all of them.
    pub(super) fn positions(&self, tickets: &BTreeSet<Ticket>) -> BTreeMap<Ticket, usize> {
        let order = self.interactive.order().into_iter().chain(self.background.order());
        let order = order.enumerate().filter(|(_, ticket)| tickets.contains(ticket));
        order.map(|(before, ticket)| (ticket, before)).collect()
    }

    /// How many requests are before this one at most, if it is the last of its tenant. Needs no walk over the queue.
    pub(super) fn last_position(&self, entry: &QueueEntry) -> Option<usize> {
        let (queue, ahead) = match entry.priority {
            Priority::Interactive => (&self.interactive, 0),
            Priority::Background => (&self.background, self.interactive.waiting),
        };
        let tenant = queue.tenants.get(&entry.tenant)?;
        let is_last =
            tenant.requests.last_key_value().is_some_and(|(place, _)| *place == entry.place);
        // Each tenant is served as often as this one until then, if it has so many requests.
        let most = tenant.requests.len().saturating_mul(queue.tenants.len()).min(queue.waiting);
        is_last.then(|| ahead + most.saturating_sub(1))
    }

    fn of(&mut self, priority: Priority) -> &mut PriorityQueue {
        match priority {
            Priority::Interactive => &mut self.interactive,
            Priority::Background => &mut self.background,
        }
    }
}

impl PriorityQueue {
    fn push(
        &mut self,
        ticket: Ticket,
        tenant: &Arc<str>,
        session: SessionId,
        arrival: u64,
    ) -> Place {
        let served = self.served.remove(tenant).unwrap_or_default();
        let queue = self.tenants.entry(Arc::clone(tenant)).or_default();
        if queue.requests.is_empty() {
            queue.virtual_time = queue.virtual_time.max(self.virtual_time).max(served);
            self.order.insert((queue.virtual_time, Arc::clone(tenant)));
        }
        let share = queue
            .sessions
            .entry(session)
            .or_insert(SessionShare { last_round: queue.round, waiting: 0 });
        share.waiting += 1;
        share.last_round = share.last_round.max(queue.round) + 1;
        let round = share.last_round;
        queue.requests.insert((round, arrival), ticket);
        self.waiting += 1;
        (round, arrival)
    }

    fn remove(&mut self, entry: &QueueEntry) {
        let Some(queue) = self.tenants.get_mut(&entry.tenant) else { return };
        if queue.requests.remove(&entry.place).is_none() {
            return;
        }
        queue.leave(entry.session);
        self.waiting -= 1;
        if queue.requests.is_empty() {
            self.order.remove(&(queue.virtual_time, Arc::clone(&entry.tenant)));
            self.tenants.remove(&entry.tenant);
        }
    }

    /// Takes the next request of the tenant that was served least. The caller removes its session's share.
    fn pop(&mut self) -> Option<Ticket> {
        let (time, tenant) = self.order.pop_first()?;
        self.virtual_time = time;
        let queue = self.tenants.get_mut(&tenant)?;
        let ((round, _), ticket) = queue.requests.pop_first()?;
        queue.round = queue.round.max(round);
        queue.virtual_time = time + 1;
        self.waiting -= 1;
        self.served.retain(|_, served| *served > time);
        match queue.requests.is_empty() {
            true => {
                self.tenants.remove(&tenant);
                self.served.insert(tenant, time + 1);
            }
            false => drop(self.order.insert((queue.virtual_time, tenant))),
        }
        Some(ticket)
    }

    /// All requests in the order in which they are served if no further one comes.
    fn order(&self) -> Vec<Ticket> {
        let mut order = Vec::with_capacity(self.waiting);
        for (tenant, queue) in &self.tenants {
            let times = queue.virtual_time..;
            order.extend(
                times.zip(queue.requests.values()).map(|(at, ticket)| (at, tenant, *ticket)),
            );
        }
        order.sort_unstable();
        order.into_iter().map(|(_, _, ticket)| ticket).collect()
    }

    /// Ends the share of a session whose request was taken.
    fn taken(&mut self, entry: &QueueEntry) {
        if let Some(queue) = self.tenants.get_mut(&entry.tenant) {
            queue.leave(entry.session);
        }
    }
}

impl FairQueue {
    /// Settles the share of a session after [`FairQueue::pop`] took its request.
    pub(super) fn taken(&mut self, entry: &QueueEntry) {
        self.of(entry.priority).taken(entry);
    }
}

impl TenantQueue {
    fn leave(&mut self, session: SessionId) {
        if let Some(share) = self.sessions.get_mut(&session) {
            share.waiting -= 1;
            if share.waiting == 0 {
                self.sessions.remove(&session);
            }
        }
    }
}
