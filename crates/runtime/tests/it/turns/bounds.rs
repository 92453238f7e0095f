//! Everything a session waits for has an end, and everything it keeps can be read back.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    Fault, Kind,
    engine::{Engine, SessionOptions},
    event::{CommandBody, SessionId, Settings},
    limits::Limits,
    message::ModelRequest,
    session::SessionState,
    tool::Permission,
    world::World,
};
use budao_journal::{Journal, Memory};
use budao_models::script::Script;
use budao_runtime::{
    Builder, CleanUp, ModelHook, OneModel, RequestChange, Runtime, ToolSource, TurnResult,
};
use budao_testkit::world;
use budao_tools::{
    CallContext, CheckedCall, RawTool, Toolbox,
    policy::{Policy, PolicyDecision},
    pool::Pool,
};
use serde_json::{Value, json};

use crate::turns::{
    failing::{self, Failing},
    fixture::{Setup, fault_of},
};

#[tokio::test(start_paused = true)]
async fn of_many_sessions_that_come_at_once_few_stay_loaded() {
    let stage = Setup::new(Script::new()).open().await;
    for _ in 0..300 {
        stage.runtime.open(SessionOptions::default()).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let left = stage.runtime.loaded();
    assert!((1..150).contains(&left), "{left} of 300 are loaded");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(stage.runtime.loaded(), 0);
}

#[tokio::test(start_paused = true)]
async fn closing_a_session_stops_its_call_first_and_ends_after_it() {
    let stage = Setup::new(Script::new().call("slow", json!({}))).open().await;
    stage.say("go").await;
    stage.until("tool_call_started").await;
    stage.submit(CommandBody::Close).await;
    stage.until("session_ended").await;
    let names = stage.names().await;
    let order =
        ["close_requested", "cancel_requested", "tool_call_ended", "turn_ended", "session_ended"];
    assert_eq!(names[names.len() - 5..], order);
    assert_eq!(stage.state().await.state(), SessionState::Closed);
}

/// Tools that never come, and a count of the sessions that ended.
#[derive(Debug, Default)]
struct Away {
    hangs: bool,
    ended: AtomicU32,
}

#[async_trait]
impl ToolSource for Away {
    async fn toolbox(&self, _: SessionId, _: &Settings) -> Result<Toolbox, Fault> {
        match self.hangs {
            true => std::future::pending().await,
            false => Ok(Toolbox::builder().build()),
        }
    }

    async fn session_ended(&self, _: SessionId) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

fn runtime(world: World, journal: Arc<dyn Journal>, tools: Arc<Away>) -> Builder {
    let model = Script::new().say("hello").forever().into_model(Arc::clone(&world.clock));
    Builder::new(journal, Arc::new(OneModel(Arc::new(model))), tools)
        .world(world)
        .pool(Arc::new(Pool::tasks()))
}

async fn run(runtime: &Runtime) -> (SessionId, TurnResult) {
    let session = runtime.open(SessionOptions::default()).await.unwrap();
    (session, runtime.run(session, "hello?").await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_tool_source_that_answers_too_late_fails_the_turn() {
    let world = world::seeded(5);
    let journal = Arc::new(Memory::new(world.clone(), Limits::default()));
    let tools = Arc::new(Away { hangs: true, ..Away::default() });
    let (_, result) = run(&runtime(world, journal, tools).build().unwrap()).await;
    assert_eq!(fault_of(&result).kind(), Kind::RequestTimedOut);
}

/// Blocks the thread it is asked on until it is let go, or panics.
#[derive(Debug)]
struct Blocking(Option<Mutex<mpsc::Receiver<()>>>);

#[async_trait]
impl ToolSource for Blocking {
    async fn toolbox(&self, _: SessionId, _: &Settings) -> Result<Toolbox, Fault> {
        let until = self.0.as_ref().expect("a bug of the source");
        let _ = until.lock().unwrap().recv();
        Ok(Toolbox::builder().build())
    }
}

/// Goal: a source that blocks its thread, or panics, costs the turn and not the session. Method: one that blocks until
/// the test lets it go, which it does only after the turn has ended.
#[tokio::test]
async fn a_source_of_tools_that_blocks_or_panics_fails_the_turn_in_time() {
    let (let_go, until) = mpsc::channel();
    let usual = Limits::default().tool_deadline;
    for (source, tool_deadline, kind) in [
        (Blocking(Some(Mutex::new(until))), Duration::from_millis(50), Kind::RequestTimedOut),
        (Blocking(None), usual, Kind::Bug),
    ] {
        let world = world::seeded(5);
        let mut limits = Limits { tool_deadline, ..Limits::default() };
        (limits.retry.base, limits.retry.max) =
            (Duration::from_millis(1), Duration::from_millis(1));
        let journal = Arc::new(Memory::new(world.clone(), limits.clone()));
        let model = Script::new().say("hello").forever().into_model(Arc::clone(&world.clock));
        let models = Arc::new(OneModel(Arc::new(model)));
        let runtime = Builder::new(journal, models, Arc::new(source)).world(world).limits(limits);
        let (_, result) = run(&runtime.build().unwrap()).await;
        assert_eq!(fault_of(&result).kind(), kind);
    }
    drop(let_go);
}

#[tokio::test(start_paused = true)]
async fn a_tool_source_is_notified_of_the_end_of_a_session() {
    let world = world::seeded(5);
    let journal = Arc::new(Memory::new(world.clone(), Limits::default()));
    let tools = Arc::new(Away::default());
    let runtime = runtime(world, journal, Arc::clone(&tools)).build().unwrap();
    let (session, result) = run(&runtime).await;
    assert!(result.is_ok(), "{result:?}");
    runtime.submit(session, runtime.command("ada", CommandBody::Close)).await.unwrap();
    runtime.shutdown(Duration::from_secs(1)).await;
    assert_eq!(tools.ended.load(Ordering::SeqCst), 1);
}

/// Frees nothing, for ever, or panics.
#[derive(Debug)]
struct NoHelp(bool);

#[async_trait]
impl CleanUp for NoHelp {
    async fn clean_up(&self) {
        assert!(!self.0, "a clean-up's bug");
        std::future::pending::<()>().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_clean_up_that_hangs_or_panics_delays_no_turn() {
    let world = world::seeded(5);
    let failing = failing::wrap(Arc::new(Memory::new(world.clone(), Limits::default())));
    let runtime = runtime(world, Arc::clone(&failing) as _, Arc::new(Away::default()))
        .clean_up(Arc::new(NoHelp(false)))
        .clean_up(Arc::new(NoHelp(true)))
        .build()
        .unwrap();
    let session = runtime.open(SessionOptions::default()).await.unwrap();
    failing.interceptor.fail(Kind::DiskFull, 1);
    let result = runtime.run(session, "hello?").await.unwrap();
    assert_eq!(result.text, "hello");
}

/// Frees what is needed.
#[derive(Debug)]
struct Frees(Arc<Failing>);

#[async_trait]
impl CleanUp for Frees {
    async fn clean_up(&self) {
        self.0.interceptor.fail(Kind::DiskFull, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_that_is_cleaned_up_costs_nothing() {
    let world = world::seeded(6);
    let failing = failing::wrap(Arc::new(Memory::new(world.clone(), Limits::default())));
    let runtime = runtime(world, Arc::clone(&failing) as _, Arc::new(Away::default()))
        .clean_up(Arc::new(Frees(Arc::clone(&failing))))
        .build()
        .unwrap();
    let session = runtime.open(SessionOptions::default()).await.unwrap();
    failing.interceptor.fail(Kind::DiskFull, u32::MAX);
    assert_eq!(runtime.run(session, "hello?").await.unwrap().text, "hello");
}

/// Blocks its thread until it is let go.
#[derive(Debug)]
struct Blocks(Arc<AtomicBool>);

#[async_trait]
impl ModelHook for Blocks {
    fn name(&self) -> &str {
        "blocks"
    }

    async fn before(&self, _: &ModelRequest) -> Option<RequestChange> {
        while !self.0.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

#[tokio::test]
async fn a_model_hook_that_blocks_its_thread_delays_no_turn() {
    // One thread for the session, real time: were the hook on it, nothing below would run.
    let let_go = Arc::new(AtomicBool::new(false));
    let world = budao_runtime::world::system();
    let limits = Limits { hook: Duration::from_millis(50), ..Limits::default() };
    let journal = Arc::new(Memory::new(world.clone(), limits.clone()));
    let runtime = runtime(world, journal, Arc::new(Away::default()))
        .limits(limits)
        .pool(Arc::new(Pool::threads()))
        .model_hook(Arc::new(Blocks(Arc::clone(&let_go))))
        .build()
        .unwrap();
    let (_, result) = run(&runtime).await;
    assert!(result.is_ok(), "{result:?}");
    let_go.store(true, Ordering::Relaxed);
}

/// Lets only short words through, asks about longer ones, and breaks over `panic`.
#[derive(Debug)]
struct Short;

#[async_trait]
impl Policy for Short {
    fn name(&self) -> &str {
        "short"
    }

    async fn permit(
        &self,
        call: &CheckedCall,
        usual: &Permission,
        _: &CallContext,
    ) -> PolicyDecision {
        match call.arguments()["text"].as_str() {
            Some("panic") => panic!("a policy's bug"),
            Some(text) if text.len() > 10 => PolicyDecision::Deny("it is long".into()),
            Some(text) if text.len() > 5 => PolicyDecision::Ask("it is longish".into()),
            Some(_) => PolicyDecision::Allow,
            None => usual.clone().into(),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_decides_by_the_arguments_and_lifts_no_denial() {
    let mut script = Script::new();
    for text in ["hi", "a very long text", "panic"] {
        script = script.call("echo", json!({"text": text}));
    }
    let script = script.call("touch", json!({})).call("echo", json!({"text": "longish"}));
    let mut setup = Setup::new(script.say("done"));
    setup.policy = Some(Arc::new(Short));
    setup.permissions.deny = vec!["touch".into()];
    let stage = setup.open().await;
    let paused = stage.run("go").await;
    assert_eq!(paused.pending[0].arguments, json!({"text": "longish"}));
    let outcomes: Vec<_> = stage
        .records()
        .await
        .iter()
        .filter_map(|record| match &record.event {
            budao_core::Event::ToolCallEnded { outcome, .. } => {
                Some(outcome.fault().map(Fault::kind))
            }
            _ => None,
        })
        .collect();
    let denied = Some(Kind::DeniedByPolicy);
    assert_eq!(outcomes, [None, denied, Some(Kind::GuardFailed), denied]);
    assert_eq!(stage.touched.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn an_output_nested_too_deeply_is_stored_flat_with_a_note() {
    let mut setup = Setup::new(Script::new().call("deep", json!({})).say("done"));
    let schema = json!({"type": "object", "properties": {}});
    setup.tools.push(RawTool::new("deep", "Digs.", schema, |_, context| async move {
        let deep = |levels| (0..levels).fold(json!("bottom"), |inside: Value, _| json!([inside]));
        let note = budao_tools::Note::Topic { topic: "dug".into(), data: deep(300) };
        context.notes.record(note).await;
        Ok(deep(300))
    }));
    let stage = setup.open().await;
    assert!(stage.run("dig").await.is_ok());
    assert_eq!(stage.count("tool_call_annotated").await, 1, "every record can be read back");
    let told = stage.last_result();
    assert!(told["note"].as_str().unwrap().contains("json_depth"), "{told}");
}

/// The tool yields after each note, so that every one of them finds room.
#[tokio::test(start_paused = true)]
async fn a_call_that_never_stops_reporting_fills_no_journal() {
    let mut setup = Setup::new(Script::new().call("chatty", json!({})).say("done"));
    let schema = json!({"type": "object", "properties": {}});
    setup.tools.push(RawTool::new("chatty", "Talks.", schema, |_, context| async move {
        for number in 0..50_000_u32 {
            context.notes.show(format!("{number} of 50000\n"));
            tokio::task::yield_now().await;
        }
        for number in 0..3_000 {
            let note = budao_tools::Note::Topic { topic: "step".into(), data: json!(number) };
            context.notes.record(note).await;
        }
        Ok(json!("said"))
    }));
    let stage = setup.open().await;
    assert!(stage.run("talk").await.is_ok());
    let deltas = stage.count("tool_output_delta").await;
    assert!((1..=100).contains(&deltas), "output is joined: {deltas} records");
    assert_eq!(stage.count("tool_call_annotated").await, 1_000, "the bound of a call");
}

#[tokio::test(start_paused = true)]
async fn a_note_that_is_too_long_is_left_out_and_costs_neither_the_turn_nor_its_deadline() {
    let mut setup = Setup::new(Script::new().call("heavy", json!({})).say("done"));
    let schema = json!({"type": "object", "properties": {}});
    setup.tools.push(RawTool::new("heavy", "Weighs.", schema, |_, context| async move {
        for _ in 0..5 {
            let data = Value::String("x".repeat(10 << 20));
            let note = budao_tools::Note::Topic { topic: "big".into(), data };
            context.notes.record(note).await;
        }
        context.notes.show("y".repeat(10 << 20));
        Ok(json!("said"))
    }));
    let stage = setup.open().await;
    assert!(stage.run("weigh").await.is_ok());
    for record in stage.records().await {
        let bytes = serde_json::to_vec(&record).unwrap().len();
        assert!(bytes <= 65 * 1024, "{} bytes: {:?}", bytes, record.seq);
    }
    assert_eq!(stage.count("tool_call_annotated").await, 5, "each note says what is missing");
}

/// The notes are always ready, so a call that is asked after them would never be asked.
#[tokio::test(start_paused = true)]
async fn notes_without_an_end_do_not_keep_a_call_from_its_deadline() {
    let mut setup = Setup::new(Script::new().call("endless", json!({})).say("done"));
    setup.limits.tool_deadline = Duration::from_secs(2);
    let schema = json!({"type": "object", "properties": {}});
    setup.tools.push(RawTool::new("endless", "Talks.", schema, |_, context| async move {
        loop {
            let note = budao_tools::Note::Topic { topic: "more".into(), data: json!(1) };
            context.notes.record(note).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }));
    let stage = setup.open().await;
    assert!(stage.run("talk").await.is_ok());
    assert_eq!(stage.last_result()["code"], "ERR_TIMEOUT_002");
}

#[tokio::test(start_paused = true)]
async fn a_command_nested_too_deeply_is_refused() {
    let stage = Setup::new(Script::new().say("hello")).open().await;
    let data = (0..100).fold(json!(1), |inside: Value, _| json!([inside]));
    let answer = stage.submit(CommandBody::Annotate { topic: "test.deep".into(), data }).await;
    let budao_core::event::Answer::Rejected { fault } = answer else { panic!("{answer:?}") };
    assert_eq!(fault.kind(), Kind::LimitReached);
}

#[tokio::test(start_paused = true)]
async fn a_fact_under_a_topic_of_the_engine_is_refused_and_changes_nothing() {
    let stage = Setup::new(Script::new().say("hello")).open().await;
    let long = "x".repeat(129);
    for topic in ["core.spending", "engine.state", "journal.removed", "pipeline", "", &long] {
        let body = CommandBody::Annotate { topic: topic.to_owned(), data: json!({"cost": -1}) };
        let answer = stage.submit(body).await;
        let budao_core::event::Answer::Rejected { fault } = answer else { panic!("{answer:?}") };
        assert_eq!(fault.kind(), Kind::ConstraintViolated, "{topic}");
    }
    assert_eq!(stage.count("annotated").await, 0);
    let own = CommandBody::Annotate { topic: "serve.nonce".into(), data: json!(1) };
    assert!(matches!(stage.submit(own).await, budao_core::event::Answer::Accepted { .. }));
}
