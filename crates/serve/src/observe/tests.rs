//! Joining a session while its history or its hub changes.

use std::time::Duration;

use budao_core::{
    event::{Event, Settings},
    fault::FactValue,
    limits::Limits,
    message::Block,
    trace::Trace,
};
use budao_journal::{Append, Entry, IfMissing, Journal, Lease, LeaseRequest, Memory, Retention};
use budao_models::script::Script;
use budao_runtime::{Builder, OneModel};
use budao_tools::Toolbox;
use futures::FutureExt as _;
use serde_json::Value;
use tokio::task::JoinHandle;

use super::*;
use crate::{
    Auth, Config, Keyring,
    auth::Identity,
    frame::close,
    outbox::{CloseMode, CloseReason},
    project::Projector,
};

/// A server on a journal whose records the test writes.
struct JournalFixture {
    server: Arc<Server>,
    journal: Arc<dyn Journal>,
    lease: Lease,
    head: Seq,
}

impl JournalFixture {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let world = budao_testkit::world::seeded(1);
        let journal: Arc<dyn Journal> = Arc::new(Memory::new(world.clone(), Limits::default()));
        let model = Arc::new(Script::new().into_model(Arc::clone(&world.clock)));
        let tools = Arc::new(Toolbox::builder().build());
        let engine = Builder::new(Arc::clone(&journal), Arc::new(OneModel(model as _)), tools);
        let engine = Arc::new(engine.world(world.clone()).build().unwrap());
        let keys = Keyring::new(["a secret that is long enough for a key"]).unwrap();
        let mut config = Config::new(Auth::open(), keys);
        change(&mut config);
        let request = LeaseRequest {
            session: SessionId(world.uuid()),
            holder: "test".into(),
            ttl: Duration::from_secs(3_600),
            if_missing: IfMissing::Create,
            dead_holder: None,
        };
        let lease = journal.take_lease(request).await.unwrap();
        let server = Server::new(config, engine, Arc::clone(&journal) as _, world, true);
        Self { server, journal, lease, head: 0 }
    }

    /// Writes this many messages, one frame each; the last one with this snapshot.
    async fn write(&mut self, count: u64, snapshot: Option<&[u8]>) {
        for number in 1..=count {
            let event = Event::MessageAccepted {
                command: format!("m{}", self.head).into(),
                content: vec![Block::Text("x".repeat(100))],
            };
            let (at, trace) = (self.server.now(), Trace::NONE);
            let entries = vec![Entry { at, trace, turn: 0, event: event.into() }];
            let snapshot = snapshot.filter(|_| number == count).map(<[u8]>::to_vec);
            let append = Append { snapshot, ..Append::new(&self.lease, self.head, entries) };
            self.head = self.journal.append(append).await.unwrap();
        }
    }

    /// Writes a fault, whose frame contains translated text.
    async fn fail(&mut self) {
        let fault = Fault::new(Kind::Bug, Operation::RunTurn);
        self.record(Event::FaultRaised { fault, scope: budao_core::event::Scope::default() }).await;
    }

    async fn record(&mut self, event: Event) {
        let (at, trace) = (self.server.now(), Trace::NONE);
        let entries = vec![Entry { at, trace, turn: 0, event: event.into() }];
        let append = Append::new(&self.lease, self.head, entries);
        self.head = self.journal.append(append).await.unwrap();
    }

    /// Removes the records that a snapshot covers.
    async fn trim(&self) {
        let retention = Retention { records: Some(1), ..Retention::default() };
        assert!(self.journal.retain(retention).await.unwrap().records > 0);
    }

    fn request(&self, after: Seq, mode: ObserveMode) -> ObserveRequest {
        ObserveRequest { after, ..ObserveRequest::new(self.lease.session, None, mode) }
    }

    fn outbox(&self, limit: usize) -> Outbox {
        Outbox::new(limit, Arc::clone(&self.server.budget), self.server.now())
    }

    /// A connection that uses this outbox.
    fn client(&self, outbox: &Outbox) -> Arc<Connection> {
        let permit = self.server.admission.admit("test").unwrap();
        let server = Arc::clone(&self.server);
        let mut client = Connection::new(server, Identity::local(), Lang::En, permit);
        Arc::get_mut(&mut client).unwrap().outbox = outbox.clone();
        client
    }

    async fn observe(
        &self,
        outbox: &Outbox,
        request: &ObserveRequest,
    ) -> Result<Arc<Hub>, ObserveError> {
        observe(&self.client(outbox), &SessionMeta::default(), request).await
    }

    /// Like `observe`, in a task of its own.
    fn observing(
        &self,
        outbox: &Outbox,
        request: ObserveRequest,
    ) -> JoinHandle<Result<Arc<Hub>, ObserveError>> {
        let client = self.client(outbox);
        tokio::spawn(async move { observe(&client, &SessionMeta::default(), &request).await })
    }
}

/// Takes all queued frames and marks them as sent.
async fn drain(outbox: &Outbox) -> Vec<Value> {
    let mut all = Vec::new();
    while let Some(Ok(frames)) = outbox.next().now_or_never() {
        outbox.mark_sent(&frames);
        all.extend(frames.iter().map(|frame| serde_json::from_str(&frame.text).unwrap()));
    }
    all
}

/// The positions of the frames that come from records.
fn seqs(frames: &[Value]) -> Vec<u64> {
    frames.iter().filter_map(|frame| frame["seq"].as_u64()).collect()
}

const ROOMY: usize = 1 << 20;
/// Room for about six frames.
const TIGHT: usize = 4_096;

#[tokio::test(start_paused = true)]
async fn a_resume_behind_records_and_snapshot_gets_a_gap_and_no_history() {
    let mut fixture = JournalFixture::new().await;
    fixture.write(6, None).await;
    fixture.trim().await;
    fixture.write(1, Some(b"of another version")).await;
    let outbox = fixture.outbox(ROOMY);
    let left = fixture.observe(&outbox, &fixture.request(1, ObserveMode::Resume)).await;
    assert!(matches!(left, Err(ObserveError::Expired)), "{left:?}");
    let frames = drain(&outbox).await;
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0]["metadata"]["status"], "expired");
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_resume_found_an_expired_history_does_not_count_as_observer() {
    let mut fixture = JournalFixture::new().await;
    fixture.write(6, None).await;
    fixture.trim().await;
    fixture.write(1, Some(b"of another version")).await;
    let (session, outbox) = (fixture.lease.session, fixture.outbox(ROOMY));
    let client = fixture.client(&outbox);
    let request = fixture.request(1, ObserveMode::Resume);
    client.observe_new(SessionMeta::default(), request).await.unwrap();
    assert_eq!(drain(&outbox).await[0]["metadata"]["status"], "expired");
    assert!(!client.is_observing(session), "a later command starts an observation");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_sent_in_the_language_of_the_client() {
    let mut fixture = JournalFixture::new().await;
    let state = Session { head: 4, ..Session::default() };
    assert_eq!(state.settings.language, Lang::En);
    fixture.write(4, Some(&serde_json::to_vec(&state).unwrap())).await;
    fixture.trim().await;
    let outbox = fixture.outbox(ROOMY);
    let request = fixture.request(1, ObserveMode::Resume);
    let request = ObserveRequest { format: ObserverFormat::Frames(Some(Lang::Zh)), ..request };
    fixture.observe(&outbox, &request).await.unwrap();
    let frames = drain(&outbox).await;
    let snapshot = frames.iter().find(|frame| frame["event"] == "system.snapshot").unwrap();
    assert_eq!(snapshot["metadata"]["language"], "zh");
}

#[tokio::test(start_paused = true)]
async fn a_session_without_a_snapshot_has_no_latest_snapshot() {
    let fixture = JournalFixture::new().await;
    let session = fixture.lease.session;
    assert!(matches!(latest_snapshot(&*fixture.server.journal, session).await, Ok(None)));
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_has_left_gets_no_frames() {
    let mut fixture = JournalFixture::new().await;
    fixture.write(3, None).await;
    let outbox = fixture.outbox(ROOMY);
    outbox.close(CloseReason::new(close::NORMAL, "bye"), CloseMode::Discard);
    for mode in [ObserveMode::Fresh, ObserveMode::Resume, ObserveMode::Restore] {
        let left = fixture.observe(&outbox, &fixture.request(0, mode)).await;
        assert!(matches!(left, Err(ObserveError::Disconnected)), "{left:?}");
    }
    let unknown = ObserveRequest {
        session: SessionId(fixture.server.world.uuid()),
        ..fixture.request(0, ObserveMode::Fresh)
    };
    let fault = fixture.observe(&fixture.outbox(ROOMY), &unknown).await;
    assert!(
        matches!(&fault, Err(ObserveError::Fault(fault)) if fault.kind() == Kind::UnknownSession)
    );
}

#[tokio::test(start_paused = true)]
async fn an_observer_slower_than_retention_gets_the_range_it_lost() {
    let mut fixture = JournalFixture::new().await;
    fixture.write(600, None).await;
    let outbox = fixture.outbox(TIGHT);
    let request = fixture.request(0, ObserveMode::Resume);
    let observing = fixture.observing(&outbox, request);
    filled(&outbox).await;
    assert!(!observing.is_finished(), "it waits for room");
    let state = Session { head: 600, ..Session::default() };
    let snapshot = Some(serde_json::to_vec(&state).unwrap());
    let append = Append { snapshot, ..Append::new(&fixture.lease, 600, Vec::new()) };
    fixture.journal.append(append).await.unwrap();
    fixture.trim().await;
    while !observing.is_finished() {
        drain(&outbox).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let failed = observing.await.unwrap();
    let Err(ObserveError::Fault(fault)) = failed else { panic!("{failed:?}") };
    assert_eq!(fault.kind(), Kind::HistoryGap);
    let fact = |fact| fault.detail().get(fact).cloned();
    assert_eq!(fact(Fact::ToSeq), Some(FactValue::Number(599)));
    assert_eq!(
        fact(Fact::OldestSeq),
        Some(FactValue::Number(600)),
        "there is something to come back for"
    );
}

/// Waits until the outbox has a frame.
async fn filled(outbox: &Outbox) {
    while outbox.bytes() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn live_frames_follow_a_replay_without_a_gap() {
    let mut fixture = JournalFixture::new().await;
    fixture.write(10, None).await;
    // Another observer keeps the hub alive, far ahead.
    let other = fixture.outbox(ROOMY);
    fixture.observe(&other, &fixture.request(0, ObserveMode::Fresh)).await.unwrap();
    let outbox = fixture.outbox(TIGHT);
    let request = fixture.request(0, ObserveMode::Restore);
    let observing = fixture.observing(&outbox, request);
    // The replay blocks in the middle of the ten frames, while more records arrive than the hub buffers.
    filled(&outbox).await;
    fixture.write(400, None).await;
    let mut frames = Vec::new();
    while !observing.is_finished() {
        frames.extend(drain(&outbox).await);
        drain(&other).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    observing.await.unwrap().unwrap();
    frames.extend(drain(&outbox).await);
    assert_eq!(seqs(&frames), (1..=410).collect::<Vec<u64>>());
}

#[tokio::test(start_paused = true)]
async fn the_buffer_of_a_hub_serves_an_observer_without_a_gap_even_if_the_hub_ends() {
    for ends in [false, true] {
        let mut fixture = JournalFixture::new().await;
        fixture.write(20, None).await;
        let other = fixture.outbox(ROOMY);
        let hub = fixture.observe(&other, &fixture.request(20, ObserveMode::Fresh)).await.unwrap();
        fixture.write(20, None).await;
        while hub.position().head < 40 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(hub.covers(20));
        let outbox = fixture.outbox(TIGHT);
        let request = fixture.request(20, ObserveMode::Resume);
        let observing = fixture.observing(&outbox, request);
        filled(&outbox).await;
        if ends {
            hub.leave(&other);
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(!hub.covers(40), "nobody was left");
        } else {
            fixture.write(400, None).await;
        }
        let mut frames = Vec::new();
        while !observing.is_finished() {
            frames.extend(drain(&outbox).await);
            drain(&other).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        observing.await.unwrap().unwrap();
        frames.extend(drain(&outbox).await);
        assert_eq!(seqs(&frames), (21..=fixture.head).collect::<Vec<u64>>());
        let answers = frames.iter().filter(|frame| frame["metadata"]["action"] == "resume");
        assert_eq!(answers.count(), 1, "and it is answered, once");
    }
}

/// A trimmed journal whose snapshot is unreadable, and a hub that still buffers the frames after 20.
async fn remembering() -> (JournalFixture, Outbox) {
    let mut fixture = JournalFixture::new().await;
    fixture.write(20, None).await;
    let other = fixture.outbox(ROOMY);
    let hub = fixture.observe(&other, &fixture.request(20, ObserveMode::Fresh)).await.unwrap();
    fixture.write(20, Some(b"of another version")).await;
    while hub.position().head < 40 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    fixture.trim().await;
    (fixture, other)
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_reconnects_soon_is_served_from_the_buffer_of_the_hub() {
    let (fixture, _other) = remembering().await;
    for mode in [ObserveMode::Resume, ObserveMode::Fresh] {
        let outbox = fixture.outbox(ROOMY);
        fixture.observe(&outbox, &fixture.request(25, mode)).await.unwrap();
        assert_eq!(seqs(&drain(&outbox).await), (26..=40).collect::<Vec<u64>>(), "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reconnects_too_often_waits_for_a_replay_slot() {
    let (fixture, _other) = remembering().await;
    let outbox = fixture.outbox(ROOMY);
    let client = fixture.client(&outbox);
    while client.permit.charge_replay(FOLD_COST_RECORDS) == ReplayUsage::Light {}
    let meta = SessionMeta::default();
    let left = observe(&client, &meta, &fixture.request(25, ObserveMode::Resume)).await;
    assert!(matches!(left, Err(ObserveError::Expired)), "{left:?}");
    drain(&outbox).await;
    // A fresh observation is not a resume.
    observe(&client, &meta, &fixture.request(25, ObserveMode::Fresh)).await.unwrap();
    assert_eq!(seqs(&drain(&outbox).await), (26..=40).collect::<Vec<u64>>());
}

/// An observer with this language.
async fn reader(
    fixture: &JournalFixture,
    language: Lang,
) -> (Outbox, Result<Arc<Hub>, ObserveError>) {
    let outbox = fixture.outbox(ROOMY);
    let request = ObserveRequest {
        format: ObserverFormat::Frames(Some(language)),
        ..fixture.request(0, ObserveMode::Fresh)
    };
    let joined = fixture.observe(&outbox, &request).await;
    (outbox, joined)
}

#[tokio::test(start_paused = true)]
async fn each_observer_of_a_session_gets_its_own_language() {
    let mut fixture = JournalFixture::new().await;
    fixture.fail().await;
    let mut readers = Vec::new();
    for language in [Lang::En, Lang::Zh, Lang::En, Lang::Zh] {
        let (outbox, hub) = reader(&fixture, language).await;
        assert_eq!(hub.unwrap().format, ObserverFormat::Frames(Some(language)));
        readers.push((language, outbox));
    }
    fixture.fail().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    for (language, outbox) in readers {
        let frames = drain(&outbox).await;
        assert_eq!(seqs(&frames), [1, 2]);
        let chinese: Vec<bool> = frames.iter().map(is_chinese).collect();
        assert_eq!(chinese, [language == Lang::Zh; 2], "{frames:?}");
    }
}

fn is_chinese(frame: &Value) -> bool {
    let shown = frame["show_content"].as_str().unwrap_or_default();
    shown.chars().any(|letter| ('\u{4e00}'..='\u{9fff}').contains(&letter))
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_session_is_announced_in_the_language_of_the_session() {
    let mut fixture = JournalFixture::new().await;
    assert_eq!(fixture.server.config.settings.language, Lang::En);
    let settings = Settings { language: Lang::Zh, ..Settings::default() };
    fixture.record(Event::SessionOpened { settings, origin: None }).await;
    let outbox = fixture.outbox(ROOMY);
    fixture.observe(&outbox, &fixture.request(0, ObserveMode::Fresh)).await.unwrap();
    drain(&outbox).await;
    assert!(fixture.journal.delete(fixture.lease.session).await.unwrap());
    tokio::time::sleep(Duration::from_millis(10)).await;
    let frames = drain(&outbox).await;
    assert_eq!(frames.len(), 1, "{frames:?}");
    assert_eq!(frames[0]["metadata"]["kind"], "unknown_session");
    assert!(is_chinese(&frames[0]), "{frames:?}");
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_observers_counts_all_languages_of_a_session() {
    let mut fixture = JournalFixture::with(|config| config.limits.observers = 3).await;
    fixture.write(1, None).await;
    let mut kept = Vec::new();
    for language in [Lang::En, Lang::Zh, Lang::En] {
        let (outbox, hub) = reader(&fixture, language).await;
        kept.push((outbox, hub.unwrap()));
    }
    for language in [Lang::En, Lang::Zh] {
        let (_, refused) = reader(&fixture, language).await;
        let Err(ObserveError::Fault(fault)) = refused else { panic!("{refused:?}") };
        assert_eq!(fault.kind(), Kind::LimitReached);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cursor_of_another_epoch_is_not_served_from_the_buffer_of_a_hub() {
    let mut fixture = JournalFixture::new().await;
    // A hub without any record does not know the epoch.
    let early = fixture.outbox(ROOMY);
    let hub = fixture.observe(&early, &fixture.request(0, ObserveMode::Fresh)).await.unwrap();
    assert_eq!(hub.position().epoch, None);
    let outbox = fixture.outbox(ROOMY);
    fixture.observe(&outbox, &fixture.request(0, ObserveMode::Resume)).await.unwrap();
    fixture.write(5, None).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let outbox = fixture.outbox(ROOMY);
    let epoch = Some(Epoch(fixture.lease.epoch.0.wrapping_add(1)));
    let request = ObserveRequest { epoch, ..fixture.request(3, ObserveMode::Resume) };
    fixture.observe(&outbox, &request).await.unwrap();
    let frames = drain(&outbox).await;
    assert_eq!(frames[0]["metadata"]["status"], "epoch_mismatch");
    assert_eq!(seqs(&frames), [1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_meets_an_ending_hub_joins_the_next_one() {
    let mut fixture = JournalFixture::new().await;
    fixture.write(5, None).await;
    let other = fixture.outbox(ROOMY);
    let ending = fixture.observe(&other, &fixture.request(0, ObserveMode::Fresh)).await.unwrap();
    ending.leave(&other);
    assert!(ending.release_buffer(), "nobody is left");
    let outbox = fixture.outbox(ROOMY);
    let observing = fixture.observing(&outbox, fixture.request(0, ObserveMode::Fresh));
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert!(!observing.is_finished(), "it is still in the way");
    tokio::time::advance(Duration::from_secs(60)).await;
    let hub = observing.await.unwrap().unwrap();
    assert!(!Arc::ptr_eq(&hub, &ending));
    assert_eq!(seqs(&drain(&outbox).await), [1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_is_skipped_and_the_next_one_is_not() {
    let mut fixture = JournalFixture::new().await;
    fixture.fail().await;
    fixture.write(1, None).await;
    let journal = Arc::clone(&fixture.server.journal);
    let page = journal.read(fixture.lease.session, 0, PAGE).await.unwrap();
    let mut broken = page.records[0].clone();
    broken.body = "nonsense".into();
    let mut projector = Projector::new(&Session::default(), 0);
    assert!(projector.encode_or_skip(&broken).is_none());
    assert!(projector.encode_or_skip(&page.records[1]).is_some());
}
