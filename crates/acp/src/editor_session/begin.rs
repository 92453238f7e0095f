//! Starts a session task: opens a new session, or replays the history of an existing one.

use std::{path::Path, sync::Arc};

use agent_client_protocol::{
    Error,
    v1::{
        Responder,
        schema::{
            LoadSessionResponse, NewSessionResponse, ResumeSessionResponse, SessionConfigOption,
            SessionModeState,
        },
    },
};
use budao_core::{
    engine::{SessionOptions, wrong_engine},
    event::{Event, Seq, SessionId},
    fault::{Fact, FactValue, Fault, Kind, Operation},
};
use budao_journal::{HistoryInfo, PageLimits, StoredRecord};

use super::{EditorSession, QueuedCommand, SettingsResponder};
use crate::{
    bridge::{Bridge, ToolServer},
    editor_files::EditorFiles,
    editor_options::{self, WorkingDirectories},
    faults,
    project::Projector,
    request_handler::respond,
};

/// A request to open a session, with the directories and tool servers of the editor.
#[derive(Debug)]
pub(crate) struct SessionStart {
    pub(crate) directories: WorkingDirectories,
    pub(crate) servers: Vec<ToolServer>,
    pub(crate) reply: OpenResponder,
}

/// The editor's request that is answered once the session is open.
#[derive(Debug)]
pub(crate) enum OpenResponder {
    New(Responder<NewSessionResponse>),
    /// The history is replayed before the answer.
    Load(Responder<LoadSessionResponse>),
    /// The history is read without showing it.
    Resume(Responder<ResumeSessionResponse>),
}

impl OpenResponder {
    /// Answers the request with an error.
    pub(crate) fn refuse(self, error: Error) {
        match self {
            Self::New(reply) => respond!(reply, Err(error)),
            Self::Load(reply) => respond!(reply, Err(error)),
            Self::Resume(reply) => respond!(reply, Err(error)),
        }
    }
}

/// The replay of a history; the session is live once it has ended.
pub(super) struct Replay {
    until: Seq,
    pub(super) is_quiet: bool,
    reply: OpenResponder,
    directories: WorkingDirectories,
}

impl EditorSession {
    pub(super) async fn begin(&mut self, begin: SessionStart) {
        let SessionStart { directories, servers, reply } = begin;
        if let (OpenResponder::New(_), Err(fault)) = (&reply, check_directories(&directories)) {
            return self.refuse_start(reply, faults::to_error(&fault, self.bridge.lang));
        }
        let connection = self.outbox.connection().clone();
        let files = EditorFiles::new(connection, self.session, self.editor_capabilities);
        if let Some(files) = files {
            self.bridge.services.editor_files(self.session, files);
        }
        match self.bridge.services.tool_servers(self.session, servers).await {
            Ok(failed) => self.failed_servers = failed,
            Err(fault) => {
                return self.refuse_start(reply, faults::to_error(&fault, self.bridge.lang));
            }
        }
        let begun = match reply {
            OpenResponder::New(_) => self.open(directories.clone()).await.map(|()| 0),
            OpenResponder::Load(_) | OpenResponder::Resume(_) => self.start_replay().await,
        };
        let until = match begun {
            Ok(until) => until,
            Err(fault) => {
                return self.refuse_start(reply, faults::to_error(&fault, self.bridge.lang));
            }
        };
        let is_quiet = matches!(reply, OpenResponder::Resume(_));
        self.replay = Some(Replay { until, is_quiet, reply, directories });
        self.outbox.set_replaying(true);
        self.finish_replay(self.last_seq).await;
    }

    async fn open(&mut self, directories: WorkingDirectories) -> Result<(), Fault> {
        let base = editor_options::settings_for(&self.bridge.settings);
        let settings = self.bridge.editor_options.workspace(directories).apply_to(&base);
        let opening = SessionOptions {
            session: Some(self.session),
            settings: settings.clone(),
            origin: None,
        };
        self.bridge.engine.open(opening).await?;
        self.projector.settings = settings;
        self.follow(0).await
    }

    /// Starts to read the session at its oldest available record, and returns its last position.
    async fn start_replay(&mut self) -> Result<Seq, Fault> {
        let info = self.bridge.journal.info(self.session).await?.ok_or_else(|| {
            Fault::new(Kind::UnknownSession, Operation::TalkToEditor)
                .with(Fact::Session, self.session.to_string())
        })?;
        check_engine(Arc::clone(&self.bridge), self.session, &info).await?;
        let editor_options = Arc::clone(&self.editor_options);
        self.projector = Projector::new(editor_options, self.bridge.lang, self.editor_capabilities);
        // The editor shows these prompts by itself, unless the replay shows them.
        for prompt in self.prompts.active.iter().chain(&self.prompts.waiting) {
            self.projector.add_own_message(prompt.command.clone());
        }
        self.questions.clear();
        self.last_seq = info.first_available.saturating_sub(1);
        self.follow(self.last_seq).await?;
        Ok(info.head)
    }

    /// Ends a replay that cannot reach its end: answers the editor's request with the fault.
    pub(super) fn fail_replay(&mut self, fault: &Fault) {
        if let Some(replay) = self.replay.take() {
            self.outbox.set_replaying(false);
            self.refuse_start(replay.reply, faults::to_error(fault, self.bridge.lang));
        }
    }

    /// Handles the end of the records: the session was removed while it was followed.
    pub(super) fn handle_records_end(&mut self) {
        self.records = None;
        let fault = Fault::new(Kind::UnknownSession, Operation::TalkToEditor)
            .with(Fact::Session, self.session.to_string());
        self.fail_replay(&fault);
    }

    fn refuse_start(&mut self, reply: OpenResponder, error: Error) {
        match reply {
            OpenResponder::New(reply) => self.outbox.answer(reply, Err(error)),
            OpenResponder::Load(reply) => self.outbox.answer(reply, Err(error)),
            OpenResponder::Resume(reply) => self.outbox.answer(reply, Err(error)),
        }
    }

    /// Ends the replay once `last_seq` reaches its last position; then the session is live.
    pub(super) async fn finish_replay(&mut self, last_seq: Seq) {
        let Some(replay) = self.replay.take_if(|replay| last_seq >= replay.until) else { return };
        self.is_open = true;
        self.outbox.set_replaying(false);
        self.projector.go_live();
        let (modes, options) = self.modes_and_options();
        match replay.reply {
            OpenResponder::New(reply) => {
                let response = NewSessionResponse::new(self.session.to_string())
                    .modes(modes)
                    .config_options(options);
                self.outbox.answer(reply, Ok(response));
            }
            OpenResponder::Load(reply) => {
                let response = LoadSessionResponse::new().modes(modes).config_options(options);
                self.outbox.answer(reply, Ok(response));
            }
            OpenResponder::Resume(reply) => {
                let response = ResumeSessionResponse::new().modes(modes).config_options(options);
                self.outbox.answer(reply, Ok(response));
            }
        }
        self.send_commands();
        for fault in std::mem::take(&mut self.failed_servers) {
            self.report_tool_server(&fault);
        }
        let moves = self.bridge.editor_options.workspace(replay.directories);
        if moves.apply_to(&self.projector.settings) != self.projector.settings {
            self.queue_settings_change(moves, SettingsResponder::None);
        }
        if self.projector.turn.is_some() {
            self.commands.push(QueuedCommand::Resume);
        }
        let open: Vec<_> = self.questions.keys().cloned().collect();
        for question in open {
            self.ask(&question);
        }
        self.start_next_prompt().await;
    }

    pub(super) fn modes_and_options(&self) -> (SessionModeState, Vec<SessionConfigOption>) {
        let settings = &self.projector.settings;
        let lang = self.bridge.lang;
        (
            self.editor_options.modes(settings, lang),
            self.editor_options.config_options(settings, lang),
        )
    }
}

/// Refuses directories that do not exist, because every later call would fail in them.
fn check_directories(directories: &WorkingDirectories) -> Result<(), Fault> {
    let others = directories.others.iter().map(|path| ("additionalDirectories", path));
    let mut all = std::iter::once(("cwd", &directories.cwd)).chain(others);
    match all.find(|(_, path)| !Path::new(path).is_dir()) {
        None => Ok(()),
        Some((field, path)) => Err(Fault::new(Kind::ConstraintViolated, Operation::OpenSession)
            .with(Fact::Field, field)
            .with(Fact::Constraint, format!("`{field}` is an existing directory; {path} is not"))
            .with(Fact::ProvidedValue, FactValue::Json(path.clone().into()))),
    }
}

/// Refuses a session of another engine before anything of it is shown, because its prompts cannot be answered here.
async fn check_engine(
    bridge: Arc<Bridge>,
    session: SessionId,
    info: &HistoryInfo,
) -> Result<(), Fault> {
    let journal = &*bridge.journal;
    let one = PageLimits { records: 1, ..PageLimits::default() };
    let first = journal.read(session, info.first_available.saturating_sub(1), one).await?;
    let first = first.records.first().map(StoredRecord::record).transpose()?;
    let settings = match first.map(|record| record.event) {
        Some(Event::SessionOpened { settings, .. }) => settings,
        // Retention has removed the session's first record.
        _ => budao_journal::fold(journal, session).await?.0.settings,
    };
    match settings.engine() == bridge.editor_options.engine {
        true => Ok(()),
        false => Err(wrong_engine(session, &settings)),
    }
}
