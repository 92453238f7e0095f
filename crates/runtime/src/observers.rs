//! Which sessions somebody observes. Observed sessions come first at a gate and wait a shorter time.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard},
};

use budao_core::{
    event::{Origin, SessionId},
    session::Session,
};

/// The observed sessions of this process. Until a gateway reports observers, every session counts as observed.
#[derive(Debug, Default)]
pub(crate) struct Observers(Mutex<ObservedSessions>);

#[derive(Debug, Default)]
struct ObservedSessions {
    is_tracked: bool,
    sessions: BTreeSet<SessionId>,
}

impl Observers {
    /// From now on, only sessions with reported observers count as observed.
    pub(crate) fn track(&self) {
        self.lock().is_tracked = true;
    }

    pub(crate) fn set(&self, session: SessionId, is_watched: bool) {
        let mut observed = self.lock();
        observed.is_tracked = true;
        match is_watched {
            true => observed.sessions.insert(session),
            false => observed.sessions.remove(&session),
        };
    }

    /// Whether the session, or the one that opened it, has an observer.
    pub(crate) fn watches(&self, id: SessionId, session: &Session) -> bool {
        let parent = match &session.origin {
            Some(Origin::Call { parent, .. } | Origin::Stage { parent, .. }) => Some(*parent),
            Some(Origin::Fork { .. }) | None => None,
        };
        let observed = self.lock();
        !observed.is_tracked
            || observed.sessions.contains(&id)
            || parent.is_some_and(|parent| observed.sessions.contains(&parent))
    }

    fn lock(&self) -> MutexGuard<'_, ObservedSessions> {
        self.0.lock().expect("no code panics while holding this")
    }
}
