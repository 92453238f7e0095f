//! `budao chat`: a full-screen conversation.
//!
//! Three parts work without a terminal: state (`view`, a fold of records), input (`keys`) and drawing (`draw`,
//! `lines`, `fault_details`). This file has the event loop, which owns the terminal.

mod commands;
mod draw;
mod fault_details;
mod keys;
mod lines;
mod pick;
#[cfg(test)]
mod tests;
mod view;

use std::{path::PathBuf, sync::Arc, time::Duration};

use budao_core::{
    Fault, Lang, Record,
    engine::{Engine, SessionOptions},
    event::{Answer, Command, CommandBody, CommandId, Decision, Seq, SessionId, Settings},
    fault::{Kind, Operation, text},
    message::Block,
    trace::Trace,
    world::World,
};
use budao_journal::{Reader, fold};
use budao_mcp::ServerSet;
use budao_runtime::world;
use futures::{FutureExt as _, StreamExt as _, stream::BoxStream};
use tokio::{sync::mpsc, time::MissedTickBehavior};

use self::{
    commands::{CommandReply, SlashCommand},
    draw::DrawContext,
    keys::{InputState, UserAction},
    view::{ChatEntry, View},
};
use crate::{
    config::{Config, ConfigArgs},
    engines::{EngineChoice, RunningEngine},
    exit::Exit,
    run::{SessionArgs, title},
    screen::{self, Screen, Theme},
    session_name::SessionName,
    setup::JournalArgs,
    terminal::Terminal,
    texts::{localize, missing_server},
};

/// Redraw interval while a turn runs; key presses redraw at once.
const FRAME: Duration = Duration::from_millis(50);
/// Capacity of the channels for commands to the engine and for refusals from it.
const COMMANDS: usize = 64;
/// Maximum records applied before the next redraw.
const AT_ONCE: usize = 1_000;

/// Chat with an agent in a full-screen terminal.
///
/// Answers are shown as they arrive, with calls, faults, retries and questions in between. Quitting does not end the
/// session: `--resume` continues it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// First message to send
    message: Option<String>,

    /// Resume this session; without an id, choose from a list
    #[arg(long, value_name = "SESSION")]
    resume: Option<Option<SessionName>>,

    /// Engine: native (built in), claude (the Claude CLI), or agui:ADDRESS (any AG-UI agent at that address); a resumed
    /// session keeps its engine
    #[arg(long, default_value = "native", value_name = "ENGINE")]
    engine: String,

    /// Path of the Claude CLI [default: CLAUDE_CODE_EXECUTABLE, else `claude` in PATH]
    #[arg(long, value_name = "PROGRAM")]
    claude: Option<PathBuf>,

    #[command(flatten)]
    session: SessionArgs,

    #[command(flatten)]
    config: ConfigArgs,

    #[command(flatten)]
    journal: JournalArgs,
}

/// Runs `budao chat` until the user quits, then prints how to resume the session.
pub(crate) async fn run(args: &Args, lang: Lang, terminal: &Terminal) -> Result<Exit, Fault> {
    if let Err(exit) = screen::is_there("budao run TASK", lang, terminal) {
        return Ok(exit);
    }
    let mut engine = EngineChoice::parse(&args.engine, args.claude.as_deref())?;
    let config = quiet(args.config.load()?);
    let settings = args.session.settings(lang)?;
    let theme = Theme { colours: terminal.has_colours() };
    let session = match chosen(args, theme, lang, terminal).await? {
        SessionChoice::New => None,
        SessionChoice::Exit(exit) => return Ok(exit),
        SessionChoice::Existing { session, engine: named } => {
            // The address of an agent is not a part of the session.
            if !(named == budao_relay::ENGINE_NAME && matches!(engine, EngineChoice::Agui(_))) {
                engine = EngineChoice::parse(&named, args.claude.as_deref())?;
            }
            Some(session)
        }
    };
    let settings = match &engine {
        EngineChoice::Claude(_) => {
            settings.with_models(vec![crate::claude::chat_model(&args.session.model)?])
        }
        EngineChoice::Agui(_) => settings.with_models(vec![budao_relay::MODEL.to_owned()]),
        EngineChoice::Native => settings,
    };
    let running = RunningEngine::start(engine, &args.journal, config).await?;
    let (fault_sender, faults) = mpsc::channel(COMMANDS);
    let (reply_sender, replies) = mpsc::channel(COMMANDS);
    let chat = Chat {
        engine: Arc::clone(&running.engine),
        journal: Arc::clone(&running.journal) as _,
        world: world::system(),
        settings,
        session,
        records: None,
        commands: submitter(Arc::clone(&running.engine), fault_sender),
        faults,
        servers: running.native.as_ref().map(|native| Arc::clone(&native.servers)),
        reply_sender,
        replies,
        view: View::new(lang),
        input_state: InputState::new(),
        theme,
        lang,
        page: 1,
    };
    let (ended, session) = chat.on_screen(&running, args.message.as_deref()).await;
    running.close().await;
    if let Some(session) = session {
        let words = localize(lang, "chat-to-resume");
        terminal.say(&format!("{words} `budao chat --resume {session}`"));
    }
    ended.map(|()| Exit::Success)
}

/// Turns log lines off unless they go to a file; on stderr they would corrupt the screen.
fn quiet(mut config: Config) -> Config {
    if config.log.file.is_none() {
        config.log.level = Some("off".to_owned());
    }
    config
}

/// The session to talk to, from `--resume` or the list.
enum SessionChoice {
    New,
    Existing { session: SessionId, engine: String },
    Exit(Exit),
}

async fn chosen(
    args: &Args,
    theme: Theme,
    lang: Lang,
    terminal: &Terminal,
) -> Result<SessionChoice, Fault> {
    let Some(named) = &args.resume else { return Ok(SessionChoice::New) };
    let world = world::system();
    let journal = args.journal.existing().open(&world).await?;
    let session = if let Some(named) = named {
        Some(named.find_in(&*journal).await?)
    } else {
        match pick::run(&*journal, world.clock.now(), theme, lang).await? {
            pick::PickResult::Session(session) => Some(session),
            pick::PickResult::None => None,
            pick::PickResult::Empty => {
                let words = localize(lang, "chat-no-sessions-to-resume");
                terminal.say(words);
                journal.close().await;
                return Ok(SessionChoice::Exit(Exit::Failed));
            }
        }
    };
    let choice = match session {
        None => SessionChoice::Exit(Exit::Success),
        Some(session) => {
            let (state, _) = fold(&*journal, session).await?;
            let engine = state.settings.engine().to_owned();
            SessionChoice::Existing { session, engine }
        }
    };
    journal.close().await;
    Ok(choice)
}

/// Starts a task that submits commands to the engine one at a time, and sends the fault of each refused one to
/// `fault_sender`.
fn submitter(
    engine: Arc<dyn Engine>,
    fault_sender: mpsc::Sender<Fault>,
) -> mpsc::Sender<(SessionId, Command)> {
    let (commands, mut waiting) = mpsc::channel::<(SessionId, Command)>(COMMANDS);
    tokio::spawn(async move {
        while let Some((session, command)) = waiting.recv().await {
            let fault = match engine.submit(session, command).await {
                Ok(Answer::Accepted { .. }) => continue,
                Ok(Answer::Rejected { fault }) | Err(fault) => fault,
            };
            if fault_sender.send(fault).await.is_err() {
                return;
            }
        }
    });
    commands
}

#[cfg(feature = "serve")]
pub(crate) use pick::{ago, state};
#[cfg(test)]
pub(crate) use tests::buffer_text;

type Records = BoxStream<'static, Result<Record, Fault>>;

/// State of the event loop: engine, journal, session, screen contents and input.
struct Chat {
    engine: Arc<dyn Engine>,
    journal: Arc<dyn Reader>,
    world: World,
    settings: Settings,
    /// None until the first message is sent, so that a user who sends nothing leaves no session in the journal.
    session: Option<SessionId>,
    records: Option<Records>,
    commands: mpsc::Sender<(SessionId, Command)>,
    faults: mpsc::Receiver<Fault>,
    /// The MCP servers that slash commands ask; none for engines with their own.
    servers: Option<Arc<ServerSet>>,
    reply_sender: mpsc::Sender<CommandReply>,
    replies: mpsc::Receiver<CommandReply>,
    view: View,
    input_state: InputState,
    theme: Theme,
    lang: Lang,
    /// Conversation lines that fit on the screen; set by each redraw.
    page: usize,
}

/// An event of the main loop.
enum LoopEvent {
    Key(Option<ratatui::crossterm::event::Event>),
    Record(Option<Box<Result<Record, Fault>>>),
    Refused(Fault),
    Reply(CommandReply),
    Tick,
    End,
}

impl Chat {
    /// Shows the conversation until the user quits. Returns the result and the session, if one was opened.
    async fn on_screen(
        mut self,
        running: &RunningEngine,
        first: Option<&str>,
    ) -> (Result<(), Fault>, Option<SessionId>) {
        for (name, fault) in running.missing() {
            let lines = missing_server(fault, self.lang).join("\n  ");
            self.view.entries.push_back(ChatEntry::Notice(format!("✗ {name}: {lines}")));
        }
        self.view.settings = self.settings.clone();
        let ended = async {
            if let Some(session) = self.session {
                self.read_up(session).await?;
                running.engine.touch(session);
            }
            if let Some(first) = first {
                self.send(first.to_owned()).await?;
            }
            self.run_loop().await
        };
        let ended = ended.await;
        (ended, self.session)
    }

    /// Applies all records up to the session's present head, then follows new ones.
    async fn read_up(&mut self, session: SessionId) -> Result<(), Fault> {
        let info = self.journal.info(session).await?;
        let (from, head): (Seq, Seq) =
            info.map_or((0, 0), |info| (info.first_available.saturating_sub(1), info.head));
        let mut records = self.engine.follow(session, from).await?;
        while self.view.head < head {
            let Some(record) = records.next().await else { break };
            self.view.take(&record?);
        }
        self.records = Some(records);
        Ok(())
    }

    async fn run_loop(&mut self) -> Result<(), Fault> {
        let end = screen::termination_signal();
        let mut screen = Screen::enter().map_err(|error| unusable(&error))?;
        let mut tick = tokio::time::interval(FRAME);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(end);
        let mut is_new = true;
        loop {
            if is_new {
                self.draw(&mut screen)?;
            }
            let is_moving = self.view.turn().is_some();
            let wake = tokio::select! {
                biased;
                () = &mut end => LoopEvent::End,
                event = screen.next() => LoopEvent::Key(event),
                Some(fault) = self.faults.recv() => LoopEvent::Refused(fault),
                Some(reply) = self.replies.recv() => LoopEvent::Reply(reply),
                record = next(&mut self.records) => LoopEvent::Record(record.map(Box::new)),
                _ = tick.tick(), if is_moving => LoopEvent::Tick,
            };
            is_new = true;
            match wake {
                LoopEvent::End | LoopEvent::Key(None) => return Ok(()),
                LoopEvent::Key(Some(event)) => {
                    let want = self.input_state.take(event, &self.view, self.page);
                    if !self.wanted(want).await? {
                        return Ok(());
                    }
                }
                LoopEvent::Refused(fault) => {
                    self.input_state.notice = Some(text::user_text(&fault, self.lang));
                }
                LoopEvent::Reply(CommandReply::Notice(text)) => {
                    self.view.entries.push_back(ChatEntry::Notice(text));
                }
                LoopEvent::Reply(CommandReply::Message(text)) => self.send(text).await?,
                LoopEvent::Record(Some(record)) => {
                    // While a turn runs, the next tick redraws; text arrives faster than the screen should change.
                    let was_moving = self.view.turn().is_some();
                    self.take_all(&(*record)?)?;
                    is_new = !was_moving || self.view.turn().is_none();
                }
                LoopEvent::Record(None) => {
                    return Err(Fault::new(Kind::ShuttingDown, Operation::ReadRecords));
                }
                LoopEvent::Tick => {}
            }
        }
    }

    fn draw(&mut self, screen: &mut Screen) -> Result<(), Fault> {
        let Self { view, input_state, page, .. } = self;
        let context = DrawContext {
            session: self.session,
            now: self.world.clock.now(),
            theme: self.theme,
            lang: self.lang,
        };
        let drawn = screen.draw(|frame| *page = draw::draw(frame, view, input_state, &context));
        drawn.map_err(|error| unusable(&error))
    }

    /// Applies a record and up to [`AT_ONCE`] further ones that are ready.
    fn take_all(&mut self, record: &Record) -> Result<(), Fault> {
        self.view.take(record);
        let Some(records) = &mut self.records else { return Ok(()) };
        for _ in 0..AT_ONCE {
            match records.next().now_or_never() {
                Some(Some(record)) => self.view.take(&record?),
                Some(None) | None => break,
            }
        }
        Ok(())
    }

    /// Performs a user action. Returns false if the user quits.
    async fn wanted(&mut self, want: UserAction) -> Result<bool, Fault> {
        match want {
            UserAction::Nothing => {}
            UserAction::Quit => return Ok(false),
            UserAction::Send(text) => match SlashCommand::parse(&text) {
                Some(command) => self.start_command(command),
                None => self.send(text).await?,
            },
            UserAction::Cancel => {
                self.submit(CommandBody::Cancel {
                    reason: Some("stopped at the terminal".to_owned()),
                });
            }
            UserAction::Answer { question, values: arguments } => {
                self.view.questions.retain(|open| open.id != question.id);
                let (decision, note, digest) = (Decision::Allow, None, Some(question.digest));
                let question = question.id;
                self.submit(CommandBody::Decide { question, decision, note, arguments, digest });
            }
            UserAction::Decide { question, decision, note } => {
                // Removed at once, so that a second key press cannot answer the same question again.
                self.view.questions.retain(|open| open.id != question.id);
                let (arguments, digest) = (None, Some(question.digest));
                let question = question.id;
                self.submit(CommandBody::Decide { question, decision, note, arguments, digest });
            }
        }
        Ok(true)
    }

    /// Runs a slash command beside the event loop, which gets its reply.
    fn start_command(&self, command: SlashCommand) {
        let (servers, lang, replies) = (self.servers.clone(), self.lang, self.reply_sender.clone());
        tokio::spawn(async move {
            // The chat has ended if nobody takes the reply.
            let _ = replies.send(command.run(servers, lang).await).await;
        });
    }

    async fn send(&mut self, text: String) -> Result<(), Fault> {
        if self.session.is_none() {
            let settings = Settings { title: Some(title(&text)), ..self.settings.clone() };
            let opening = SessionOptions { settings, ..SessionOptions::default() };
            let opened = self.engine.open(opening).await;
            match opened {
                Ok(session) => {
                    self.session = Some(session);
                    self.records = Some(self.engine.follow(session, 0).await?);
                }
                Err(fault) => {
                    self.input_state.notice = Some(text::user_text(&fault, self.lang));
                    return Ok(());
                }
            }
        }
        self.submit(CommandBody::Message { content: vec![Block::Text(text)] });
        Ok(())
    }

    fn submit(&mut self, body: CommandBody) {
        let Some(session) = self.session else { return };
        let id = CommandId::own(self.world.uuid());
        let command = Command { id, by: "terminal".into(), trace: Trace::NONE, body };
        if self.commands.try_send((session, command)).is_err() {
            let words = localize(self.lang, "chat-too-many-commands-at-once-try");
            self.input_state.notice = Some(words.to_owned());
        }
    }
}

/// The next record; pending forever while there is no session.
async fn next(records: &mut Option<Records>) -> Option<Result<Record, Fault>> {
    match records {
        Some(records) => records.next().await,
        None => std::future::pending().await,
    }
}

/// The fault for a terminal that cannot be read or drawn on.
pub(crate) fn unusable(error: &std::io::Error) -> Fault {
    Fault::new(Kind::ConnectionLost, Operation::OpenSession).caused_by(error)
}
