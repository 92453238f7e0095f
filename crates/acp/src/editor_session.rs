//! The task of one session: the only writer to the editor for that session.
//!
//! It passes the editor's commands to the engine in order, follows the session's records and shows them. A
//! prompt is answered at the recorded end of its own turn, after all updates of that turn. A turn is matched
//! to a prompt only by the command id that the turn answers, never by time or order.

mod begin;
mod mailbox;
mod questions;
mod reports;
mod settle;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use agent_client_protocol::v1::schema::{
    AvailableCommandsUpdate, SessionUpdate, SetSessionConfigOptionResponse, SetSessionModeResponse,
};
use budao_core::{
    event::{
        Answer, Command, CommandBody as EngineCommand, CommandId, Event, QuestionId, Record, Seq,
        SessionId, Settings, TurnNumber,
    },
    fault::{Fact, Fault, Kind, Operation},
    message::Block,
    span::{Span, SpanOperation, code_of},
    trace::{SpanId, Trace},
};
use futures::{
    StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use tokio::sync::mpsc;

use self::{
    begin::Replay,
    questions::{EditorReply, OPEN_QUESTIONS_MAX, Question},
};
pub(crate) use self::{
    begin::{OpenResponder, SessionStart},
    mailbox::{EditorCommand, Mailbox},
};
use crate::{
    bridge::Bridge,
    command_queue::{CommandQueue, LeaveResponder, QueuedCommand, SettingsResponder},
    content,
    editor_options::{self, EditorOptions},
    faults,
    outbox::Outbox,
    project::{EditorAction, EditorCapabilities, Projector},
    prompts::{Prompt, Prompts},
};

/// How long a cancelled turn may take to end before its prompt is answered anyway.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(30);

impl std::fmt::Debug for Prompt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prompt").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Upper bound of remembered hidden turns.
const HIDDEN_MAX: usize = 64;

/// A turn whose prompt was answered before its end; nothing more of it is shown.
struct HiddenTurn {
    command: CommandId,
    turn: Option<TurnNumber>,
}

/// The task of one open session: takes prompts in order, follows the records and answers each prompt when its turn ends.
pub(crate) struct EditorSession {
    bridge: Arc<Bridge>,
    session: SessionId,
    outbox: Outbox,
    mailbox: Mailbox,
    answers: mpsc::Receiver<EditorReply>,
    answer_sender: mpsc::Sender<EditorReply>,
    editor_capabilities: EditorCapabilities,
    projector: Projector,
    /// The options of this session: those of the bridge, updated by the engine's reports.
    editor_options: Arc<EditorOptions>,
    /// Tokens of the last model request and answer.
    context_used: u64,
    /// Number of remarks that the task sent without a record; makes their message ids unique.
    remark_count: u64,
    /// Tool servers that did not start, to be reported once the session is open.
    failed_servers: Vec<Fault>,
    /// Settings that the engine accepted, with the position after which it recorded them; until that record is read.
    pending_settings: Option<(Settings, Seq)>,
    /// `None` before the session is opened, and after following it failed.
    records: Option<BoxStream<'static, Result<Record, Fault>>>,
    last_seq: Seq,
    replay: Option<Replay>,
    is_open: bool,
    prompts: Prompts,
    commands: CommandQueue,
    questions: BTreeMap<QuestionId, Question>,
    cancel_timer: Option<BoxFuture<'static, ()>>,
    hidden_turns: Vec<HiddenTurn>,
    leave_responder: Option<LeaveResponder>,
}

/// An event that wakes the task.
enum LoopEvent {
    Command(Option<EditorCommand>),
    Answer(EditorReply),
    CommandDone(QueuedCommand, Result<Answer, Fault>),
    PromptWithdrawn(u64),
    TimedOut,
    OutboxReady,
    Record(Option<Result<Record, Fault>>),
}

impl EditorSession {
    pub(crate) fn new(
        bridge: Arc<Bridge>,
        session: SessionId,
        outbox: Outbox,
        mailbox: Mailbox,
        editor_capabilities: EditorCapabilities,
    ) -> Self {
        let (answer_sender, answers) = mpsc::channel(OPEN_QUESTIONS_MAX);
        let editor_options = Arc::new(bridge.editor_options.clone());
        let projector =
            Projector::new(Arc::clone(&editor_options), bridge.lang, editor_capabilities);
        Self {
            bridge,
            session,
            outbox,
            mailbox,
            answers,
            answer_sender,
            editor_capabilities,
            projector,
            editor_options,
            context_used: 0,
            remark_count: 0,
            failed_servers: Vec::new(),
            pending_settings: None,
            records: None,
            last_seq: 0,
            replay: None,
            is_open: false,
            prompts: Prompts::default(),
            commands: CommandQueue::default(),
            questions: BTreeMap::new(),
            cancel_timer: None,
            hidden_turns: Vec::new(),
            leave_responder: None,
        }
    }

    /// Runs until the editor leaves the session or disconnects.
    pub(crate) async fn run(mut self) {
        loop {
            self.handle_deferred().await;
            if self.is_closed() && self.mailbox.end_if_idle() {
                break;
            }
            self.start_command();
            match self.next_event().await {
                LoopEvent::Command(Some(input)) => self.handle_or_defer(input).await,
                LoopEvent::Command(None) => break,
                LoopEvent::Answer((question, answer)) => self.handle_answer(&question, &answer),
                LoopEvent::CommandDone(queued, answer) => {
                    self.handle_command_result(queued, answer).await;
                }
                LoopEvent::PromptWithdrawn(number) => self.handle_withdrawal(number),
                LoopEvent::TimedOut => self.handle_cancel_timeout().await,
                LoopEvent::OutboxReady => self.outbox.flush(),
                LoopEvent::Record(Some(Ok(record))) => self.handle_record(&record).await,
                LoopEvent::Record(Some(Err(fault))) => self.handle_follow_failure(&fault),
                LoopEvent::Record(None) => self.handle_records_end(),
            }
        }
        self.shut_down().await;
    }

    /// Waits for the next event. Commands of the editor take precedence over records.
    async fn next_event(&mut self) -> LoopEvent {
        let can_accept = self.outbox.can_accept();
        let needs_room = self.outbox.needs_room();
        tokio::select! {
            biased;
            input = self.mailbox.receive() => LoopEvent::Command(input),
            Some(answer) = self.answers.recv() => LoopEvent::Answer(answer),
            (queued, answer) = self.commands.wait_for_answer() => LoopEvent::CommandDone(queued, answer),
            number = self.prompts.next_withdrawn() => LoopEvent::PromptWithdrawn(number),
            () = wait_for_timer(&mut self.cancel_timer) => LoopEvent::TimedOut,
            () = self.outbox.wait_for_room(), if needs_room => LoopEvent::OutboxReady,
            record = next_record(&mut self.records), if can_accept => LoopEvent::Record(record),
        }
    }

    /// Whether the session is neither open nor being opened.
    fn is_closed(&self) -> bool {
        !self.is_open && self.replay.is_none() && self.leave_responder.is_none()
    }

    /// Whether the session is being loaded or left. Later commands are deferred until then.
    fn is_loading_or_leaving(&self) -> bool {
        self.replay.is_some() || self.leave_responder.is_some()
    }

    /// Handles the commands that waited, in order, until one of them loads or leaves the session.
    async fn handle_deferred(&mut self) {
        while !self.is_loading_or_leaving()
            && let Some(input) = self.mailbox.next_deferred()
        {
            self.handle_command(input).await;
        }
    }

    /// Handles a command, or defers it while the session is loaded or left. A cancel applies to all earlier prompts at
    /// once.
    async fn handle_or_defer(&mut self, input: EditorCommand) {
        match input {
            EditorCommand::Cancel => {
                for prompt in self.mailbox.take_prompts() {
                    self.answer_cancelled(prompt);
                }
                self.cancel();
            }
            // A prompt that waits for a replay can still be withdrawn.
            EditorCommand::Prompt(prompt)
                if self.leave_responder.is_none() && !self.mailbox.has_deferred() =>
            {
                self.handle_prompt(*prompt).await;
            }
            input if self.is_loading_or_leaving() => self.mailbox.defer(input),
            input => self.handle_command(input).await,
        }
    }

    async fn handle_command(&mut self, input: EditorCommand) {
        match input {
            input if !self.is_open && !input.opens_or_deletes() => {
                input.refuse(faults::unknown_session(&self.session.to_string(), self.bridge.lang));
            }
            EditorCommand::Begin(begin) => self.begin(*begin).await,
            EditorCommand::Prompt(prompt) => self.handle_prompt(*prompt).await,
            EditorCommand::Cancel => self.cancel(),
            EditorCommand::SetMode { mode, reply } => match self.editor_options.mode(&mode) {
                Some(change) => self.queue_settings_change(change, SettingsResponder::Mode(reply)),
                None => {
                    self.outbox
                        .answer(reply, Err(faults::invalid_params("modeId", "a mode on offer")));
                }
            },
            EditorCommand::SetOption { option, value, reply } => {
                match self.editor_options.change(&option, &value, self.settings()) {
                    Some(change) => {
                        self.queue_settings_change(change, SettingsResponder::Option(reply));
                    }
                    None => {
                        let error =
                            faults::invalid_params("configId and value", "an option on offer");
                        self.outbox.answer(reply, Err(error));
                    }
                }
            }
            EditorCommand::Leave(leave) => self.leave(leave).await,
        }
    }

    fn set_editor_options(&mut self, options: EditorOptions) {
        self.editor_options = Arc::new(options);
        self.projector.set_editor_options(Arc::clone(&self.editor_options));
    }

    fn queue_settings_change(
        &mut self,
        change: editor_options::SettingsChange,
        reply: SettingsResponder,
    ) {
        self.commands.push(QueuedCommand::Settings { change, reply, new_settings: None });
    }

    async fn handle_prompt(&mut self, prompt: Prompt) {
        if !self.is_open && self.replay.is_none() {
            let error = faults::unknown_session(&self.session.to_string(), self.bridge.lang);
            return self.outbox.answer(prompt.responder, Err(error));
        }
        let limit = self.bridge.limits.queued_messages;
        if self.prompts.waiting.len() >= limit {
            let fault = Fault::new(Kind::LimitReached, Operation::TalkToEditor)
                .with(Fact::Limit, limit)
                .with(Fact::LimitName, "queued_messages")
                .with_trace(prompt.trace);
            let error = faults::to_error(&fault, self.bridge.lang);
            return self.outbox.answer(prompt.responder, Err(error));
        }
        self.prompts.waiting.push_back(prompt);
        self.start_next_prompt().await;
    }

    /// Starts the next waiting prompt, unless one is active or a replay runs.
    async fn start_next_prompt(&mut self) {
        if self.prompts.active.is_some() || self.replay.is_some() {
            return;
        }
        let Some(mut prompt) = self.prompts.waiting.pop_front() else { return };
        if self.records.is_none()
            && let Err(fault) = self.follow(self.last_seq).await
        {
            let error = faults::to_error(&fault.with_trace(prompt.trace), self.bridge.lang);
            return self.outbox.answer(prompt.responder, Err(error));
        }
        tracing::info!(
            target: "budao_acp::prompt",
            session = %self.session,
            prompt = prompt.number,
            trace = %prompt.trace,
            bytes = content::count_bytes(&prompt.content),
            "prompt started"
        );
        prompt.updates_before = self.outbox.updates;
        let content = std::mem::take(&mut prompt.content);
        if self.settings().title.is_none()
            && let Some(title) = content::title_from(&content)
        {
            self.queue_settings_change(
                editor_options::SettingsChange::Title(title),
                SettingsResponder::None,
            );
        }
        self.projector.add_own_message(prompt.command.clone());
        let (command, body) = (prompt.command.clone(), self.message_command(content));
        self.commands.push(QueuedCommand::Message { command, body });
        self.prompts.active = Some(prompt);
    }

    /// Converts a prompt to a command: a message, or a plan for `/plan` with a question.
    fn message_command(&self, content: Vec<Block>) -> EngineCommand {
        let plan = match content.as_slice() {
            [Block::Text(text)] => text.trim_start().strip_prefix("/plan "),
            _ => None,
        };
        let offered =
            self.bridge.editor_options.commands.iter().any(|command| command.name == "plan");
        match plan.map(str::trim).filter(|question| offered && !question.is_empty()) {
            Some(question) => EngineCommand::Plan { question: question.to_owned(), confirm: true },
            None => EngineCommand::Message { content },
        }
    }

    /// Cancels the active prompt and all waiting ones. Later prompts are not affected.
    fn cancel(&mut self) {
        for prompt in std::mem::take(&mut self.prompts.waiting) {
            self.answer_cancelled(prompt);
        }
        if self.prompts.active.is_some() || self.projector.turn.is_some() {
            self.stop_active();
        }
    }

    fn handle_withdrawal(&mut self, number: u64) {
        if let Some(prompt) = self.prompts.remove(number) {
            self.answer_cancelled(prompt);
        } else if self.prompts.is_active(number) {
            self.stop_active();
        }
    }

    fn stop_active(&mut self) {
        if let Some(prompt) = &mut self.prompts.active {
            prompt.cancelled = true;
            self.cancel_timer = Some(self.bridge.world.clock.sleep(CANCEL_TIMEOUT));
        }
        self.commands.push(QueuedCommand::Cancel);
    }

    /// Starts the next queued command, unless one runs.
    fn start_command(&mut self) {
        let Some(mut queued) = self.commands.take_next() else { return };
        let active = self.prompts.active.as_ref();
        let own = || (CommandId::own(self.bridge.world.uuid()), Trace::NONE);
        let (body, (id, trace)) = match &mut queued {
            QueuedCommand::Message { command, body } => {
                // A prompt that has been answered meanwhile is not submitted.
                let Some(prompt) = active.filter(|prompt| prompt.command == *command) else {
                    return;
                };
                (body.clone(), (prompt.command.clone(), prompt.trace))
            }
            QueuedCommand::Withdraw { message } => {
                (EngineCommand::Withdraw { message: message.clone() }, own())
            }
            QueuedCommand::Cancel => (EngineCommand::Cancel { reason: None }, own()),
            QueuedCommand::Decide { body } => (body.clone(), own()),
            QueuedCommand::Settings { change, new_settings, .. } => {
                let settings = Box::new(change.apply_to(self.settings()));
                *new_settings = Some(settings.clone());
                let before = Some(Box::new(self.settings().clone()));
                (EngineCommand::Settings { settings, before }, own())
            }
            QueuedCommand::Close => (EngineCommand::Close, own()),
            QueuedCommand::Resume => {
                let (topic, data) = ("acp.opened".to_owned(), serde_json::Value::Null);
                (EngineCommand::Annotate { topic, data }, own())
            }
        };
        let (engine, session) = (Arc::clone(&self.bridge.engine), self.session);
        let (world, name) = (self.bridge.world.clone(), body.name());
        let asking = Box::pin(async move {
            let (began, span) = (world.clock.now(), SpanId::of_request(session, &id));
            let command = Command { id, by: "editor".to_owned(), trace, body };
            let answer = engine.submit(session, command).await;
            if trace.is_some() {
                world.export_span(|| Span {
                    trace,
                    id: span,
                    parent: SpanId::NONE,
                    session: Some(session),
                    began,
                    ended: world.clock.now(),
                    failed: answer.as_ref().err().map(code_of),
                    about: SpanOperation::Request { name },
                });
            }
            answer
        });
        self.commands.start(queued, asking);
    }

    async fn handle_command_result(
        &mut self,
        queued: QueuedCommand,
        answer: Result<Answer, Fault>,
    ) {
        let accepted = match answer {
            Ok(Answer::Accepted { at }) => Ok(at),
            Ok(Answer::Rejected { fault }) | Err(fault) => Err(fault),
        };
        let refused = accepted.as_ref().err();
        match queued {
            QueuedCommand::Message { command, .. } => {
                self.handle_message_result(command, refused).await;
            }
            QueuedCommand::Settings { reply, new_settings, .. } => {
                self.apply_settings_result(reply, new_settings, accepted.as_ref().copied());
            }
            QueuedCommand::Close => self.handle_close_result(refused),
            QueuedCommand::Cancel
            | QueuedCommand::Decide { .. }
            | QueuedCommand::Withdraw { .. }
            | QueuedCommand::Resume => {
                if let Some(fault) = refused {
                    tracing::info!(session = %self.session, %fault, "command refused");
                }
            }
        }
        self.finish_leaving().await;
    }

    fn apply_settings_result(
        &mut self,
        reply: SettingsResponder,
        new_settings: Option<Box<Settings>>,
        accepted: Result<Seq, &Fault>,
    ) {
        let lang = self.bridge.lang;
        let error = accepted.err().map(|fault| faults::to_error(fault, lang));
        if let (Ok(at), Some(new_settings)) = (accepted, new_settings)
            && at >= self.last_seq
            && *new_settings != *self.settings()
        {
            self.pending_settings = Some((*new_settings, at));
        }
        match reply {
            SettingsResponder::None => {}
            SettingsResponder::Mode(reply) => {
                let answer = error.map_or(Ok(SetSessionModeResponse::new()), Err);
                self.outbox.answer(reply, answer);
            }
            SettingsResponder::Option(reply) => {
                let options = self.editor_options.config_options(self.settings(), lang);
                let answer = error.map_or(Ok(SetSessionConfigOptionResponse::new(options)), Err);
                self.outbox.answer(reply, answer);
            }
        }
    }

    /// The settings to which further changes apply: the accepted ones, or those on record.
    fn settings(&self) -> &Settings {
        self.pending_settings.as_ref().map_or(&self.projector.settings, |(settings, _)| settings)
    }

    async fn handle_record(&mut self, record: &Record) {
        self.last_seq = record.seq;
        self.handle_engine_report(record);
        let is_hidden = self.is_hidden(record);
        for action in self.projector.project(record) {
            self.perform_action(action, is_hidden);
        }
        // The engine may have recorded a change of other fields too, so the record need not equal the request.
        self.pending_settings.take_if(|(_, at)| record.seq > *at);
        match &record.event {
            // The prompt has already been answered, so its turn must not run.
            Event::TurnStarted { .. } if is_hidden => self.commands.push(QueuedCommand::Cancel),
            Event::TurnStarted { message } => self.handle_turn_start(message, record.turn),
            Event::TurnEnded { .. } => self.handle_turn_end(record).await,
            _ => {}
        }
        self.finish_replay(record.seq).await;
    }

    fn is_hidden(&mut self, record: &Record) -> bool {
        if let Event::TurnStarted { message } = &record.event
            && let Some(hidden) =
                self.hidden_turns.iter_mut().find(|hidden| hidden.command == *message)
        {
            hidden.turn = Some(record.turn);
        }
        self.hidden_turns.iter().any(|hidden| hidden.turn == Some(record.turn))
    }

    /// Hides the rest of this prompt's turn, because the prompt is being answered.
    fn hide(&mut self, prompt: &Prompt) {
        if self.hidden_turns.len() == HIDDEN_MAX {
            self.hidden_turns.remove(0);
        }
        self.hidden_turns.push(HiddenTurn { command: prompt.command.clone(), turn: prompt.turn });
    }

    fn perform_action(&mut self, action: EditorAction, is_hidden: bool) {
        let is_quiet = self.replay.as_ref().is_some_and(|replay| replay.is_quiet);
        match action {
            EditorAction::Update(update) if !is_hidden && !is_quiet => self.outbox.send(update),
            EditorAction::Update(_) => {}
            EditorAction::AskPermission(request) => self.add_question(*request, is_hidden),
            EditorAction::WithdrawQuestion(question) => self.withdraw_question(&question),
        }
    }

    /// Answers all prompts with the fault, because the session can no longer be followed.
    fn handle_follow_failure(&mut self, fault: &Fault) {
        tracing::warn!(session = %self.session, %fault, "following session failed");
        self.records = None;
        self.fail_replay(fault);
        let active = self.prompts.active.take();
        if let Some(prompt) = &active {
            self.retract(prompt);
        }
        for prompt in active.into_iter().chain(std::mem::take(&mut self.prompts.waiting)) {
            let error = faults::to_error(&fault.clone().with_trace(prompt.trace), self.bridge.lang);
            self.outbox.answer(prompt.responder, Err(error));
        }
        self.cancel_timer = None;
    }

    async fn follow(&mut self, after: Seq) -> Result<(), Fault> {
        self.records = Some(self.bridge.engine.follow(self.session, after).await?);
        Ok(())
    }

    fn send_commands(&mut self) {
        let commands = self.bridge.editor_options.commands();
        if !commands.is_empty() {
            let update = AvailableCommandsUpdate::new(commands);
            self.outbox.send(SessionUpdate::AvailableCommandsUpdate(update));
        }
    }
}

async fn wait_for_timer(cancel_timer: &mut Option<BoxFuture<'static, ()>>) {
    match cancel_timer {
        Some(wait) => wait.await,
        None => std::future::pending().await,
    }
}

async fn next_record(
    records: &mut Option<BoxStream<'static, Result<Record, Fault>>>,
) -> Option<Result<Record, Fault>> {
    match records {
        Some(records) => records.next().await,
        None => stream::pending().next().await,
    }
}
