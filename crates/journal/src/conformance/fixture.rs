//! The fixture of the suite: a journal, a manual clock and short helper functions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use budao_core::{
    event::{Command, CommandBody, CommandId, Event, Seq, SessionId},
    fault::{Fault, Kind, Operation},
    limits::Limits,
    time::Timestamp,
    trace::Trace,
    world::{Clock, Entropy, NoopSpanExporter, Spawn, World},
};
use futures::future::BoxFuture;
use uuid::Uuid;

use crate::{
    contract::{Append, Entry, IfMissing, Journal, Lease, LeaseRequest, PageLimits, StoredRecord},
    memory::Memory,
};

/// The validity of leases in the suite.
pub const TTL: Duration = Duration::from_secs(15);

/// A clock that stands still until a test advances it.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Advances the clock by a duration.
    pub fn advance(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }

    /// Never completes: a journal does not sleep by this clock.
    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// A deterministic source of entropy: a counter with a mixer, so values differ within a run and repeat in every run.
#[derive(Debug, Default)]
struct Mixer(AtomicU64);

impl Entropy for Mixer {
    fn bits(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        let mut z = self.0.fetch_add(step, Ordering::SeqCst).wrapping_add(step);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[derive(Debug)]
struct TokioTasks;

impl Spawn for TokioTasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        tokio::spawn(task);
    }
}

/// Creates a world with a manual clock, and returns both.
#[must_use]
pub fn manual_world() -> (World, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock(AtomicI64::new(1_800_000_000_000_000)));
    let entropy = Arc::new(Mixer::default());
    let (spawn, spans) = (Arc::new(TokioTasks), Arc::new(NoopSpanExporter));
    (World { clock: clock.clone(), entropy, spawn, spans }, clock)
}

/// A journal under test with its clock and world.
#[derive(Debug)]
pub struct Fixture {
    /// The journal under test; an empty [`Memory`] until [`Fixture::with`] replaces it.
    pub journal: Arc<dyn Journal>,
    /// The clock of `world`.
    pub clock: Arc<ManualClock>,
    /// The world to create the journal with.
    pub world: World,
}

impl Fixture {
    /// Creates a fixture with a placeholder journal.
    #[must_use]
    pub fn prepare() -> Self {
        let (world, clock) = manual_world();
        let journal = Arc::new(Memory::new(world.clone(), Limits::default()));
        Self { journal, clock, world }
    }

    /// Replaces the journal.
    #[must_use]
    pub fn with(self, journal: Arc<dyn Journal>) -> Self {
        Self { journal, ..self }
    }

    /// A new session id from the world's entropy.
    #[must_use]
    pub fn id(&self) -> SessionId {
        SessionId(self.world.uuid())
    }

    /// A request for a lease that creates the session if it is missing.
    #[must_use]
    pub fn request(&self, session: SessionId, holder: &str) -> LeaseRequest {
        LeaseRequest {
            session,
            holder: holder.into(),
            ttl: TTL,
            if_missing: IfMissing::Create,
            dead_holder: None,
        }
    }

    /// Creates a session and takes its lease.
    pub async fn open(&self) -> Lease {
        self.lease(self.id(), "writer").await
    }

    /// Takes a lease that must be free.
    pub async fn lease(&self, session: SessionId, holder: &str) -> Lease {
        self.journal.take_lease(self.request(session, holder)).await.expect("the lease is free")
    }

    /// An entry at the clock's current time.
    #[must_use]
    pub fn entry(&self, event: Event) -> Entry {
        Entry { at: self.world.clock.now(), trace: Trace::NONE, turn: 0, event: event.into() }
    }

    /// `count` entries with consecutive numbers from `from`.
    #[must_use]
    pub fn notes(&self, from: u64, count: u64) -> Vec<Entry> {
        (from..from + count).map(|number| self.entry(note(number))).collect()
    }

    /// Appends `count` numbered entries after `expected` and returns the new head.
    pub async fn append(&self, lease: &Lease, expected: Seq, count: u64) -> Seq {
        let append = Append::new(lease, expected, self.notes(expected + 1, count));
        self.journal.append(append).await.expect("the append is in order")
    }

    /// Appends these events after `expected` and returns the new head.
    pub async fn append_events(&self, lease: &Lease, expected: Seq, events: Vec<Event>) -> Seq {
        let entries = events.into_iter().map(|event| self.entry(event)).collect();
        self.journal.append(Append::new(lease, expected, entries)).await.expect("in order")
    }

    /// Reads every record after a position, page by page.
    pub async fn read_all(&self, session: SessionId, mut after: Seq) -> Vec<StoredRecord> {
        let mut all = Vec::new();
        loop {
            let limits = PageLimits::default();
            let page = self.journal.read(session, after, limits).await.expect("readable");
            let Some(last) = page.records.last() else { return all };
            after = last.seq;
            all.extend(page.records);
        }
    }
}

/// An event that contains a number.
#[must_use]
pub fn note(number: u64) -> Event {
    Event::Annotated { topic: "test.number".into(), data: number.into() }
}

/// The number in an event made by [`note`].
#[must_use]
pub fn number(record: &StoredRecord) -> u64 {
    match record.event() {
        Ok(Event::Annotated { data, .. }) => data.as_u64().unwrap_or(u64::MAX),
        _ => u64::MAX,
    }
}

/// A command with this id; `topic` tells two commands with the same id apart.
#[must_use]
pub fn message(id: &str, topic: &str) -> Command {
    let body = CommandBody::Annotate { topic: topic.into(), data: 1.into() };
    Command { id: id.into(), by: "test".into(), trace: Trace::NONE, body }
}

/// A session id made from a number.
#[must_use]
pub fn session(number: u128) -> SessionId {
    SessionId(Uuid::from_u128(number))
}

/// A fault of this kind, raised by a tool call.
#[must_use]
pub fn fault(kind: Kind) -> Fault {
    Fault::new(kind, Operation::ToolCall)
}

/// The ids of these commands, in the same order.
#[must_use]
pub fn ids(commands: &[Command]) -> Vec<CommandId> {
    commands.iter().map(|command| command.id.clone()).collect()
}
