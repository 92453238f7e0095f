//! The played CLI as a real process: pipes, exit codes, signals, what it complains about, who is left behind.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use budao_claude::{Claude, ClaudeConfig, CliProgram};
use budao_core::{
    engine::{Engine, SessionOptions},
    event::{Command, CommandBody, CommandId, Event, Record, SessionId, Settings, StopReason},
    fault::{Fact, Fault, Kind},
    limits::Limits,
    message::{Block, text_of},
    trace::Trace,
};
use budao_journal::{Journal, Memory};
use budao_testkit::world;
use futures::StreamExt;

fn fake() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path.push("examples/fake_claude");
    assert!(path.exists(), "not built: cargo build -p budao-claude --example fake_claude");
    path
}

struct Real {
    engine: Claude,
    journal: Arc<dyn Journal>,
    folder: tempfile::TempDir,
}

fn engine(journal: &Arc<dyn Journal>, folder: &Path) -> Claude {
    let world = world::seeded(rand_seed());
    let mut program = CliProgram::new(fake(), world.clone());
    program.env = vec![("FAKE_CLAUDE_DIR".into(), folder.into())];
    Claude::new(ClaudeConfig::new(journal.clone(), world, Arc::new(program)))
}

/// Two engines of one test must not have the same name.
fn rand_seed() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Real {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let world = world::seeded(rand_seed());
        let journal: Arc<dyn Journal> = Arc::new(Memory::new(world, Limits::default()));
        let engine = engine(&journal, folder.path());
        Self { engine, journal, folder }
    }

    async fn open(&self) -> SessionId {
        self.engine.open(SessionOptions::default()).await.unwrap()
    }

    fn pid(&self, session: SessionId) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join(session.to_string())).ok()
    }
}

async fn submit(engine: &Claude, session: SessionId, text: &str) {
    let body = CommandBody::Message { content: vec![Block::Text(text.into())] };
    let id = CommandId::from(format!("{text}-{}", rand_seed()));
    let command = Command { id, by: "test".into(), trace: Trace::NONE, body };
    engine.submit(session, command).await.unwrap();
}

/// The records up to the end of a turn, in real time.
async fn ended(engine: &Claude, session: SessionId, turn: u64) -> Vec<Record> {
    until(engine, session, |record| {
        record.turn == turn && matches!(record.event, Event::TurnEnded { .. })
    })
    .await
}

async fn until(
    engine: &Claude,
    session: SessionId,
    mut fits: impl FnMut(&Record) -> bool,
) -> Vec<Record> {
    let mut records = engine.follow(session, 0).await.unwrap();
    let mut seen = Vec::new();
    let all = async {
        while let Some(record) = records.next().await {
            seen.push(record.unwrap());
            if fits(seen.last().unwrap()) {
                return;
            }
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(60), all).await;
    assert!(in_time.is_ok(), "{seen:#?}");
    seen
}

fn end(records: &[Record]) -> (StopReason, Option<Fault>) {
    match &records.last().unwrap().event {
        Event::TurnEnded { stop, fault, .. } => (*stop, fault.clone()),
        other => panic!("{other:?}"),
    }
}

fn text(records: &[Record], turn: u64) -> String {
    let of_turn = records.iter().filter(|record| record.turn == turn);
    let texts = of_turn.filter_map(|record| match &record.event {
        Event::ModelAnswered { content, .. } => Some(text_of(content)),
        _ => None,
    });
    texts.collect()
}

fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

#[tokio::test]
async fn a_conversation_over_a_real_process_survives_a_restart_of_the_engine() {
    let real = Real::start();
    let session = real.open().await;
    submit(&real.engine, session, "one").await;
    let records = ended(&real.engine, session, 1).await;
    assert_eq!(text(&records, 1), "the answer to one");
    real.engine.shutdown(Duration::from_secs(5)).await;
    let next = engine(&real.journal, real.folder.path());
    submit(&next, session, "two").await;
    let records = ended(&next, session, 2).await;
    assert_eq!(end(&records), (StopReason::EndTurn, None));
    assert_eq!(text(&records, 2), "the answer to two");
    next.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_exit_is_reported_with_its_code_and_the_end_of_its_error_output() {
    let real = Real::start();
    let session = real.open().await;
    submit(&real.engine, session, "one @die-mid").await;
    let (stop, fault) = end(&ended(&real.engine, session, 1).await);
    let fault = fault.unwrap();
    assert_eq!((stop, fault.kind()), (StopReason::Failed, Kind::CliExited));
    assert_eq!(fault.detail().get(Fact::ExitCode).unwrap().to_string(), "7");
    assert!(fault.detail().text(Fact::StderrTail).unwrap().contains("as told, I die"), "{fault}");
    submit(&real.engine, session, "two").await;
    let records = ended(&real.engine, session, 2).await;
    assert_eq!(text(&records, 2), "the answer to two");
    real.engine.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn a_killed_process_ends_its_turn_at_once_and_an_idle_one_is_just_started_again() {
    let real = Real::start();
    let session = real.open().await;
    submit(&real.engine, session, "one @slow @deaf").await;
    until(&real.engine, session, |record| matches!(record.event, Event::TextDelta { .. })).await;
    let kill = |pid: &str| {
        let status = std::process::Command::new("kill").args(["-9", pid]).status().unwrap();
        assert!(status.success());
    };
    kill(&real.pid(session).unwrap());
    let (stop, fault) = end(&ended(&real.engine, session, 1).await);
    assert_eq!(stop, StopReason::Failed);
    assert_eq!(fault.unwrap().detail().get(Fact::Signal).unwrap().to_string(), "9");
    submit(&real.engine, session, "two").await;
    ended(&real.engine, session, 2).await;
    kill(&real.pid(session).unwrap());
    submit(&real.engine, session, "three").await;
    let records = ended(&real.engine, session, 3).await;
    // Written before its death was noticed, or after: either way it is answered or says why not.
    match end(&records) {
        (StopReason::EndTurn, None) => assert_eq!(text(&records, 3), "the answer to three"),
        (stop, fault) => {
            assert_eq!((stop, fault.unwrap().kind()), (StopReason::Failed, Kind::CliExited));
        }
    }
    submit(&real.engine, session, "four").await;
    let records = ended(&real.engine, session, 4).await;
    assert_eq!(text(&records, 4), "the answer to four");
    real.engine.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn no_process_remains_after_the_engine_stops() {
    let real = Real::start();
    let (idle, busy) = (real.open().await, real.open().await);
    submit(&real.engine, idle, "one").await;
    ended(&real.engine, idle, 1).await;
    submit(&real.engine, busy, "one @slow @deaf").await;
    until(&real.engine, busy, |record| matches!(record.event, Event::TextDelta { .. })).await;
    let pids = [real.pid(idle).unwrap(), real.pid(busy).unwrap()];
    assert!(pids.iter().all(|pid| is_alive(pid)));
    let began = std::time::Instant::now();
    real.engine.shutdown(Duration::ZERO).await;
    assert!(pids.iter().all(|pid| !is_alive(pid)), "{pids:?}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_missing_program_and_a_missing_folder_have_faults_of_their_own() {
    let world = world::seeded(rand_seed());
    let journal: Arc<dyn Journal> = Arc::new(Memory::new(world.clone(), Limits::default()));
    let missing = CliProgram::new("/nowhere/claude", world.clone());
    let engine = Claude::new(ClaudeConfig::new(journal.clone(), world.clone(), Arc::new(missing)));
    let session = engine.open(SessionOptions::default()).await.unwrap();
    submit(&engine, session, "one").await;
    let (_, fault) = end(&ended(&engine, session, 1).await);
    assert_eq!(fault.unwrap().kind(), Kind::CliNotInstalled);
    let engine = Claude::new(ClaudeConfig::new(
        journal,
        world.clone(),
        Arc::new(CliProgram::new(fake(), world)),
    ));
    let settings = Settings { workspace: Some("/nowhere/at/all".into()), ..Settings::default() };
    let session =
        engine.open(SessionOptions { settings, ..SessionOptions::default() }).await.unwrap();
    submit(&engine, session, "one").await;
    let (_, fault) = end(&ended(&engine, session, 1).await);
    assert_eq!(fault.unwrap().kind(), Kind::FileNotFound);
}
