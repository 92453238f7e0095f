//! Being the one writer of a session, on a paused clock and a journal that fails as planned.

mod commit;
mod restart;
mod start;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use budao_core::{
    event::{Answer, Command, CommandBody, CommandId, Event, SessionId},
    fault::{Fault, Kind, Operation},
    limits::Limits,
    message::Block,
    session::Session,
    span::Span,
    time::Timestamp,
    trace::Trace,
    world::{Clock, SpanExporter, World},
};
use budao_engine::{
    Batch, CommandArrival, CommitResult, HolderLiveness, NoReclaimer, SessionWriter,
    SpaceReclaimer, TaskRefusal, WriterConfig, WriterExit, WrittenPositions,
};
use budao_journal::{Entry, IfMissing, Journal, Memory, conformance::fixture::manual_world};
use budao_testkit::journal::{FlakyJournal, Verdict};
use futures::future::BoxFuture;
use tokio::sync::oneshot;

/// Tokio's clock, which is paused, and which can be set.
#[derive(Debug)]
pub(crate) struct Settable {
    began: tokio::time::Instant,
    offset: AtomicI64,
}

impl Settable {
    fn set_back(&self, by: Duration) {
        self.offset.fetch_sub(i64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for Settable {
    fn now(&self) -> Timestamp {
        let offset = self.offset.load(Ordering::SeqCst);
        Timestamp::from_micros(1_800_000_000_000_000 + offset).after(self.began.elapsed())
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(wait))
    }
}

/// Reports this holder as dead, and no other.
#[derive(Debug)]
struct Gone(&'static str);

impl HolderLiveness for Gone {
    fn is_dead(&self, holder: &str) -> bool {
        holder == self.0
    }
}

/// Collects spans once it is on.
#[derive(Debug, Default)]
struct Collected {
    is_on: AtomicBool,
    spans: Mutex<Vec<Span>>,
}

impl SpanExporter for Collected {
    fn is_enabled(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }

    fn export(&self, span: Span) {
        self.spans.lock().unwrap().push(span);
    }
}

/// A journal that may fail, and everything that a writer of it is bound to.
struct Fixture {
    world: World,
    clock: Arc<Settable>,
    flaky: Arc<FlakyJournal>,
    journal: Arc<dyn Journal>,
    limits: Limits,
    id: SessionId,
    spans: Arc<Collected>,
}

impl Fixture {
    fn new() -> Self {
        let offset = AtomicI64::new(0);
        let clock = Arc::new(Settable { began: tokio::time::Instant::now(), offset });
        let spans = Arc::new(Collected::default());
        let world = World { clock: clock.clone(), spans: spans.clone(), ..manual_world().0 };
        let limits = Limits::default();
        let flaky = FlakyJournal::flaky(Arc::new(Memory::new(world.clone(), limits.clone())));
        let id = SessionId(world.uuid());
        Self { world, clock, journal: flaky.clone(), flaky, limits, id, spans }
    }

    /// Becomes the writer, under this name.
    async fn begin(
        &self,
        holder: &str,
        liveness: &dyn HolderLiveness,
    ) -> Result<(SessionWriter, Session), Fault> {
        self.begin_if(holder, liveness, IfMissing::Create).await
    }

    async fn begin_if(
        &self,
        holder: &str,
        liveness: &dyn HolderLiveness,
        if_missing: IfMissing,
    ) -> Result<(SessionWriter, Session), Fault> {
        let (journal, world, limits) = (&self.journal, &self.world, &self.limits);
        let written = &WrittenPositions::default();
        let config = WriterConfig { journal, world, limits, holder, liveness, written };
        SessionWriter::start(config, self.id, if_missing).await
    }

    /// A writer of an opened session.
    async fn opened(&self) -> (SessionWriter, Session) {
        let (mut writer, mut session) = self.begin("ada", &Gone("nobody")).await.unwrap();
        let (reply, answer_receiver) = oneshot::channel();
        let mut batch = Batch::default();
        assert!(writer.admit_opening(&session, reply, &mut batch));
        self.tell(&mut batch, &mut session, opened());
        writer.commit(batch, &session, &NoReclaimer).await.unwrap();
        answer_receiver.await.unwrap().unwrap();
        (writer, session)
    }

    /// Puts an event into a batch and applies it.
    fn tell(&self, batch: &mut Batch, session: &mut Session, event: Event) {
        let (at, trace) = (self.world.clock.now(), Trace::from_random(7));
        session.apply(&event, at, trace);
        batch.entries.push(Entry { at, trace, turn: session.turns, event: event.into() });
    }

    /// Commits one note, and whether it is durable.
    async fn note(
        &self,
        writer: &mut SessionWriter,
        session: &mut Session,
        room: &dyn SpaceReclaimer,
    ) -> Result<CommitResult, WriterExit> {
        let mut batch = Batch::default();
        let data = serde_json::json!({"n": session.head});
        self.tell(&mut batch, session, Event::Annotated { topic: "test".into(), data });
        writer.commit(batch, session, room).await
    }

    async fn head(&self) -> u64 {
        self.flaky.inner.info(self.id).await.unwrap().unwrap().head
    }

    fn fault(&self, kind: Kind) -> Fault {
        Fault::new(kind, Operation::AppendRecords)
    }
}

fn opened() -> Event {
    Event::SessionOpened { settings: Default::default(), origin: None }
}

fn command(id: impl Into<CommandId>, text: &str) -> Command {
    let body = CommandBody::Message { content: vec![Block::Text(text.into())] };
    Command { id: id.into(), by: "ada".into(), trace: Trace::NONE, body }
}

/// Takes a command up as an engine does. The answer comes when the batch is committed.
async fn take(
    writer: &SessionWriter,
    session: &Session,
    batch: &mut Batch,
    command: &Command,
    waits: bool,
) -> (bool, oneshot::Receiver<Result<Answer, TaskRefusal>>) {
    let (reply, answer_receiver) = oneshot::channel();
    let answered = writer.find_answered(vec![command.id.clone()]).await;
    let arrival = if waits { CommandArrival::Inbox } else { CommandArrival::Direct(&answered) };
    let admitted = writer.admit(session, command, arrival, reply, batch);
    let is_new = admitted.is_some();
    if let Some(admitted) = admitted {
        batch.answer(admitted, command.id.clone(), Answer::Accepted { at: session.head });
    }
    (is_new, answer_receiver)
}

/// The kind of the fault that a caller got.
fn answer_kind<T: std::fmt::Debug>(answer: Result<T, TaskRefusal>) -> Kind {
    match answer {
        Err(TaskRefusal::Fault(fault)) => fault.kind(),
        other => panic!("{other:?}"),
    }
}

fn kind_of(exit: Result<CommitResult, WriterExit>) -> Kind {
    match exit {
        Err(WriterExit::Failed(fault)) => fault.kind(),
        other => panic!("{other:?}"),
    }
}
