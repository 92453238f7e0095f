//! Change notifications of a server without a handshake: it sends them only to a client that listens.
//!
//! One task listens for each connection. A server that cannot be listened to keeps its tools; an HTTP server is asked
//! for them periodically in any case.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use budao_core::world::World;
use rmcp::{
    model::{ServerNotification, SubscriptionFilter},
    service::{ServiceError, Subscription},
};
use tokio::sync::{Notify, broadcast};

use crate::{connection::ServerConnection, era::Era, resources::ResourceChange};

/// The longest list of resources that one connection follows.
const RESOURCES_MAX: usize = 256;

/// The pause before the client listens again. A server that ends every subscription at once costs one request per
/// pause.
const PAUSE: Duration = Duration::from_secs(5);

/// The resources that a connection follows.
#[derive(Debug, Default)]
pub(crate) struct ResourceSubscription {
    uris: Mutex<BTreeSet<String>>,
    changed: Notify,
}

impl ResourceSubscription {
    /// Follows one more resource. Returns false if the list is full.
    pub(crate) fn add(&self, uri: &str) -> bool {
        let mut uris = self.uris.lock().unwrap_or_else(PoisonError::into_inner);
        if uris.len() >= RESOURCES_MAX && !uris.contains(uri) {
            return false;
        }
        if uris.insert(uri.to_owned()) {
            self.changed.notify_one();
        }
        true
    }

    fn uris(&self) -> Vec<String> {
        self.uris.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

/// Listens for changes until the connection ends. Never returns.
pub(crate) async fn follow(
    connection: &ServerConnection,
    changes: &broadcast::Sender<ResourceChange>,
    world: &World,
) {
    if connection.era != Era::Stateless {
        return std::future::pending().await;
    }
    loop {
        let Some(filter) = filter(connection) else {
            connection.subscription.changed.notified().await;
            continue;
        };
        match connection.peer.listen(filter).await {
            Ok(subscription) => {
                // The server may have changed while the client did not listen.
                connection.changed.notify_one();
                read(subscription, connection, changes).await;
            }
            Err(ServiceError::McpError(error)) => {
                tracing::debug!(%error, "server does not report changes");
                connection.subscription.changed.notified().await;
            }
            Err(error) => tracing::debug!(%error, "listening for changes failed"),
        }
        world.clock.sleep(PAUSE).await;
    }
}

/// What the server can report of the things that the client wants to know; `None` for nothing.
fn filter(connection: &ServerConnection) -> Option<SubscriptionFilter> {
    let info = connection.peer.peer_info()?;
    let tools = info.capabilities.tools.as_ref().and_then(|tools| tools.list_changed);
    let resources = info.capabilities.resources.as_ref();
    let mut filter = SubscriptionFilter::new();
    filter.tools_list_changed = tools.filter(|able| *able);
    filter.resources_list_changed =
        resources.and_then(|resources| resources.list_changed).filter(|able| *able);
    let uris = connection.subscription.uris();
    filter.resource_subscriptions = (!uris.is_empty()).then_some(uris);
    let is_empty = filter == SubscriptionFilter::new();
    (!is_empty).then_some(filter)
}

/// Passes changes on until the subscription ends or more resources are to be followed.
async fn read(
    mut subscription: Subscription,
    connection: &ServerConnection,
    changes: &broadcast::Sender<ResourceChange>,
) {
    loop {
        let next = tokio::select! {
            biased;
            () = connection.subscription.changed.notified() => return,
            next = subscription.next() => next,
        };
        let change = match next {
            Ok(Some(ServerNotification::ToolListChangedNotification(_))) => {
                connection.changed.notify_one();
                continue;
            }
            Ok(Some(ServerNotification::ResourceListChangedNotification(_))) => {
                ResourceChange::Listed
            }
            Ok(Some(ServerNotification::ResourceUpdatedNotification(update))) => {
                ResourceChange::Updated(update.params.uri)
            }
            Ok(Some(_)) => continue,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "subscription failed");
                return;
            }
        };
        // An error only means that there is no receiver.
        let _ = changes.send(change);
    }
}
