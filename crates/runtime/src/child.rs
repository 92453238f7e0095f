//! Child sessions: opens a child, sends it one message and waits for the end of its turn.
//!
//! The child's id derives from its parent and its purpose, and the message's command id is constant. After a crash the
//! parent therefore finds the existing child and waits for it; nothing starts twice. A stop first submits a cancel
//! under the message's command id, so that a message still in flight is rejected as a repeat.

use budao_core::{
    engine::{Engine, SessionOptions},
    event::{
        Answer, Command, CommandBody, CommandId, Event, Origin, QuestionId, Record, Seq, SessionId,
        Settings, StopReason, TaskEnd, TurnNumber,
    },
    fault::{Fault, Kind, Operation},
    limits::Limits,
    message::{Block, Usage, text_of},
    session::Session,
    span::{Span, SpanOperation},
    spending,
    tool::{self, Permissions},
    trace::{SpanId, Trace},
};
use futures::{StreamExt, stream::BoxStream};
use sha2::{Digest, Sha256};

use crate::{Runtime, ledger};

/// Command id of the message to the child; the same in every child.
const QUESTION: &str = "child-task";
/// Attempts to reach a child whose session or journal is briefly unavailable. The backoff in total exceeds
/// the lease of a dead writer.
const TRIES: u32 = 6;

/// A child session and its message.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) id: SessionId,
    pub(crate) settings: Settings,
    pub(crate) origin: Origin,
    pub(crate) prompt: String,
    pub(crate) trace: Trace,
    /// The parent's span that the child's request belongs to.
    pub(crate) span: SpanId,
}

/// An event of a child that its parent handles.
#[derive(Debug)]
pub(crate) enum ChildEvent {
    /// The child waits for a person's decision.
    QuestionAsked { question: QuestionId, tool: String },
    /// The child's turn ended.
    Ended(ChildResult),
}

/// The end of a child's turn and the tokens it used.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChildResult {
    pub(crate) end: TaskEnd,
    pub(crate) usage: Usage,
    /// The cost of the child, in millionths; `None` if none was recorded.
    pub(crate) cost: Option<u64>,
    /// Estimated tokens of requests whose answers were lost; `usage` does not have them.
    pub(crate) lost_tokens: u64,
}

impl ChildResult {
    /// The event that records the child's cost, at the prices of its own model.
    pub(crate) fn cost_record(&self, runtime: &Runtime, child: SessionId) -> Option<Event> {
        let config = &runtime.limits().spending;
        if self.cost.is_none() && !config.has_session_caps() {
            return None;
        }
        let cost = self.cost.map(|cost| (cost, config.currency.as_str()));
        let data = spending::child_cost(child, cost, (self.usage, self.lost_tokens));
        Some(Event::Annotated { topic: spending::TOPIC.to_owned(), data })
    }
}

/// Lets a child share the caps on spending of the turn it works for. A child of a child shares those of the same turn.
pub(crate) fn share_caps(
    settings: &mut Settings,
    limits: &Limits,
    parent: SessionId,
    turn: TurnNumber,
) {
    if limits.spending.has_session_caps() {
        let root = settings.labels.entry(Settings::SPENDING_ROOT.to_owned());
        root.or_insert_with(|| format!("{parent}/{turn}"));
    }
}

/// Derives the id of a child from its parent and purpose. It sorts next to its parent's id.
pub(crate) fn child_id(parent: SessionId, parts: &[&str]) -> SessionId {
    let mut hash = Sha256::new();
    hash.update(parent.0.as_bytes());
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let mut millis = [0; 8];
    millis[2..].copy_from_slice(&parent.0.as_bytes()[..6]);
    let mut tail = [0; 10];
    tail.copy_from_slice(&digest[..10]);
    let built = uuid::Builder::from_unix_timestamp_millis(u64::from_be_bytes(millis), &tail);
    SessionId(built.into_uuid())
}

/// Merges a child's overrides into its parent's settings. A child never has more tools, steps or permissions
/// than its parent.
pub(crate) fn child_settings(parent: &Settings, wanted: ChildOverrides) -> Settings {
    let least = |a: Option<u32>, b: Option<u32>| match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    Settings {
        // Another model has no fallbacks: the parent's list belongs to the parent's model.
        fallbacks: if wanted.model.is_some() { Vec::new() } else { parent.fallbacks.clone() },
        model: wanted.model.unwrap_or_else(|| parent.model.clone()),
        system: wanted.system.or_else(|| parent.system.clone()),
        permissions: parent
            .permissions
            .narrow(wanted.permissions.as_ref().unwrap_or(&parent.permissions)),
        title: Some(wanted.title),
        answer_schema: None, // It is the shape of the parent's answer.
        max_steps: least(parent.max_steps, wanted.max_steps),
        tools: intersect_tools(parent.tools.as_deref(), wanted.tools),
        ..parent.clone()
    }
}

/// Settings in which a child differs from its parent; `None` inherits.
#[derive(Debug, Default)]
pub(crate) struct ChildOverrides {
    pub(crate) title: String,
    pub(crate) model: Option<String>,
    pub(crate) system: Option<std::sync::Arc<str>>,
    pub(crate) permissions: Option<Permissions>,
    pub(crate) tools: Option<Vec<String>>,
    pub(crate) max_steps: Option<u32>,
}

/// Keeps the wanted tools that the parent's patterns cover. `None` stands for all tools.
fn intersect_tools(has: Option<&[String]>, wants: Option<Vec<String>>) -> Option<Vec<String>> {
    let (Some(has), Some(wants)) = (has, &wants) else {
        return wants.or_else(|| has.map(<[String]>::to_vec));
    };
    let covered = |name: &&String| has.iter().any(|pattern| tool::matches(pattern, name));
    Some(wants.iter().filter(covered).cloned().collect())
}

/// Opens the child and sends its message, unless an earlier attempt has, and watches its turn.
pub(crate) async fn start_and_watch(runtime: &Runtime, child: &Child) -> Result<ChildWatch, Fault> {
    let mut retry = ChildRetry::default();
    loop {
        match try_start_and_watch(runtime, child).await {
            Err(fault) => retry.wait(runtime, fault).await?,
            watch => return watch,
        }
    }
}

async fn try_start_and_watch(runtime: &Runtime, child: &Child) -> Result<ChildWatch, Fault> {
    match read_progress(runtime, child.id).await? {
        ChildProgress::HasMessage(state) => {
            if state.turn.is_some() || !state.queue.is_empty() {
                runtime.touch(child.id);
            }
            return ChildWatch::new(runtime, child.id, 0).await;
        }
        ChildProgress::WithoutMessage => {}
        ChildProgress::NotOpened => open(runtime, child).await?,
    }
    let body = CommandBody::Message { content: vec![Block::Text(child.prompt.clone())] };
    let (world, command) = (runtime.world(), command(QUESTION, body, child.trace));
    let (began, id) = (world.clock.now(), SpanId::of_request(child.id, &command.id));
    match runtime.submit(child.id, command).await? {
        Answer::Accepted { at } => {
            world.export_span(|| Span {
                trace: child.trace,
                id,
                parent: child.span,
                session: Some(child.id),
                began,
                ended: world.clock.now(),
                failed: None,
                about: SpanOperation::Request { name: "child-task" },
            });
            ChildWatch::new(runtime, child.id, at).await
        }
        Answer::Rejected { fault } => Err(fault),
    }
}

async fn open(runtime: &Runtime, child: &Child) -> Result<(), Fault> {
    if let Origin::Call { parent, .. } | Origin::Stage { parent, .. } = child.origin {
        ledger::note_own_spending(runtime, parent).await?;
    }
    let opening = SessionOptions {
        session: Some(child.id),
        settings: child.settings.clone(),
        origin: Some(child.origin.clone()),
    };
    match runtime.open(opening).await {
        Err(fault) if fault.kind() != Kind::CommandRepeated => Err(fault),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Progress of a child. A child that has its message is never sent another one.
enum ChildProgress {
    NotOpened,
    WithoutMessage,
    HasMessage(Box<Session>),
}

async fn read_progress(runtime: &Runtime, id: SessionId) -> Result<ChildProgress, Fault> {
    match runtime.state(id).await {
        // An earlier writer created the session and died before it opened it.
        Ok(state) if state.head == 0 => Ok(ChildProgress::NotOpened),
        Ok(state) if state.turns > 0 || !state.queue.is_empty() => {
            Ok(ChildProgress::HasMessage(Box::new(state)))
        }
        Ok(_) => Ok(ChildProgress::WithoutMessage),
        Err(fault) if fault.kind() == Kind::UnknownSession => Ok(ChildProgress::NotOpened),
        Err(fault) => Err(fault),
    }
}

/// Stops a child and waits for the end of its turn. A child that was never opened counts as stopped.
pub(crate) async fn stop(runtime: &Runtime, id: SessionId) -> Result<ChildResult, Fault> {
    let mut retry = ChildRetry::default();
    let (usage, cost, lost_tokens) = loop {
        match try_stop(runtime, id).await {
            Ok(used) => break used,
            Err(fault) if fault.kind() == Kind::UnknownSession => break Default::default(),
            Err(fault) => retry.wait(runtime, fault).await?,
        }
    };
    let end = TaskEnd::Cancelled { reason: "it was stopped".to_owned() };
    Ok(ChildResult { end, usage, cost, lost_tokens })
}

/// Returns the usage, the cost and the lost tokens of the child.
async fn try_stop(runtime: &Runtime, id: SessionId) -> Result<(Usage, Option<u64>, u64), Fault> {
    let cancel = || CommandBody::Cancel { reason: Some("its parent stopped it".to_owned()) };
    match read_progress(runtime, id).await? {
        ChildProgress::NotOpened => return Ok(Default::default()),
        ChildProgress::HasMessage(_) => {}
        // The message may be in flight. This cancel takes its command id, so the message starts nothing.
        ChildProgress::WithoutMessage => {
            match runtime.submit(id, command(QUESTION, cancel(), Trace::NONE)).await {
                Err(fault) if fault.kind() != Kind::CommandRepeated => return Err(fault),
                Ok(_) | Err(_) => {}
            }
        }
    }
    runtime.submit(id, runtime.command("parent", cancel())).await?;
    loop {
        let state = runtime.state(id).await?;
        if state.turn.is_none() {
            let spent = &state.spending;
            let cost = (!spent.currency.is_empty()).then_some(spent.session);
            return Ok((state.usage, cost, spent.lost_tokens));
        }
        let mut records = runtime.follow(id, state.head).await?;
        while let Some(record) = records.next().await {
            if let Event::TurnEnded { .. } = record?.event {
                break;
            }
        }
    }
}

fn command(id: &str, body: CommandBody, trace: Trace) -> Command {
    Command { id: CommandId::from(id), by: "parent".to_owned(), trace, body }
}

/// Retries with backoff while a child is briefly unavailable: its session moves to another task, or the
/// journal is busy.
#[derive(Debug, Default)]
struct ChildRetry {
    tries: u32,
}

impl ChildRetry {
    async fn wait(&mut self, runtime: &Runtime, fault: Fault) -> Result<(), Fault> {
        let passing = fault.may_auto_retry()
            || matches!(fault.kind(), Kind::ShuttingDown | Kind::SessionBusy);
        self.tries += 1;
        if !passing || self.tries >= TRIES {
            return Err(fault);
        }
        let wait = runtime.limits().retry.delay(self.tries, 0.0);
        runtime.world().clock.sleep(wait).await;
        Ok(())
    }
}

/// Follows the turn in which a child answers its message.
pub(crate) struct ChildWatch {
    runtime: Runtime,
    child: SessionId,
    records: BoxStream<'static, Result<Record, Fault>>,
    /// Position of the last record that was handled.
    seen: Seq,
    turn: Option<TurnNumber>,
    text: String,
    cost: Option<u64>,
    lost_tokens: u64,
    retry: ChildRetry,
}

impl ChildWatch {
    async fn new(runtime: &Runtime, child: SessionId, after: Seq) -> Result<Self, Fault> {
        let records = runtime.follow(child, after).await?;
        let (runtime, retry) = (runtime.clone(), ChildRetry::default());
        let (text, turn, cost, lost_tokens) = (String::new(), None, None, 0);
        Ok(Self { runtime, child, records, seen: after, turn, text, cost, lost_tokens, retry })
    }

    /// Waits for the next event that concerns the parent.
    pub(crate) async fn next(&mut self) -> Result<ChildEvent, Fault> {
        let gone = || Fault::new(Kind::ShuttingDown, Operation::FollowRecords);
        loop {
            let next = tokio::select! {
                biased;
                record = self.records.next() => record.unwrap_or_else(|| Err(gone())),
                () = self.runtime.world().clock.sleep(self.runtime.limits().lease * 2) => {
                    // The process that ran the child may have died; loading it here resumes it.
                    self.runtime.touch(self.child);
                    continue;
                }
            };
            match next {
                Ok(record) => {
                    self.seen = record.seq;
                    if let Some(event) = self.handle_record(record) {
                        return Ok(event);
                    }
                }
                Err(fault) => {
                    self.retry.wait(&self.runtime, fault).await?;
                    self.records = self.runtime.follow(self.child, self.seen).await?;
                }
            }
        }
    }

    fn handle_record(&mut self, record: Record) -> Option<ChildEvent> {
        if self.turn.is_some_and(|turn| turn != record.turn) {
            return None;
        }
        match record.event {
            Event::TurnStarted { message } if *message.0 == *QUESTION => {
                self.turn = Some(record.turn);
            }
            _ if self.turn.is_none() => {}
            Event::ModelAnswered { content, .. } => self.text = text_of(&content),
            Event::QuestionAsked { question, tool, .. } => {
                return Some(ChildEvent::QuestionAsked { question, tool });
            }
            Event::Annotated { topic, data } if topic == spending::TOPIC => {
                if let Some(cost) = data["cost"].as_u64() {
                    self.cost = Some(self.cost.unwrap_or_default().saturating_add(cost));
                }
                let lost = data["lost_tokens"].as_u64().unwrap_or_default();
                self.lost_tokens = self.lost_tokens.saturating_add(lost);
            }
            Event::TurnEnded { stop, fault, usage, .. } => {
                let (end, cost, lost_tokens) = (self.end(stop, fault), self.cost, self.lost_tokens);
                return Some(ChildEvent::Ended(ChildResult { end, usage, cost, lost_tokens }));
            }
            _ => {}
        }
        None
    }

    /// Maps the end of the child's turn to the end of the parent's task.
    fn end(&mut self, stop: StopReason, fault: Option<Fault>) -> TaskEnd {
        let fault = match stop {
            StopReason::EndTurn => {
                return TaskEnd::Completed { output: std::mem::take(&mut self.text) };
            }
            StopReason::Cancelled => {
                return TaskEnd::Cancelled { reason: "the child session was cancelled".to_owned() };
            }
            StopReason::MaxTokens => Fault::new(Kind::OutputLimit, Operation::ModelRequest),
            StopReason::MaxTurnRequests | StopReason::Refusal | StopReason::Failed => fault
                .unwrap_or_else(|| {
                    Fault::new(Kind::Bug, Operation::RunTurn)
                        .with_cause("a turn failed without a fault")
                }),
        };
        TaskEnd::Failed { fault: fault.via("agent", self.child.to_string()) }
    }
}
