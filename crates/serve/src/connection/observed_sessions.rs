//! The sessions that a connection observes: joining, and leaving when the connection ends.

use std::sync::Arc;

use budao_core::{
    Fault,
    event::{CommandBody, LostObserver, SessionId},
    trace::SpanId,
};
use tokio_util::sync::CancellationToken;

use super::{Connection, DisconnectReason, ObservedSession};
use crate::{
    hub::Hub,
    inbound::FrameRefusal,
    observe::{ObserveError, ObserveRequest, observe},
    observer_format::ObserverFormat,
    server::CommandRequest,
    session_meta::SessionMeta,
};

impl Connection {
    /// Observes a session in a task of its own. A repeated call restarts the observation at the new position.
    pub(crate) fn observe(
        self: &Arc<Self>,
        meta: SessionMeta,
        request: ObserveRequest,
    ) -> Result<(), Fault> {
        let (request, cancel) = self.add_observation(&meta, request)?;
        let connection = Arc::clone(self);
        let observing = async move { connection.follow_until(meta, &request, &cancel).await };
        self.server.world.spawn.spawn(Box::pin(observing));
        Ok(())
    }

    /// Observes a new session and waits until it is joined; its history is short.
    pub(crate) async fn observe_new(
        self: &Arc<Self>,
        meta: SessionMeta,
        request: ObserveRequest,
    ) -> Result<(), Fault> {
        let (request, cancel) = self.add_observation(&meta, request)?;
        self.follow_until(meta, &request, &cancel).await;
        Ok(())
    }

    fn add_observation(
        &self,
        meta: &SessionMeta,
        request: ObserveRequest,
    ) -> Result<(ObserveRequest, CancellationToken), Fault> {
        self.check_session_limit(Some(request.session))?;
        // The client's own language takes precedence over the session's.
        let language = self.command_language().filter(|language| *language != meta.language);
        let format = match request.format {
            ObserverFormat::Frames(_) => ObserverFormat::Frames(language),
            ObserverFormat::Records => ObserverFormat::Records,
        };
        let request = ObserveRequest { format, ..request };
        let cancel = CancellationToken::new();
        let mut observed = self.lock_observed();
        observed.retain(|known| {
            let is_same = known.session == request.session;
            if is_same {
                known.cancel.cancel();
            }
            !is_same
        });
        observed.push(ObservedSession {
            session: request.session,
            hub: None,
            cancel: cancel.clone(),
            sent: request.after,
            acked: None,
        });
        Ok((request, cancel))
    }

    async fn follow_until(
        self: &Arc<Self>,
        meta: SessionMeta,
        request: &ObserveRequest,
        cancel: &CancellationToken,
    ) {
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            () = self.follow(meta, request, cancel) => {}
        }
    }

    async fn follow(
        self: &Arc<Self>,
        meta: SessionMeta,
        request: &ObserveRequest,
        cancel: &CancellationToken,
    ) {
        match observe(self, &meta, request).await {
            Ok(hub) => self.keep_hub(hub, cancel),
            Err(ObserveError::Disconnected) => {}
            Err(ObserveError::Expired) => self.remove_observation(request.session, cancel),
            Err(ObserveError::Fault(fault)) => {
                self.remove_observation(request.session, cancel);
                let (session, command) = (Some(request.session), request.command.clone());
                let action = Some(request.action);
                let refusal = FrameRefusal { fault, action, session, command, language: None };
                let _ = self.refuse(refusal, self.server.world.trace()).await;
            }
        }
    }

    /// Removes the entry of an observation that failed, unless a newer observation has replaced it.
    fn remove_observation(&self, session: SessionId, cancel: &CancellationToken) {
        let mut observed = self.lock_observed();
        if !cancel.is_cancelled() {
            observed.retain(|known| known.session != session);
        }
    }

    /// Keeps the hub with its entry, unless the observation was replaced or the connection ended meanwhile.
    fn keep_hub(&self, hub: Arc<Hub>, cancel: &CancellationToken) {
        self.server.observer_joined(hub.session);
        let mut observed = self.lock_observed();
        let own = observed
            .iter_mut()
            .find(|known| known.session == hub.session && !known.cancel.is_cancelled());
        match own {
            Some(known) if !cancel.is_cancelled() && self.outbox.close_reason().is_none() => {
                known.hub = Some(hub);
            }
            _ => {
                drop(observed);
                if hub.leave(&self.outbox) {
                    self.server.last_observer_left(&hub);
                }
            }
        }
    }

    /// Ends all observations of this connection. If the connection was lost, records that in each session.
    pub(crate) async fn end_observations(&self, disconnect_reason: &DisconnectReason) {
        self.disconnect_workers();
        let observed = std::mem::take(&mut *self.lock_observed());
        for known in observed {
            known.cancel.cancel();
            let Some(hub) = known.hub else { continue };
            let is_unobserved = hub.leave(&self.outbox);
            if let DisconnectReason::Lost { code, reason } = disconnect_reason {
                let body = CommandBody::ObserverLost(LostObserver {
                    close_code: *code,
                    close_reason: reason.clone(),
                    last_seq: known.acked.unwrap_or(known.sent),
                    uptime_ms: u64::try_from(self.uptime().as_millis()).unwrap_or(u64::MAX),
                });
                let (trace, parent) = (self.server.world.trace(), SpanId::NONE);
                let request =
                    CommandRequest { by: self.identity.name(), command: None, trace, parent, body };
                if let Err(fault) = self.server.submit(known.session, request).await {
                    tracing::warn!(
                        session = %known.session, %fault,
                        "recording lost observer failed"
                    );
                }
            }
            if is_unobserved {
                self.server.last_observer_left(&hub);
            }
        }
    }
}
