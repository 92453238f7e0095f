//! A stage for a session with children: a cast of scripted models, a few tools, a journal in memory.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use budao_core::{
    Fault, Kind,
    engine::{Engine, SessionOptions},
    event::{
        Answer, ChildLink, CommandBody, Decision, Event, QuestionId, Record, SessionId, Settings,
        TaskEnd, TaskId,
    },
    fault::Operation,
    limits::Limits,
    message::{Block, ModelRequest, text_of},
    session::Session,
    tool::{Mode, Permissions},
};
use budao_journal::{Journal, Memory, PageLimits};
use budao_models::{
    Model, PieceStream,
    script::{Script, ScriptedModel},
};
use budao_runtime::{Builder, OneModel, Runtime, SubAgents};
use budao_testkit::world;
use budao_tools::{RawTool, ToolOptions, Toolbox, pool::Pool};
use futures::StreamExt;
use serde_json::json;

/// What a planner's, and an aggregator's, first message begins with.
pub(crate) const PLANNER: &str = "Divide the work";
pub(crate) const AGGREGATOR: &str = "Answer the question below";

/// Models by what a session is asked first: each session plays the script of the first part it is asked
/// for, and sessions that are asked the same share one.
#[derive(Debug)]
pub(crate) struct Cast {
    parts: Vec<(String, ScriptedModel)>,
    requests: Mutex<Vec<(String, ModelRequest)>>,
}

impl Cast {
    /// How often a part was asked.
    pub(crate) fn asked(&self, part: &str) -> usize {
        self.requests
            .lock()
            .expect("no test panics while holding this")
            .iter()
            .filter(|(name, _)| name == part)
            .count()
    }

    /// The last request of a part.
    pub(crate) fn request(&self, part: &str) -> ModelRequest {
        let requests = self.requests.lock().expect("no test panics while holding this");
        let found = requests.iter().rev().find(|(name, _)| name == part);
        found.unwrap_or_else(|| panic!("{part} was never asked")).1.clone()
    }

    /// The first message of a part.
    pub(crate) fn told(&self, part: &str) -> String {
        text_of(&self.request(part).messages[0].content)
    }
}

#[async_trait]
impl Model for Cast {
    fn provider(&self) -> &str {
        "cast"
    }

    fn name(&self) -> &str {
        "cast"
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let first = text_of(&request.messages[0].content);
        let part = self.parts.iter().find(|(name, _)| first.starts_with(name.as_str()));
        let Some((name, model)) = part else {
            return Err(Fault::new(Kind::ModelBadRequest, Operation::ModelRequest)
                .with_cause(format!("nobody plays {first:?}")));
        };
        self.requests
            .lock()
            .expect("no test panics while holding this")
            .push((name.clone(), request.clone()));
        model.stream(request).await
    }
}

pub(crate) struct Fixture {
    pub(crate) runtime: Runtime,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) cast: Arc<Cast>,
    pub(crate) session: SessionId,
    /// How often tool `touch` ran.
    pub(crate) touched: Arc<AtomicU32>,
}

pub(crate) struct Setup {
    parts: Vec<(String, Script)>,
    pub(crate) limits: Limits,
    pub(crate) settings: Settings,
    pub(crate) sub_agents: Option<SubAgents>,
}

impl Setup {
    pub(crate) fn new() -> Self {
        let permissions = Permissions { mode: Mode::Auto, ..Permissions::default() };
        Self {
            parts: Vec::new(),
            limits: Limits::default(),
            settings: Settings { permissions, ..Settings::default() },
            sub_agents: None,
        }
    }

    /// Sessions whose first message begins like this play that script.
    pub(crate) fn part(mut self, begins: &str, script: Script) -> Self {
        self.parts.push((begins.to_owned(), script));
        self
    }

    pub(crate) fn says(self, begins: &str, text: &str) -> Self {
        self.part(begins, Script::new().say(text).forever())
    }

    /// A planner that plans these tasks.
    pub(crate) fn plans(self, tasks: &serde_json::Value) -> Self {
        self.says(PLANNER, &json!({"tasks": tasks, "summary": "a plan"}).to_string())
    }

    pub(crate) async fn open(self) -> Fixture {
        let settings = self.settings.clone();
        let stage = self.on(None);
        let session = stage
            .runtime
            .open(SessionOptions { settings, ..SessionOptions::default() })
            .await
            .expect("it opens");
        Fixture { session, ..stage }
    }

    /// Another process on the same journal, after the first is gone.
    pub(crate) async fn instead_of(self, gone: &Fixture) -> Fixture {
        let stage = self.replacing(gone);
        stage.runtime.recover().await.expect("the journal can be read");
        stage
    }

    /// The same, before it takes anything up.
    pub(crate) fn replacing(self, gone: &Fixture) -> Fixture {
        let stage = self.on(Some(Arc::clone(&gone.journal)));
        Fixture { session: gone.session, ..stage }
    }

    fn on(self, journal: Option<Arc<dyn Journal>>) -> Fixture {
        let world = world::seeded(1);
        let journal =
            journal.unwrap_or_else(|| Arc::new(Memory::new(world.clone(), self.limits.clone())));
        let parts = self.parts.into_iter();
        let parts = parts
            .map(|(name, script)| (name, script.into_model(Arc::clone(&world.clock))))
            .collect();
        let cast = Arc::new(Cast { parts, requests: Mutex::default() });
        let touched = Arc::new(AtomicU32::new(0));
        let mut toolbox = Toolbox::builder().pool(Arc::new(Pool::tasks()));
        let own = Arc::new(OnceLock::new());
        for tool in tools(&touched, &own) {
            toolbox = toolbox.add(tool).expect("the stage's tools are well formed");
        }
        let models = Arc::new(OneModel(Arc::clone(&cast) as _));
        let mut builder = Builder::new(Arc::clone(&journal), models, Arc::new(toolbox.build()))
            .world(world)
            .limits(self.limits);
        if let Some(sub_agents) = self.sub_agents {
            builder = builder.sub_agents(sub_agents);
        }
        let runtime = builder.build().expect("the stage's limits make sense");
        own.set(runtime.clone()).expect("set once");
        Fixture { runtime, journal, cast, session: SessionId(uuid::Uuid::nil()), touched }
    }
}

/// `touch {}` (counts, not idempotent), `nap {}` (takes a while), `slow {}` (waits to be stopped),
/// `deaf {}` (does not hear that), `talk {}` (talks to the very session that called it).
fn tools(touched: &Arc<AtomicU32>, own: &Arc<OnceLock<Runtime>>) -> Vec<RawTool> {
    let nothing = || json!({"type": "object", "properties": {}, "additionalProperties": false});
    let (count, own) = (Arc::clone(touched), Arc::clone(own));
    vec![
        RawTool::new("talk", "Talks to its own session.", nothing(), move |_, context| {
            let own = own.get().expect("set before anybody runs").clone();
            async move {
                let result = own.run(context.session, "a question to myself").await;
                Ok(json!(result.map(|result| result.text).unwrap_or_default()))
            }
        }),
        RawTool::new("touch", "Touches.", nothing(), move |_, _| {
            let now = count.fetch_add(1, Ordering::SeqCst) + 1;
            async move { Ok(json!(now)) }
        }),
        RawTool::new("nap", "Takes a while.", nothing(), |_, context| async move {
            context.world.clock.sleep(Duration::from_secs(30)).await;
            Ok(json!("rested"))
        }),
        RawTool::new("slow", "Waits until it is stopped.", nothing(), |_, context| async move {
            context.cancel.cancelled().await;
            Ok(json!("stopped"))
        })
        .options(ToolOptions::default().deadline(Duration::from_secs(3600))),
        RawTool::new("deaf", "Hears nothing.", nothing(), |_, _| std::future::pending())
            .options(ToolOptions::default().deadline(Duration::from_secs(3600))),
    ]
}

impl Fixture {
    pub(crate) async fn submit(&self, body: CommandBody) -> Answer {
        self.submit_to(self.session, body).await
    }

    pub(crate) async fn submit_to(&self, session: SessionId, body: CommandBody) -> Answer {
        let command = self.runtime.command("ada", body);
        self.runtime.submit(session, command).await.expect("a command is answered")
    }

    pub(crate) async fn accepted(&self, body: CommandBody) {
        let answer = self.submit(body).await;
        assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    }

    pub(crate) async fn decide(&self, session: SessionId, question: QuestionId) -> Answer {
        let (note, arguments, digest) = (None, None, None);
        let decision = Decision::Allow;
        self.submit_to(session, CommandBody::Decide { question, decision, note, arguments, digest })
            .await
    }

    pub(crate) async fn say(&self, text: &str) {
        self.accepted(CommandBody::Message { content: vec![Block::Text(text.into())] }).await;
    }

    pub(crate) async fn records_of(&self, session: SessionId) -> Vec<Record> {
        let page =
            self.journal.read(session, 0, PageLimits::default()).await.expect("it is readable");
        page.records.iter().map(|stored| stored.record().expect("records decode")).collect()
    }

    pub(crate) async fn records(&self) -> Vec<Record> {
        self.records_of(self.session).await
    }

    pub(crate) async fn count(&self, wanted: &str) -> usize {
        self.records().await.iter().filter(|record| name(&record.event) == wanted).count()
    }

    pub(crate) async fn state(&self) -> Session {
        self.runtime.state(self.session).await.expect("it is known")
    }

    /// The children that were opened, in order, without repeats.
    pub(crate) async fn children(&self) -> Vec<SessionId> {
        let mut children = Vec::new();
        for record in self.records().await {
            if let Event::ChildOpened(ChildLink { child, .. }) = record.event
                && !children.contains(&child)
            {
                children.push(child);
            }
        }
        children
    }

    /// How each task ended; panics if one ended twice.
    pub(crate) async fn ends(&self) -> Vec<(TaskId, TaskEnd)> {
        let records = self.records().await;
        let ends = records.into_iter().filter_map(|record| match record.event {
            Event::TaskEnded { task, end } => Some((task, end)),
            _ => None,
        });
        ends.collect()
    }

    /// No session of this journal has a turn that runs.
    pub(crate) async fn nothing_runs(&self) {
        let unfinished = self.journal.unfinished(None, 100).await.expect("it is readable");
        assert!(unfinished.is_empty(), "{unfinished:?}");
    }

    /// Waits until a record of that name is there.
    pub(crate) async fn until(&self, wanted: &str) -> Record {
        self.until_in(self.session, wanted).await
    }

    pub(crate) async fn until_in(&self, session: SessionId, wanted: &str) -> Record {
        let mut records = self.runtime.follow(session, 0).await.expect("it is known");
        while let Some(record) = records.next().await {
            let record = record.expect("it is readable");
            if name(&record.event) == wanted {
                return record;
            }
        }
        panic!("the records ended without {wanted}");
    }

    /// Waits until that many records of that name are there.
    pub(crate) async fn until_count(&self, wanted: &str, count: usize) {
        let mut records = self.runtime.follow(self.session, 0).await.expect("it is known");
        let mut seen = 0;
        while seen < count {
            let record = records.next().await.expect("records do not end").expect("and decode");
            seen += usize::from(name(&record.event) == wanted);
        }
    }
}

pub(crate) fn name(event: &Event) -> String {
    let value = serde_json::to_value(event).expect("events are JSON");
    let names = value.as_object().and_then(|object| object.keys().next());
    names.expect("events are tagged").clone()
}
