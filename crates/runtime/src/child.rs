//! Child sessions: opened under an id that follows from what they are for, asked once, waited for.
//!
//! The id and the command that asks are the same every time, so whoever comes back after a crash finds
//! the child it had and goes on waiting; nothing is started twice. Stopping first uses up the id of the
//! question, so that a question still on its way finds it taken and starts nothing.

use budao_core::{
    engine::{Engine, SessionOptions},
    event::{
        Answer, Command, CommandBody, CommandId, Event, Origin, QuestionId, Record, Seq, SessionId,
        Settings, StopReason, TaskEnd, TurnNumber,
    },
    fault::{Fault, Kind, Operation},
    message::{Block, Usage, text_of},
    session::Session,
    span::{Span, SpanOperation},
    tool::{self, Permissions},
    trace::{SpanId, Trace},
};
use futures::{StreamExt, stream::BoxStream};
use sha2::{Digest, Sha256};

use crate::Runtime;

/// The command that asks a child, in every child.
const QUESTION: &str = "child-task";
/// Times we come back to a child whose session or journal is out of reach for a moment: together longer than the
/// lease of somebody who is gone.
const TRIES: u32 = 6;

/// A child session and what it is asked.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) id: SessionId,
    pub(crate) settings: Settings,
    pub(crate) origin: Origin,
    pub(crate) prompt: String,
    pub(crate) trace: Trace,
    /// What asks for it.
    pub(crate) span: SpanId,
}

/// What is heard from a child.
#[derive(Debug)]
pub(crate) enum ChildEvent {
    /// It asks a person.
    QuestionAsked { question: QuestionId, tool: String },
    /// It came to rest.
    Ended(ChildResult),
}

/// How a child came to rest, and what it used.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ChildResult {
    pub(crate) end: TaskEnd,
    pub(crate) usage: Usage,
}

/// The id of the child that does this for this parent: always the same one. It sorts with its parent.
pub(crate) fn id(parent: SessionId, what: &[&str]) -> SessionId {
    let mut hash = Sha256::new();
    hash.update(parent.0.as_bytes());
    for part in what {
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

/// The settings of a child: its parent's, with what the child is to have of its own. Never more tools,
/// steps or freedom than the parent has.
pub(crate) fn settings(parent: &Settings, wanted: ChildOverrides) -> Settings {
    let least = |a: Option<u32>, b: Option<u32>| match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    Settings {
        model: wanted.model.unwrap_or_else(|| parent.model.clone()),
        system: wanted.system.or_else(|| parent.system.clone()),
        permissions: parent
            .permissions
            .narrow(wanted.permissions.as_ref().unwrap_or(&parent.permissions)),
        title: Some(wanted.title),
        max_steps: least(parent.max_steps, wanted.max_steps),
        tools: narrow(parent.tools.as_deref(), wanted.tools),
        ..parent.clone()
    }
}

/// Where a child is to differ from its parent.
#[derive(Debug, Default)]
pub(crate) struct ChildOverrides {
    pub(crate) title: String,
    pub(crate) model: Option<String>,
    pub(crate) system: Option<std::sync::Arc<str>>,
    pub(crate) permissions: Option<Permissions>,
    pub(crate) tools: Option<Vec<String>>,
    pub(crate) max_steps: Option<u32>,
}

/// Of the tools a child wants, those its parent has.
fn narrow(has: Option<&[String]>, wants: Option<Vec<String>>) -> Option<Vec<String>> {
    let (Some(has), Some(wants)) = (has, &wants) else {
        return wants.or_else(|| has.map(<[String]>::to_vec));
    };
    let covered = |name: &&String| has.iter().any(|pattern| tool::matches(pattern, name));
    Some(wants.iter().filter(covered).cloned().collect())
}

/// Opens the child if nobody has, and asks it if nobody has.
pub(crate) async fn attend(runtime: &Runtime, child: &Child) -> Result<ChildWatch, Fault> {
    let mut retry = ChildRetry::default();
    loop {
        match attend_once(runtime, child).await {
            Err(fault) => retry.wait(runtime, fault).await?,
            watch => return watch,
        }
    }
}

async fn attend_once(runtime: &Runtime, child: &Child) -> Result<ChildWatch, Fault> {
    match asked(runtime, child.id).await? {
        ChildProgress::Asked(state) => {
            if state.turn.is_some() || !state.queue.is_empty() {
                runtime.touch(child.id);
            }
            return ChildWatch::new(runtime, child.id, 0).await;
        }
        ChildProgress::NotAsked => {}
        ChildProgress::NotOpened => open(runtime, child).await?,
    }
    let ask = CommandBody::Message { content: vec![Block::Text(child.prompt.clone())] };
    let (world, command) = (runtime.world(), command(QUESTION, ask, child.trace));
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
                about: SpanOperation::Request { what: "child-task" },
            });
            ChildWatch::new(runtime, child.id, at).await
        }
        Answer::Rejected { fault } => Err(fault),
    }
}

async fn open(runtime: &Runtime, child: &Child) -> Result<(), Fault> {
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

/// How far a child is. One that was asked is not asked again: nothing may disturb what it does.
enum ChildProgress {
    NotOpened,
    NotAsked,
    Asked(Box<Session>),
}

async fn asked(runtime: &Runtime, id: SessionId) -> Result<ChildProgress, Fault> {
    match runtime.state(id).await {
        // Whoever was about to open it died over it.
        Ok(state) if state.head == 0 => Ok(ChildProgress::NotOpened),
        Ok(state) if state.turns > 0 || !state.queue.is_empty() => {
            Ok(ChildProgress::Asked(Box::new(state)))
        }
        Ok(_) => Ok(ChildProgress::NotAsked),
        Err(fault) if fault.kind() == Kind::UnknownSession => Ok(ChildProgress::NotOpened),
        Err(fault) => Err(fault),
    }
}

/// Stops a child and waits until it has stopped. One that was never opened has.
pub(crate) async fn stop(runtime: &Runtime, id: SessionId) -> Result<ChildResult, Fault> {
    let mut retry = ChildRetry::default();
    let usage = loop {
        match stop_once(runtime, id).await {
            Ok(usage) => break usage,
            Err(fault) if fault.kind() == Kind::UnknownSession => break Usage::default(),
            Err(fault) => retry.wait(runtime, fault).await?,
        }
    };
    Ok(ChildResult { end: TaskEnd::Cancelled { reason: "it was stopped".to_owned() }, usage })
}

async fn stop_once(runtime: &Runtime, id: SessionId) -> Result<Usage, Fault> {
    let cancel = || CommandBody::Cancel { reason: Some("its parent stopped it".to_owned()) };
    match asked(runtime, id).await? {
        ChildProgress::NotOpened => return Ok(Usage::default()),
        ChildProgress::Asked(_) => {}
        // The question may be on its way; afterwards its id is taken, and it starts nothing.
        ChildProgress::NotAsked => {
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
            return Ok(state.usage);
        }
        let mut records = runtime.follow(id, state.head).await?;
        while let Some(record) = records.next().await {
            if let Event::TurnEnded { .. } = record?.event {
                break;
            }
        }
    }
}

fn command(id: &str, ask: CommandBody, trace: Trace) -> Command {
    Command { id: CommandId::from(id), by: "parent".to_owned(), trace, ask }
}

/// Comes back a few times to what is out of reach for a moment: a session whose task is being changed, a
/// journal that is busy.
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

/// Watches the turn in which a child does what it was asked.
pub(crate) struct ChildWatch {
    runtime: Runtime,
    child: SessionId,
    records: BoxStream<'static, Result<Record, Fault>>,
    /// The last record that was seen.
    seen: Seq,
    turn: Option<TurnNumber>,
    text: String,
    retry: ChildRetry,
}

impl ChildWatch {
    async fn new(runtime: &Runtime, child: SessionId, after: Seq) -> Result<Self, Fault> {
        let records = runtime.follow(child, after).await?;
        let (runtime, retry) = (runtime.clone(), ChildRetry::default());
        Ok(Self { runtime, child, records, seen: after, turn: None, text: String::new(), retry })
    }

    /// The next thing its parent must know.
    pub(crate) async fn next(&mut self) -> Result<ChildEvent, Fault> {
        let gone = || Fault::new(Kind::ShuttingDown, Operation::FollowRecords);
        loop {
            let heard = tokio::select! {
                biased;
                record = self.records.next() => record.unwrap_or_else(|| Err(gone())),
                () = self.runtime.world().clock.sleep(self.runtime.limits().lease * 2) => {
                    // Whoever ran it may be gone; then it goes on here.
                    self.runtime.touch(self.child);
                    continue;
                }
            };
            match heard {
                Ok(record) => {
                    self.seen = record.seq;
                    if let Some(heard) = self.handle_record(record) {
                        return Ok(heard);
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
            Event::TurnEnded { stop, fault, usage, .. } => {
                return Some(ChildEvent::Ended(ChildResult { end: self.end(stop, fault), usage }));
            }
            _ => {}
        }
        None
    }

    /// What the end of the child's turn is to its parent.
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
