//! The lease: one holder, taken over from a dead one, renewed in time.

use budao_engine::UnknownLiveness;
use budao_journal::LeaseRequest;
use futures::FutureExt as _;

use super::*;

fn kind<T: std::fmt::Debug>(done: Result<T, Fault>) -> Kind {
    done.unwrap_err().kind()
}

#[tokio::test(start_paused = true)]
async fn a_session_is_opened_once_and_its_inbox_is_read_only_then() {
    let fixture = Fixture::new();
    let (mut writer, mut session) = fixture.begin("ada", &UnknownLiveness).await.unwrap();
    assert_eq!(session, Session::default());
    fixture.journal.submit(fixture.id, command("c1", "early")).await.unwrap();
    assert_eq!(writer.read_inbox().await, [], "nobody can be answered yet");
    let (reply, answer_receiver) = oneshot::channel();
    let mut batch = Batch::default();
    assert!(writer.admit_opening(&session, reply, &mut batch));
    fixture.tell(&mut batch, &mut session, opened());
    let committed = writer.commit(batch, &session, &NoReclaimer).await.unwrap();
    assert!(committed.wrote && committed.entries.len() == 1);
    answer_receiver.await.unwrap().unwrap();
    // What came before the opening is looked at now, without another sign.
    writer.wait_for_inbox_change().now_or_never().unwrap();
    assert_eq!(writer.read_inbox().await, [command("c1", "early")]);

    let (reply, answer_receiver) = oneshot::channel();
    let mut batch = Batch::default();
    assert!(!writer.admit_opening(&session, reply, &mut batch));
    writer.commit(batch, &session, &NoReclaimer).await.unwrap();
    assert_eq!(answer_kind(answer_receiver.await.unwrap()), Kind::CommandRepeated);
}

#[tokio::test(start_paused = true)]
async fn the_next_writer_reads_what_was_committed_from_its_last_snapshot_on() {
    let mut fixture = Fixture::new();
    fixture.limits.snapshot_records = 4;
    let (mut writer, mut session) = fixture.opened().await;
    let mut snapshots = Vec::new();
    for _ in 0..20 {
        fixture.note(&mut writer, &mut session, &NoReclaimer).await.unwrap();
        let snapshot = fixture.journal.snapshot(fixture.id).await.unwrap();
        snapshots.extend(snapshot.map(|snapshot| snapshot.seq));
    }
    snapshots.dedup();
    // The longer the history, the rarer.
    assert_eq!(snapshots, [4, 8, 12, 18]);
    writer.release().await;
    let (_, read) = fixture.begin("bob", &UnknownLiveness).await.unwrap();
    assert_eq!(read, session);
}

#[tokio::test(start_paused = true)]
async fn a_session_with_a_live_holder_is_busy() {
    let fixture = Fixture::new();
    let (_writer, _) = fixture.opened().await;
    assert_eq!(kind(fixture.begin("bob", &UnknownLiveness).await), Kind::SessionBusy);
    let unknown = Fixture { id: SessionId(fixture.world.uuid()), ..Fixture::new() };
    let refused = unknown.begin_if("bob", &UnknownLiveness, IfMissing::Refuse).await;
    assert_eq!(kind(refused), Kind::UnknownSession);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_holder_is_gone_is_taken_over_and_the_old_writer_is_fenced() {
    let fixture = Fixture::new();
    let (mut writer, mut session) = fixture.opened().await;
    let (_next, read) = fixture.begin("bob", &Gone("ada")).await.unwrap();
    assert_eq!(read, session);
    let now = fixture.clock.now().after(fixture.limits.lease_renewal);
    assert!(matches!(writer.renew(now).await, Err(WriterExit::Fenced)));

    let mut batch = Batch::default();
    let (is_new, answer_receiver) =
        take(&writer, &session, &mut batch, &command("c1", "x"), false).await;
    assert!(is_new);
    fixture.tell(
        &mut batch,
        &mut session,
        Event::Annotated { topic: "test".into(), data: Default::default() },
    );
    let exit = writer.commit(batch, &session, &NoReclaimer).await.unwrap_err();
    assert!(matches!(exit, WriterExit::Fenced), "{exit:?}");
    assert_eq!(
        answer_receiver.await.unwrap(),
        Err(TaskRefusal::UseInbox),
        "the inbox knows every answer"
    );
    assert_eq!(fixture.head().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_released_during_a_refusal_is_not_taken_by_force() {
    let fixture = Fixture::new();
    let (writer, _) = fixture.opened().await;
    writer.release().await;
    fixture.flaky.plan("take_lease", Verdict::Refuse(fixture.fault(Kind::SessionBusy)));
    assert_eq!(kind(fixture.begin("bob", &Gone("ada")).await), Kind::SessionBusy);
    fixture.begin("bob", &UnknownLiveness).await.unwrap();
}

/// Ada's lease, given before the clock was set back by so much.
async fn held_from_the_future(fixture: &Fixture, ttl: Duration) -> budao_journal::Lease {
    let request = LeaseRequest {
        session: fixture.id,
        holder: "ada".into(),
        ttl,
        if_missing: IfMissing::Create,
        dead_holder: None,
    };
    fixture.journal.take_lease(request).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_implausibly_long_lease_without_renewals_is_taken_over() {
    let fixture = Fixture::new();
    held_from_the_future(&fixture, Duration::from_secs(61)).await;
    let began = tokio::time::Instant::now();
    fixture.begin("bob", &UnknownLiveness).await.unwrap();
    assert_eq!(
        began.elapsed(),
        Duration::from_secs(15),
        "the time in which a live holder renews it"
    );

    let fixture = Fixture::new();
    held_from_the_future(&fixture, Duration::from_secs(60)).await;
    assert_eq!(kind(fixture.begin("bob", &UnknownLiveness).await), Kind::SessionBusy);
}

#[tokio::test(start_paused = true)]
async fn an_implausibly_long_lease_with_renewals_is_respected() {
    let fixture = Fixture::new();
    let lease = held_from_the_future(&fixture, Duration::from_secs(3_600)).await;
    let journal = fixture.journal.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        journal.renew(&lease, Duration::from_secs(3_600)).await.unwrap();
    });
    assert_eq!(kind(fixture.begin("bob", &UnknownLiveness).await), Kind::SessionBusy);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_cannot_read_the_holder_takes_no_lease() {
    let fixture = Fixture::new();
    let (_writer, _) = fixture.opened().await;
    fixture.flaky.plan("info", Verdict::Refuse(fixture.fault(Kind::JournalBusy)));
    assert_eq!(kind(fixture.begin("bob", &Gone("ada")).await), Kind::JournalBusy);
    let fixture = Fixture::new();
    held_from_the_future(&fixture, Duration::from_secs(3_600)).await;
    let (journal, fault) = (fixture.flaky.clone(), fixture.fault(Kind::JournalBusy));
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        journal.plan("info", Verdict::Refuse(fault));
    });
    assert_eq!(kind(fixture.begin("bob", &UnknownLiveness).await), Kind::JournalBusy);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_records_cannot_be_read_is_not_loaded() {
    let fixture = Fixture::new();
    let (writer, _) = fixture.opened().await;
    writer.release().await;
    fixture.flaky.plan("read", Verdict::Refuse(fixture.fault(Kind::JournalBusy)));
    assert_eq!(kind(fixture.begin("bob", &UnknownLiveness).await), Kind::JournalBusy);
}

#[tokio::test(start_paused = true)]
async fn a_writer_renews_its_lease_on_time_although_the_clock_was_set_back() {
    let fixture = Fixture::new();
    let (mut writer, _) = fixture.opened().await;
    let renewal = fixture.limits.lease_renewal;
    let expires =
        async || fixture.journal.info(fixture.id).await.unwrap().unwrap().lease.unwrap().expires;
    let first = expires().await;
    assert_eq!(writer.renew_at(fixture.clock.now()), fixture.clock.now().after(renewal));
    tokio::time::advance(renewal - Duration::from_millis(1)).await;
    assert!(!writer.renew(fixture.clock.now()).await.unwrap());
    assert_eq!(expires().await, first, "not yet");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!writer.renew(fixture.clock.now()).await.unwrap());
    assert_eq!(expires().await, first.after(renewal));

    fixture.clock.set_back(Duration::from_secs(3_600));
    let now = fixture.clock.now();
    assert_eq!(writer.renew_at(now), now.after(renewal), "soon, not in an hour");
    writer.renew(now).await.unwrap();
    assert_eq!(expires().await, now.after(fixture.limits.lease));
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_repeated_at_the_next_interval() {
    let fixture = Fixture::new();
    let (mut writer, _) = fixture.opened().await;
    tokio::time::advance(fixture.limits.lease_renewal).await;
    fixture.flaky.plan("renew", Verdict::Refuse(fixture.fault(Kind::JournalBusy)));
    let now = fixture.clock.now();
    assert!(!writer.renew(now).await.unwrap());
    assert!(fixture.flaky.is_through());
    assert_eq!(writer.renew_at(now), now.after(fixture.limits.lease_renewal));
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_of_the_inbox_is_repeated_with_the_next_renewal() {
    let fixture = Fixture::new();
    let (mut writer, _) = fixture.opened().await;
    writer.wait_for_inbox_change().await;
    fixture.journal.submit(fixture.id, command("c1", "x")).await.unwrap();
    writer.wait_for_inbox_change().await;
    fixture.flaky.plan("inbox", Verdict::Refuse(fixture.fault(Kind::JournalBusy)));
    assert_eq!(writer.read_inbox().await, []);
    tokio::time::advance(fixture.limits.lease_renewal).await;
    assert!(writer.renew(fixture.clock.now()).await.unwrap());
    assert_eq!(writer.read_inbox().await, [command("c1", "x")]);
    tokio::time::advance(fixture.limits.lease_renewal).await;
    assert!(!writer.renew(fixture.clock.now()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_release_failed_expires() {
    let fixture = Fixture::new();
    let (writer, _) = fixture.opened().await;
    fixture.flaky.plan("release", Verdict::Refuse(fixture.fault(Kind::JournalBusy)));
    writer.release().await;
    assert_eq!(kind(fixture.begin("bob", &UnknownLiveness).await), Kind::SessionBusy);
    tokio::time::advance(fixture.limits.lease).await;
    fixture.begin("bob", &UnknownLiveness).await.unwrap();
}
