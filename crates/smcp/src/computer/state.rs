//! The state of a computer, and the answers to its requests.
//!
//! Every request gets an answer: a value, or a fault in the protocol's form.

use crate::codes::smcp_code;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use budao_core::{
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    world::World,
};
use budao_scrub::Scrubber;
use secrecy::ExposeSecret as _;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    Config,
    blob::{self, Blobs, ChunkRequest, Handle},
    call::Caller,
    desktop,
    history::History,
    skills::{self, Skills},
    tool_servers::{ToolServers, is_sign_in},
    upload::Uploads,
};
use crate::finder::DocumentFolder;
use crate::wire::{error, event::RequestEvent, request::Fields, trace_of};

/// Longest address or path in a request, in bytes.
const ADDRESS_MAX: usize = 4096;

/// The state that requests are answered from.
#[derive(Debug)]
pub(super) struct ComputerState {
    pub(super) config: Config,
    pub(super) world: World,
    pub(super) limits: Arc<Limits>,
    pub(super) offer: ToolServers,
    pub(super) history: History,
    pub(super) blobs: Blobs,
    pub(super) uploads: Uploads,
    pub(super) documents_folder: Option<Arc<DocumentFolder>>,
    skills: Skills,
    scrubber: Mutex<Scrubber>,
    /// Running calls by request id.
    calls: Mutex<BTreeMap<String, RunningCall>>,
}

/// A running call: its caller, and the token that cancels it.
#[derive(Debug)]
pub(super) struct RunningCall {
    pub(super) caller: Caller,
    pub(super) cancel: CancellationToken,
}

impl ComputerState {
    pub(super) fn new(
        config: Config,
        offer: ToolServers,
        documents_folder: Option<Arc<DocumentFolder>>,
        limits: Arc<Limits>,
        world: World,
    ) -> Self {
        let uploads =
            Uploads::new(config.upload_folder.clone(), config.upload.clone(), world.clone());
        let state = Self {
            history: History::new(config.history_max),
            blobs: Blobs::new(config.blob_bounds),
            uploads,
            documents_folder,
            skills: Skills::new(config.skills.clone()),
            scrubber: Mutex::default(),
            calls: Mutex::default(),
            config,
            world,
            limits,
            offer,
        };
        state.learn();
        state
    }

    /// Updates the scrubber with the current secrets. Called after servers were started.
    pub(super) fn learn(&self) {
        let token = self.config.member.token.iter().map(|token| token.expose_secret().to_owned());
        let secrets: Vec<String> = token.chain(self.offer.secrets()).collect();
        *self.scrubber.lock().unwrap_or_else(PoisonError::into_inner) =
            Scrubber::with_secrets(secrets);
    }

    pub(super) fn scrubber(&self) -> Scrubber {
        self.scrubber.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn calls(&self) -> MutexGuard<'_, BTreeMap<String, RunningCall>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels all calls and drops the blobs and uploads of the current room.
    pub(super) async fn leave_room(&self) {
        for call in self.calls().values() {
            call.cancel.cancel();
        }
        self.blobs.clear();
        self.uploads.clear().await;
    }

    /// Cancels the agent's calls after the connection was lost. The hub has already failed them; they could be
    /// neither answered nor cancelled, and would occupy call slots until their deadline.
    pub(super) fn lose_line(&self) {
        for call in self.calls().values().filter(|call| call.caller == Caller::Agent) {
            call.cancel.cancel();
        }
    }

    /// Cancels the call with this request id. An unknown id is ignored.
    pub(super) fn cancel(&self, payload: &Value) {
        let id = payload.get("req_id").and_then(Value::as_str).unwrap_or_default();
        if let Some(call) = self.calls().get(id) {
            call.cancel.cancel();
        }
    }

    /// Answers any request.
    pub(super) async fn handle_request(&self, name: &str, request: Value) -> Value {
        let dialect = self.config.member.dialect;
        let req_id = request.get("req_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let ask = name.parse::<RequestEvent>().ok();
        if ask == Some(RequestEvent::ToolCall) {
            return match self.call(&request, &req_id, Caller::Agent).await {
                Ok(result) => result,
                Err(fault) => error::result(&self.finish(fault, name, &req_id), dialect),
            };
        }
        match self.question(ask, name, &request, &req_id).await {
            Ok(answer) => answer,
            Err(fault) => error::flat(&self.finish(fault, name, &req_id), dialect),
        }
    }

    /// Adds trace and hop, scrubs secrets, and logs the fault.
    pub(super) fn finish(&self, fault: Fault, event: &str, req_id: &str) -> Fault {
        let fault = if req_id.is_empty() { fault } else { fault.with_trace(trace_of(req_id)) };
        let fault = without_query(fault);
        let fault = fault.via("computer", self.config.member.name.clone()).scrub(&self.scrubber());
        tracing::warn!(
            req_id, event, error_code = smcp_code(fault.kind()), error_message = %fault,
            tool_name = fault.detail().text(Fact::ToolName).unwrap_or_default(),
            computer = self.config.member.name, trace_id = %fault.trace(), "request failed"
        );
        fault
    }

    async fn question(
        &self,
        ask: Option<RequestEvent>,
        name: &str,
        request: &Value,
        req_id: &str,
    ) -> Result<Value, Fault> {
        let fields = Fields::new(name, Operation::RelayCall, request)?;
        match ask {
            Some(RequestEvent::GetTools) => {
                let (tools, servers) = (self.offer.listed(), self.offer.state_names());
                Ok(json!({ "tools": tools, "servers": servers, "req_id": req_id }))
            }
            Some(RequestEvent::GetConfig) => Ok(self.offer.to_json()),
            Some(RequestEvent::GetDesktop) => self.desktop(&fields, req_id).await,
            Some(RequestEvent::GetResources) => self.resources(&fields, req_id).await,
            Some(RequestEvent::GetSkills) => {
                let all = self.skills.all(self.offer.sources()).await;
                let skills: Vec<Value> = all.iter().map(skills::Skill::to_json).collect();
                Ok(json!({ "skills": skills, "req_id": req_id }))
            }
            Some(RequestEvent::GetSkill) => self.skill(&fields, req_id).await,
            Some(RequestEvent::GetBlob) => self.piece(&fields, req_id).await,
            Some(RequestEvent::PutBlob) => self.uploads.put(&fields, request).await,
            Some(ask @ (RequestEvent::GetFinder | RequestEvent::GetDpe)) => {
                self.documents(ask, request).await
            }
            _ => Err(Fault::new(Kind::UnknownEvent, Operation::RelayCall)
                .with(Fact::EventName, name.to_owned())),
        }
    }

    /// Answers `client:get_desktop`: the content of the windows.
    async fn desktop(&self, fields: &Fields<'_>, req_id: &str) -> Result<Value, Fault> {
        let size = fields.integer("desktop_size")?;
        let only = fields.text_if_any("window", ADDRESS_MAX)?;
        let windows = match size {
            Some(size) if size <= 0 => Vec::new(),
            _ => desktop::windows(self.offer.servers(), only.as_deref()).await,
        };
        let recent = self.history.recent_servers();
        let desktops = desktop::organised(windows, size, &recent, self.config.result_bytes_max);
        Ok(json!({ "desktops": desktops, "req_id": req_id }))
    }

    /// Answers `client:get_resources`: one page of an MCP server's resources.
    async fn resources(&self, fields: &Fields<'_>, req_id: &str) -> Result<Value, Fault> {
        let id = fields.name("mcp_server")?;
        let cursor = fields.text_if_any("cursor", ADDRESS_MAX)?;
        let server = self.offer.running_server(&id)?;
        let page = server.resources(cursor, self.config.question).await;
        let page = page.map_err(|fault| fault.with(Fact::McpServer, id))?;
        let resources: Vec<Value> = page.resources.iter().map(resource).collect();
        let mut answer = json!({ "resources": resources, "req_id": req_id });
        if let Some(next) = page.next {
            answer["next_cursor"] = next.into();
        }
        let bytes = answer.to_string().len();
        if bytes > self.config.result_bytes_max {
            return Err(too_large(bytes, self.config.result_bytes_max, Operation::RelayCall));
        }
        Ok(answer)
    }

    /// Answers `client:get_skill`: a short text file inline, any other file by a handle.
    async fn skill(&self, fields: &Fields<'_>, req_id: &str) -> Result<Value, Fault> {
        let name = fields.text("name", ADDRESS_MAX)?;
        let path = fields.text_if_any("rel_path", ADDRESS_MAX)?;
        let most = self.config.file_bytes_max;
        let mut file = self.skills.open(self.offer.sources(), &name, path.as_deref(), most).await?;
        let mut answer = json!({
            "name": name, "rel_path": file.rel_path, "mime_type": file.mime,
            "total_size": file.bytes, "sha256": file.sha256, "req_id": req_id,
        });
        let inline = self.config.inline_bytes_max;
        let is_short = usize::try_from(file.bytes).is_ok_and(|bytes| bytes <= inline);
        let body = (is_short && skills::is_text(file.mime))
            .then(|| file.read(0, inline).ok().and_then(|bytes| String::from_utf8(bytes).ok()))
            .flatten();
        match body {
            Some(body) => answer["body"] = body.into(),
            None => answer["blob_handle"] = blob::skill_handle(&name, &file.rel_path).into(),
        }
        Ok(answer)
    }

    /// Answers `client:get_blob`: one chunk of a blob or of a skill's file.
    async fn piece(&self, fields: &Fields<'_>, req_id: &str) -> Result<Value, Fault> {
        let chunk_request = ChunkRequest::read(fields, self.config.chunk_bytes_max)?;
        match blob::read_handle(&chunk_request.handle)? {
            Handle::Stored => self.blobs.piece(&chunk_request, req_id, self.world.clock.now()),
            Handle::Skill(name, path) => {
                let (sources, most) = (self.offer.sources(), self.config.file_bytes_max);
                let file = self.skills.open(sources, &name, Some(&path), most).await;
                let file = file.map_err(|fault| match fault.detail().text(Fact::Reason) {
                    Some("traversal" | "forbidden") => blob::unavailable("forbidden"),
                    _ => blob::unavailable("gone"),
                })?;
                blob::piece_of(file, &chunk_request, req_id)
            }
        }
    }
}

/// Removes the query from a sign-in address, because it may contain a credential.
fn without_query(fault: Fault) -> Fault {
    if !is_sign_in(&fault) {
        return fault;
    }
    let uri = fault.detail().text(Fact::Uri).and_then(|uri| uri.split(['?', '#']).next());
    match uri.map(str::to_owned) {
        Some(uri) => fault.with(Fact::Uri, uri),
        None => fault,
    }
}

/// The fault for an answer that exceeds its limit.
pub(super) fn too_large(bytes: usize, limit: usize, operation: Operation) -> Fault {
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    Fault::new(Kind::OutputTooLarge, operation)
        .with(Fact::LimitName, "result_bytes_max")
        .with(Fact::Limit, count(limit))
        .with(Fact::Actual, count(bytes))
}

/// Converts an MCP resource to the protocol's form, which renames some fields and has no icons.
fn resource(listed: &Value) -> Value {
    let mut rendered = Map::new();
    for (ours, theirs) in [
        ("uri", "uri"),
        ("name", "name"),
        ("description", "description"),
        ("mime_type", "mimeType"),
        ("size", "size"),
        ("_meta", "_meta"),
    ] {
        if let Some(value) = listed.get(theirs) {
            rendered.insert(ours.into(), value.clone());
        }
    }
    if let Some(Value::Object(annotations)) = listed.get("annotations") {
        let mut annotations = annotations.clone();
        if let Some(at) = annotations.remove("lastModified") {
            annotations.insert("last_modified".into(), at);
        }
        rendered.insert("annotations".into(), annotations.into());
    }
    Value::Object(rendered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_described_in_the_terms_of_the_protocol() {
        let listed = json!({
            "uri": "a:b", "name": "n", "title": "T", "mimeType": "text/plain", "size": 3,
            "icons": [{ "src": "x" }], "_meta": { "k": 1 },
            "annotations": { "audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z" },
        });
        assert_eq!(
            resource(&listed),
            json!({
                "uri": "a:b", "name": "n", "mime_type": "text/plain", "size": 3, "_meta": { "k": 1 },
                "annotations": { "audience": ["user"], "priority": 0.5, "last_modified": "2026-01-01T00:00:00Z" },
            })
        );
    }
}
