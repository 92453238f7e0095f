//! Who answers an editor once the bridge is open: every method but the greeting.
//!
//! Handlers run one after the other and block the reading of the next line, so none of them waits: each
//! hands over to the session's attendant, whose inbox keeps the order in which lines came.

use std::{
    collections::BTreeMap,
    path::Path,
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
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::{
    bridge::Bridge,
    content,
    editor_options::WorkingDirectories,
    faults,
    jobs::LeaveResponder,
    lines::OutputBacklog,
    list,
    outbox::Outbox,
    project::EditorCapabilities,
    prompts::Prompt,
    session_task::{EditorCommand, OpenResponder, SessionStart, SessionTask},
};

/// Further directories a session may work in.
const DIRECTORIES: usize = 64;
/// What an attendant's inbox holds.
const INBOX: usize = 512;
/// A line that was too long, in place of what it said.
#[derive(Clone, Debug, Serialize, Deserialize, JsonRpcRequest)]
#[request(method = "_budao/line_too_long", response = serde_json::Value)]
pub(crate) struct LineTooLong {}

/// Answers a request; a connection that is gone needs no answer.
macro_rules! respond {
    ($responder:expr, $answer:expr) => {
        if let Err(error) = $responder.respond_with_result($answer) {
            tracing::debug!(%error, "nobody is there to be answered");
        }
    };
}
pub(crate) use respond;

/// What all handlers share.
pub(crate) struct RequestHandler {
    bridge: Arc<Bridge>,
    backlog: Arc<OutputBacklog>,
    sessions: Mutex<BTreeMap<SessionId, mpsc::Sender<EditorCommand>>>,
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
            sessions: Mutex::default(),
            editor_capabilities,
            session_tasks,
            prompts,
        }
    }

    /// The editor is gone: every attendant hears of it.
    pub(crate) fn close(&self) {
        self.sessions.lock().expect("no code panics while holding this").clear();
    }

    pub(crate) fn authenticate(
        self: &Arc<Self>,
        request: AuthenticateRequest,
        responder: Responder<AuthenticateResponse>,
        _: &Connection,
    ) {
        let method = request.method_id.0.to_string();
        if !self.bridge.offer.sign_ins.iter().any(|known| known.id == method) {
            respond!(responder, Err(faults::invalid("methodId", "one of the methods on offer")));
            return;
        }
        let desk = Arc::clone(self);
        self.spawn(async move {
            let signed_in = desk.bridge.host.sign_in(&method).await;
            let answer = signed_in
                .map(|()| AuthenticateResponse::new())
                .map_err(|fault| faults::error(&fault, desk.bridge.lang));
            respond!(responder, answer);
        });
    }

    pub(crate) fn new_session(
        &self,
        request: NewSessionRequest,
        responder: Responder<agent_client_protocol::v1::schema::NewSessionResponse>,
        connection: &Connection,
    ) {
        let place = self.place(&request.cwd, &request.additional_directories, request.mcp_servers);
        match place {
            Ok((place, servers)) => {
                let session = SessionId(self.bridge.world.uuid());
                let begin = SessionStart { place, servers, reply: OpenResponder::New(responder) };
                self.begin(session, begin, connection);
            }
            Err(error) => respond!(responder, Err(error)),
        }
    }

    pub(crate) fn load_session(
        &self,
        request: LoadSessionRequest,
        responder: Responder<agent_client_protocol::v1::schema::LoadSessionResponse>,
        connection: &Connection,
    ) {
        let place = self.place(&request.cwd, &request.additional_directories, request.mcp_servers);
        match place.and_then(|place| Ok((place, self.id(&request.session_id.0)?))) {
            Ok(((place, servers), session)) => {
                let begin = SessionStart { place, servers, reply: OpenResponder::Load(responder) };
                self.begin(session, begin, connection);
            }
            Err(error) => respond!(responder, Err(error)),
        }
    }

    pub(crate) fn resume_session(
        &self,
        request: ResumeSessionRequest,
        responder: Responder<agent_client_protocol::v1::schema::ResumeSessionResponse>,
        connection: &Connection,
    ) {
        let place = self.place(&request.cwd, &request.additional_directories, request.mcp_servers);
        match place.and_then(|place| Ok((place, self.id(&request.session_id.0)?))) {
            Ok(((place, servers), session)) => {
                let begin =
                    SessionStart { place, servers, reply: OpenResponder::Resume(responder) };
                self.begin(session, begin, connection);
            }
            Err(error) => respond!(responder, Err(error)),
        }
    }

    pub(crate) fn list_sessions(
        self: &Arc<Self>,
        request: ListSessionsRequest,
        responder: Responder<agent_client_protocol::v1::schema::ListSessionsResponse>,
        _: &Connection,
    ) {
        let desk = Arc::clone(self);
        self.spawn(async move {
            respond!(responder, list::page(&desk.bridge, request).await);
        });
    }

    pub(crate) fn close_session(
        &self,
        request: CloseSessionRequest,
        responder: Responder<agent_client_protocol::v1::schema::CloseSessionResponse>,
        _: &Connection,
    ) {
        match self.inbox(&request.session_id.0) {
            Ok(inbox) => hand_over(&inbox, EditorCommand::Leave(LeaveResponder::Close(responder))),
            Err(error) => respond!(responder, Err(error)),
        }
    }

    /// A session that is open is closed first; one that is not is just deleted. Deleting what is not there
    /// is no mistake: it is gone, as was asked.
    pub(crate) fn delete_session(
        self: &Arc<Self>,
        request: DeleteSessionRequest,
        responder: Responder<DeleteSessionResponse>,
        _: &Connection,
    ) {
        if let Ok(inbox) = self.inbox(&request.session_id.0) {
            return hand_over(&inbox, EditorCommand::Leave(LeaveResponder::Delete(responder)));
        }
        let session = match self.id(&request.session_id.0) {
            Ok(session) => session,
            Err(error) => return respond!(responder, Err(error)),
        };
        let desk = Arc::clone(self);
        self.spawn(async move {
            let deleted = desk.bridge.journal.delete(session).await;
            let answer = deleted
                .map(|_| DeleteSessionResponse::new())
                .map_err(|fault| faults::error(&fault, desk.bridge.lang));
            respond!(responder, answer);
        });
    }

    pub(crate) fn prompt(
        &self,
        request: PromptRequest,
        responder: Responder<PromptResponse>,
        _: &Connection,
    ) {
        let inbox = match self.inbox(&request.session_id.0) {
            Ok(inbox) => inbox,
            Err(error) => return respond!(responder, Err(error)),
        };
        let content = match content::blocks(request.prompt) {
            Ok(content) => content,
            Err(error) => return respond!(responder, Err(error)),
        };
        let world = &self.bridge.world;
        let command = CommandId::from(format!("acp-{}", world.uuid().simple()));
        let number = self.prompts.fetch_add(1, Ordering::Relaxed) + 1;
        let (trace, now) = (world.trace(), world.clock.now());
        let prompt = Prompt::new(number, content, command, trace, responder, now);
        hand_over(&inbox, EditorCommand::Prompt(Box::new(prompt)));
    }

    pub(crate) fn cancel(&self, cancel: &CancelNotification) {
        if let Ok(inbox) = self.inbox(&cancel.session_id.0) {
            hand_over(&inbox, EditorCommand::Cancel);
        }
    }

    pub(crate) fn set_mode(
        &self,
        request: SetSessionModeRequest,
        reply: Responder<agent_client_protocol::v1::schema::SetSessionModeResponse>,
        _: &Connection,
    ) {
        match self.inbox(&request.session_id.0) {
            Ok(inbox) => {
                hand_over(
                    &inbox,
                    EditorCommand::SetMode { mode: request.mode_id.0.to_string(), reply },
                );
            }
            Err(error) => respond!(reply, Err(error)),
        }
    }

    pub(crate) fn set_option(
        &self,
        request: SetSessionConfigOptionRequest,
        reply: Responder<agent_client_protocol::v1::schema::SetSessionConfigOptionResponse>,
        _: &Connection,
    ) {
        let inbox = match self.inbox(&request.session_id.0) {
            Ok(inbox) => inbox,
            Err(error) => return respond!(reply, Err(error)),
        };
        let Some(value) = request.value.as_value_id() else {
            return respond!(reply, Err(faults::invalid("value", "the id of a value")));
        };
        let (option, value) = (request.config_id.0.to_string(), value.0.to_string());
        hand_over(&inbox, EditorCommand::SetOption { option, value, reply });
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
        respond!(responder, Err(faults::error(&fault, self.bridge.lang)));
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.bridge.world.spawn.spawn(Box::pin(self.session_tasks.track_future(work)));
    }

    /// Where a session works, and with which servers.
    fn place(
        &self,
        cwd: &Path,
        others: &[std::path::PathBuf],
        servers: Vec<McpServer>,
    ) -> Result<(WorkingDirectories, Vec<crate::bridge::ToolServer>), Error> {
        if !others.is_empty() && self.bridge.offer.directories.is_none() {
            return Err(faults::invalid("additionalDirectories", "empty: they are not offered"));
        }
        if others.len() > DIRECTORIES {
            return Err(faults::invalid("additionalDirectories", "at most 64 directories"));
        }
        let others = others.iter().map(|path| absolute("additionalDirectories", path));
        let place = WorkingDirectories {
            cwd: absolute("cwd", cwd)?,
            others: others.collect::<Result<_, _>>()?,
        };
        Ok((place, content::servers(servers)?))
    }

    fn id(&self, session: &str) -> Result<SessionId, Error> {
        session.parse().map_err(|_| faults::unknown_session(session, self.bridge.lang))
    }

    /// The inbox of a session the editor has open.
    fn inbox(&self, session: &str) -> Result<mpsc::Sender<EditorCommand>, Error> {
        let id = self.id(session)?;
        let sessions = self.sessions.lock().expect("no code panics while holding this");
        let open = sessions.get(&id).filter(|inbox| !inbox.is_closed());
        open.cloned().ok_or_else(|| faults::unknown_session(session, self.bridge.lang))
    }

    /// Begins with a session: by its attendant if it has one, else by a new one.
    fn begin(&self, session: SessionId, begin: SessionStart, connection: &Connection) {
        let mut sessions = self.sessions.lock().expect("no code panics while holding this");
        sessions.retain(|_, inbox| !inbox.is_closed());
        let inbox = sessions.entry(session).or_insert_with(|| {
            let (sender, inbox) = mpsc::channel(INBOX);
            let outbox = Outbox::new(connection.clone(), session, Arc::clone(&self.backlog));
            let editor_capabilities =
                *self.editor_capabilities.lock().expect("no code panics while holding this");
            let bridge = Arc::clone(&self.bridge);
            self.spawn(SessionTask::new(bridge, session, outbox, inbox, editor_capabilities).run());
            sender
        });
        hand_over(inbox, EditorCommand::Begin(Box::new(begin)));
    }
}

/// Hands something to an attendant. One whose inbox is full drops it, which answers the request with an
/// error: the editor is told at once, and nothing waits.
fn hand_over(inbox: &mpsc::Sender<EditorCommand>, input: EditorCommand) {
    if let Err(error) = inbox.try_send(input) {
        tracing::warn!(%error, limit = INBOX, limit_name = "acp_inbox", "a session is too busy");
    }
}

fn absolute(field: &'static str, path: &Path) -> Result<String, Error> {
    if !path.is_absolute() {
        return Err(faults::invalid(field, "an absolute path"));
    }
    path.to_str().map(str::to_owned).ok_or_else(|| faults::invalid(field, "valid UTF-8"))
}
