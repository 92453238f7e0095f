//! One connection to a server, from its beginning to its end: start, handshake, list, call, close.

use std::{sync::Arc, time::Duration};

use budao_core::{
    fault::{Fact, Fault, Operation},
    limits::Limits,
    world::World,
};
use budao_tools::{CallContext, NoteSender};
use rmcp::{
    RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam,
        ClientJsonRpcMessage, ClientRequest, JsonObject, PaginatedRequestParams, RequestId,
        RequestMetaObject, ServerJsonRpcMessage, ServerResult, Tool,
    },
    service::{Peer, PeerRequestOptions, RunningService, ServiceExt},
    transport::{
        StreamableHttpClientTransport, Transport as Rmcp, common::client_side_sse::FixedInterval,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Address, McpServerConfig, Stdio, Transport, shown_url},
    error::{FaultContext, ServerError},
    host::{Host, ProgressGuard, ProgressRouter},
    process::{ConnectionContext, ProcessExit, ServerProcess},
    sse, stdio,
    web::{self, BoundedHttpClient},
};

/// The largest number of tools of one server, and of pages in one listing.
const TOOLS_MAX: usize = 1_000;
const PAGES_MAX: usize = 200;

/// How long closing the session with an HTTP server may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// An open connection to a server, with its limit on concurrent calls.
#[derive(Debug)]
pub(crate) struct ServerConnection {
    pub(crate) peer: Peer<RoleClient>,
    service: Mutex<Option<RunningService<RoleClient, Host>>>,
    process: Option<Arc<ServerProcess>>,
    /// Cancelled when the transport has ended.
    pub(crate) closed: CancellationToken,
    /// Notified when the server reports that its tools have changed.
    pub(crate) changed: Arc<Notify>,
    /// Notified when a call failed in a way that casts doubt on the connection.
    pub(crate) doubt: Notify,
    progress: Arc<ProgressRouter>,
    call_permits: Arc<Semaphore>,
    calls: usize,
    unwanted: mpsc::Sender<AbandonedCall>,
}

/// A call whose answer is no longer awaited. It keeps its permit until the server is notified.
#[derive(Debug)]
struct AbandonedCall {
    id: RequestId,
    _room: OwnedSemaphorePermit,
}

impl ServerConnection {
    /// Connects and performs the handshake. The fault names the command or URL and the server's last output.
    pub(crate) async fn open(
        config: &McpServerConfig,
        connection_context: &ConnectionContext,
    ) -> Result<Self, Fault> {
        let opened = match &config.transport {
            Transport::Stdio(stdio) => {
                return Self::of_program(config, stdio, connection_context).await;
            }
            Transport::Http(address) => Self::of_address(config, address, connection_context).await,
            Transport::Sse(address) => Self::of_events(config, address, connection_context).await,
        };
        opened.map_err(|server_error| {
            let fault = server_error.fault(&starting(config, &connection_context.limits));
            match &config.transport {
                Transport::Http(address) | Transport::Sse(address) => {
                    fault.with(Fact::Endpoint, shown_url(&address.url))
                }
                Transport::Stdio(_) => fault,
            }
        })
    }

    async fn of_program(
        config: &McpServerConfig,
        stdio: &Stdio,
        connection_context: &ConnectionContext,
    ) -> Result<Self, Fault> {
        let fault_context = starting(config, &connection_context.limits);
        let command = command_line(stdio, connection_context);
        let (process, pipes) =
            ServerProcess::start(stdio, connection_context).await.map_err(|error| {
                let fault = ServerError::Wire(Box::new(error)).fault(&fault_context);
                fault
                    .with(Fact::Reason, format!("its command `{command}` could not be started"))
                    .with(Fact::Command, command.clone())
            })?;
        let process = Arc::new(process);
        let bytes_max = connection_context.limits.frame_bytes_hard;
        let clock = connection_context.world.clock.clone();
        let wire = stdio::StdioTransport::new(
            connection_context.server.clone(),
            pipes,
            process.clone(),
            bytes_max,
            clock,
        );
        match Self::initialize(config, connection_context, wire, Some(process.clone())).await {
            Ok(link) => Ok(link),
            Err(server_error) => {
                let fault = match server_error {
                    ServerError::Lost | ServerError::Wire(_) => {
                        process.silent_soon(&connection_context.world).await;
                        let why = format!("its command `{command}` ended before it was ready");
                        server_error.fault(&fault_context).with(Fact::Reason, why)
                    }
                    other => other.fault(&fault_context),
                };
                let fault = last_words(fault.with(Fact::Command, command), &process);
                process.end().await;
                Err(fault)
            }
        }
    }

    async fn of_address(
        config: &McpServerConfig,
        address: &Address,
        connection_context: &ConnectionContext,
    ) -> Result<Self, ServerError> {
        let (web, url, headers) = reach(config, address, connection_context)?;
        let mut options = StreamableHttpClientTransportConfig::with_uri(url.as_str())
            .custom_headers(headers.into_iter().filter_map(|(k, v)| Some((k?, v))).collect())
            .max_sse_event_size(connection_context.limits.frame_bytes_hard);
        // rmcp tries to resume a lost answer three times; then the call fails.
        let mut again = FixedInterval::default();
        (again.max_times, again.duration) = (Some(3), Duration::from_millis(250));
        options.retry_config = Arc::new(again);
        let wire = StreamableHttpClientTransport::with_client(web, options);
        Self::initialize(config, connection_context, wire, None).await
    }

    async fn of_events(
        config: &McpServerConfig,
        address: &Address,
        connection_context: &ConnectionContext,
    ) -> Result<Self, ServerError> {
        let (web, url, headers) = reach(config, address, connection_context)?;
        let opening = sse::SseTransport::open(web.client, url, headers, web.bytes_max);
        let wire = in_time(config, connection_context, opening).await?;
        let wire = wire.map_err(|error| ServerError::Wire(Box::new(error)))?;
        Self::initialize(config, connection_context, wire, None).await
    }

    async fn initialize<T: Rmcp<RoleClient> + 'static>(
        config: &McpServerConfig,
        connection_context: &ConnectionContext,
        wire: T,
        process: Option<Arc<ServerProcess>>,
    ) -> Result<Self, ServerError> {
        let host = Host::new(
            config,
            connection_context.scrubber.clone(),
            connection_context.changes.clone(),
        );
        let (changed, progress) = (host.changed.clone(), host.progress.clone());
        let closed = CancellationToken::new();
        let watched = WatchedTransport { wire, closed: closed.clone() };
        let service = in_time(config, connection_context, host.serve(watched)).await??;
        let peer = service.peer().clone();
        let (unwanted, list) = mpsc::channel(config.calls);
        connection_context.world.spawn.spawn(Box::pin(forget(peer.clone(), list, closed.clone())));
        Ok(Self {
            peer,
            service: Mutex::new(Some(service)),
            process,
            closed,
            changed,
            doubt: Notify::new(),
            progress,
            call_permits: Arc::new(Semaphore::new(config.calls)),
            calls: config.calls,
            unwanted,
        })
    }

    /// Lists the server's tools, over all pages.
    pub(crate) async fn list(&self) -> Result<Vec<Tool>, ServerError> {
        let has_tools = |info: &rmcp::model::ServerPeerInfo| info.capabilities.tools.is_some();
        if self.peer.peer_info().is_some_and(|info| !has_tools(&info)) {
            return Ok(Vec::new());
        }
        let mut tools = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor.clone());
            let page = tokio::select! {
                biased;
                page = self.peer.list_tools(Some(params)) => page?,
                () = self.closed.cancelled() => return Err(ServerError::Lost),
            };
            tools.extend(page.tools);
            let is_stuck = page.next_cursor.is_some() && page.next_cursor == cursor;
            if page.next_cursor.is_none() || is_stuck || tools.len() >= TOOLS_MAX {
                break;
            }
            cursor = page.next_cursor;
        }
        if tools.len() > TOOLS_MAX {
            tracing::warn!(dropped = tools.len() - TOOLS_MAX, "tool list truncated");
            tools.truncate(TOOLS_MAX);
        }
        Ok(tools)
    }

    /// Calls a tool. Returns `None` if the call was cancelled.
    pub(crate) async fn call(
        &self,
        tool: &str,
        arguments: Option<JsonObject>,
        context: &CallContext,
    ) -> Result<Option<CallToolResult>, ServerError> {
        tokio::select! {
            biased;
            answer = self.ask(tool, arguments, context) => answer.map(Some),
            () = self.closed.cancelled() => Err(ServerError::Lost),
            () = context.cancel.cancelled() => Ok(None),
        }
    }

    async fn ask(
        &self,
        tool: &str,
        arguments: Option<JsonObject>,
        context: &CallContext,
    ) -> Result<CallToolResult, ServerError> {
        let call_permits = self.call_permits.clone().try_acquire_owned();
        let call_permits = call_permits.map_err(|_| ServerError::Busy(self.calls))?;
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = arguments;
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::no_options().with_meta(meta(context));
        let mut handle = self.peer.send_cancellable_request(request, options).await?;
        let waiting = PendingCall {
            unwanted: Some((handle.id.clone(), call_permits)),
            list: self.unwanted.clone(),
            _following: self.follow(handle.progress_token.clone(), context.notes.clone()),
        };
        let answer = (&mut handle.rx).await;
        waiting.answered();
        match answer.map_err(|_| ServerError::Lost)?? {
            ServerResult::CallToolResult(result) => Ok(result),
            ServerResult::InputRequiredResult(_) => {
                Err(ServerError::Unsupported("the server wants input in the middle of a call"))
            }
            ServerResult::CreateTaskResult(_) => {
                Err(ServerError::Unsupported("the server wants to finish the call later"))
            }
            _ => Err(ServerError::Unclear("a result that is not one of a tool".into())),
        }
    }

    fn follow(&self, token: rmcp::model::ProgressToken, notes: NoteSender) -> ProgressGuard {
        self.progress.follow(token, notes)
    }

    /// Closes the connection and ends the process, if there is one.
    pub(crate) async fn close(&self, connection_context: &ConnectionContext) {
        if let Some(mut service) = self.service.lock().await.take() {
            let farewell = connection_context.world.clock.sleep(FAREWELL);
            // If the time runs out, the process is ended anyway.
            tokio::select! {
                biased;
                _ = service.close() => {}
                () = farewell => {}
            }
        }
        if let Some(process) = &self.process {
            process.end().await;
        }
    }

    /// Adds the server's exit status and last stderr output to a fault.
    pub(crate) async fn last_words(&self, fault: Fault, world: &World) -> Fault {
        match &self.process {
            Some(process) => {
                process.silent_soon(world).await;
                last_words(fault, process)
            }
            None => fault,
        }
    }

    /// Whether the connection stays open after this error of listing the tools. An idle connection that timed out is
    /// replaced.
    pub(crate) fn outlives(&self, server_error: &ServerError) -> bool {
        let is_idle = self.call_permits.available_permits() == self.calls;
        match server_error {
            ServerError::TimedOut(_) => !is_idle,
            _ => !self.closed.is_cancelled() && !server_error.is_fatal(),
        }
    }

    /// Whether the server is reached over HTTP.
    pub(crate) fn is_remote(&self) -> bool {
        self.process.is_none()
    }

    /// The process id of a stdio server.
    pub(crate) fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.id)
    }
}

/// Waits for a step of connecting, until the start timeout or the stop signal.
async fn in_time<T>(
    config: &McpServerConfig,
    connection_context: &ConnectionContext,
    step: impl Future<Output = T>,
) -> Result<T, ServerError> {
    let limit = config.timeouts.start;
    tokio::select! {
        biased;
        () = connection_context.stop.cancelled() => Err(ServerError::Lost),
        done = step => Ok(done),
        () = connection_context.world.clock.sleep(limit) => Err(ServerError::TimedOut(limit)),
    }
}

/// Sends a cancellation to the server for each abandoned call.
async fn forget(
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
struct PendingCall {
    unwanted: Option<(RequestId, OwnedSemaphorePermit)>,
    list: mpsc::Sender<AbandonedCall>,
    _following: ProgressGuard,
}

impl PendingCall {
    fn answered(mut self) {
        self.unwanted = None;
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

/// Cancels `closed` when the transport ends, before rmcp cleans up.
struct WatchedTransport<T> {
    wire: T,
    closed: CancellationToken,
}

impl<T: Rmcp<RoleClient> + 'static> Rmcp<RoleClient> for WatchedTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.wire.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        let message = self.wire.receive().await;
        if message.is_none() {
            self.closed.cancel();
        }
        message
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.wire.close().await
    }
}

impl<T> Drop for WatchedTransport<T> {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

/// Adds the exit status and the last stderr output of a process to a fault.
fn last_words(fault: Fault, process: &ServerProcess) -> Fault {
    let last_words = process.tail.text();
    let fault = match process.exit() {
        Some(ProcessExit::Code(code)) => {
            fault.with(Fact::ExitCode, code).with_cause(format!("exit status {code}"))
        }
        Some(ProcessExit::Signal(signal)) => fault.with_cause(format!("killed by signal {signal}")),
        Some(ProcessExit::Unknown) | None => fault,
    };
    if last_words.is_empty() {
        return fault;
    }
    fault.with(Fact::StderrTail, last_words.clone()).with_cause(format!("stderr: {last_words}"))
}

/// The metadata of a call: its trace.
fn meta(context: &CallContext) -> RequestMetaObject {
    let mut meta = RequestMetaObject::new();
    if context.trace.is_some() {
        meta.set_traceparent(context.trace.to_traceparent(context.span()));
    }
    meta
}

type HttpTarget = (BoundedHttpClient, reqwest::Url, http::HeaderMap);

fn reach(
    config: &McpServerConfig,
    address: &Address,
    connection_context: &ConnectionContext,
) -> Result<HttpTarget, ServerError> {
    let wrong = |fault: Fault| ServerError::Wire(Box::new(fault));
    let url = address.parsed().map_err(wrong)?;
    let headers = address.header_map().map_err(wrong)?;
    let client = web::client(&url, config.timeouts.start);
    let client = client.map_err(|error| ServerError::Wire(Box::new(error)))?;
    Ok((
        BoundedHttpClient { client, bytes_max: connection_context.limits.frame_bytes_hard },
        url,
        headers,
    ))
}

/// The context for faults that occur while a server starts.
pub(crate) fn starting<'a>(config: &'a McpServerConfig, limits: &Limits) -> FaultContext<'a> {
    FaultContext {
        operation: Operation::StartMcpServer,
        server: &config.name,
        tool: None,
        server_tool_name: "",
        idempotent: true,
        limit: limits.frame_bytes_hard,
    }
}

fn command_line(stdio: &Stdio, connection_context: &ConnectionContext) -> String {
    let words = std::iter::once(&stdio.command).chain(&stdio.args).map(String::as_str);
    let line = words.collect::<Vec<_>>().join(" ");
    crate::error::bounded(&connection_context.scrubber.scrub(&line))
}
