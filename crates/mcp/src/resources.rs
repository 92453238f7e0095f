//! What a server has to read besides its tools: listed a page at a time, read by address, followed.
//!
//! Nothing of it is kept here. Whoever asks gets what the server says now, in the protocol's own JSON, within a
//! limit of time; news are told to whoever listens and dropped for whoever does not.
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
    error::{FaultContext, ServerError},
    server::ServerHandle,
};

/// News that nobody took in time are dropped beyond this many.
pub(crate) const NEWS_MAX: usize = 64;

/// Some of a server's resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourcePage {
    /// As the server describes them.
    pub resources: Vec<Value>,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
}

/// Something about a server's resources changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceChange {
    /// There are others now, or it came, or it went.
    Listed,
    /// This one has new content.
    Updated(String),
}

impl ServerHandle {
    /// Does it have resources at all? Nobody knows while it is down.
    #[must_use]
    pub fn has_resources(&self) -> Option<bool> {
        Some(self.shared.link()?.resources().is_some())
    }

    /// What is new about its resources from now on.
    #[must_use]
    pub fn resource_changes(&self) -> broadcast::Receiver<ResourceChange> {
        self.shared.news.subscribe()
    }

    /// A page of its resources; the first if no place is named.
    ///
    /// # Errors
    /// If it is down, has none, or does not answer in time.
    pub async fn resources(
        &self,
        cursor: Option<String>,
        limit: Duration,
    ) -> Result<ResourcePage, Fault> {
        let link = self.reading()?;
        let asked = async {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = link.peer.list_resources(Some(params)).await?;
            let shown = |it| serde_json::to_value(it).unwrap_or_default();
            let resources = page.resources.into_iter().map(shown).collect();
            Ok(ResourcePage { resources, next: page.next_cursor })
        };
        self.with_time_limit(&link, limit, asked).await
    }

    /// What a resource holds: its parts, as the server gives them.
    ///
    /// # Errors
    /// If it is down, does not have it, or does not answer in time.
    pub async fn read_resource(&self, uri: &str, limit: Duration) -> Result<Vec<Value>, Fault> {
        let link = self.reading()?;
        let asked = async {
            let params = ReadResourceRequestParams::new(uri);
            match link.peer.read_resource_once(params).await? {
                ReadResourceResponse::Complete(read) => {
                    let shown = |it| serde_json::to_value(it).unwrap_or_default();
                    Ok(read.contents.into_iter().map(shown).collect())
                }
                _ => Err(ServerError::Unsupported(
                    "the server wants input before it gives a resource",
                )),
            }
        };
        self.with_time_limit(&link, limit, asked)
            .await
            .map_err(|fault| fault.with(Fact::Uri, uri.to_owned()))
    }

    /// Wants to hear when a resource changes. Servers that cannot tell are not asked.
    ///
    /// # Errors
    /// If it is down, or does not answer in time.
    pub async fn follow_resource(&self, uri: &str, limit: Duration) -> Result<(), Fault> {
        let link = self.reading()?;
        if link.resources().is_none_or(|able| able.subscribe != Some(true)) {
            return Ok(());
        }
        let asked = async { Ok(link.peer.subscribe(SubscribeRequestParams::new(uri)).await?) };
        self.with_time_limit(&link, limit, asked).await
    }

    /// The connection, if it is there and has resources.
    fn reading(&self) -> Result<Arc<ServerConnection>, Fault> {
        let about = FaultContext::bare(&self.shared.name, Operation::ReadDocument);
        let link = self.shared.link().ok_or_else(|| ServerError::Down.fault(&about))?;
        if link.resources().is_none() {
            return Err(about
                .fault(Kind::CapabilityUnsupported)
                .with(Fact::Capability, "resources")
                .via("mcp_server", &*self.shared.name));
        }
        Ok(link)
    }

    async fn with_time_limit<T>(
        &self,
        link: &ServerConnection,
        limit: Duration,
        asked: impl Future<Output = Result<T, ServerError>>,
    ) -> Result<T, Fault> {
        let answer = tokio::select! {
            biased;
            answer = asked => answer,
            () = link.gone.cancelled() => Err(ServerError::Lost),
            () = self.shared.world.clock.sleep(limit) => Err(ServerError::TimedOut(limit)),
        };
        let about = FaultContext::bare(&self.shared.name, Operation::ReadDocument);
        answer.map_err(|trouble| trouble.fault(&about).scrub(&self.shared.scrubber))
    }
}

impl ServerConnection {
    fn resources(&self) -> Option<ResourcesCapability> {
        self.peer.peer_info()?.capabilities.resources.clone()
    }
}
