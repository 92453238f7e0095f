//! The handle of an open call, for the task that waits for it.

use tokio::sync::{mpsc, watch};

use super::Workers;
use crate::{
    calls::{CallKey, CallStatus, CancelReason},
    roster::Deliveries,
};

/// The handle of an open call, for the task that waits for it. The roster has the call itself (`OpenCall`). Dropping
/// the handle closes the call.
pub(crate) struct CallHandle {
    pub(super) workers: Workers,
    pub(super) key: CallKey,
    pub(super) serial: u64,
    pub(super) changes: watch::Receiver<CallStatus>,
    pub(super) pieces: mpsc::Receiver<String>,
    /// What a process that still holds the call is told when it closes.
    pub(super) reason: CancelReason,
}

impl CallHandle {
    pub(crate) fn status(&mut self) -> CallStatus {
        self.changes.borrow_and_update().clone()
    }

    /// Waits for a claim, a report or the loss of the process.
    pub(crate) async fn wait_for_change(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits for a change of the call, or for a piece of its progress.
    pub(crate) async fn changed_or_output(&mut self) -> Option<String> {
        tokio::select! {
            biased;
            Ok(()) = self.changes.changed() => None,
            Some(piece) = self.pieces.recv() => Some(piece),
            else => std::future::pending().await,
        }
    }

    /// Offers an unclaimed call to one more process, or to the same one again: it may have been busy.
    pub(crate) fn offer_again(&self) {
        let mut out = Deliveries::new();
        self.workers.roster().offer_again(&self.key, &mut out);
        Workers::send(out);
    }

    pub(crate) fn cancel(&self, reason: CancelReason) {
        let out = self.workers.roster().cancel(&self.key, reason, self.workers.now());
        Workers::send(out);
    }

    pub(crate) fn set_reason(&mut self, reason: CancelReason) {
        self.reason = reason;
    }
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        let now = self.workers.now();
        let out = self.workers.roster().close(&self.key, self.serial, (self.reason, now));
        Workers::send(out);
    }
}
