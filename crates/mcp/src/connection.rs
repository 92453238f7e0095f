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
        CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, JsonObject,
        ListToolsRequest, ListToolsResult, PaginatedRequestParams, RequestMetaObject,
        ServerPeerInfo, ServerResult, Task, Tool,
    },
    service::{ClientServiceExt, Peer, PeerRequestOptions, RunningService},
    transport::{
        StreamableHttpClientTransport, Transport as Rmcp, common::client_side_sse::FixedInterval,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use tokio::sync::{Mutex, Notify, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{Address, McpServerConfig, Stdio, Transport, shown_url},
    era::{Era, ObservedTransport, Opening, ProbeProgress},
    error::{FaultContext, ServerError},
    host::{McpHost, ProgressGuard, ProgressRouter},
    input::InputCheckpoint,
    pending::{AbandonedCall, PendingCall, forget},
    process::{ConnectionContext, ProcessExit, ServerProcess},
    router::CallRouter,
    server::ServerShared,
    sse, stdio,
    subscription::ResourceSubscription,
    web::{self, BoundedHttpClient},
};

/// The largest number of tools of one server, and of pages in one listing.
const TOOLS_MAX: usize = 1_000;
const PAGES_MAX: usize = 200;

/// How often a server may ask for input in one call.
const INPUT_ROUNDS_MAX: u32 = 10;

/// How long closing the session with an HTTP server may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// The answer of a server to a call.
#[derive(Debug)]
pub(crate) enum CallAnswer {
    /// The call ended with this result.
    Done(CallToolResult),
    /// The server finishes the call later.
    Task(Task),
}

/// A call to make.
#[derive(Debug)]
pub(crate) struct CallRequest<'a> {
    /// The server's own name of the tool.
    pub(crate) tool: &'a str,
    pub(crate) arguments: Option<JsonObject>,
    /// The questions with which the server ended an earlier attempt; absent for a call that begins.
    pub(crate) waiting: Option<InputCheckpoint>,
}

/// A way to begin that failed, and the way to try next.
struct OpeningFailure {
    fault: Fault,
    next: Option<Opening>,
}

/// An error that no unanswered probe preceded.
fn answered(error: ServerError) -> (ServerError, bool) {
    (error, false)
}

/// An open connection to a server, with its limit on concurrent calls.
#[derive(Debug)]
pub(crate) struct ServerConnection {
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) era: Era,
    pub(crate) probe: Arc<ProbeProgress>,
    /// The resources whose changes a server without a handshake reports.
    pub(crate) subscription: ResourceSubscription,
    service: Mutex<Option<RunningService<RoleClient, McpHost>>>,
    process: Option<Arc<ServerProcess>>,
    /// Cancelled when the transport has ended.
    pub(crate) closed: CancellationToken,
    /// Notified when the server reports that its tools have changed.
    pub(crate) changed: Arc<Notify>,
    /// Notified when a call failed in a way that casts doubt on the connection.
    pub(crate) doubt: Notify,
    progress: Arc<ProgressRouter>,
    /// The running calls, for what the server asks in the middle of one.
    router: Arc<CallRouter>,
    call_permits: Arc<Semaphore>,
    calls: usize,
    unwanted: mpsc::Sender<AbandonedCall>,
}

impl ServerConnection {
    /// Connects and begins in the way of a server of the `known` era, or finds the era out. The fault is that of the
    /// first attempt; it names the command or URL and the server's last output.
    pub(crate) async fn open(
        config: &McpServerConfig,
        connection_context: &ConnectionContext,
        known: Option<Era>,
    ) -> Result<Self, Fault> {
        let mut opening = Opening::first(&config.transport, known);
        let mut tried = vec![opening];
        let mut first = None;
        loop {
            let failure = match Self::open_as(config, connection_context, opening).await {
                Ok(connection) => return Ok(connection),
                Err(failure) => failure,
            };
            let fault = first.get_or_insert(failure.fault);
            let next = failure.next.filter(|next| !tried.contains(next));
            let Some(next) = next.filter(|_| !connection_context.stop.is_cancelled()) else {
                return Err(fault.clone());
            };
            tracing::debug!(server = %config.name, ?opening, ?next, "server does not begin like this");
            tried.push(next);
            opening = next;
        }
    }

    async fn open_as(
        config: &McpServerConfig,
        connection_context: &ConnectionContext,
        opening: Opening,
    ) -> Result<Self, OpeningFailure> {
        let is_event_stream = opening == Opening::Known(Era::EventStream);
        let opened = match &config.transport {
            Transport::Stdio(stdio) => {
                return Self::of_program(config, stdio, connection_context, opening).await;
            }
            Transport::Http(address) if !is_event_stream => {
                Self::of_address(config, address, connection_context, opening).await
            }
            Transport::Http(address) | Transport::Sse(address) => {
                Self::of_events(config, address, connection_context, opening).await
            }
        };
        opened.map_err(|(error, is_unanswered)| {
            let next = opening.after(&error, &config.transport, is_unanswered);
            let fault = error.fault(&starting(config, &connection_context.limits));
            let fault = match &config.transport {
                Transport::Http(address) | Transport::Sse(address) => {
                    fault.with(Fact::Endpoint, shown_url(&address.url))
                }
                Transport::Stdio(_) => fault,
            };
            OpeningFailure { fault, next }
        })
    }

    async fn of_program(
        config: &McpServerConfig,
        stdio: &Stdio,
        connection_context: &ConnectionContext,
        opening: Opening,
    ) -> Result<Self, OpeningFailure> {
        let fault_context = starting(config, &connection_context.limits);
        let command = config.target();
        let (process, pipes) =
            ServerProcess::start(stdio, config.confine.as_ref(), connection_context)
                .await
                .map_err(|error| {
                    let fault = ServerError::Wire(Box::new(error)).fault(&fault_context);
                    let fault = fault
                        .with(Fact::Reason, format!("its command `{command}` could not be started"))
                        .with(Fact::Command, command.clone());
                    OpeningFailure { fault, next: None }
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
        let parts = (Some(process.clone()), Arc::default());
        match Self::begin(config, connection_context, wire, opening, parts).await {
            Ok(connection) => Ok(connection),
            Err((server_error, is_unanswered)) => {
                let next = opening.after(&server_error, &config.transport, is_unanswered);
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
                Err(OpeningFailure { fault, next })
            }
        }
    }

    async fn of_address(
        config: &McpServerConfig,
        address: &Address,
        connection_context: &ConnectionContext,
        opening: Opening,
    ) -> Result<Self, (ServerError, bool)> {
        let (web, url, headers) = reach(config, address, connection_context).map_err(answered)?;
        let mut options = StreamableHttpClientTransportConfig::with_uri(url.as_str())
            .custom_headers(headers.into_iter().filter_map(|(k, v)| Some((k?, v))).collect())
            .max_sse_event_size(connection_context.limits.frame_bytes_hard);
        // rmcp tries to resume a lost answer three times; then the call fails.
        let mut again = FixedInterval::default();
        (again.max_times, again.duration) = (Some(3), Duration::from_millis(250));
        options.retry_config = Arc::new(again);
        let router = Arc::clone(&web.router);
        let wire = StreamableHttpClientTransport::with_client(web, options);
        Self::begin(config, connection_context, wire, opening, (None, router)).await
    }

    async fn of_events(
        config: &McpServerConfig,
        address: &Address,
        connection_context: &ConnectionContext,
        opening: Opening,
    ) -> Result<Self, (ServerError, bool)> {
        let (web, url, headers) = reach(config, address, connection_context).map_err(answered)?;
        let stream = sse::SseTransport::open(web, url, headers);
        let wire = in_time(config, connection_context, stream).await.map_err(answered)?;
        let wire = wire.map_err(|error| answered(ServerError::Wire(Box::new(error))))?;
        Self::begin(config, connection_context, wire, opening, (None, Arc::default())).await
    }

    /// Begins the connection. An error comes with whether a probe stayed without an answer.
    async fn begin<T: Rmcp<RoleClient> + 'static>(
        config: &McpServerConfig,
        connection_context: &ConnectionContext,
        wire: T,
        opening: Opening,
        (process, router): (Option<Arc<ServerProcess>>, Arc<CallRouter>),
    ) -> Result<Self, (ServerError, bool)> {
        let host = McpHost::new(
            config,
            connection_context.scrubber.clone(),
            connection_context.changes.clone(),
            router.clone(),
        );
        let (changed, progress) = (host.changed.clone(), host.progress.clone());
        let closed = CancellationToken::new();
        let clock = connection_context.world.clock.clone();
        let observed = ObservedTransport::new(wire, opening, closed.clone(), clock);
        let probe = observed.progress();
        let serving = host.serve_with_lifecycle(observed, opening.lifecycle());
        let service = match in_time(config, connection_context, serving).await {
            Ok(Ok(service)) => service,
            Ok(Err(error)) => return Err((error.into(), probe.is_unanswered())),
            Err(error) => return Err((error, probe.is_unanswered())),
        };
        let peer = service.peer().clone();
        let has_handshake = |info: Arc<ServerPeerInfo>| info.protocol_version.has_initialize();
        let era = match opening {
            Opening::Known(Era::EventStream) => Era::EventStream,
            _ if peer.peer_info().is_none_or(has_handshake) => Era::Handshake,
            _ => Era::Stateless,
        };
        let (unwanted, list) = mpsc::channel(config.calls);
        connection_context.world.spawn.spawn(Box::pin(forget(peer.clone(), list, closed.clone())));
        Ok(Self {
            peer,
            era,
            probe,
            service: Mutex::new(Some(service)),
            process,
            closed,
            changed,
            doubt: Notify::new(),
            progress,
            router,
            call_permits: Arc::new(Semaphore::new(config.calls)),
            calls: config.calls,
            unwanted,
            subscription: ResourceSubscription::default(),
        })
    }

    /// Lists the server's tools, over all pages.
    pub(crate) async fn list(&self, limit: Duration) -> Result<Vec<Tool>, ServerError> {
        let has_tools = |info: &ServerPeerInfo| info.capabilities.tools.is_some();
        if self.peer.peer_info().is_some_and(|info| !has_tools(&info)) {
            return Ok(Vec::new());
        }
        let mut tools = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let page = self.page(cursor.clone(), limit).await?;
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

    /// Asks for one page. rmcp's own list would answer from its cache, which may lack the tool that is looked for.
    async fn page(
        &self,
        cursor: Option<String>,
        limit: Duration,
    ) -> Result<ListToolsResult, ServerError> {
        let params = Some(PaginatedRequestParams::default().with_cursor(cursor));
        let request = ListToolsRequest { params, ..ListToolsRequest::default() };
        match self.request(ClientRequest::ListToolsRequest(request), limit).await? {
            ServerResult::ListToolsResult(page) => Ok(page),
            _ => Err(ServerError::Unclear("a result that is not a list of tools".into())),
        }
    }

    /// Sends a request that is cancelled at the server if no answer arrives in time.
    pub(crate) async fn request(
        &self,
        request: ClientRequest,
        limit: Duration,
    ) -> Result<ServerResult, ServerError> {
        let options = PeerRequestOptions::with_timeout(limit);
        let answer = async {
            let handle = self.peer.send_cancellable_request(request, options).await?;
            Ok(handle.await_response().await?)
        };
        tokio::select! {
            biased;
            answer = answer => answer,
            () = self.closed.cancelled() => Err(ServerError::Lost),
        }
    }

    /// Calls a tool. Returns `None` if the call was cancelled.
    pub(crate) async fn call(
        &self,
        request: CallRequest<'_>,
        shared: &ServerShared,
        context: &CallContext,
    ) -> Result<Option<CallAnswer>, ServerError> {
        tokio::select! {
            biased;
            answer = self.ask(request, shared, context) => answer,
            () = self.closed.cancelled() => Err(ServerError::Lost),
            () = context.cancel.cancelled() => Ok(None),
        }
    }

    /// Makes the call, and repeats it with answers while the server asks for input. Returns `None` if it was cancelled
    /// while it waited for an answer.
    async fn ask(
        &self,
        request: CallRequest<'_>,
        shared: &ServerShared,
        context: &CallContext,
    ) -> Result<Option<CallAnswer>, ServerError> {
        let CallRequest { tool, arguments, mut waiting } = request;
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = arguments;
        let routed = self.router.enter(&shared.name, context);
        let mut round = 0;
        loop {
            round = waiting.as_ref().map_or(round, |waiting| waiting.round);
            if round > INPUT_ROUNDS_MAX {
                return Err(ServerError::Unsupported("the server asks for input again and again"));
            }
            if let Some(waiting) = waiting.take() {
                let Some(answers) = waiting.answer(shared, context).await? else {
                    return Ok(None);
                };
                params.input_responses = Some(answers);
                params.request_state = waiting.state;
            }
            let answer = match self.ask_once(params.clone(), context).await {
                // The server has not made the call: a person must open an address first.
                Err(error) if routed.has_opened(&error.addresses()).await => {
                    round += 1;
                    continue;
                }
                answer => answer?,
            };
            let needed = match answer {
                ServerResult::CallToolResult(result) => return Ok(Some(CallAnswer::Done(result))),
                ServerResult::CreateTaskResult(created) => {
                    return Ok(Some(CallAnswer::Task(created.task)));
                }
                ServerResult::InputRequiredResult(needed) => needed,
                _ => return Err(ServerError::Unclear("a result that is not one of a tool".into())),
            };
            let requests = needed.input_requests.unwrap_or_default();
            let state = needed.request_state;
            waiting = Some(InputCheckpoint::new(tool, round + 1, requests, state)?);
        }
    }

    async fn ask_once(
        &self,
        params: CallToolRequestParams,
        context: &CallContext,
    ) -> Result<ServerResult, ServerError> {
        let call_permits = self.call_permits.clone().try_acquire_owned();
        let call_permits = call_permits.map_err(|_| ServerError::Busy(self.calls))?;
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::no_options().with_meta(meta(context));
        let mut handle = self.peer.send_cancellable_request(request, options).await?;
        let waiting = PendingCall {
            unwanted: Some((handle.id.clone(), call_permits)),
            list: self.unwanted.clone(),
            _following: self.follow(handle.progress_token.clone(), context.notes.clone()),
        };
        let answer = (&mut handle.rx).await;
        drop(waiting.answered());
        Ok(answer.map_err(|_| ServerError::Lost)??)
    }

    /// Whether the server may finish calls later, as tasks.
    pub(crate) fn has_tasks(&self) -> bool {
        let supports = |info: Arc<ServerPeerInfo>| info.capabilities.supports_tasks();
        self.era == Era::Stateless && self.peer.peer_info().is_some_and(supports)
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

/// The field of a request's `_meta` with the idempotency key of the call, equal for all attempts.
pub(crate) const KEY_FIELD: &str = "budao/idempotencyKey";

/// The metadata of a call: its trace and its key.
fn meta(context: &CallContext) -> RequestMetaObject {
    let mut meta = RequestMetaObject::new();
    if context.trace.is_some() {
        meta.set_traceparent(context.trace.to_traceparent(context.span()));
    }
    meta.insert(KEY_FIELD.to_owned(), context.idempotency_key.as_ref().into());
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
    let login = connection_context.token_source.clone();
    let bytes_max = connection_context.limits.frame_bytes_hard;
    Ok((BoundedHttpClient { client, bytes_max, login, router: Arc::default() }, url, headers))
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
