//! The sessions that a connection observes: joining, and leaving when the connection ends.

use std::sync::Arc;

use budao_core::{Fault, event::CommandBody, trace::SpanId};
use tokio_util::sync::CancellationToken;

use super::{Connection, Departure, ObservedSession};
use crate::{
    hub::Hub,
    inbound::Refusal,
    observe::{ObserveError, ObserveMode, ObserveRequest, observe},
    server::CommandRequest,
    session_meta::SessionMeta,
};

impl Connection {
    /// Observes a session in a task of its own. A repeated call restarts the observation at the new position.
    pub(crate) fn watch(
        self: &Arc<Self>,
        card: SessionMeta,
        wish: ObserveRequest,
    ) -> Result<(), Fault> {
        let (wish, cancel) = self.begin(&card, wish)?;
        let connection = Arc::clone(self);
        let watching = async move { connection.follow_until(card, &wish, &cancel).await };
        self.server.world.spawn.spawn(Box::pin(watching));
        Ok(())
    }

    /// Observes a new session and waits until it is joined; its history is short.
    pub(crate) async fn watch_first(
        self: &Arc<Self>,
        card: SessionMeta,
        wish: ObserveRequest,
    ) -> Result<(), Fault> {
        let (wish, cancel) = self.begin(&card, wish)?;
        self.follow_until(card, &wish, &cancel).await;
        Ok(())
    }

    fn begin(
        &self,
        card: &SessionMeta,
        wish: ObserveRequest,
    ) -> Result<(ObserveRequest, CancellationToken), Fault> {
        self.room_for_one_more(Some(wish.session))?;
        // The client's own language takes precedence over the session's.
        let wish =
            ObserveRequest { language: self.said().filter(|said| *said != card.language), ..wish };
        let cancel = CancellationToken::new();
        let mut watched = self.watched();
        watched.retain(|known| {
            let is_same = known.session == wish.session;
            if is_same {
                known.cancel.cancel();
            }
            !is_same
        });
        watched.push(ObservedSession {
            session: wish.session,
            hub: None,
            cancel: cancel.clone(),
            sent: wish.after,
            acked: None,
        });
        Ok((wish, cancel))
    }

    async fn follow_until(
        self: &Arc<Self>,
        card: SessionMeta,
        wish: &ObserveRequest,
        cancel: &CancellationToken,
    ) {
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            () = self.follow(card, wish, cancel) => {}
        }
    }

    async fn follow(
        self: &Arc<Self>,
        card: SessionMeta,
        wish: &ObserveRequest,
        cancel: &CancellationToken,
    ) {
        match observe(self, &card, wish).await {
            Ok(hub) => self.joined(hub, cancel),
            Err(ObserveError::Disconnected) => {}
            Err(ObserveError::Fault(fault)) => {
                self.watched().retain(|known| known.session != wish.session);
                let action = Some(match wish.how {
                    ObserveMode::Fresh => "create_session",
                    ObserveMode::Resume => "reconnect",
                    ObserveMode::Restore => "reconnect_with_state",
                });
                let (session, command) = (Some(wish.session), wish.command.clone());
                let refusal = Refusal { fault, action, session, command, language: None };
                let _ = self.refuse(refusal, self.server.world.trace()).await;
            }
        }
    }

    fn joined(&self, hub: Arc<Hub>, cancel: &CancellationToken) {
        self.server.observed(hub.session);
        let mut watched = self.watched();
        let own = watched
            .iter_mut()
            .find(|known| known.session == hub.session && !known.cancel.is_cancelled());
        match own {
            Some(known) if !cancel.is_cancelled() && self.outbox.goodbye().is_none() => {
                known.hub = Some(hub);
            }
            _ => {
                drop(watched);
                if hub.leave(&self.outbox) {
                    self.server.left(&hub);
                }
            }
        }
    }

    /// Ends all observations of this connection. If the connection was lost, records that in each session.
    pub(crate) async fn depart(&self, departure: &Departure) {
        let watched = std::mem::take(&mut *self.watched());
        for known in watched {
            known.cancel.cancel();
            let Some(hub) = known.hub else { continue };
            let nobody_left = hub.leave(&self.outbox);
            if let Departure::Lost { code, reason } = departure {
                let ask = CommandBody::ObserverLost {
                    close_code: *code,
                    close_reason: reason.clone(),
                    last_seq: known.acked.unwrap_or(known.sent),
                    uptime_ms: u64::try_from(self.uptime().as_millis()).unwrap_or(u64::MAX),
                };
                let (trace, parent) = (self.server.world.trace(), SpanId::NONE);
                let order =
                    CommandRequest { by: self.who.name(), command: None, trace, parent, ask };
                if let Err(fault) = self.server.submit(known.session, order).await {
                    tracing::warn!(
                        session = %known.session, %fault,
                        "recording lost observer failed"
                    );
                }
            }
            if nobody_left {
                self.server.left(&hub);
            }
        }
    }
}
