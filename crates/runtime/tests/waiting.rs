//! What a waiting turn costs: resident bytes beyond those of an idle session with the same records, and wake-ups. In a
//! process of its own, because the figure is that of the whole process.
//!
//! Method: two groups of sessions are opened. The records of one waiting turn are copied into the first group: that is
//! what the journal in memory needs for them. The turns of the second group wait for a gate that is shut.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the test prints its figure")]

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use budao_core::{
    Fault, Kind, Timestamp,
    engine::{Engine, SessionOptions},
    event::{Answer, CommandBody, Entry, Event, SessionId},
    fault::Operation,
    limits::Limits,
    message::Block,
    world::{Clock, World},
};
use budao_journal::{Append, IfMissing, Journal, LeaseRequest, Memory};
use budao_models::script::{Ending, Script, ScriptStep};
use budao_runtime::{Builder, OneModel, Runtime};
use budao_testkit::world;
use budao_tools::Toolbox;
use futures::{StreamExt as _, future::BoxFuture};

/// Sessions that wait.
const SESSIONS: usize = 10_000;
/// Upper bound of bytes for a waiting turn without observers.
const BAR: f64 = 1024.0;
/// The time until an idle session is unloaded.
const IDLE_KEEP: Duration = Duration::from_millis(100);

/// Counts how often a task goes to sleep: each time is one wake-up.
#[derive(Debug)]
struct CountingClock(Arc<dyn Clock>, AtomicUsize);

impl Clock for CountingClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.sleep(wait)
    }
}

/// Resident bytes of this process; absent where the system does not tell.
fn resident() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").parse::<f64>().ok().map(|kib| kib * 1024.0)
}

/// A runtime whose gate is shut, and two groups of idle sessions.
struct Fixture {
    runtime: Runtime,
    journal: Arc<dyn Journal>,
    clock: Arc<CountingClock>,
    copies: Vec<SessionId>,
    waiting: Vec<SessionId>,
}

impl Fixture {
    async fn new() -> Self {
        let seeded = world::seeded(1);
        let clock = Arc::new(CountingClock(Arc::clone(&seeded.clock), AtomicUsize::new(0)));
        let world = World { clock: Arc::clone(&clock) as _, ..seeded };
        let limited = Fault::new(Kind::ModelRateLimited, Operation::ModelRequest);
        let limited = limited.retry_after(Duration::from_secs(600));
        let limited = ScriptStep::new().end(Ending::Fault(Box::new(limited)));
        let script = Script::new().step(limited).say("ok").forever();
        let model = Arc::new(script.into_model(Arc::clone(&world.clock)));
        let limits = Limits { sessions: 3 * SESSIONS, ..Limits::default() };
        let journal: Arc<dyn Journal> = Arc::new(Memory::new(world.clone(), limits.clone()));
        let tools = Arc::new(Toolbox::builder().build());
        let builder = Builder::new(Arc::clone(&journal), Arc::new(OneModel(model)), tools);
        let builder = builder.world(world).limits(limits).idle_keep(IDLE_KEEP);
        let runtime = builder.build().unwrap();
        let (mut copies, mut waiting) = (Vec::new(), Vec::new());
        for number in 0..SESSIONS {
            copies.push(runtime.open(SessionOptions::default()).await.unwrap());
            waiting.push(runtime.open(SessionOptions::default()).await.unwrap());
            rest(number).await;
        }
        let refused = runtime.open(SessionOptions::default()).await.unwrap();
        say(&runtime, refused).await;
        until(&runtime, refused, |event| matches!(event, Event::RetryScheduled { .. })).await;
        Self { runtime, journal, clock, copies, waiting }
    }

    /// Writes the records of a waiting turn to every session of the first group.
    async fn copy_records(&self) {
        let sample = self.runtime.open(SessionOptions::default()).await.unwrap();
        wait(&self.runtime, sample).await;
        let mut records = self.runtime.follow(sample, 0).await.unwrap();
        let mut entries: Vec<Entry> = Vec::new();
        while !matches!(entries.last().map(|entry| &*entry.event), Some(Event::RequestHeld { .. }))
        {
            let record = records.next().await.unwrap().unwrap();
            let (at, trace, turn) = (record.at, record.trace, record.turn);
            entries.push(Entry { at, trace, turn, event: record.event.into() });
        }
        // The first record opens the session.
        entries.remove(0);
        for session in &self.copies {
            let request = LeaseRequest {
                session: *session,
                holder: "copy".into(),
                ttl: Duration::from_secs(15),
                if_missing: IfMissing::Refuse,
                dead_holder: None,
            };
            let lease = self.journal.take_lease(request).await.unwrap();
            let content = vec![Block::Text("go".into())];
            let command = self.runtime.command("ada", CommandBody::Message { content });
            let answer = Answer::Accepted { at: lease.head };
            let append = Append {
                direct_commands: vec![(command, answer)],
                ..Append::new(&lease, lease.head, entries.clone())
            };
            self.journal.append(append).await.unwrap();
            self.journal.release(&lease).await.unwrap();
        }
    }

    /// Lets all turns of the second group wait. Their sessions are unloaded meanwhile.
    async fn wait_all(&self) {
        for (number, session) in self.waiting.iter().enumerate() {
            wait(&self.runtime, *session).await;
            rest(number).await;
        }
        tokio::time::sleep(IDLE_KEEP * 2).await;
    }

    /// Bytes of a waiting turn beyond its records.
    async fn measure(&self) -> f64 {
        let before = resident().unwrap();
        self.copy_records().await;
        let copied = resident().unwrap();
        self.wait_all().await;
        let waiting: usize = self.runtime.gates().iter().map(|(_, gate)| gate.waiting).sum();
        assert_eq!(waiting, SESSIONS + 1, "the sample waits, too");
        let (records, all) = (copied - before, resident().unwrap() - copied);
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let (records, each) = (records / SESSIONS as f64, (all - records) / SESSIONS as f64);
        println!("{each:.0} bytes for each of {SESSIONS} waiting turns, {records:.0} for records");
        each
    }
}

/// Lets the sessions of the last rounds be unloaded, so that few are loaded at a time.
async fn rest(number: usize) {
    if number % 50 == 49 {
        tokio::time::sleep(IDLE_KEEP + Duration::from_millis(10)).await;
    }
}

async fn say(runtime: &Runtime, session: SessionId) {
    let content = vec![Block::Text("go".into())];
    let command = runtime.command("ada", CommandBody::Message { content });
    runtime.submit(session, command).await.unwrap();
}

async fn wait(runtime: &Runtime, session: SessionId) {
    say(runtime, session).await;
    until(runtime, session, |event| matches!(event, Event::RequestHeld { .. })).await;
}

async fn until(runtime: &Runtime, session: SessionId, is_there: fn(&Event) -> bool) {
    let mut records = runtime.follow(session, 0).await.unwrap();
    while !is_there(&records.next().await.unwrap().unwrap().event) {}
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_waiting_turns_cost_a_kibibyte_each_and_no_task_until_one_is_due() {
    let Some(_) = resident() else { return };
    let fixture = Fixture::new().await;
    fixture.runtime.track_observers();
    let each = fixture.measure().await;
    assert!(each < BAR, "{each:.0} bytes each");
    assert!(fixture.runtime.loaded() < 10, "{} are loaded", fixture.runtime.loaded());
    assert!(fixture.waiting.iter().all(|session| fixture.runtime.is_waiting(*session)));
    // The session whose request shut the gate waits on its own, and renews its lease every 5 s.
    let before = fixture.clock.1.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(300)).await;
    let sleeps = fixture.clock.1.load(Ordering::Relaxed) - before;
    assert!(sleeps < 100, "{sleeps} wake-ups in 300 s");
    // One request probes the service when the hint is over; its answer opens the gate for all.
    tokio::time::sleep(Duration::from_secs(600)).await;
    for session in &fixture.waiting {
        until(&fixture.runtime, *session, |event| matches!(event, Event::TurnEnded { .. })).await;
        let state = fixture.runtime.state(*session).await.unwrap();
        assert_eq!(state.last_text().as_deref(), Some("ok"));
    }
}
