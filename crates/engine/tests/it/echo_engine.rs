//! A complete engine that ends a turn for every message, and the host's promises tested on it.

use std::{sync::Arc, time::Duration};

use budao_core::{
    engine::{Engine as _, SessionOptions},
    event::{
        Answer, Command, CommandBody, CommandId, Event, SessionId, Settings, StopReason, TurnNumber,
    },
    fault::{Fault, Kind, Operation},
    limits::Limits,
    message::{Block, Usage},
    session::Session,
    trace::Trace,
    world::World,
};
use budao_engine::{
    Batch, Decider, DeciderFactory, Host, HostConfig, HostInput, NoReclaimer, SessionContext,
    SignalSender, SpaceReclaimer, UnknownLiveness,
};
use budao_journal::{Entry, Journal, Memory, Reader as _};
use budao_testkit::journal::{FlakyJournal, HeldCall, InterceptedJournal, Verdict};
use tokio::{sync::Semaphore, time::Instant};

/// Makes echo deciders. An echo waits for a permit, so that a test decides when a turn may end.
#[derive(Debug)]
struct EchoFactory {
    world: World,
    permits: Arc<Semaphore>,
}

impl DeciderFactory for EchoFactory {
    type Decider = EchoDecider;

    fn accepts(&self, settings: &Settings) -> bool {
        !settings.is_foreign()
    }

    fn prepare(&self, _settings: &mut Settings) -> Result<(), Fault> {
        Ok(())
    }

    fn load(&self, context: SessionContext<Self>, state: Session) -> EchoDecider {
        let (world, permits) = (self.world.clone(), Arc::clone(&self.permits));
        let SessionContext { generation, signals, .. } = context;
        EchoDecider { world, permits, state, generation, signals, is_echoing: false }
    }

    fn reclaimer(&self) -> &dyn SpaceReclaimer {
        &NoReclaimer
    }
}

/// The report that the echo of a turn is ready. A report of an earlier generation or turn is stale and ignored.
#[derive(Debug, PartialEq)]
struct EchoReady {
    generation: u32,
    turn: TurnNumber,
}

struct EchoDecider {
    world: World,
    permits: Arc<Semaphore>,
    state: Session,
    generation: u32,
    signals: SignalSender<EchoReady>,
    is_echoing: bool,
}

impl EchoDecider {
    fn emit(&mut self, event: Event, batch: &mut Batch) {
        let (at, trace) = (self.world.clock.now(), Trace::from_random(7));
        self.state.apply(&event, at, trace);
        batch.entries.push(Entry { at, trace, turn: self.state.turns, event: event.into() });
    }

    fn ready(&self) -> EchoReady {
        EchoReady { generation: self.generation, turn: self.state.turns }
    }

    /// Begins the turn of the next message that waits.
    fn begin(&mut self, batch: &mut Batch) {
        if let (None, Some(next)) = (&self.state.turn, self.state.queue.front()) {
            let message = next.command.clone();
            self.emit(Event::TurnStarted { message }, batch);
        }
    }

    fn end(&mut self, fault: Option<Fault>, batch: &mut Batch) {
        self.is_echoing = false;
        let stop = if fault.is_some() { StopReason::Failed } else { StopReason::EndTurn };
        let usage = Usage::default();
        self.emit(Event::TurnEnded { stop, fault, steps: 1, usage }, batch);
        self.begin(batch);
    }
}

impl Decider for EchoDecider {
    type Signal = EchoReady;

    fn state(&self) -> &Session {
        &self.state
    }

    fn decide(
        &mut self,
        input: HostInput<EchoReady>,
        batch: &mut Batch,
    ) -> Option<(CommandId, Answer)> {
        match input {
            HostInput::Open { settings, origin } => {
                self.emit(Event::SessionOpened { settings: *settings, origin }, batch);
            }
            HostInput::Command(Command { id, body: CommandBody::Message { content }, .. }) => {
                let at = self.state.head;
                self.emit(Event::MessageAccepted { command: id.clone(), content }, batch);
                self.begin(batch);
                return Some((id, Answer::Accepted { at }));
            }
            HostInput::Command(command) => {
                let fault = Fault::new(Kind::BadRequest, Operation::SubmitCommand);
                return Some((command.id, Answer::Rejected { fault }));
            }
            HostInput::Signal(ready) if self.state.turn.is_some() && ready == self.ready() => {
                self.end(None, batch);
            }
            HostInput::Aborted(fault) if self.state.turn.is_some() => self.end(Some(fault), batch),
            _ => {}
        }
        None
    }

    fn act(&mut self, _failed: &mut Batch) {
        if self.state.turn.is_none() || std::mem::replace(&mut self.is_echoing, true) {
            return;
        }
        let (signals, ready) = (self.signals.clone(), self.ready());
        let permits = Arc::clone(&self.permits);
        self.world.spawn.spawn(Box::pin(async move {
            permits.acquire().await.unwrap().forget();
            signals.send(ready).await;
        }));
    }

    fn is_idle(&self) -> bool {
        self.state.turn.is_none()
    }
}

struct Fixture {
    host: Host<EchoFactory>,
    permits: Arc<Semaphore>,
    flaky: Arc<FlakyJournal>,
    world: World,
}

impl Fixture {
    fn new(permits: usize) -> Self {
        let world = budao_testkit::world::seeded(1);
        let inner = Arc::new(Memory::new(world.clone(), Limits::default()));
        Self::on(FlakyJournal::flaky(inner), world, "first", permits)
    }

    fn on(flaky: Arc<FlakyJournal>, world: World, holder: &str, permits: usize) -> Self {
        Self::through(flaky.clone(), flaky, world, holder, permits)
    }

    /// A host that reaches the flaky journal through another one.
    fn through(
        journal: Arc<dyn Journal>,
        flaky: Arc<FlakyJournal>,
        world: World,
        holder: &str,
        permits: usize,
    ) -> Self {
        let config = HostConfig {
            journal,
            world: world.clone(),
            limits: Arc::new(Limits::default()),
            holder: holder.to_owned(),
            liveness: Arc::new(UnknownLiveness),
            idle_keep: Duration::from_secs(5),
            places: Vec::new(),
        };
        let permits = Arc::new(Semaphore::new(permits));
        let factory = EchoFactory { world: world.clone(), permits: Arc::clone(&permits) };
        Self { host: Host::new(config, factory), permits, flaky, world }
    }

    async fn open(&self) -> SessionId {
        self.host.open(SessionOptions::default()).await.unwrap()
    }

    async fn say(&self, session: SessionId, id: &str) -> Result<Answer, Fault> {
        let body = CommandBody::Message { content: vec![Block::Text("hello".into())] };
        let command = Command { id: id.into(), by: "ada".into(), trace: Trace::NONE, body };
        self.host.submit(session, command).await
    }

    /// Waits until the session has no turn and no queue.
    async fn settle(&self, session: SessionId) {
        loop {
            let state = self.host.state(session).await.unwrap();
            if state.turn.is_none() && state.queue.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn journal_fault() -> Fault {
    Fault::new(Kind::JournalBusy, Operation::AppendRecords)
}

#[tokio::test(start_paused = true)]
async fn every_accepted_message_is_answered_in_order() {
    let fixture = Fixture::new(3);
    let session = fixture.open().await;
    for id in ["a", "b", "c"] {
        assert!(matches!(fixture.say(session, id).await.unwrap(), Answer::Accepted { .. }));
    }
    fixture.settle(session).await;
    assert_eq!(fixture.host.state(session).await.unwrap().turns, 3);
    let again = fixture.say(session, "b").await.unwrap();
    assert!(matches!(again, Answer::Accepted { .. }), "a repetition has no second effect");
    assert_eq!(fixture.host.state(session).await.unwrap().turns, 3);
}

/// The append fails once, so the two openings are answered some time after they were decided.
#[tokio::test(start_paused = true)]
async fn of_two_openings_at_once_the_refused_one_finds_the_session() {
    let fixture = Fixture::new(0);
    fixture.flaky.plan("append", Verdict::Refuse(journal_fault()));
    let session = SessionId(fixture.world.uuid());
    let opening = || SessionOptions { session: Some(session), ..SessionOptions::default() };
    let refused = async {
        let fault = fixture.host.open(opening()).await.unwrap_err();
        assert_eq!(fault.kind(), Kind::CommandRepeated);
        let info = fixture.flaky.info(session).await.unwrap();
        assert!(info.is_some_and(|info| info.head > 0), "the session is durable");
    };
    let (opened, ()) = tokio::join!(fixture.host.open(opening()), refused);
    assert_eq!(opened.unwrap(), session);
    assert!(fixture.flaky.is_through(), "the append was tried twice");
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_is_unloaded_and_loads_again() {
    let fixture = Fixture::new(1);
    let session = fixture.open().await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(fixture.host.loaded(), 0);
    fixture.say(session, "a").await.unwrap();
    assert_eq!(fixture.host.loaded(), 1);
    fixture.settle(session).await;
}

#[tokio::test(start_paused = true)]
async fn all_sessions_stop_at_once() {
    let fixture = Fixture::new(0);
    for index in 0..20 {
        let session = fixture.open().await;
        fixture.say(session, &format!("m{index}")).await.unwrap();
    }
    let began = Instant::now();
    fixture.host.shutdown(Duration::from_secs(3)).await;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(fixture.host.loaded(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_shortens_the_grace_period_and_never_extends_it() {
    for (first, second) in [(60, 2), (2, 60)] {
        let fixture = Fixture::new(0);
        let session = fixture.open().await;
        fixture.say(session, "a").await.unwrap();
        let began = Instant::now();
        let stop = |seconds| fixture.host.shutdown(Duration::from_secs(seconds));
        tokio::join!(stop(first), stop(second));
        assert!(began.elapsed() < Duration::from_secs(3), "{first} {second} {:?}", began.elapsed());
    }
}

/// Method: the journal fails until the task abandons the session, at every moment of a retry that is under way.
#[tokio::test(start_paused = true)]
async fn an_abandoned_session_is_finished_when_the_journal_works_again() {
    for delay in [0, 100, 249, 250, 251, 500, 1_000, 5_000, 20_000] {
        let fixture = Fixture::new(1);
        let session = fixture.open().await;
        fixture.permits.forget_permits(1);
        fixture.say(session, "a").await.unwrap();
        fixture.host.touch(session);
        tokio::time::sleep(Duration::from_millis(delay)).await;
        for _ in 0..24 {
            fixture.flaky.plan("append", Verdict::Refuse(journal_fault()));
        }
        fixture.permits.add_permits(64);
        tokio::time::timeout(Duration::from_secs(600), fixture.settle(session)).await.unwrap();
    }
}

/// Method: a retry task is about to find the session finished. Before it ends, a turn starts and the session's task
/// abandons the session; it starts no second retry task, because there is one.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_abandoned_while_its_retry_ends_is_finished() {
    let world = budao_testkit::world::seeded(1);
    let flaky = FlakyJournal::flaky(Arc::new(Memory::new(world.clone(), Limits::default())));
    let held = HeldCall::new("inbox");
    let journal = Arc::new(InterceptedJournal::new(flaky.clone(), Arc::clone(&held)));
    let fixture = Fixture::through(journal, flaky, world, "first", 0);
    let session = fixture.open().await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(fixture.host.loaded(), 0);

    fixture.flaky.plan("take_lease", Verdict::Refuse(journal_fault()));
    held.arm();
    fixture.host.touch(session);
    held.reached().await;
    fixture.say(session, "a").await.unwrap();
    (0..24).for_each(|_| fixture.flaky.plan("append", Verdict::Refuse(journal_fault())));
    fixture.permits.add_permits(64);
    while fixture.host.loaded() > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    held.release();
    tokio::time::timeout(Duration::from_secs(600), fixture.settle(session)).await.unwrap();
}

/// Method: no call of the first host to the journal returns any more, so the host neither renews nor releases its lease.
#[tokio::test(start_paused = true)]
async fn a_session_whose_process_died_is_finished_by_another() {
    let world = budao_testkit::world::seeded(1);
    let inner = Arc::new(Memory::new(world.clone(), Limits::default()));
    let first = Fixture::on(FlakyJournal::flaky(inner.clone()), world.clone(), "first", 0);
    let session = first.open().await;
    first.say(session, "a").await.unwrap();
    for call in ["renew", "release", "append", "take_lease"] {
        (0..100).for_each(|_| first.flaky.plan(call, Verdict::Hang));
    }
    let second = Fixture::on(FlakyJournal::flaky(inner.clone()), world.clone(), "second", 1);
    assert_eq!(second.host.recover().await.unwrap(), 1);
    let lease = inner.info(session).await.unwrap().unwrap().lease.unwrap();
    assert_eq!(lease.holder, "first", "it was not released");
    tokio::time::timeout(Duration::from_secs(600), second.settle(session)).await.unwrap();
    assert!(world.clock.now() >= lease.expires, "the lease had to run out first");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_was_parked_is_finished_by_the_next_process() {
    let first = Fixture::new(0);
    let session = first.open().await;
    first.say(session, "a").await.unwrap();
    first.host.shutdown(Duration::ZERO).await;
    let second = Fixture::on(Arc::clone(&first.flaky), first.world.clone(), "second", 1);
    assert_eq!(second.host.recover().await.unwrap(), 1);
    tokio::time::timeout(Duration::from_secs(60), second.settle(session)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_command_reaches_the_process_that_holds_the_lease() {
    let first = Fixture::new(2);
    let session = first.open().await;
    let second = Fixture::on(Arc::clone(&first.flaky), first.world.clone(), "second", 0);
    let answer = second.say(session, "from the second").await.unwrap();
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    first.settle(session).await;
    assert_eq!(first.host.state(session).await.unwrap().turns, 1);
}
