//! Handles the editor's requests once the bridge is open: every method except `initialize`.
//!
//! The protocol crate runs handlers one at a time and reads no further line meanwhile, so no handler waits.
//! Each one passes its request to the session's task, whose mailbox keeps the order of arrival.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use agent_client_protocol::{
    Client, Error, JsonRpcRequest,
    v1::{
        ConnectionTo, Responder,
        schema::{
            AuthenticateRequest, AuthenticateResponse, CancelNotification, CloseSessionRequest,
            DeleteSessionRequest, DeleteSessionResponse, ListSessionsRequest, LoadSessionRequest,
            McpServer, NewSessionRequest, PromptRequest, PromptResponse, ResumeSessionRequest,
            SetSessionConfigOptionRequest, SetSessionModeRequest,
        },
    },
};
use budao_core::{
    event::{CommandId, SessionId},
    fault::{Fact, Fault, Kind, Operation},
};
use serde::{Deserialize, Serialize};
use tokio_util::task::TaskTracker;

use crate::{
    bridge::Bridge,
    command_queue::LeaveResponder,
    content,
    editor_options::WorkingDirectories,
    editor_session::{EditorCommand, EditorSession, Mailbox, OpenResponder, SessionStart},
    editor_sessions::EditorSessions,
    faults,
    lines::OutputBacklog,
    list,
    outbox::Outbox,
    project::EditorCapabilities,
    prompts::Prompt,
};

/// Upper bound of additional directories of a session.
const DIRECTORIES_MAX: usize = 64;
/// The request that replaces a line that is too long.
#[derive(Clone, Debug, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "_budao/line_too_long", response = serde_json::Value)]
pub(crate) struct LineTooLong {}

/// Answers a request; a closed connection is ignored.
macro_rules! respond {
    ($responder:expr, $answer:expr) => {
        if let Err(error) = $responder.respond_with_result($answer) {
            tracing::debug!(%error, "response dropped: editor disconnected");
        }
    };
}
pub(crate) use respond;

/// The state that all handlers share.
pub(crate) struct RequestHandler {
    bridge: Arc<Bridge>,
    backlog: Arc<OutputBacklog>,
    sessions: Arc<EditorSessions>,
    editor_capabilities: Arc<Mutex<EditorCapabilities>>,
    session_tasks: TaskTracker,
    prompts: AtomicU64,
}

type Connection = ConnectionTo<Client>;

#[expect(clippy::needless_pass_by_value, reason = "every handler has the same shape")]
impl RequestHandler {
    pub(crate) fn new(
        bridge: Bridge,
        backlog: Arc<OutputBacklog>,
        editor_capabilities: Arc<Mutex<EditorCapabilities>>,
        session_tasks: TaskTracker,
    ) -> Self {
        let (bridge, prompts) = (Arc::new(bridge), AtomicU64::new(0));
        Self {
            bridge,
            backlog,
            sessions: Arc::default(),
            editor_capabilities,
            session_tasks,
            prompts,
        }
    }

    /// Tells every session task that the editor has disconnected, by closing its mailbox.
    pub(crate) fn close(&self) {
        self.sessions.clear();
    }

    pub(crate) fn authenticate(
        self: &Arc<Self>,
        request: AuthenticateRequest,
        responder: Responder<AuthenticateResponse>,
        _: &Connection,
    ) {
        let method = request.method_id.0.to_string();
        if !self.bridge.editor_options.sign_ins.iter().any(|known| known.id == method) {
            respond!(
                responder,
                Err(faults::invalid_params("methodId", "one of the methods on offer"))
            );
            return;
        }
        let handler = Arc::clone(self);
        self.spawn(async move {
            let signed_in = handler.bridge.services.sign_in(&method).await;
            let answer = signed_in
                .map(|()| AuthenticateResponse::new())
                .map_err(|fault| faults::to_error(&fault, handler.bridge.lang));
            respond!(responder, answer);
        });
    }

    pub(crate) fn new_session(
        &self,
        request: NewSessionRequest,
        responder: Responder<agent_client_protocol::v1::schema::NewSessionResponse>,
        connection: &Connection,
    ) {
        let session = Ok(SessionId(self.bridge.world.uuid()));
        let places = (&*request.cwd, &*request.additional_directories, request.mcp_servers);
        self.start_session(session, places, OpenResponder::New(responder), connection);
    }

    pub(crate) fn load_session(
        &self,
        request: LoadSessionRequest,
        responder: Responder<agent_client_protocol::v1::schema::LoadSessionResponse>,
        connection: &Connection,
    ) {
        let session = self.parse_session(&request.session_id.0);
        let places = (&*request.cwd, &*request.additional_directories, request.mcp_servers);
        self.start_session(session, places, OpenResponder::Load(responder), connection);
    }

    pub(crate) fn resume_session(
        &self,
        request: ResumeSessionRequest,
        responder: Responder<agent_client_protocol::v1::schema::ResumeSessionResponse>,
        connection: &Connection,
    ) {
        let session = self.parse_session(&request.session_id.0);
        let places = (&*request.cwd, &*request.additional_directories, request.mcp_servers);
        self.start_session(session, places, OpenResponder::Resume(responder), connection);
    }

    /// Starts a session, or refuses it because of its directories, its servers or its id.
    fn start_session(
        &self,
        session: Result<SessionId, Error>,
        (cwd, others, servers): (&Path, &[PathBuf], Vec<McpServer>),
        reply: OpenResponder,
        connection: &Connection,
    ) {
        let started = self.check_directories(cwd, others, servers);
        match started.and_then(|started| Ok((started, session?))) {
            Ok(((directories, servers), session)) => {
                let begin = SessionStart { directories, servers, reply };
                self.send_or_start(session, EditorCommand::Begin(Box::new(begin)), connection);
            }
            Err(error) => reply.refuse(error),
        }
    }

    pub(crate) fn list_sessions(
        self: &Arc<Self>,
        request: ListSessionsRequest,
        responder: Responder<agent_client_protocol::v1::schema::ListSessionsResponse>,
        _: &Connection,
    ) {
        let handler = Arc::clone(self);
        self.spawn(async move {
            respond!(responder, list::read_page(&handler.bridge, request).await);
        });
    }

    pub(crate) fn close_session(
        &self,
        request: CloseSessionRequest,
        responder: Responder<agent_client_protocol::v1::schema::CloseSessionResponse>,
        _: &Connection,
    ) {
        let leave = EditorCommand::Leave(LeaveResponder::Close(responder));
        self.send(&request.session_id.0, leave);
    }

    /// Deletes a session; an open one is closed first. Deleting a session that does not exist succeeds.
    pub(crate) fn delete_session(
        &self,
        request: DeleteSessionRequest,
        responder: Responder<DeleteSessionResponse>,
        connection: &Connection,
    ) {
        match self.parse_session(&request.session_id.0) {
            Ok(session) => {
                let leave = EditorCommand::Leave(LeaveResponder::Delete(responder));
                self.send_or_start(session, leave, connection);
            }
            Err(error) => respond!(responder, Err(error)),
        }
    }

    pub(crate) fn prompt(
        &self,
        request: PromptRequest,
        responder: Responder<PromptResponse>,
        _: &Connection,
    ) {
        let content = match content::convert_prompt(request.prompt) {
            Ok(content) => content,
            Err(error) => return respond!(responder, Err(error)),
        };
        let world = &self.bridge.world;
        let command = CommandId::from(format!("acp-{}", world.uuid().simple()));
        let number = self.prompts.fetch_add(1, Ordering::Relaxed) + 1;
        let (trace, now) = (world.trace(), world.clock.now());
        let prompt = Prompt::new(number, content, command, trace, responder, now);
        self.send(&request.session_id.0, EditorCommand::Prompt(Box::new(prompt)));
    }

    pub(crate) fn cancel(&self, cancel: &CancelNotification) {
        self.send(&cancel.session_id.0, EditorCommand::Cancel);
    }

    pub(crate) fn set_mode(
        &self,
        request: SetSessionModeRequest,
        reply: Responder<agent_client_protocol::v1::schema::SetSessionModeResponse>,
        _: &Connection,
    ) {
        let mode = request.mode_id.0.to_string();
        self.send(&request.session_id.0, EditorCommand::SetMode { mode, reply });
    }

    pub(crate) fn set_option(
        &self,
        request: SetSessionConfigOptionRequest,
        reply: Responder<agent_client_protocol::v1::schema::SetSessionConfigOptionResponse>,
        _: &Connection,
    ) {
        let Some(value) = request.value.as_value_id() else {
            return respond!(reply, Err(faults::invalid_params("value", "the id of a value")));
        };
        let (option, value) = (request.config_id.0.to_string(), value.0.to_string());
        self.send(&request.session_id.0, EditorCommand::SetOption { option, value, reply });
    }

    pub(crate) fn too_long(
        &self,
        _: LineTooLong,
        responder: Responder<serde_json::Value>,
        _: &Connection,
    ) {
        let fault = Fault::new(Kind::FrameTooLarge, Operation::TalkToEditor)
            .with(Fact::Limit, self.bridge.limits.frame_bytes_hard)
            .with(Fact::LimitName, "frame_bytes_hard");
        respond!(responder, Err(faults::to_error(&fault, self.bridge.lang)));
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.bridge.world.spawn.spawn(Box::pin(self.session_tasks.track_future(work)));
    }

    /// Checks the directories and tool servers of a session.
    fn check_directories(
        &self,
        cwd: &Path,
        others: &[PathBuf],
        servers: Vec<McpServer>,
    ) -> Result<(WorkingDirectories, Vec<crate::bridge::ToolServer>), Error> {
        if !others.is_empty() && self.bridge.editor_options.directories.is_none() {
            return Err(faults::invalid_params(
                "additionalDirectories",
                "empty: they are not offered",
            ));
        }
        if others.len() > DIRECTORIES_MAX {
            return Err(faults::invalid_params("additionalDirectories", "at most 64 directories"));
        }
        let others = others.iter().map(|path| require_absolute("additionalDirectories", path));
        let directories = WorkingDirectories {
            cwd: require_absolute("cwd", cwd)?,
            others: others.collect::<Result<_, _>>()?,
        };
        Ok((directories, content::convert_servers(servers)?))
    }

    fn parse_session(&self, session: &str) -> Result<SessionId, Error> {
        session.parse().map_err(|_| faults::unknown_session(session, self.bridge.lang))
    }

    /// Passes a command to the session's task; answers it with `unknown_session` if there is none.
    fn send(&self, session: &str, command: EditorCommand) {
        let sent = match self.parse_session(session) {
            Ok(id) => self.sessions.send(id, command),
            Err(_) => Err(Box::new(command)),
        };
        if let Err(command) = sent {
            command.refuse(faults::unknown_session(session, self.bridge.lang));
        }
    }

    /// Passes a command to the session's task, and creates the task if there is none.
    fn send_or_start(&self, session: SessionId, command: EditorCommand, connection: &Connection) {
        self.sessions.send_or_start(session, command, |mailbox| {
            let outbox = Outbox::new(connection.clone(), session, Arc::clone(&self.backlog));
            let editor_capabilities =
                *self.editor_capabilities.lock().expect("no code panics while holding this");
            let bridge = Arc::clone(&self.bridge);
            let mailbox = Mailbox::new(Arc::clone(&self.sessions), session, mailbox);
            self.spawn(
                EditorSession::new(bridge, session, outbox, mailbox, editor_capabilities).run(),
            );
        });
    }
}

fn require_absolute(field: &'static str, path: &Path) -> Result<String, Error> {
    if !path.is_absolute() {
        return Err(faults::invalid_params(field, "an absolute path"));
    }
    path.to_str().map(str::to_owned).ok_or_else(|| faults::invalid_params(field, "valid UTF-8"))
}
