//! Requests that wait at a gate while their sessions are not loaded. Each keeps its place in the queue; what it costs is
//! this entry. A session is loaded when its request is granted, when there is news for it, or when its wait ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use budao_core::{
    event::{Seq, SessionId},
    gate::{GateKey, Ticket},
    time::Timestamp,
};

use super::waiter::WaitUpdate;

/// A session that was loaded claims its request within this time; after it the request is dropped, because another
/// process has the session.
const CLAIM_LIMIT: Duration = Duration::from_secs(30);
/// Sessions without a grant that are loaded in one round, and the time until the next round.
const LOADS_PER_ROUND: usize = 256;
const ROUND_PAUSE: Duration = Duration::from_millis(100);

/// The requests of sessions that are not loaded.
#[derive(Debug, Default)]
pub(super) struct SuspendedRequests {
    requests: BTreeMap<SessionId, SuspendedRequest>,
    /// When each session is loaded. A granted request has the earliest time there is.
    wakes: BTreeSet<(Timestamp, SessionId)>,
    next_round: Timestamp,
}

/// A request whose session is not loaded.
#[derive(Debug)]
pub(super) struct SuspendedRequest {
    pub(super) key: GateKey,
    pub(super) ticket: Ticket,
    /// The last record of the session. A session that has grown was written by another process.
    pub(super) head: Seq,
    /// The latest message of the gate.
    pub(super) update: Option<WaitUpdate>,
    load_state: LoadState,
    wake_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadState {
    /// The task of the session has not ended yet.
    Unloading,
    Unloaded,
    /// The session is being loaded.
    Loading,
}

/// The sessions and requests that are due at a time.
#[derive(Debug, Default)]
pub(super) struct DueSessions {
    pub(super) load: Vec<SessionId>,
    /// Requests that no session claimed.
    pub(super) unclaimed: Vec<SuspendedRequest>,
}

impl SuspendedRequest {
    pub(super) fn new(key: GateKey, ticket: Ticket, head: Seq, wake_at: Timestamp) -> Self {
        Self { key, ticket, head, update: None, load_state: LoadState::Unloading, wake_at }
    }
}

impl SuspendedRequests {
    pub(super) fn contains(&self, session: SessionId) -> bool {
        self.requests.contains_key(&session)
    }

    /// Adds a request. Its session is not loaded before [`SuspendedRequests::after_unload`].
    pub(super) fn insert(&mut self, session: SessionId, request: SuspendedRequest) {
        self.requests.insert(session, request);
    }

    /// The task of the session has ended: from now on the session can be loaded.
    pub(super) fn after_unload(&mut self, session: SessionId, now: Timestamp) {
        let Some(request) = self.requests.get_mut(&session) else { return };
        if request.load_state == LoadState::Unloading {
            request.load_state = LoadState::Unloaded;
            let at = due_at(request, now);
            self.plan(session, at);
        }
    }

    /// Keeps a message of the gate for a session. An end is the last one.
    pub(super) fn notify(&mut self, session: SessionId, update: WaitUpdate, now: Timestamp) {
        let Some(request) = self.requests.get_mut(&session) else { return };
        request.update = Some(update);
        if request.load_state == LoadState::Unloaded {
            let at = due_at(request, now);
            self.plan(session, at);
        }
    }

    /// Takes the request of a session that is loaded.
    pub(super) fn claim(&mut self, session: SessionId) -> Option<SuspendedRequest> {
        let request = self.requests.remove(&session)?;
        self.wakes.remove(&(request.wake_at, session));
        Some(request)
    }

    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        let (at, _) = *self.wakes.first()?;
        Some(if at == Timestamp::default() { at } else { at.max(self.next_round) })
    }

    /// The sessions to load now, those with a grant first, and the requests that no session claimed in time.
    pub(super) fn take_due(&mut self, now: Timestamp) -> DueSessions {
        let mut due = DueSessions::default();
        while let Some((at, session)) = self.wakes.first().copied() {
            let is_granted = at == Timestamp::default();
            let has_room = due.load.len() < LOADS_PER_ROUND && self.next_round <= now;
            if at > now || !(is_granted || has_room) {
                break;
            }
            match self.requests.get(&session).map(|request| request.load_state) {
                Some(LoadState::Loading) => due.unclaimed.extend(self.claim(session)),
                Some(_) => {
                    self.plan(session, now.after(CLAIM_LIMIT));
                    if let Some(request) = self.requests.get_mut(&session) {
                        request.load_state = LoadState::Loading;
                    }
                    due.load.push(session);
                }
                None => drop(self.wakes.pop_first()),
            }
        }
        if due.load.len() >= LOADS_PER_ROUND {
            self.next_round = now.after(ROUND_PAUSE);
        }
        due
    }

    fn plan(&mut self, session: SessionId, at: Timestamp) {
        let Some(request) = self.requests.get_mut(&session) else { return };
        self.wakes.remove(&(request.wake_at, session));
        request.wake_at = at;
        self.wakes.insert((at, session));
    }
}

/// The time at which the session of a request is loaded, unless an update comes first.
fn due_at(request: &SuspendedRequest, now: Timestamp) -> Timestamp {
    match &request.update {
        None => request.wake_at,
        Some(WaitUpdate::Report(_)) => request.wake_at.min(now),
        Some(WaitUpdate::Granted | WaitUpdate::Refused(_)) => Timestamp::default(),
    }
}
