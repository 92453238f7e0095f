//! One connection with an editor: `initialize` is answered at once, other requests once the bridge is open.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use agent_client_protocol::{
    Agent, Error, Lines, on_receive_notification, on_receive_request,
    schema::ProtocolVersion,
    v1::schema::{
        AgentCapabilities, AuthMethod, AuthMethodAgent, CancelNotification,
        ElicitationCapabilities, Implementation, InitializeRequest, InitializeResponse,
        McpCapabilities, PromptCapabilities, SessionAdditionalDirectoriesCapabilities,
        SessionCapabilities, SessionCloseCapabilities, SessionDeleteCapabilities,
        SessionListCapabilities, SessionResumeCapabilities,
    },
};
use budao_core::fault::{Fault, Kind, Operation};
use futures::FutureExt as _;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::SetOnce,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    bridge::{Bridge, InitializeContext},
    editor_options::EditorOptions,
    faults,
    lines::{self, OutputBacklog},
    project::EditorCapabilities,
    request_handler::{RequestHandler, respond},
};

/// Time for remaining work once the editor has disconnected.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(400);

impl Bridge {
    /// Serves one editor until it disconnects. Input and output carry only the protocol.
    ///
    /// # Errors
    /// The connection broke instead of ending.
    pub async fn serve(
        self,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<(), Fault> {
        self.initialize_context().serve(async { Ok(self) }, input, output).await
    }
}

impl InitializeContext {
    /// Serves one editor until it disconnects, and answers `initialize` while the bridge is still opening. If
    /// that fails, every later request is answered with its fault.
    ///
    /// # Errors
    /// The bridge could not be opened, or the connection broke instead of ending.
    pub async fn serve(
        self,
        opening: impl Future<Output = Result<Bridge, Fault>> + Send + 'static,
        input: impl AsyncRead + Send + Unpin + 'static,
        output: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Result<(), Fault> {
        let (backlog, over) = (Arc::new(OutputBacklog::default()), CancellationToken::new());
        let incoming = lines::incoming_lines(input, self.limits.frame_bytes_hard, over.clone());
        let (outgoing, writing) = lines::open_output(output, Arc::clone(&backlog));
        let world = self.world.clone();
        let session_tasks = TaskTracker::new();
        let startup = Arc::new(StartupHandler {
            initialize_context: self,
            editor_capabilities: Arc::default(),
            handler: SetOnce::new(),
        });
        world.spawn.spawn(Box::pin(session_tasks.track_future(writing)));
        let opened =
            Arc::clone(&startup).open(opening, Arc::clone(&backlog), session_tasks.clone());
        world.spawn.spawn(Box::pin(session_tasks.track_future(opened)));
        let running = run_protocol(Arc::clone(&startup), Lines::new(outgoing, incoming));
        let ended = tokio::select! {
            biased;
            ended = running => ended,
            // An editor that stopped reading must not block the shutdown.
            () = async { over.cancelled().await; world.clock.sleep(SHUTDOWN_GRACE).await } => Ok(()),
        };
        let opened = startup.close();
        session_tasks.close();
        tokio::select! {
            biased;
            () = session_tasks.wait() => {}
            () = world.clock.sleep(SHUTDOWN_GRACE) => tracing::warn!(
                tasks = session_tasks.len(),
                bound = ?SHUTDOWN_GRACE,
                "sessions did not stop in time"
            ),
        }
        tracing::info!(max_queued_bytes = backlog.peak_bytes(), "editor disconnected");
        opened?;
        ended.map_err(|error| {
            Fault::new(Kind::ConnectionLost, Operation::TalkToEditor).caused_by(&error)
        })
    }
}

/// Answers `initialize`; other requests wait here for the request handler.
struct StartupHandler {
    initialize_context: InitializeContext,
    editor_capabilities: Arc<Mutex<EditorCapabilities>>,
    handler: SetOnce<Result<Arc<RequestHandler>, Fault>>,
}

impl StartupHandler {
    async fn open(
        self: Arc<Self>,
        opening: impl Future<Output = Result<Bridge, Fault>> + Send,
        backlog: Arc<OutputBacklog>,
        session_tasks: TaskTracker,
    ) {
        // A panic becomes a fault, so that requests that wait for the handler are answered.
        let opened = AssertUnwindSafe(opening).catch_unwind().await;
        let panicked = |_| Err(Fault::new(Kind::Bug, Operation::TalkToEditor));
        let opened = opened.unwrap_or_else(panicked).map(|bridge| {
            Arc::new(RequestHandler::new(
                bridge,
                backlog,
                Arc::clone(&self.editor_capabilities),
                session_tasks,
            ))
        });
        if let Err(fault) = &opened {
            tracing::error!(%fault, "editor connection failed");
        }
        // No other code sets it, so this cannot fail.
        let _ = self.handler.set(opened);
    }

    /// Waits for the request handler, or for the fault of its opening.
    async fn handler(&self) -> Result<&Arc<RequestHandler>, Error> {
        self.handler
            .wait()
            .await
            .as_ref()
            .map_err(|fault| faults::to_error(fault, self.initialize_context.lang))
    }

    /// Tells every session task that the editor has disconnected. Fails if the bridge is known to have failed to open.
    fn close(&self) -> Result<(), Fault> {
        match self.handler.get() {
            Some(Ok(handler)) => handler.close(),
            Some(Err(fault)) => return Err(fault.clone()),
            None => {}
        }
        Ok(())
    }

    fn initialize(&self, request: &InitializeRequest) -> InitializeResponse {
        let session = request.client_capabilities.session.as_ref();
        let elicitation = request.client_capabilities.elicitation.as_ref();
        let editor_capabilities = EditorCapabilities {
            notices: session.is_some_and(|session| session.notices.is_some()),
            compaction: session.is_some_and(|session| session.compaction.is_some()),
            reads_files: request.client_capabilities.fs.read_text_file,
            writes_files: request.client_capabilities.fs.write_text_file,
            forms: elicitation.is_some_and(ElicitationCapabilities::supports_form),
        };
        *self.editor_capabilities.lock().expect("no code panics while holding this") =
            editor_capabilities;
        if let Some(info) = &request.client_info {
            tracing::info!(editor = info.name, version = info.version, "editor connected");
        }
        let editor_options = &self.initialize_context.editor_options;
        let sign_ins = editor_options.sign_ins.iter().map(|method| {
            AuthMethod::Agent(
                AuthMethodAgent::new(method.id.clone(), method.name.clone())
                    .description(method.about.clone()),
            )
        });
        let info = Implementation::new("budao", env!("CARGO_PKG_VERSION"))
            .title(format!("Budao ({})", editor_options.engine));
        InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(capabilities(editor_options))
            .auth_methods(sign_ins.collect())
            .agent_info(info)
    }
}

async fn run_protocol<O, I>(
    startup: Arc<StartupHandler>,
    transport: Lines<O, I>,
) -> Result<(), Error>
where
    O: futures::Sink<String, Error = std::io::Error> + Send + 'static,
    I: futures::Stream<Item = std::io::Result<String>> + Send + 'static,
{
    macro_rules! answer {
        ($startup:ident, $handle:ident) => {{
            let startup = Arc::clone(&$startup);
            async move |request, responder, connection| {
                match startup.handler().await {
                    Ok(handler) => handler.$handle(request, responder, &connection),
                    Err(error) => respond!(responder, Err(error)),
                }
                Ok(())
            }
        }};
    }
    let (initializing, cancelling) = (Arc::clone(&startup), Arc::clone(&startup));
    Agent
        .v1()
        .name("budao")
        .on_receive_request(
            async move |request: InitializeRequest, responder, _connection| {
                respond!(responder, Ok(initializing.initialize(&request)));
                Ok(())
            },
            on_receive_request!(),
        )
        .on_receive_request(answer!(startup, authenticate), on_receive_request!())
        .on_receive_request(answer!(startup, new_session), on_receive_request!())
        .on_receive_request(answer!(startup, load_session), on_receive_request!())
        .on_receive_request(answer!(startup, resume_session), on_receive_request!())
        .on_receive_request(answer!(startup, list_sessions), on_receive_request!())
        .on_receive_request(answer!(startup, close_session), on_receive_request!())
        .on_receive_request(answer!(startup, delete_session), on_receive_request!())
        .on_receive_request(answer!(startup, prompt), on_receive_request!())
        .on_receive_request(answer!(startup, set_mode), on_receive_request!())
        .on_receive_request(answer!(startup, set_option), on_receive_request!())
        .on_receive_request(answer!(startup, too_long), on_receive_request!())
        .on_receive_notification(
            async move |cancel: CancelNotification, _connection| {
                if let Ok(handler) = cancelling.handler().await {
                    handler.cancel(&cancel);
                }
                Ok(())
            },
            on_receive_notification!(),
        )
        .connect_to(transport)
        .await
}

fn capabilities(editor_options: &EditorOptions) -> AgentCapabilities {
    let directories =
        editor_options.directories.is_some().then(SessionAdditionalDirectoriesCapabilities::new);
    AgentCapabilities::new()
        .load_session(true)
        .prompt_capabilities(PromptCapabilities::new().image(true).embedded_context(true))
        .mcp_capabilities(McpCapabilities::new().http(true).sse(true))
        .session_capabilities(
            SessionCapabilities::new()
                .list(SessionListCapabilities::new())
                .delete(SessionDeleteCapabilities::new())
                .resume(SessionResumeCapabilities::new())
                .close(SessionCloseCapabilities::new())
                .additional_directories(directories),
        )
}
