//! The documents of a computer: those of its folder, and the `dpe://` resources of its MCP servers.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::fault::{Fact, Fault, Kind, Operation};
use budao_mcp::ServerHandle;
use serde_json::{Value, json};

use super::{desktop, notifications, state::ComputerState};
use crate::{
    finder::{
        DocumentFolder, DocumentSource, Finder, FolderLimits, LOOK, not_found,
        uri::{Uri, UriTarget},
    },
    membership::Membership,
    wire::{
        Dialect,
        event::{NotificationEvent, RequestEvent},
    },
};

/// Documents of MCP servers that are read for one list.
const LISTED_MAX: usize = 200;

/// Time limit for an MCP server to return a document.
const LIMIT: Duration = Duration::from_secs(10);

/// The MCP servers as a source of documents.
#[derive(Debug)]
struct DocumentServers(Vec<(String, Arc<ServerHandle>)>);

impl ComputerState {
    /// Opens the configured folder of documents; `None` if there is none.
    pub(super) fn documents_folder(
        config: &super::Config,
    ) -> Result<Option<Arc<DocumentFolder>>, Fault> {
        let Some(folder) = &config.documents else { return Ok(None) };
        let documents_folder =
            DocumentFolder::open(&config.documents_host, folder, FolderLimits::default())?;
        Ok(Some(Arc::new(documents_folder)))
    }

    /// Answers a request about documents. Only the first draft of the protocol has them.
    pub(super) async fn documents(
        &self,
        ask: RequestEvent,
        request: &Value,
    ) -> Result<Value, Fault> {
        if self.config.member.dialect != Dialect::V02 {
            return Err(Fault::new(Kind::UnknownEvent, Operation::RelayCall)
                .with(Fact::EventName, <&str>::from(ask)));
        }
        let library = Arc::new(DocumentServers(self.offer.servers()));
        let finder = Finder::new(self.documents_folder.clone(), library);
        match ask {
            RequestEvent::GetFinder => finder.list(request, &self.history.recent_servers()).await,
            _ => finder.get(request).await,
        }
    }
}

/// Notifies the room when a document of the folder is added, removed or modified.
pub(super) async fn watch(state: Arc<ComputerState>, membership: Membership) {
    let finder = Finder::new(state.documents_folder.clone(), Arc::new(DocumentServers(Vec::new())));
    let mut seen = finder.state().await;
    loop {
        tokio::select! {
            biased;
            _ = membership.ended() => return,
            () = state.world.clock.sleep(LOOK) => {}
        }
        let now = finder.state().await;
        if now != seen {
            seen = now;
            notifications::send(&state, &membership, NotificationEvent::UpdateFinder).await;
        }
    }
}

#[async_trait]
impl DocumentSource for DocumentServers {
    async fn documents(&self) -> Vec<Value> {
        let mut found = Vec::new();
        for (id, server) in &self.0 {
            let listed = desktop::listed(server, "dpe://").await.unwrap_or_default();
            for resource in listed.into_iter().take(LISTED_MAX.saturating_sub(found.len())) {
                found.extend(summary(id, server, &resource).await);
            }
        }
        found
    }

    async fn read(&self, uri: &Uri, text: &str) -> Result<Option<Value>, Fault> {
        let Some((server, listed)) = self.of_host(&uri.host).await else { return Ok(None) };
        let (UriTarget::Document(reference)
        | UriTarget::Page(reference, _)
        | UriTarget::Element(reference, _)) = &uri.part
        else {
            return read(&server, text).await.map(Some);
        };
        let names: Vec<&str> = listed.iter().map(String::as_str).collect();
        if !names.contains(&reference.as_str()) {
            return Err(not_found(reference, &names));
        }
        if let UriTarget::Page(_, number) = &uri.part {
            self.check_page(&server, uri, reference, *number).await?;
        }
        let result = read(&server, text).await;
        match (&uri.part, result) {
            (UriTarget::Element(_, id), Err(fault)) if fault.kind() != Kind::DeadlinePassed => {
                Err(Fault::new(Kind::ElementNotFound, Operation::ReadDocument)
                    .with(Fact::ElementId, id.clone())
                    .with(Fact::DocRef, reference.clone())
                    .caused_by(&fault))
            }
            (_, result) => result.map(Some),
        }
    }
}

impl DocumentServers {
    /// The first server with documents of this host, and their names.
    async fn of_host(&self, host: &str) -> Option<(Arc<ServerHandle>, Vec<String>)> {
        for (_, server) in &self.0 {
            let listed = desktop::listed(server, "dpe://").await.unwrap_or_default();
            let uris = listed.iter().filter_map(|it| Uri::parse(it["uri"].as_str()?).ok());
            let own: Vec<String> = uris
                .filter(|uri| uri.host == host)
                .filter_map(|uri| match uri.part {
                    UriTarget::Document(reference) => Some(reference),
                    _ => None,
                })
                .collect();
            if !own.is_empty() {
                return Some((server.clone(), own));
            }
        }
        None
    }

    /// Checks the page number against the document's page count, so that every server gives the same fault.
    async fn check_page(
        &self,
        server: &ServerHandle,
        uri: &Uri,
        reference: &str,
        number: u64,
    ) -> Result<(), Fault> {
        let document = format!("dpe://{}/{}", uri.host, crate::finder::uri::escaped(reference));
        let count = read(server, &document).await?["page_count"].as_u64();
        match count {
            Some(count) if number >= count => {
                let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
                Err(Fault::new(Kind::PageOutOfRange, Operation::ReadDocument)
                    .with(Fact::Page, whole(number))
                    .with(Fact::PageCount, whole(count))
                    .with(Fact::DocRef, reference.to_owned()))
            }
            _ => Ok(()),
        }
    }
}

/// The list entry of a server's document: from the document itself, else from the server's resource list.
async fn summary(id: &str, server: &ServerHandle, resource: &Value) -> Option<Value> {
    let text = resource["uri"].as_str()?;
    let UriTarget::Document(reference) = Uri::parse(text).ok()?.part else { return None };
    let mut rendered = read(server, text)
        .await
        .ok()
        .filter(Value::is_object)
        .unwrap_or_else(|| json!({ "page_count": 0 }));
    let map = rendered.as_object_mut()?;
    map.remove("pages");
    for (name, value) in [
        ("doc_ref", json!(reference)),
        ("uri", json!(text)),
        ("title", resource["name"].clone()),
        ("summary", resource["description"].clone()),
        ("file_type", resource["mimeType"].clone()),
    ] {
        if !value.is_null() {
            map.entry(name).or_insert(value);
        }
    }
    map.insert("server".into(), json!(id));
    Some(rendered)
}

/// Reads an address: JSON is parsed, other text is returned as a string.
async fn read(server: &ServerHandle, uri: &str) -> Result<Value, Fault> {
    let contents = server.read_resource(uri, LIMIT).await?;
    let text = contents.iter().find_map(|content| content["text"].as_str());
    let Some(text) = text else {
        return Err(
            Fault::new(Kind::FileNotText, Operation::ReadDocument).with(Fact::Path, uri.to_owned())
        );
    };
    let read = serde_json::from_str(text).ok().filter(Value::is_object);
    Ok(read.unwrap_or_else(|| json!({ "uri": uri, "content_text": text })))
}
