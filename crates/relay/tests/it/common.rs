//! What the tests share: rendered events, scripted agents, and an engine on a journal in memory.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use budao_core::{
    engine::{Engine as _, SessionOptions},
    event::{Answer, CallStart, Command, CommandBody, Event, Record, SessionId},
    fault::{Fault, Kind},
    limits::Limits,
    message::{Block, text_of},
    session::Session,
    trace::Trace,
    world::{Spawn, World},
};
use budao_engine::HolderLiveness;
use budao_journal::{Journal, Memory, PageLimits};
use budao_relay::{Relay, RelayConfig, RelayParts, TOPIC};
use budao_testkit::{
    provider::{Provider, Reply},
    sse, world,
};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

/// Nothing here takes this long unless it hangs.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// One line for an event, without what differs from run to run.
pub(crate) fn render(event: &Event) -> String {
    let kind = |fault: &Fault| -> &'static str { fault.kind().into() };
    match event {
        Event::Annotated { topic, data } if topic == TOPIC => {
            let delta = data["delta"].as_str().map_or(String::new(), |delta| format!(" {delta:?}"));
            format!("    < {}{delta}", data["type"].as_str().unwrap_or("?"))
        }
        Event::Annotated { topic, data } => format!("{topic} {data}"),
        Event::MessageAccepted { content, .. } => format!("message {:?}", text_of(content)),
        Event::TurnStarted { .. } => "turn started".to_owned(),
        Event::StepStarted { step, attempt, .. } => format!("step {step} attempt {attempt}"),
        Event::TextDelta { text, .. } => format!("text {text:?}"),
        Event::ThinkingDelta { text, .. } => format!("thought {text:?}"),
        Event::ModelAnswered { content, stop, usage, .. } => {
            let content = json!(content);
            format!("answer {stop:?} {}+{} {content}", usage.input_tokens, usage.output_tokens)
        }
        Event::ToolCallStarted(CallStart { call, tool, arguments, .. }) => {
            format!("call {call} {tool} {arguments}")
        }
        Event::ToolCallEnded { call, outcome, .. } => match outcome.fault() {
            Some(fault) => format!("call {call} failed {}", kind(fault)),
            None => {
                format!("call {call} done {}", outcome.render_for_caller("", Default::default()).0)
            }
        },
        Event::QuestionAsked { question, tool, arguments, reason, .. } => {
            format!("question {question} {tool} {arguments} {reason:?}")
        }
        Event::QuestionAnswered { question, decision, .. } => {
            format!("answered {question} {decision:?}")
        }
        Event::FaultRaised { fault, .. } => format!("fault {}", kind(fault)),
        Event::RecoveryFailed { fault, .. } => format!("not recovered {}", kind(fault)),
        Event::RetryScheduled { next_attempt, .. } => format!("retry as attempt {next_attempt}"),
        Event::TurnEnded { stop, fault, usage, .. } => {
            let fault = fault.as_ref().map_or("", kind);
            format!("turn ended {stop:?} {}+{} {fault}", usage.input_tokens, usage.output_tokens)
        }
        other => {
            let name = json!(other);
            name.as_object().and_then(|it| it.keys().next().cloned()).unwrap_or_default()
        }
    }
}

/// The lines of several events.
pub(crate) fn lines<'a>(events: impl IntoIterator<Item = &'a Event>) -> String {
    events.into_iter().map(|event| render(event) + "\n").collect()
}

pub(crate) fn text(id: &str, deltas: &[&str]) -> Vec<Value> {
    let mut events =
        vec![json!({"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"})];
    events.extend(
        deltas
            .iter()
            .map(|delta| json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": delta})),
    );
    events.push(json!({"type": "TEXT_MESSAGE_END", "messageId": id}));
    events
}

pub(crate) fn call(id: &str, name: &str, arguments: &str) -> Vec<Value> {
    let half = arguments.len() / 2;
    vec![
        json!({"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name}),
        json!({"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": &arguments[..half]}),
        json!({"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": &arguments[half..]}),
        json!({"type": "TOOL_CALL_END", "toolCallId": id}),
    ]
}

pub(crate) fn result(id: &str, content: &str) -> Value {
    json!({"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": id, "content": content})
}

pub(crate) fn started() -> Value {
    json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"})
}

pub(crate) fn finished() -> Value {
    json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r"})
}

/// A whole run with these events.
pub(crate) fn run(events: impl IntoIterator<Item = Vec<Value>>) -> Vec<Value> {
    let middle = events.into_iter().flatten();
    std::iter::once(started()).chain(middle).chain([finished()]).collect()
}

/// The reply of an agent that sends these events.
pub(crate) fn reply(events: &[Value]) -> Reply {
    Reply::events(events.iter().map(sse::data))
}

/// Spawns tasks that can all be ended at once, in the middle of their work, as a kill of their process does.
#[derive(Clone, Debug, Default)]
pub(crate) struct KillableTasks(Arc<Mutex<Vec<AbortHandle>>>);

impl Spawn for KillableTasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.lock().unwrap().push(tokio::spawn(task).abort_handle());
    }
}

impl KillableTasks {
    pub(crate) fn kill(&self) {
        self.0.lock().unwrap().drain(..).for_each(|task| task.abort());
    }
}

/// Knows that every process but this one is dead.
#[derive(Debug)]
struct OthersAreDead(String);

impl HolderLiveness for OthersAreDead {
    fn is_dead(&self, holder: &str) -> bool {
        holder != self.0
    }
}

/// A relay to a scripted agent.
pub(crate) struct Fixture {
    pub(crate) agent: Provider,
    pub(crate) tasks: KillableTasks,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) relay: Relay,
    pub(crate) session: SessionId,
    pub(crate) commands: std::cell::Cell<u32>,
}

impl Fixture {
    pub(crate) async fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::with(RelayConfig::default(), replies).await
    }

    pub(crate) async fn with(
        config: RelayConfig,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        let agent = Provider::start(replies).await;
        let config = RelayConfig { url: Some(format!("{}/agent", agent.url())), ..config };
        let world = world::seeded(1);
        let journal: Arc<dyn Journal> = Arc::new(Memory::new(world.clone(), Limits::default()));
        let (relay, tasks) = relay(&journal, config);
        let session = relay.open(SessionOptions::default()).await.unwrap();
        Self { agent, tasks, journal, relay, session, commands: std::cell::Cell::new(0) }
    }

    pub(crate) async fn submit(&self, body: CommandBody) -> Answer {
        self.commands.set(self.commands.get() + 1);
        let id = format!("c{}", self.commands.get());
        let command =
            Command { id: id.as_str().into(), by: "ada".into(), trace: Trace::NONE, body };
        self.relay.submit(self.session, command).await.unwrap()
    }

    pub(crate) async fn say(&self, text: &str) {
        let content = vec![Block::Text(text.to_owned())];
        let answer = self.submit(CommandBody::Message { content }).await;
        assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    }

    /// Waits until a record fits, and returns all records so far.
    pub(crate) async fn until(&self, fits: impl Fn(&Event) -> bool) -> Vec<Record> {
        use futures::StreamExt as _;
        let mut follow = self.relay.follow(self.session, 0).await.unwrap();
        let mut records = Vec::new();
        let reading = async {
            while let Some(record) = follow.next().await {
                let record = record.unwrap();
                let is_it = fits(&record.event);
                records.push(record);
                if is_it {
                    break;
                }
            }
        };
        assert!(tokio::time::timeout(HANG, reading).await.is_ok(), "{}", {
            lines(records.iter().map(|record| &record.event))
        });
        records
    }

    /// Waits for the end of a turn and returns the records of the turn.
    pub(crate) async fn turn(&self, number: u64) -> Vec<Event> {
        let ends = std::cell::Cell::new(0);
        let records = self
            .until(|event| {
                ends.set(ends.get() + u64::from(matches!(event, Event::TurnEnded { .. })));
                ends.get() == number
            })
            .await;
        let of_turn = records.into_iter().filter(|record| record.turn == number);
        of_turn.map(|record| record.event).collect()
    }

    pub(crate) async fn state(&self) -> Session {
        let mut state = Session::default();
        let page = self.journal.read(self.session, 0, PageLimits::default()).await.unwrap();
        for record in &page.records {
            state.apply_record(&record.record().unwrap());
        }
        state
    }
}

pub(crate) fn relay(journal: &Arc<dyn Journal>, config: RelayConfig) -> (Relay, KillableTasks) {
    let (parts, tasks) = parts(journal, config);
    (parts.into_engine().unwrap(), tasks)
}

/// The parts of a relay that takes the leases of every other one.
pub(crate) fn parts(
    journal: &Arc<dyn Journal>,
    config: RelayConfig,
) -> (RelayParts, KillableTasks) {
    let tasks = KillableTasks::default();
    let world = World { spawn: Arc::new(tasks.clone()), ..world::seeded(2) };
    let mut parts = RelayParts::new(Arc::clone(journal), world, config);
    parts.holder = format!("agui-{}", world::system().uuid());
    parts.liveness = Arc::new(OthersAreDead(parts.holder.clone()));
    parts.limits.retry.base = Duration::from_millis(10);
    parts.limits.retry.max = Duration::from_millis(20);
    (parts, tasks)
}

/// The fault with which a turn ended.
pub(crate) fn fault_of(events: &[Event]) -> Option<Fault> {
    events.iter().find_map(|event| match event {
        Event::TurnEnded { fault, .. } => fault.clone(),
        _ => None,
    })
}

pub(crate) fn kind_of(events: &[Event]) -> Option<Kind> {
    fault_of(events).map(|fault| fault.kind())
}
