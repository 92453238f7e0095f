//! The lease: had once, taken over from who is gone, renewed in time.

use budao_journal::{LeaseRequest, tenure::NoCensus};
use futures::FutureExt as _;

use super::*;

fn kind<T: std::fmt::Debug>(done: Result<T, Fault>) -> Kind {
    done.unwrap_err().kind()
}

#[tokio::test(start_paused = true)]
async fn a_session_is_opened_once_and_its_inbox_is_read_only_then() {
    let house = House::new();
    let (mut tenure, mut session) = house.begin("ada", &NoCensus).await.unwrap();
    assert_eq!(session, Session::default());
    house.journal.submit(house.id, command("c1", "early")).await.unwrap();
    assert_eq!(tenure.inbox().await, [], "nobody can be answered yet");
    let (reply, heard) = oneshot::channel();
    let mut round = Round::default();
    assert!(tenure.opens(&session, reply, &mut round));
    house.tell(&mut round, &mut session, opened());
    let committed = tenure.commit(round, &session, &NoRoom).await.unwrap();
    assert!(committed.wrote && committed.entries.len() == 1);
    heard.await.unwrap().unwrap();
    // What came before the opening is looked at now, without another sign.
    tenure.changed().now_or_never().unwrap();
    assert_eq!(tenure.inbox().await, [command("c1", "early")]);

    let (reply, heard) = oneshot::channel();
    assert!(!tenure.opens(&session, reply, &mut Round::default()));
    assert_eq!(kind(heard.await.unwrap()), Kind::CommandRepeated);
}

#[tokio::test(start_paused = true)]
async fn the_next_writer_reads_what_was_committed_from_its_last_snapshot_on() {
    let mut house = House::new();
    house.limits.snapshot_records = 4;
    let (mut tenure, mut session) = house.opened().await;
    let mut snapshots = Vec::new();
    for _ in 0..20 {
        house.note(&mut tenure, &mut session, &NoRoom).await.unwrap();
        let snapshot = house.journal.snapshot(house.id).await.unwrap();
        snapshots.extend(snapshot.map(|snapshot| snapshot.seq));
    }
    snapshots.dedup();
    // The longer the history, the rarer.
    assert_eq!(snapshots, [4, 8, 12, 18]);
    tenure.release().await;
    let (_, read) = house.begin("bob", &NoCensus).await.unwrap();
    assert_eq!(read, session);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_somebody_holds_is_busy() {
    let house = House::new();
    let (_tenure, _) = house.opened().await;
    assert_eq!(kind(house.begin("bob", &NoCensus).await), Kind::SessionBusy);
    let unknown = House { id: SessionId(house.world.uuid()), ..House::new() };
    let refused = unknown.begin_if("bob", &NoCensus, Missing::Refuse).await;
    assert_eq!(kind(refused), Kind::UnknownSession);
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_holder_is_gone_is_taken_over_and_the_old_writer_is_fenced() {
    let house = House::new();
    let (mut tenure, mut session) = house.opened().await;
    let (_next, read) = house.begin("bob", &Gone("ada")).await.unwrap();
    assert_eq!(read, session);
    let now = house.clock.now().after(house.limits.lease_renewal);
    assert!(matches!(tenure.renew(now).await, Err(Exit::Fenced)));

    let mut round = Round::default();
    let (is_new, heard) = take(&tenure, &session, &mut round, &command("c1", "x"), false).await;
    assert!(is_new);
    house.tell(
        &mut round,
        &mut session,
        Event::Noted { topic: "test".into(), data: Default::default() },
    );
    let exit = tenure.commit(round, &session, &NoRoom).await.unwrap_err();
    assert!(matches!(exit, Exit::Fenced), "{exit:?}");
    assert_eq!(kind(heard.await.unwrap()), Kind::SessionBusy, "the inbox knows every answer");
    assert_eq!(house.head().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_given_back_while_we_are_refused_is_no_reason_to_force_it() {
    let house = House::new();
    let (tenure, _) = house.opened().await;
    tenure.release().await;
    house.flaky.plan("take_lease", Trouble::Lost(house.fault(Kind::SessionBusy)));
    assert_eq!(kind(house.begin("bob", &Gone("ada")).await), Kind::SessionBusy);
    house.begin("bob", &NoCensus).await.unwrap();
}

/// Ada's lease, given before the clock was set back by so much.
async fn held_from_the_future(house: &House, ttl: Duration) -> budao_journal::Lease {
    let request = LeaseRequest {
        session: house.id,
        holder: "ada".into(),
        ttl,
        missing: Missing::Create,
        instead_of: None,
    };
    house.journal.take_lease(request).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lease_longer_than_leases_run_is_taken_over_when_nobody_renews_it() {
    let house = House::new();
    held_from_the_future(&house, Duration::from_secs(61)).await;
    let began = tokio::time::Instant::now();
    house.begin("bob", &NoCensus).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(15), "as long as whoever lives renews it in");

    let house = House::new();
    held_from_the_future(&house, Duration::from_secs(60)).await;
    assert_eq!(kind(house.begin("bob", &NoCensus).await), Kind::SessionBusy);
}

#[tokio::test(start_paused = true)]
async fn a_lease_longer_than_leases_run_that_is_renewed_is_somebodys() {
    let house = House::new();
    let lease = held_from_the_future(&house, Duration::from_secs(3_600)).await;
    let journal = house.journal.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        journal.renew(&lease, Duration::from_secs(3_600)).await.unwrap();
    });
    assert_eq!(kind(house.begin("bob", &NoCensus).await), Kind::SessionBusy);
}

#[tokio::test(start_paused = true)]
async fn who_cannot_look_whose_the_lease_is_takes_nothing() {
    let house = House::new();
    let (_tenure, _) = house.opened().await;
    house.flaky.plan("info", Trouble::Lost(house.fault(Kind::JournalBusy)));
    assert_eq!(kind(house.begin("bob", &Gone("ada")).await), Kind::JournalBusy);
    let house = House::new();
    held_from_the_future(&house, Duration::from_secs(3_600)).await;
    let (journal, fault) = (house.flaky.clone(), house.fault(Kind::JournalBusy));
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        journal.plan("info", Trouble::Lost(fault));
    });
    assert_eq!(kind(house.begin("bob", &NoCensus).await), Kind::JournalBusy);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_cannot_be_read_is_not_begun() {
    let house = House::new();
    let (tenure, _) = house.opened().await;
    tenure.release().await;
    house.flaky.plan("read", Trouble::Lost(house.fault(Kind::JournalBusy)));
    assert_eq!(kind(house.begin("bob", &NoCensus).await), Kind::JournalBusy);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_when_it_is_time_and_when_the_clock_was_set_back() {
    let house = House::new();
    let (mut tenure, _) = house.opened().await;
    let renewal = house.limits.lease_renewal;
    let expires =
        async || house.journal.info(house.id).await.unwrap().unwrap().lease.unwrap().expires;
    let first = expires().await;
    assert_eq!(tenure.renew_at(house.clock.now()), house.clock.now().after(renewal));
    tokio::time::advance(renewal - Duration::from_millis(1)).await;
    assert!(!tenure.renew(house.clock.now()).await.unwrap());
    assert_eq!(expires().await, first, "not yet");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!tenure.renew(house.clock.now()).await.unwrap());
    assert_eq!(expires().await, first.after(renewal));

    house.clock.set_back(Duration::from_secs(3_600));
    let now = house.clock.now();
    assert_eq!(tenure.renew_at(now), now.after(renewal), "soon, not in an hour");
    tenure.renew(now).await.unwrap();
    assert_eq!(expires().await, now.after(house.limits.lease));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_is_tried_again_at_its_next_time() {
    let house = House::new();
    let (mut tenure, _) = house.opened().await;
    tokio::time::advance(house.limits.lease_renewal).await;
    house.flaky.plan("renew", Trouble::Lost(house.fault(Kind::JournalBusy)));
    let now = house.clock.now();
    assert!(!tenure.renew(now).await.unwrap());
    assert!(house.flaky.is_through());
    assert_eq!(tenure.renew_at(now), now.after(house.limits.lease_renewal));
}

#[tokio::test(start_paused = true)]
async fn an_inbox_that_could_not_be_read_is_looked_at_again_with_the_next_renewal() {
    let house = House::new();
    let (mut tenure, _) = house.opened().await;
    tenure.changed().await;
    house.journal.submit(house.id, command("c1", "x")).await.unwrap();
    tenure.changed().await;
    house.flaky.plan("inbox", Trouble::Lost(house.fault(Kind::JournalBusy)));
    assert_eq!(tenure.inbox().await, []);
    tokio::time::advance(house.limits.lease_renewal).await;
    assert!(tenure.renew(house.clock.now()).await.unwrap());
    assert_eq!(tenure.inbox().await, [command("c1", "x")]);
    tokio::time::advance(house.limits.lease_renewal).await;
    assert!(!tenure.renew(house.clock.now()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_could_not_be_given_back_runs_out() {
    let house = House::new();
    let (tenure, _) = house.opened().await;
    house.flaky.plan("release", Trouble::Lost(house.fault(Kind::JournalBusy)));
    tenure.release().await;
    assert_eq!(kind(house.begin("bob", &NoCensus).await), Kind::SessionBusy);
    tokio::time::advance(house.limits.lease).await;
    house.begin("bob", &NoCensus).await.unwrap();
}
