//! Periodic maintenance: cancels unobserved turns and applies retention.

use std::{sync::Arc, time::Duration};

use budao_core::{
    Timestamp,
    event::{CommandBody, SessionId},
    trace::SpanId,
};
use budao_journal::{Filter, Retention, SessionState};

use crate::{
    hub::Hub,
    inbound::OnDisconnect,
    server::{CommandRequest, Server},
    session_meta,
};

/// Interval between checks for unobserved turns.
const ROUND: Duration = Duration::from_secs(60);
/// Sessions listed per page.
const PAGE: usize = 256;

impl Server {
    fn unobserved(
        &self,
    ) -> std::sync::MutexGuard<'_, std::collections::BTreeMap<SessionId, Timestamp>> {
        self.unobserved.lock().expect("no code panics while holding this")
    }

    /// Records that a session has an observer.
    pub(crate) fn observer_joined(&self, session: SessionId) {
        let mut unobserved = self.unobserved();
        unobserved.remove(&session);
        // Under the lock, as in `last_observer_left`: the engine learns of both in their order.
        self.engine.set_observed(session, true);
    }

    /// Forgets a session that was deleted.
    pub(crate) fn session_deleted(&self, session: SessionId) {
        self.unobserved().remove(&session);
        self.engine.set_observed(session, false);
    }

    /// Records a command to a session. If the session has no observer, its time limit starts.
    pub(crate) fn command_submitted(&self, session: SessionId) {
        if self.hubs.observers(session) == 0 {
            let now = self.now();
            self.unobserved().entry(session).or_insert(now);
        }
    }

    /// Handles the departure of a hub's last observer. The session may have observers in another language.
    pub(crate) fn last_observer_left(self: &Arc<Self>, hub: &Hub) {
        let mut unobserved = self.unobserved();
        if self.stopping.is_cancelled() || self.hubs.observers(hub.session) > 0 {
            return;
        }
        self.engine.set_observed(hub.session, false);
        match hub.on_disconnect {
            OnDisconnect::Continue => {
                unobserved.insert(hub.session, self.now());
            }
            OnDisconnect::Cancel => {
                let (server, session) = (Arc::clone(self), hub.session);
                self.world.spawn.spawn(Box::pin(async move {
                    server.cancel(session, "the last observer disconnected").await;
                }));
            }
        }
    }

    async fn cancel(&self, session: SessionId, reason: &str) {
        let body = CommandBody::Cancel { reason: Some(reason.to_owned()) };
        let by = "serve".to_owned();
        let (trace, parent) = (self.world.trace(), SpanId::NONE);
        let request = CommandRequest { by, command: None, trace, parent, body };
        if let Err(fault) = self.submit(session, request).await {
            tracing::warn!(%session, %fault, "cancelling unobserved turn failed");
        }
    }

    /// Cancels turns that had no observer for longer than `Limits::unobserved_timeout`. A turn that waits for its service is
    /// left to its patience; the time counts anew from then.
    async fn cancel_unobserved(&self) {
        let (now, limit) = (self.now(), self.config.limits.unobserved_timeout);
        let due: Vec<SessionId> = {
            let mut unobserved = self.unobserved();
            let due = unobserved.iter().filter(|(_, since)| now.since(**since) >= limit);
            let due: Vec<SessionId> = due.map(|(session, _)| *session).collect();
            let (waiting, due) = due.into_iter().partition(|id| self.engine.is_waiting(*id));
            let waiting: Vec<SessionId> = waiting;
            unobserved.extend(waiting.into_iter().map(|session| (session, now)));
            unobserved.retain(|session, _| !due.contains(session));
            due
        };
        for session in due {
            if self.hubs.observers(session) == 0 {
                self.cancel(session, "the run had no observer for too long").await;
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
                let mut unobserved = self.unobserved();
                for summary in &page {
                    unobserved.entry(summary.session).or_insert(now);
                }
            }
        }
    }

    /// Applies the retention limits.
    async fn retain(&self) {
        let limits = &self.config.limits;
        let some = |number: u64| Some(number).filter(|number| *number > 0);
        let retention = Retention {
            session_age: Some(limits.retention).filter(|age| !age.is_zero()),
            record_age: Some(limits.retention_age).filter(|age| !age.is_zero()),
            records: some(limits.retention_records),
            bytes: some(limits.retention_bytes),
            once_age: Some(limits.retention_once).filter(|age| !age.is_zero()),
        };
        match self.engine.retain(retention).await {
            Ok(removed) if removed.sessions > 0 => self.recount_sessions(),
            Ok(_) => {}
            Err(fault) => tracing::warn!(%fault, "retention failed"),
        }
    }
}

/// Runs maintenance until the server stops.
pub(crate) async fn run(server: Arc<Server>) {
    server.find_unobserved().await;
    let mut retained = None;
    loop {
        let now = server.now();
        let round = server.config.limits.retention_interval;
        if retained.is_none_or(|last| now.since(last) >= round) {
            retained = Some(now);
            server.retain().await;
        }
        server.cancel_unobserved().await;
        server.config.metrics.upkeep();
        let limits = &server.config.limits;
        let wait = ROUND.min(limits.unobserved_timeout).min(round).max(Duration::from_millis(100));
        tokio::select! {
            biased;
            () = server.stopping.cancelled() => return,
            () = server.world.clock.sleep(wait) => {}
        }
    }
}
