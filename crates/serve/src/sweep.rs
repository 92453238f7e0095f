//! Periodic maintenance: cancels unobserved turns and applies retention.
//!
//! With several servers on a journal, only the server that writes a session decides whether the session is observed:
//! clients of other servers count too. Retention runs on one server.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use budao_core::{
    Timestamp,
    event::{CommandBody, SessionId},
    trace::SpanId,
};
use budao_journal::{Filter, Retention, SessionState, UnfinishedSession};

use crate::{
    hub::Hub,
    inbound::OnDisconnect,
    server::{CommandRequest, Server},
    session_meta,
};

/// Interval between checks for unobserved turns.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);
/// How long after the last observer left here another server may take to report that the client has moved to it.
const MOVE_GRACE: Duration = Duration::from_secs(3);
/// Sessions listed per page.
const PAGE: usize = 256;

impl Server {
    fn lock_unobserved(
        &self,
    ) -> std::sync::MutexGuard<'_, std::collections::BTreeMap<SessionId, Timestamp>> {
        self.unobserved.lock().expect("no code panics while holding this")
    }

    /// Records that a session has an observer.
    pub(crate) fn observer_joined(&self, session: SessionId) {
        let mut unobserved = self.lock_unobserved();
        unobserved.remove(&session);
        // Under the lock, as in `last_observer_left`: the engine learns of both in their order.
        self.engine.set_observed(session, true);
        self.report_observed(session, true);
    }

    fn report_observed(&self, session: SessionId, is_observed: bool) {
        if let Some(node) = &self.config.node {
            node.set_observed(session, is_observed);
        }
    }

    /// Whether clients of this server observe the session, or clients that another server has reported.
    fn is_observed(&self, session: SessionId) -> bool {
        let node = self.config.node.as_ref();
        self.hubs.observers(session) > 0
            || node.is_some_and(|node| node.is_observed_elsewhere(session))
    }

    /// Whether this server writes the session. Always true without other servers.
    async fn is_writer(&self, session: SessionId) -> bool {
        let Some(node) = &self.config.node else { return true };
        let info = self.journal.info(session).await.ok().flatten();
        info.and_then(|info| info.lease).is_some_and(|lease| lease.holder == node.holder())
    }

    /// Forgets a session that was deleted.
    pub(crate) fn session_deleted(&self, session: SessionId) {
        self.lock_unobserved().remove(&session);
        self.engine.set_observed(session, false);
        self.report_observed(session, false);
    }

    /// Records a command to a session. If the session has no observer, its time limit starts.
    pub(crate) fn command_submitted(&self, session: SessionId) {
        if !self.is_observed(session) {
            let now = self.now();
            self.lock_unobserved().entry(session).or_insert(now);
        }
    }

    /// Handles the departure of a hub's last observer. The session may have observers in another language.
    pub(crate) fn last_observer_left(self: &Arc<Self>, hub: &Hub) {
        let mut unobserved = self.lock_unobserved();
        if self.stopping.is_cancelled() || self.hubs.observers(hub.session) > 0 {
            return;
        }
        self.report_observed(hub.session, false);
        if self.is_observed(hub.session) {
            return;
        }
        self.engine.set_observed(hub.session, false);
        unobserved.insert(hub.session, self.now());
        drop(unobserved);
        if hub.on_disconnect == OnDisconnect::Cancel {
            self.cancel_if_left(hub.session);
        }
    }

    /// Cancels the turn of a session whose last observer has left, if this server writes the session.
    fn cancel_if_left(self: &Arc<Self>, session: SessionId) {
        let server = Arc::clone(self);
        self.world.spawn.spawn(Box::pin(async move {
            if server.config.node.as_ref().is_some_and(|node| node.nodes().len() > 1) {
                server.world.clock.sleep(MOVE_GRACE).await;
                if server.is_observed(session) {
                    return;
                }
            }
            if server.is_writer(session).await {
                server.lock_unobserved().remove(&session);
                server.cancel_turn(session, "the last observer disconnected").await;
            }
        }));
    }

    /// Reacts when clients of other servers start or stop to observe sessions of this server.
    async fn follow_other_observers(self: Arc<Self>) {
        let Some(node) = &self.config.node else { return };
        let mut observed = node.observed_elsewhere();
        let mut before = BTreeSet::new();
        loop {
            let now: BTreeSet<SessionId> = observed.borrow_and_update().clone();
            for session in now.difference(&before) {
                let mut unobserved = self.lock_unobserved();
                unobserved.remove(session);
                self.engine.set_observed(*session, true);
            }
            for session in before.difference(&now) {
                self.handle_remote_departure(*session).await;
            }
            before = now;
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                changed = observed.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn handle_remote_departure(self: &Arc<Self>, session: SessionId) {
        {
            let mut unobserved = self.lock_unobserved();
            if self.hubs.observers(session) > 0 {
                return;
            }
            self.engine.set_observed(session, false);
            unobserved.insert(session, self.now());
        }
        let meta = self.session_meta.get(&*self.journal, session).await;
        if meta.is_ok_and(|meta| meta.on_disconnect == OnDisconnect::Cancel) {
            self.cancel_if_left(session);
        }
    }

    async fn cancel_turn(&self, session: SessionId, reason: &str) {
        let body = CommandBody::Cancel { reason: Some(reason.to_owned()) };
        let by = "serve".to_owned();
        let (trace, parent) = (self.world.trace(), SpanId::NONE);
        let request = CommandRequest { by, command: None, trace, parent, body };
        if let Err(fault) = self.submit(session, request).await {
            tracing::warn!(%session, %fault, "cancelling unobserved turn failed");
        }
    }

    /// Cancels turns that had no observer for longer than `Limits::unobserved_timeout`. A turn that waits for its service is
    /// left to its patience; the timeout then starts again.
    async fn cancel_unobserved(&self) {
        let (now, limit) = (self.now(), self.config.limits.unobserved_timeout);
        let due: Vec<SessionId> = {
            let mut unobserved = self.lock_unobserved();
            let due = unobserved.iter().filter(|(_, since)| now.since(**since) >= limit);
            let due: Vec<SessionId> = due.map(|(session, _)| *session).collect();
            let (waiting, due) = due.into_iter().partition(|id| self.engine.is_waiting(*id));
            let waiting: Vec<SessionId> = waiting;
            unobserved.extend(waiting.into_iter().map(|session| (session, now)));
            unobserved.retain(|session, _| !due.contains(session));
            due
        };
        for session in due {
            if !self.is_observed(session) && self.is_writer(session).await {
                self.cancel_turn(session, "the turn had no observer for too long").await;
            }
        }
    }

    /// Finds this gateway's sessions with a turn that was open before the start; their time limit starts now.
    async fn find_unobserved(&self) {
        for state in [SessionState::Running, SessionState::WaitingForDecision] {
            let mut after = None;
            loop {
                let label = Some((session_meta::OWNER.to_owned(), None));
                let filter =
                    Filter { state: Some(state), label, after, limit: PAGE, ..Filter::default() };
                let page = match self.journal.sessions(filter).await {
                    Ok(page) => page,
                    Err(fault) => {
                        return tracing::warn!(%fault, "listing unobserved sessions failed");
                    }
                };
                let Some(last) = page.last() else { break };
                after = Some((last.updated_at, last.session));
                let now = self.now();
                let mut unobserved = self.lock_unobserved();
                for summary in &page {
                    unobserved.entry(summary.session).or_insert(now);
                }
            }
        }
    }

    /// Finds this gateway's sessions that `holder` writes; the time limit of those without an observer starts now.
    async fn find_own_unobserved(&self, holder: &str) {
        let mut after = None;
        loop {
            let page = match self.journal.unfinished(after, PAGE).await {
                Ok(page) => page,
                Err(fault) => return tracing::warn!(%fault, "listing unobserved sessions failed"),
            };
            let Some(last) = page.last() else { return };
            after = Some(last.session);
            for UnfinishedSession { session, lease, turn, .. } in page {
                let is_own = lease.is_some_and(|lease| lease.holder == holder);
                if !is_own || turn.is_none() || self.is_observed(session) {
                    continue;
                }
                let meta = self.session_meta.get(&*self.journal, session).await;
                if meta.is_ok_and(|meta| meta.has_owner()) {
                    let now = self.now();
                    self.lock_unobserved().entry(session).or_insert(now);
                }
            }
        }
    }

    /// Whether this server runs a job that one server runs for all. Always true without other servers.
    pub(crate) async fn holds_job(&self, name: &str) -> bool {
        let Some(node) = &self.config.node else { return true };
        match node.holds_job(name).await {
            Ok(is_held) => is_held,
            Err(fault) => {
                tracing::warn!(%fault, job = name, "taking a job failed");
                false
            }
        }
    }

    /// Applies the retention limits.
    async fn apply_retention(&self) {
        let limits = &self.config.limits;
        let some = |number: u64| Some(number).filter(|number| *number > 0);
        let retention = Retention {
            session_age: Some(limits.retention).filter(|age| !age.is_zero()),
            record_age: Some(limits.retention_age).filter(|age| !age.is_zero()),
            records: some(limits.retention_records),
            bytes: some(limits.retention_bytes),
            once_age: Some(limits.retention_once).filter(|age| !age.is_zero()),
        };
        if !self.holds_job("retention").await {
            return;
        }
        match self.engine.retain(retention).await {
            Ok(removed) if removed.sessions > 0 => self.recount_sessions(),
            Ok(_) => {}
            Err(fault) => tracing::warn!(%fault, "retention failed"),
        }
    }
}

/// Runs maintenance until the server stops.
pub(crate) async fn run(server: Arc<Server>) {
    server.world.spawn.spawn(Box::pin(Arc::clone(&server).follow_other_observers()));
    let mut retained = None;
    let mut is_first = true;
    loop {
        match server.config.node.clone() {
            // Sessions taken over since the last round are judged here from now on.
            Some(node) => server.find_own_unobserved(node.holder()).await,
            None if is_first => server.find_unobserved().await,
            None => {}
        }
        is_first = false;
        let now = server.now();
        let round = server.config.limits.retention_interval;
        if retained.is_none_or(|last| now.since(last) >= round) {
            retained = Some(now);
            server.apply_retention().await;
        }
        server.cancel_unobserved().await;
        server.config.metrics.upkeep();
        let limits = &server.config.limits;
        let wait = SWEEP_INTERVAL
            .min(limits.unobserved_timeout)
            .min(round)
            .max(Duration::from_millis(100));
        tokio::select! {
            biased;
            () = server.stopping.cancelled() => return,
            () = server.world.clock.sleep(wait) => {}
        }
    }
}
