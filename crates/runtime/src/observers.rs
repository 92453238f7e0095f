//! Which sessions have an observer, and which wait for their service. Observed sessions come first at a gate and wait
//! a shorter time. A session that another one opened is observed with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard},
};

use budao_core::{
    event::{Origin, SessionId},
    session::Session,
};
use uuid::Uuid;

/// The observed sessions of this process. Until a gateway reports observers, every session counts as observed.
#[derive(Debug, Default)]
pub(crate) struct Observers(Mutex<ObservedSessions>);

#[derive(Debug, Default)]
struct ObservedSessions {
    is_tracked: bool,
    sessions: BTreeSet<SessionId>,
    /// The parents of loaded sessions, each with the generation of the session that has it.
    parents: BTreeMap<SessionId, (SessionId, u32)>,
    /// The same as pairs of parent and child.
    children: BTreeSet<(SessionId, SessionId)>,
    /// Sessions whose turns wait for their service.
    waiting: BTreeSet<SessionId>,
}

impl Observers {
    /// From now on, only sessions with reported observers count as observed.
    pub(crate) fn track(&self) {
        self.lock().is_tracked = true;
    }

    /// Sets whether a session has observers. Returns it and the loaded sessions below it, each with whether it counts as
    /// observed now.
    pub(crate) fn set(&self, session: SessionId, is_observed: bool) -> Vec<(SessionId, bool)> {
        let mut observed = self.lock();
        observed.is_tracked = true;
        match is_observed {
            true => observed.sessions.insert(session),
            false => observed.sessions.remove(&session),
        };
        let family = observed.family(session);
        family.into_iter().map(|id| (id, observed.is_observed(id))).collect()
    }

    /// Notes the parent of a session that was loaded.
    pub(crate) fn session_loaded(&self, id: SessionId, generation: u32, session: &Session) {
        let (Some(Origin::Call { parent, .. }) | Some(Origin::Stage { parent, .. })) =
            &session.origin
        else {
            return;
        };
        let mut observed = self.lock();
        observed.parents.insert(id, (*parent, generation));
        observed.children.insert((*parent, id));
    }

    /// Forgets a session that was unloaded, unless a later generation of it is loaded.
    pub(crate) fn session_unloaded(&self, id: SessionId, generation: u32) {
        let mut observed = self.lock();
        observed.waiting.remove(&id);
        if let Some((parent, of)) = observed.parents.get(&id).copied()
            && of == generation
        {
            observed.parents.remove(&id);
            observed.children.remove(&(parent, id));
        }
    }

    /// Whether the session, or one that it belongs to, has an observer.
    pub(crate) fn is_observed(&self, id: SessionId) -> bool {
        self.lock().is_observed(id)
    }

    /// Notes whether the turn of a session waits for its service.
    pub(crate) fn set_waiting(&self, session: SessionId, is_waiting: bool) {
        let mut observed = self.lock();
        match is_waiting {
            true => observed.waiting.insert(session),
            false => observed.waiting.remove(&session),
        };
    }

    /// Whether the turn of a session waits for its service.
    pub(crate) fn is_waiting(&self, session: SessionId) -> bool {
        self.lock().waiting.contains(&session)
    }

    fn lock(&self) -> MutexGuard<'_, ObservedSessions> {
        self.0.lock().expect("no code panics while holding this")
    }
}

impl ObservedSessions {
    fn is_observed(&self, id: SessionId) -> bool {
        let parent = |id: &SessionId| self.parents.get(id).map(|(parent, _)| *parent);
        // Bounded: no session is above itself, but records are outside data.
        let mut line = std::iter::successors(Some(id), parent).take(self.parents.len() + 1);
        !self.is_tracked || line.any(|id| self.sessions.contains(&id))
    }

    /// A session and all loaded sessions below it.
    fn family(&self, session: SessionId) -> BTreeSet<SessionId> {
        let (mut family, mut open) = (BTreeSet::new(), vec![session]);
        while let Some(id) = open.pop() {
            if family.insert(id) {
                let below = self.children.range((id, SessionId(Uuid::nil()))..);
                open.extend(below.take_while(|(parent, _)| *parent == id).map(|(_, child)| *child));
            }
        }
        family
    }
}

#[cfg(test)]
mod tests {
    use budao_core::message::CallId;

    use super::*;

    fn id(number: u128) -> SessionId {
        SessionId(Uuid::from_u128(number))
    }

    fn child_of(parent: u128) -> Session {
        let origin = Origin::Call { parent: id(parent), call: CallId::from("c"), depth: 1 };
        Session { origin: Some(origin), ..Session::default() }
    }

    #[test]
    fn a_session_is_observed_with_those_above_it() {
        let observers = Observers::default();
        assert!(observers.is_observed(id(3)), "as long as nobody reports observers");
        observers.session_loaded(id(2), 1, &child_of(1));
        observers.session_loaded(id(3), 1, &child_of(2));
        let all = |is_observed| [1, 2, 3].map(|number| (id(number), is_observed)).to_vec();
        assert_eq!(observers.set(id(1), true), all(true));
        assert_eq!(observers.set(id(9), true), [(id(9), true)]);
        assert!(observers.is_observed(id(3)));
        assert_eq!(observers.set(id(1), false), all(false));
        observers.session_loaded(id(3), 2, &child_of(2));
        observers.session_unloaded(id(3), 1);
        observers.set(id(2), true);
        assert!(observers.is_observed(id(3)), "a later generation is still loaded");
        observers.session_unloaded(id(3), 2);
        assert!(!observers.is_observed(id(3)));
        assert_eq!(observers.lock().children.len(), 1);
    }

    #[test]
    fn sessions_that_are_above_each_other_end_the_search() {
        let observers = Observers::default();
        observers.session_loaded(id(1), 1, &child_of(2));
        observers.session_loaded(id(2), 1, &child_of(1));
        assert_eq!(observers.set(id(3), true), [(id(3), true)]);
        assert!(!observers.is_observed(id(1)));
        assert_eq!(observers.set(id(1), false).len(), 2);
    }
}
