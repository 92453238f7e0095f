//! The client's side of the protocol: its capabilities, and its handling of requests and notifications.
//!
//! A question of a server goes to the person behind the call that it belongs to. Texts of a model are refused unless
//! the configuration allows them. Configured directories are reported as roots. Notifications about tools, resources,
//! progress and log lines are handled.
#![expect(
    deprecated,
    reason = "servers of today still ask for roots, and we tell them if configured"
)]

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use budao_scrub::Scrubber;
use budao_tools::NoteSender;
use reqwest::Url;
use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult,
        CustomRequest, CustomResult, ElicitRequestParams, ElicitResult, ElicitationAction,
        ElicitationCapability, ErrorCode, FormElicitationCapability, Implementation,
        ListRootsResult, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken,
        ProtocolVersion, ResourceUpdatedNotificationParam, Root, RootsCapabilities,
        SamplingCapability, TASKS_EXTENSION_ID, UrlElicitationCapability,
    },
    service::{NotificationContext, RequestContext},
};
use tokio::sync::{Notify, broadcast};

use crate::{
    config::McpServerConfig,
    error::{ServerError, bounded},
    resources::ResourceChange,
    router::CallRouter,
    sampling::{self, SamplingMode},
};

/// The client's handler for one server.
#[derive(Debug)]
pub(crate) struct McpHost {
    server: Arc<str>,
    roots: Vec<Root>,
    scrubber: Scrubber,
    /// Notified when the server reports that its tools have changed. Several notifications may merge into one.
    pub(crate) changed: Arc<Notify>,
    changes: broadcast::Sender<ResourceChange>,
    pub(crate) progress: Arc<ProgressRouter>,
    sampling: SamplingMode,
    router: Arc<CallRouter>,
}

/// Routes progress notifications to the running calls.
#[derive(Debug, Default)]
pub(crate) struct ProgressRouter(Mutex<HashMap<ProgressToken, NoteSender>>);

impl ProgressRouter {
    /// Sends progress for `token` to `notes` until the guard is dropped.
    pub(crate) fn follow(
        self: &Arc<Self>,
        token: ProgressToken,
        notes: NoteSender,
    ) -> ProgressGuard {
        self.lock().insert(token.clone(), notes);
        ProgressGuard { progress: self.clone(), token }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ProgressToken, NoteSender>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a progress route alive; dropping it removes the route.
#[derive(Debug)]
pub(crate) struct ProgressGuard {
    progress: Arc<ProgressRouter>,
    token: ProgressToken,
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        self.progress.lock().remove(&self.token);
    }
}

/// The configured directories in the protocol's form.
fn roots(config: &McpServerConfig) -> Vec<Root> {
    let roots = config.roots.iter().filter_map(|path| {
        let uri = Url::from_directory_path(path).ok()?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let root = Root::new(uri.to_string());
        Some(match name {
            Some(name) => root.with_name(name),
            None => root,
        })
    });
    roots.collect()
}

/// The answer to a question for roots.
pub(crate) fn roots_answer(config: &McpServerConfig) -> serde_json::Value {
    serde_json::to_value(ListRootsResult::new(roots(config))).unwrap_or_default()
}

impl McpHost {
    pub(crate) fn new(
        config: &McpServerConfig,
        scrubber: Scrubber,
        changes: broadcast::Sender<ResourceChange>,
        router: Arc<CallRouter>,
    ) -> Self {
        Self {
            server: config.name.as_str().into(),
            roots: roots(config),
            scrubber,
            changed: Arc::default(),
            changes,
            progress: Arc::default(),
            sampling: config.sampling,
            router,
        }
    }

    /// Puts a question to the person behind its call. Declined if it is not certain which call it belongs to.
    async fn elicit(
        &self,
        params: &serde_json::Value,
        context: &RequestContext<RoleClient>,
    ) -> ElicitResult {
        let Some(call) = self.router.call_of(&context.id) else {
            tracing::warn!(server = %self.server, "declined a question that belongs to no certain call");
            return ElicitResult::new(ElicitationAction::Decline);
        };
        tokio::select! {
            biased;
            () = context.ct.cancelled() => ElicitResult::new(ElicitationAction::Cancel),
            answer = call.elicit(params) => answer,
        }
    }

    fn unsupported(what: &'static str) -> ErrorData {
        ErrorData::new(ErrorCode::METHOD_NOT_FOUND, format!("{what} is not supported here"), None)
    }
}

impl ClientHandler for McpHost {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        let tasks = (TASKS_EXTENSION_ID.to_owned(), rmcp::model::JsonObject::new());
        capabilities.extensions = Some([tasks].into());
        if !self.roots.is_empty() {
            capabilities.roots = Some(RootsCapabilities::default());
        }
        let form = FormElicitationCapability::new();
        let elicitation = ElicitationCapability::new().with_form(form);
        capabilities.elicitation = Some(elicitation.with_url(UrlElicitationCapability::new()));
        if self.sampling != SamplingMode::Off {
            capabilities.sampling = Some(SamplingCapability::default());
        }
        let program = Implementation::new("budao", env!("CARGO_PKG_VERSION"));
        // The version of the handshake; a server without one gets its version with every request.
        ClientConfig::new(capabilities, program)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let call = self.router.call_of(&context.id);
        let (Some(call), true) = (call, self.sampling != SamplingMode::Off) else {
            return Err(Self::unsupported("sampling"));
        };
        let place = format!("request {}", context.id);
        let sampled = sampling::sample(&self.server, self.sampling, &params, &place, &call.context);
        tokio::select! {
            biased;
            () = context.ct.cancelled() => Err(Self::unsupported("a cancelled request")),
            sampled = sampled => sampled.map_err(|error| match error {
                ServerError::Refused(refused) => refused,
                ServerError::Unsupported(reason) => ErrorData::invalid_params(reason, None),
                // The fault may have names that are not for the server.
                _ => ErrorData::internal_error("the model did not answer", None),
            }),
        }
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let params = serde_json::to_value(&params).unwrap_or_default();
        Ok(self.elicit(&params, &context).await)
    }

    /// A question whose schema the protocol crate cannot read arrives here.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != "elicitation/create" {
            return Err(Self::unsupported("this request"));
        }
        let params = request.params.unwrap_or_default();
        let answer = self.elicit(&params, &context).await;
        Ok(CustomResult::new(serde_json::to_value(answer).unwrap_or_default()))
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        if self.roots.is_empty() {
            return Err(Self::unsupported("roots"));
        }
        Ok(ListRootsResult::new(self.roots.clone()))
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    async fn on_resource_list_changed(&self, _context: NotificationContext<RoleClient>) {
        // An error only means that there is no receiver.
        let _ = self.changes.send(ResourceChange::Listed);
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let _ = self.changes.send(ResourceChange::Updated(params.uri));
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let Some(notes) = self.progress.lock().get(&params.progress_token).cloned() else { return };
        let so_far = match params.total {
            Some(total) => format!("{}/{total}", params.progress),
            None => params.progress.to_string(),
        };
        let line = match params.message {
            Some(message) => format!("{so_far} {}\n", bounded(&message)),
            None => format!("{so_far}\n"),
        };
        notes.show(line);
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let text = match params.data {
            serde_json::Value::String(text) => bounded(&text),
            other => bounded(&other.to_string()),
        };
        let text = self.scrubber.scrub(&text);
        let level = params.level;
        tracing::debug!(server = %self.server, ?level, %text, "server log");
    }
}
