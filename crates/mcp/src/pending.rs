//! Calls in progress, and the cancellation of those whose answer is no longer awaited.

use rmcp::{
    RoleClient,
    model::{CancelledNotificationParam, RequestId},
    service::Peer,
};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;

use crate::host::ProgressGuard;

/// A call whose answer is no longer awaited. It keeps its permit until the server is notified.
#[derive(Debug)]
pub(crate) struct AbandonedCall {
    id: RequestId,
    _room: OwnedSemaphorePermit,
}

/// Sends a cancellation to the server for each abandoned call.
pub(crate) async fn forget(
    peer: Peer<RoleClient>,
    mut list: mpsc::Receiver<AbandonedCall>,
    closed: CancellationToken,
) {
    while let Some(unwanted) = list.recv().await {
        let reason = Some("the call was stopped".to_owned());
        let params = CancelledNotificationParam::new(Some(unwanted.id.clone()), reason);
        tokio::select! {
            biased;
            told = peer.notify_cancelled(params) => {
                if let Err(error) = told {
                    tracing::debug!(%error, "sending call cancellation failed");
                }
            }
            () = closed.cancelled() => return,
        }
    }
}

/// A call in progress. Dropping it before the answer arrives cancels the call at the server.
pub(crate) struct PendingCall {
    pub(crate) unwanted: Option<(RequestId, OwnedSemaphorePermit)>,
    pub(crate) list: mpsc::Sender<AbandonedCall>,
    pub(crate) _following: ProgressGuard,
}

impl PendingCall {
    /// The answer arrived. Returns the permit of the call.
    pub(crate) fn answered(mut self) -> Option<OwnedSemaphorePermit> {
        self.unwanted.take().map(|(_, permit)| permit)
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if let Some((id, call_permits)) = self.unwanted.take() {
            // The channel holds as many entries as calls may run, so this fails only when the connection has ended.
            drop(self.list.try_send(AbandonedCall { id, _room: call_permits }));
        }
    }
}
