//! Past the window: what is gone is named exactly, then comes a snapshot, then the rest.

use std::time::{Duration, Instant};

use budao_client::{Cursor, Events, Fact, Fault, Kind};
use budao_serve::Limits;
use rstest::rstest;

use crate::fixture::{Fixture, Setup, TEST_TIMEOUT, runs, until};

/// What of the history is missing: told before anything of it.
async fn missing(events: &mut Events) -> Fault {
    loop {
        match events.next().await.unwrap() {
            Err(fault) => return fault,
            Ok(event) => assert_eq!(event.seq, None, "{event:?}"),
        }
    }
}

/// Waits until the journal has let go of something of this session.
async fn trimmed(stage: &Fixture, session: &str) -> u64 {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        let info = stage.journal.info(session.parse().unwrap()).await.unwrap().unwrap();
        if info.first_available > 10 {
            return info.first_available;
        }
        assert!(Instant::now() < deadline, "nothing was let go of: {info:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn number(fault: &Fault, fact: Fact) -> u64 {
    fault.detail().get(fact).unwrap().to_string().parse().unwrap()
}

#[rstest]
#[case::by_count("count", |limits: &mut Limits| limits.retention_records = 50)]
#[case::by_bytes("bytes", |limits: &mut Limits| limits.retention_bytes = 8 * 1024)]
#[case::by_age("age", |limits: &mut Limits| limits.retention_age = Duration::from_millis(300))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overflow_is_reported_as_an_exact_gap(
    #[case] reason: &str,
    #[case] bound: fn(&mut Limits),
) {
    let mut setup = Setup::new(runs(30)).gateway(|limits| {
        limits.retention_interval = Duration::from_millis(100);
        bound(limits);
    });
    // The journal keeps everything since its last snapshot but one.
    setup.limits.snapshot_records = 20;
    let stage = setup.start().await;
    let (session, mut events) = stage.session().await;
    for _ in 0..4 {
        session.send("go").await.unwrap();
        until(&mut events, "agent.final_answer").await;
    }
    let epoch = events.cursor().epoch.clone();
    trimmed(&stage, session.id()).await;
    let cursor = Cursor { epoch, seq: 3 };
    let (_session, mut later) = stage.client().attach(session.id(), Some(cursor)).await.unwrap();
    let gap = missing(&mut later).await;
    assert_eq!(gap.kind(), Kind::HistoryGap);
    assert_eq!(number(&gap, Fact::FromSeq), 4);
    let to = number(&gap, Fact::ToSeq);
    assert_eq!(gap.detail().get(Fact::Reason).unwrap().to_string(), reason);
    let mut received = Vec::new();
    loop {
        let event = later.next().await.unwrap().unwrap();
        if event.meta("action") == "replay" && event.seq.is_none() {
            break;
        }
        received.push(event);
    }
    // No frame that arrives is in the reported gap, and none after it is missing: the client checks the chain.
    let mut placed = received.iter().filter_map(|event| event.seq);
    assert!(placed.all(|seq| seq > to), "lost up to {to}");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_of_another_epoch_gets_a_mismatch_and_the_whole_history() {
    let stage = Setup::new(runs(2)).start().await;
    let (session, mut events) = stage.session().await;
    session.send("go").await.unwrap();
    let received = until(&mut events, "agent.final_answer").await;
    for cursor in [
        Cursor { epoch: "00000000".into(), seq: 3 },
        Cursor { epoch: events.cursor().epoch.clone(), seq: 1_000_000 },
    ] {
        let (_session, mut later) =
            stage.client().attach(session.id(), Some(cursor)).await.unwrap();
        let fault = missing(&mut later).await;
        assert_eq!(fault.kind(), Kind::EpochMismatch);
        let again = crate::fixture::replay(&mut later).await;
        assert_eq!(
            crate::fixture::texts_by_event(&again),
            crate::fixture::texts_by_event(&received)
        );
    }
    stage.stop().await;
}
