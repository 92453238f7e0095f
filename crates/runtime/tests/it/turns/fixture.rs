//! A stage for one session: a scripted model, a few tools, a journal in memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use budao_core::{
    Fault, Kind,
    engine::{Engine, SessionOptions},
    event::{Answer, CommandBody, Decision, Event, QuestionId, Record, SessionId, Settings},
    limits::Limits,
    message::{Block, Message, ModelRequest},
    session::Session,
    tool::{Mode, Permissions},
    world::World,
};
use budao_journal::{Journal, Memory, PageLimits};
use budao_models::script::{Script, ScriptedModel};
use budao_runtime::{Builder, ModelHook, OneModel, Runtime, TurnResult};
use budao_testkit::world;
use budao_tools::{RawTool, Tool, ToolOptions, Toolbox, hooks::Hooks, policy::Policy, pool::Pool};
use serde_json::json;

pub(crate) struct Fixture {
    pub(crate) runtime: Runtime,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) model: Arc<ScriptedModel>,
    pub(crate) session: SessionId,
    /// How often tool `touch` ran.
    pub(crate) touched: Arc<AtomicU32>,
}

pub(crate) struct Setup {
    pub(crate) script: Script,
    pub(crate) limits: Limits,
    pub(crate) permissions: Permissions,
    pub(crate) hooks: Hooks,
    pub(crate) model_hooks: Vec<Arc<dyn ModelHook>>,
    pub(crate) tools: Vec<RawTool>,
    pub(crate) built_in: Vec<Arc<dyn Tool>>,
    pub(crate) journal: Option<Arc<dyn Journal>>,
    pub(crate) world: World,
    pub(crate) policy: Option<Arc<dyn Policy>>,
}

impl Setup {
    pub(crate) fn new(script: Script) -> Self {
        Self {
            script,
            limits: Limits::default(),
            permissions: Permissions { mode: Mode::Auto, ..Permissions::default() },
            hooks: Hooks::default(),
            model_hooks: Vec::new(),
            tools: Vec::new(),
            built_in: Vec::new(),
            journal: None,
            world: world::seeded(1),
            policy: None,
        }
    }

    pub(crate) async fn open(self) -> Fixture {
        let stage = self.runtime();
        let settings = Settings { permissions: stage.1, ..Settings::default() };
        let opening = SessionOptions { settings, ..SessionOptions::default() };
        let session = stage.0.runtime.open(opening).await.expect("a session opens");
        Fixture { session, ..stage.0 }
    }

    /// The stage without a session, and the permissions its session would have.
    pub(crate) fn runtime(self) -> (Fixture, Permissions) {
        let journal = self
            .journal
            .unwrap_or_else(|| Arc::new(Memory::new(self.world.clone(), self.limits.clone())));
        let model = Arc::new(self.script.into_model(Arc::clone(&self.world.clock)).recording());
        let touched = Arc::new(AtomicU32::new(0));
        let mut toolbox = Toolbox::builder().pool(Arc::new(Pool::tasks()));
        for tool in standard(&touched).into_iter().chain(self.tools) {
            toolbox = toolbox.add(tool).expect("the stage's tools are well formed");
        }
        for tool in self.built_in {
            toolbox = toolbox.add_shared(tool).expect("the built-in tools are well formed");
        }
        let models = Arc::new(OneModel(Arc::clone(&model) as _));
        let mut runtime = Builder::new(Arc::clone(&journal), models, Arc::new(toolbox.build()))
            .world(self.world)
            .limits(self.limits)
            .pool(Arc::new(Pool::tasks()))
            .hooks(self.hooks);
        if let Some(policy) = self.policy {
            runtime = runtime.policy(policy);
        }
        for hook in self.model_hooks {
            runtime = runtime.model_hook(hook);
        }
        let runtime = runtime.build().expect("the stage's limits make sense");
        let session = SessionId(uuid::Uuid::nil());
        (Fixture { runtime, journal, model, session, touched }, self.permissions)
    }
}

/// `echo {text}`, `touch {}` (counts, not idempotent), `slow {}` (waits to be stopped), `fail {}`.
fn standard(touched: &Arc<AtomicU32>) -> Vec<RawTool> {
    let text = json!({
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": false,
    });
    let nothing = || json!({"type": "object", "properties": {}, "additionalProperties": false});
    let count = Arc::clone(touched);
    vec![
        RawTool::new("echo", "Says it back.", text, |arguments, _| async move {
            Ok(arguments["text"].clone())
        })
        .options(ToolOptions::read_only().idempotent(true)),
        RawTool::new("touch", "Touches.", nothing(), move |_, _| {
            let now = count.fetch_add(1, Ordering::SeqCst) + 1;
            async move { Ok(json!(now)) }
        }),
        RawTool::new("slow", "Waits until it is stopped.", nothing(), |_, context| async move {
            context.cancel.cancelled().await;
            Ok(json!("stopped"))
        })
        .options(ToolOptions::default().deadline(Duration::from_secs(3600))),
        RawTool::new("fail", "Says no.", nothing(), |_, _| async move {
            Ok(json!({"ok": false, "error": "no"}))
        }),
    ]
}

impl Fixture {
    pub(crate) async fn run(&self, text: &str) -> TurnResult {
        self.runtime.run(self.session, text).await.expect("the message is accepted")
    }

    pub(crate) async fn submit(&self, body: CommandBody) -> Answer {
        let command = self.runtime.command("ada", body);
        self.runtime.submit(self.session, command).await.expect("a command is answered")
    }

    pub(crate) async fn say(&self, text: &str) {
        let content = vec![Block::Text(text.into())];
        assert!(matches!(
            self.submit(CommandBody::Message { content }).await,
            Answer::Accepted { .. }
        ));
    }

    pub(crate) async fn decide(&self, question: &QuestionId, decision: Decision) -> Answer {
        let (question, note) = (question.clone(), Some("my reason".into()));
        let (arguments, digest) = (None, None);
        self.submit(CommandBody::Decide { question, decision, note, arguments, digest }).await
    }

    pub(crate) async fn records(&self) -> Vec<Record> {
        let page = self.journal.read(self.session, 0, PageLimits::default()).await.unwrap();
        page.records.iter().map(|stored| stored.record().unwrap()).collect()
    }

    pub(crate) async fn names(&self) -> Vec<String> {
        self.records().await.iter().map(|record| name(&record.event)).collect()
    }

    pub(crate) async fn count(&self, wanted: &str) -> usize {
        self.names().await.iter().filter(|name| *name == wanted).count()
    }

    /// The kinds of every fault that was raised, in order.
    pub(crate) async fn raised(&self) -> Vec<Kind> {
        let records = self.records().await;
        let kinds = records.iter().filter_map(|record| match &record.event {
            Event::FaultRaised { fault, .. } => Some(fault.kind()),
            _ => None,
        });
        kinds.collect()
    }

    pub(crate) async fn state(&self) -> Session {
        self.runtime.state(self.session).await.unwrap()
    }

    /// Waits until a record of that name is there, and returns all up to it.
    pub(crate) async fn until(&self, wanted: &str) {
        use futures::StreamExt;
        let mut records = self.runtime.follow(self.session, 0).await.unwrap();
        while let Some(record) = records.next().await {
            if name(&record.unwrap().event) == wanted {
                return;
            }
        }
    }

    /// The text of the last tool result that the model got.
    pub(crate) fn last_result(&self) -> serde_json::Value {
        let requests = self.model.requests();
        let request: &ModelRequest = requests.last().expect("the model was asked");
        let result = |message: &Arc<Message>| {
            message.content.iter().rev().find_map(|block| match block {
                Block::ToolResult { content, .. } => Some(content.clone()),
                _ => None,
            })
        };
        let content = request.messages.iter().rev().find_map(result).expect("there is a result");
        serde_json::from_str(&content).expect("a result is JSON")
    }
}

pub(crate) fn fault_of(result: &TurnResult) -> &Fault {
    result.fault.as_ref().expect("the turn failed")
}

pub(crate) fn name(event: &Event) -> String {
    let value = serde_json::to_value(event).unwrap();
    value.as_object().unwrap().keys().next().unwrap().clone()
}
