//! The resources of a server: list them by page, read one by URI, subscribe to changes.
//!
//! Nothing is cached. Each request returns the server's current answer in the protocol's own JSON, within a time limit.
//! Changes are broadcast to current receivers only.
#![expect(deprecated, reason = "servers of today are subscribed to in the older way")]

use std::{sync::Arc, time::Duration};

use budao_core::fault::{Fact, Fault, Kind, Operation};
use rmcp::model::{
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ResourcesCapability,
    SubscribeRequestParams,
};
use serde_json::Value;
use tokio::sync::broadcast;

use crate::{
    connection::ServerConnection,
    era::Era,
    error::{FaultContext, ServerError},
    server::{ServerHandle, ServerShared},
};

/// Capacity of the change channel; a slower receiver loses the oldest changes.
pub(crate) const CHANGES_MAX: usize = 64;

/// One page of a server's resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourcePage {
    /// Resource descriptions in the protocol's JSON.
    pub resources: Vec<Value>,
    /// The cursor of the next page; `None` on the last one.
    pub next: Option<String>,
}

/// A change of a server's resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceChange {
    /// The list may differ: the server sent a notification, connected or disconnected.
    Listed,
    /// The resource with this URI has new content.
    Updated(String),
}

impl ServerHandle {
    /// Whether the server offers resources; `None` while it is down.
    #[must_use]
    pub fn has_resources(&self) -> Option<bool> {
        Some(self.shared.connection()?.resources().is_some())
    }

    /// Subscribes to changes of the server's resources from now on.
    #[must_use]
    pub fn resource_changes(&self) -> broadcast::Receiver<ResourceChange> {
        self.shared.changes.subscribe()
    }

    /// Lists one page of resources; the first page without a cursor.
    ///
    /// # Errors
    /// If the server is down, has no resources, or does not answer within `limit`.
    pub async fn resources(
        &self,
        cursor: Option<String>,
        limit: Duration,
    ) -> Result<ResourcePage, Fault> {
        self.shared.resources(cursor, limit).await
    }

    /// Reads a resource. Returns its parts in the protocol's JSON.
    ///
    /// # Errors
    /// If the server is down, does not have the resource, or does not answer within `limit`.
    pub async fn read_resource(&self, uri: &str, limit: Duration) -> Result<Vec<Value>, Fault> {
        self.shared.read_resource(uri, limit).await
    }

    /// Asks the server to report changes of a resource. Does nothing if the server does not support subscriptions.
    ///
    /// # Errors
    /// If the server is down, has no resources, or does not answer within `limit`.
    pub async fn follow_resource(&self, uri: &str, limit: Duration) -> Result<(), Fault> {
        self.shared.follow_resource(uri, limit).await
    }
}

impl ServerShared {
    /// Whether the connected server has resources.
    pub(crate) fn has_resources(&self) -> bool {
        self.connection().is_some_and(|connection| connection.resources().is_some())
    }

    pub(crate) async fn resources(
        &self,
        cursor: Option<String>,
        limit: Duration,
    ) -> Result<ResourcePage, Fault> {
        let connection = self.reading()?;
        let request = async {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = connection.peer.list_resources(Some(params)).await?;
            let to_json = |it| serde_json::to_value(it).unwrap_or_default();
            let resources = page.resources.into_iter().map(to_json).collect();
            Ok(ResourcePage { resources, next: page.next_cursor })
        };
        self.with_time_limit(&connection, limit, request).await
    }

    pub(crate) async fn read_resource(
        &self,
        uri: &str,
        limit: Duration,
    ) -> Result<Vec<Value>, Fault> {
        let connection = self.reading()?;
        let request = async {
            let params = ReadResourceRequestParams::new(uri);
            match connection.peer.read_resource_once(params).await? {
                ReadResourceResponse::Complete(read) => {
                    let to_json = |it| serde_json::to_value(it).unwrap_or_default();
                    Ok(read.contents.into_iter().map(to_json).collect())
                }
                _ => Err(ServerError::Unsupported(
                    "the server wants input before it gives a resource",
                )),
            }
        };
        self.with_time_limit(&connection, limit, request)
            .await
            .map_err(|fault| fault.with(Fact::Uri, uri.to_owned()))
    }

    async fn follow_resource(&self, uri: &str, limit: Duration) -> Result<(), Fault> {
        let connection = self.reading()?;
        if connection.resources().is_none_or(|able| able.subscribe != Some(true)) {
            return Ok(());
        }
        if connection.era == Era::Stateless {
            return match connection.subscription.add(uri) {
                true => Ok(()),
                false => Err(FaultContext::bare(&self.name, Operation::ReadDocument)
                    .fault(Kind::LimitReached)
                    .with(Fact::LimitName, "mcp.resources")),
            };
        }
        let request =
            async { Ok(connection.peer.subscribe(SubscribeRequestParams::new(uri)).await?) };
        self.with_time_limit(&connection, limit, request).await
    }

    /// The connection, or a fault if the server is down.
    pub(crate) fn connected(&self) -> Result<Arc<ServerConnection>, Fault> {
        let fault_context = FaultContext::bare(&self.name, Operation::ReadDocument);
        self.connection().ok_or_else(|| ServerError::Down.fault(&fault_context))
    }

    /// The connection, or a fault if the server is down or has no resources.
    fn reading(&self) -> Result<Arc<ServerConnection>, Fault> {
        let fault_context = FaultContext::bare(&self.name, Operation::ReadDocument);
        let connection = self.connected()?;
        if connection.resources().is_none() {
            return Err(fault_context
                .fault(Kind::CapabilityUnsupported)
                .with(Fact::Capability, "resources")
                .via("mcp_server", &*self.name));
        }
        Ok(connection)
    }

    pub(crate) async fn with_time_limit<T>(
        &self,
        connection: &ServerConnection,
        limit: Duration,
        request: impl Future<Output = Result<T, ServerError>>,
    ) -> Result<T, Fault> {
        let answer = tokio::select! {
            biased;
            answer = request => answer,
            () = connection.closed.cancelled() => Err(ServerError::Lost),
            () = self.world.clock.sleep(limit) => Err(ServerError::TimedOut(limit)),
        };
        let fault_context = FaultContext::bare(&self.name, Operation::ReadDocument);
        answer.map_err(|error| error.fault(&fault_context).scrub(&self.scrubber))
    }
}

impl ServerConnection {
    fn resources(&self) -> Option<ResourcesCapability> {
        self.peer.peer_info()?.capabilities.resources.clone()
    }
}
