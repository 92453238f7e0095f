//! The real CLI, current and of January 2026, against a model service on loopback.
//!
//! Fetched by `cargo xtask peers claude-cli claude-cli-old`. Where one is missing these tests say so and pass;
//! with `CI=true` they fail.

mod plans;
mod reports;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use budao_claude::{Claude, ClaudeConfig, CliProgram, Launch, LaunchSpec, Launcher, RunningCli};
use budao_core::{
    engine::{Engine, SessionOptions},
    event::{
        Answer, Command, CommandBody, CommandId, Decision, Event, QuestionId, Record, SessionId,
        Settings, StopReason,
    },
    fault::{Fault, Kind},
    limits::Limits,
    message::Block,
    tool::{Mode, Permissions},
    trace::Trace,
};
use budao_journal::{Journal, Memory};
use budao_testkit::{claude_api::ClaudeApi, world};
use futures::StreamExt;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader, DuplexStream};

use crate::common::final_text;

const CURRENT: &str = "claude-cli";
const OLD: &str = "claude-cli-old";

/// The program, or nothing and a loud word.
fn fetched(peer: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("BUDAO_PEERS")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/budao/peers")));
    let path = folder?.join(peer).join("node_modules/.bin/claude");
    if path.exists() {
        return Some(path);
    }
    let advice = format!("NOT TESTED: the Claude CLI is missing; `cargo xtask peers {peer}`");
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{advice}");
    eprintln!("\n*** {advice} ***\n");
    None
}

/// Starts the real program, and remembers its processes and the modes they said they were in.
#[derive(Debug)]
struct Recorder {
    program: CliProgram,
    pids: Mutex<Vec<u32>>,
    launches: Mutex<Vec<Launch>>,
    modes: Arc<Mutex<Vec<String>>>,
}

impl Recorder {
    /// The same output, with every mode in it noted before anybody else can read it.
    fn overhear(&self, output: Box<dyn AsyncRead + Send + Unpin>) -> DuplexStream {
        let (mut writer, reader) = tokio::io::duplex(1 << 20);
        let (mut lines, modes) = (BufReader::new(output).lines(), Arc::clone(&self.modes));
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let parsed: Value = serde_json::from_str(&line).unwrap_or_default();
                modes.lock().unwrap().extend(parsed["permissionMode"].as_str().map(str::to_owned));
                if writer.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        reader
    }
}

#[async_trait]
impl Launcher for Recorder {
    async fn launch(&self, start: LaunchSpec) -> Result<RunningCli, Fault> {
        self.launches.lock().unwrap().push(start.launch);
        let running = self.program.launch(start).await?;
        self.pids.lock().unwrap().extend(running.pid);
        let output = Box::new(self.overhear(running.output));
        Ok(RunningCli { output, ..running })
    }
}

struct Fixture {
    engine: Claude,
    api: ClaudeApi,
    journal: Arc<dyn Journal>,
    recorder: Arc<Recorder>,
    folder: tempfile::TempDir,
    session: SessionId,
}

impl Fixture {
    async fn open(peer: &str, settings: Settings) -> Option<Self> {
        let path = fetched(peer)?;
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let api = ClaudeApi::start().await;
        let world = world::seeded(seed());
        let mut program = CliProgram::new(path, world.clone());
        program.inherit_env = false;
        program.env = quiet(&api.url(), folder.path());
        let (pids, launches, modes) = Default::default();
        let recorder = Arc::new(Recorder { program, pids, launches, modes });
        let journal: Arc<dyn Journal> = Arc::new(Memory::new(world.clone(), Limits::default()));
        let mut config = ClaudeConfig::new(journal.clone(), world, recorder.clone());
        config.plan_folder = Some(folder.path().join("config/plans"));
        let engine = Claude::new(config);
        let workspace = work.to_str().map(str::to_owned);
        let settings = Settings { workspace, ..settings };
        let opening = SessionOptions { settings, ..SessionOptions::default() };
        let session = engine.open(opening).await.unwrap();
        Some(Self { engine, api, journal, recorder, folder, session })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("work").join(name)
    }

    async fn ask(&self, body: CommandBody) -> Answer {
        let id = CommandId::from(format!("c{}", seed()));
        let command = Command { id, by: "test".into(), trace: Trace::NONE, body };
        self.engine.submit(self.session, command).await.unwrap()
    }

    async fn say(&self, text: &str) {
        let answer =
            self.ask(CommandBody::Message { content: vec![Block::Text(text.into())] }).await;
        assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    }

    async fn until(&self, mut fits: impl FnMut(&Record) -> bool) -> Vec<Record> {
        let mut records = self.engine.follow(self.session, 0).await.unwrap();
        let mut seen = Vec::new();
        let all = async {
            while let Some(record) = records.next().await {
                seen.push(record.unwrap());
                if fits(seen.last().unwrap()) {
                    return;
                }
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(120), all).await;
        assert!(in_time.is_ok(), "never came: {seen:#?}");
        seen
    }

    async fn ended(&self, turn: u64) -> Seen {
        let records =
            self.until(|it| it.turn == turn && matches!(it.event, Event::TurnEnded { .. })).await;
        let Event::TurnEnded { stop, fault, .. } = records.last().unwrap().event.clone() else {
            unreachable!("it was waited for")
        };
        let of_turn: Vec<&Record> = records.iter().filter(|it| it.turn == turn).collect();
        let text = final_text(&of_turn);
        Seen { stop, fault, text, records }
    }

    async fn run(&self, turn: u64, text: &str) -> Seen {
        self.say(text).await;
        self.ended(turn).await
    }

    async fn decide(&self, turn: u64, decision: Decision) {
        let mut question: Option<QuestionId> = None;
        self.until(|record| match &record.event {
            Event::QuestionAsked { question: question_asked, .. } if record.turn == turn => {
                question = Some(question_asked.clone());
                true
            }
            _ => false,
        })
        .await;
        let question = question.unwrap();
        let (note, arguments, digest) = (None, None, None);
        let answer =
            self.ask(CommandBody::Decide { question, decision, note, arguments, digest }).await;
        assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    }

    /// Another engine on the same journal, as after a restart.
    async fn restarted(self) -> Self {
        self.engine.shutdown(Duration::from_secs(1)).await;
        let world = world::seeded(seed());
        let mut config = ClaudeConfig::new(self.journal.clone(), world, self.recorder.clone());
        config.plan_folder = Some(self.folder.path().join("config/plans"));
        Self { engine: Claude::new(config), ..self }
    }

    async fn close(self) {
        self.engine.shutdown(Duration::from_secs(2)).await;
        for pid in self.recorder.pids.lock().unwrap().iter() {
            let gone = !Path::new(&format!("/proc/{pid}")).exists();
            assert!(gone, "process {pid} is left");
        }
    }
}

struct Seen {
    stop: StopReason,
    fault: Option<Fault>,
    text: String,
    records: Vec<Record>,
}

impl Seen {
    fn assert_is(&self, stop: StopReason, text: &str) {
        assert_eq!((self.stop, self.text.as_str()), (stop, text), "{:#?}", self.records);
    }

    fn count(&self, fits: impl Fn(&Event) -> bool) -> usize {
        self.records.iter().filter(|record| fits(&record.event)).count()
    }
}

fn seed() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// An environment in which the CLI talks to nobody but our service and leaves the user's files alone.
fn quiet(url: &str, folder: &Path) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    let path = std::env::var("PATH").unwrap_or_default();
    let home = folder.to_str().unwrap();
    let config = folder.join("config");
    [
        ("PATH", path.as_str()),
        ("HOME", home),
        ("CLAUDE_CONFIG_DIR", config.to_str().unwrap()),
        ("ANTHROPIC_BASE_URL", url),
        ("ANTHROPIC_API_KEY", "sk-ant-test-only"),
        ("CLAUDE_CODE_MAX_RETRIES", "1"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("DISABLE_TELEMETRY", "1"),
        ("DISABLE_ERROR_REPORTING", "1"),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .into()
}

async fn converses(peer: &str) {
    let Some(fixture) = Fixture::open(peer, Settings::default()).await else { return };
    fixture.run(1, "first").await.assert_is(StopReason::EndTurn, "hello world");
    fixture.run(2, "second %think").await.assert_is(StopReason::EndTurn, "hello world");
    let file = fixture.file("allowed");
    fixture.say(&format!("third %write:{}", file.display())).await;
    fixture.decide(3, Decision::Allow).await;
    let third = fixture.ended(3).await;
    third.assert_is(StopReason::EndTurn, "let me after the tool");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "written");
    assert_eq!(
        third.count(|it| matches!(it, Event::ToolCallEnded { outcome, .. } if outcome.is_done())),
        1
    );
    let file = fixture.file("denied");
    fixture.say(&format!("fourth %write:{}", file.display())).await;
    fixture.decide(4, Decision::Deny).await;
    fixture.ended(4).await.assert_is(StopReason::EndTurn, "let me after the tool");
    assert!(!file.exists());
    assert_eq!(*fixture.recorder.launches.lock().unwrap(), [Launch::Fresh]);
    fixture.close().await;
}

async fn cancels(peer: &str) {
    let Some(fixture) = Fixture::open(peer, Settings::default()).await else { return };
    fixture.run(1, "first").await.assert_is(StopReason::EndTurn, "hello world");
    let mut turn = 1;
    for gap in [0, 1, 5, 20, 100, 600] {
        fixture.say("slowly %slow").await;
        tokio::time::sleep(Duration::from_millis(gap)).await;
        fixture.ask(CommandBody::Cancel { reason: None }).await;
        fixture.say("next %plain").await;
        assert_eq!(fixture.ended(turn + 1).await.stop, StopReason::Cancelled, "{gap} ms");
        fixture.ended(turn + 2).await.assert_is(StopReason::EndTurn, "hello world");
        fixture.ask(CommandBody::Cancel { reason: None }).await;
        turn += 2;
    }
    // While a person is asked, and while a tool runs.
    fixture.say("a question %run:touch-here").await;
    fixture
        .until(|it| it.turn == turn + 1 && matches!(it.event, Event::QuestionAsked { .. }))
        .await;
    fixture.ask(CommandBody::Cancel { reason: None }).await;
    assert_eq!(fixture.ended(turn + 1).await.stop, StopReason::Cancelled);
    fixture.say("a tool %run:sleep-60").await;
    fixture
        .until(|it| {
            it.turn == turn + 2
                && matches!(it.event, Event::ToolCallStarted(_) | Event::QuestionAsked { .. })
        })
        .await;
    fixture.ask(CommandBody::Cancel { reason: None }).await;
    assert_eq!(fixture.ended(turn + 2).await.stop, StopReason::Cancelled);
    fixture.run(turn + 3, "last %plain").await.assert_is(StopReason::EndTurn, "hello world");
    assert_eq!(
        *fixture.recorder.launches.lock().unwrap(),
        [Launch::Fresh],
        "one process throughout"
    );
    fixture.close().await;
}

async fn survives(peer: &str) {
    let Some(fixture) = Fixture::open(peer, Settings::default()).await else { return };
    fixture.run(1, "remember the heron").await.assert_is(StopReason::EndTurn, "hello world");
    fixture.say("slowly %slow").await;
    fixture.until(|it| it.turn == 2 && matches!(it.event, Event::TextDelta { .. })).await;
    let pid = fixture.recorder.pids.lock().unwrap()[0];
    std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    let cut = fixture.ended(2).await;
    assert_eq!((cut.stop, cut.fault.unwrap().kind()), (StopReason::Failed, Kind::CliExited));
    fixture.run(3, "go on %plain").await.assert_is(StopReason::EndTurn, "hello world");
    assert_eq!(*fixture.recorder.launches.lock().unwrap(), [Launch::Fresh, Launch::Resume]);
    let last = fixture.api.asked().pop().unwrap();
    assert!(last["messages"].to_string().contains("the heron"), "the conversation goes on: {last}");
    let fixture = fixture.restarted().await;
    fixture.run(4, "and on %plain").await.assert_is(StopReason::EndTurn, "hello world");
    fixture.close().await;
}

async fn fails_truly(peer: &str) {
    let Some(fixture) = Fixture::open(peer, Settings::default()).await else { return };
    let kinds = [
        (429, Kind::ModelRateLimited),
        (529, Kind::ModelOverloaded),
        (500, Kind::ModelServerError),
        (403, Kind::ModelPermission),
        (400, Kind::ModelBadRequest),
        (401, Kind::ModelAuthentication),
    ];
    let mut turn = 0;
    for (status, kind) in kinds {
        turn += 1;
        let seen = fixture.run(turn, &format!("fail %status-{status}")).await;
        let fault = seen.fault.clone().map(|fault| fault.kind());
        assert_eq!(
            (seen.stop, fault),
            (StopReason::Failed, Some(kind)),
            "{status}: {:#?}",
            seen.records
        );
        assert_eq!(seen.text, "", "an error is not an answer");
    }
    fixture.run(turn + 1, "well %plain").await.assert_is(StopReason::EndTurn, "hello world");
    fixture.close().await;
}

#[tokio::test]
async fn the_current_cli_converses_and_asks_before_it_writes() {
    converses(CURRENT).await;
}

#[tokio::test]
async fn the_old_cli_converses_and_asks_before_it_writes() {
    converses(OLD).await;
}

#[tokio::test]
async fn the_current_cli_is_cancelled_without_losing_what_comes_next() {
    cancels(CURRENT).await;
}

#[tokio::test]
async fn the_old_cli_is_cancelled_without_losing_what_comes_next() {
    cancels(OLD).await;
}

#[tokio::test]
async fn the_current_cli_is_killed_and_goes_on_with_its_conversation() {
    survives(CURRENT).await;
}

#[tokio::test]
async fn the_old_cli_is_killed_and_goes_on_with_its_conversation() {
    survives(OLD).await;
}

#[tokio::test]
async fn the_current_cli_distinguishes_failures_of_the_service() {
    fails_truly(CURRENT).await;
}

#[tokio::test]
async fn the_old_cli_distinguishes_failures_of_the_service() {
    fails_truly(OLD).await;
}

#[tokio::test]
async fn broken_streams_of_the_current_cli_are_shown_once_and_whole() {
    let Some(fixture) = Fixture::open(CURRENT, Settings::default()).await else { return };
    for (turn, word) in [(1, "%cut"), (2, "%malformed")] {
        let seen = fixture.run(turn, &format!("broken {word}")).await;
        seen.assert_is(StopReason::EndTurn, "the whole answer");
        assert!(seen.count(|it| matches!(it, Event::AnswerAbandoned { .. })) >= 1);
    }
    let seen = fixture.run(3, "refuse %refuse").await;
    assert_eq!(seen.stop, StopReason::Refusal, "{:#?}", seen.records);
    fixture.close().await;
}

#[tokio::test]
async fn background_work_of_the_current_cli_ends_in_a_turn_of_its_own() {
    let permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
    let settings = Settings { permissions, ..Settings::default() };
    let Some(fixture) = Fixture::open(CURRENT, settings).await else { return };
    fixture
        .run(1, "leave it %background")
        .await
        .assert_is(StopReason::EndTurn, "let me after the tool");
    let own = fixture.ended(2).await;
    assert_eq!(own.stop, StopReason::EndTurn);
    let started = own.records.iter().find(|it| it.turn == 2).unwrap();
    assert!(
        matches!(&started.event, Event::TurnStarted { message } if message.0.starts_with("claude-"))
    );
    fixture.ask(CommandBody::Close).await;
    fixture.close().await;
}
