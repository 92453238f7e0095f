//! A session that is alone writes on its own thread; everything else goes through the writer's.

use std::time::{Duration, Instant};

use crate::support::open;
use budao_core::fault::Kind;
use budao_journal::{Admin, Append, AppendError, Filter, Reader, Writer};
use budao_testkit::records::{append, entries, lease, read_all, session};
use futures::future::join_all;
use rusqlite::Connection;

/// Tries enough that some find the disk quick, however busy the machine is.
const MANY: u64 = 200;

#[tokio::test]
async fn a_sole_writer_writes_on_its_own_thread_and_durably() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let journal = open(&path).await;
    let lease = lease(&journal, session(1), "w").await;
    let mut follower = journal.follow(session(1), 0);
    for head in 0..MANY {
        append(&journal, &lease, head, 1).await;
        let delivered = futures::StreamExt::next(&mut follower).await.unwrap().unwrap();
        assert_eq!(delivered.last().unwrap().seq, head + 1, "told at once, in order");
    }
    let counters = journal.counters();
    assert!(counters.inline_writes > 0, "{counters:?}");
    assert!(counters.transactions >= MANY, "each with a sync of its own: {counters:?}");
    // Nobody asked the thread for anything, and the lists are up to date all the same.
    let listed = journal.sessions(Filter::default()).await.unwrap();
    assert_eq!(listed[0].head, MANY);
    drop(follower);
    journal.close().await;
    let late = journal.append(Append::new(&lease, MANY, entries(MANY, 1, 1))).await;
    let Err(AppendError::Failed(fault)) = late else { panic!("{late:?}") };
    assert_eq!(fault.kind(), Kind::ShuttingDown);
    assert_eq!(read_all(&open(&path).await, session(1)).await.len() as u64, MANY);
}

#[tokio::test]
async fn sessions_that_write_together_share_their_syncs() {
    let directory = tempfile::tempdir().unwrap();
    let journal = open(&directory.path().join("journal.db")).await;
    let leases = join_all((1..=16).map(|id| lease(&journal, session(id), "w"))).await;
    let before = journal.counters();
    for head in 0..20 {
        join_all(leases.iter().map(|lease| append(&journal, lease, head, 1))).await;
    }
    let after = journal.counters();
    assert_eq!(after.inline_writes, before.inline_writes, "none of them was alone");
    assert!(after.transactions - before.transactions < 160, "{before:?} {after:?}");
}

/// Goal: a lone session's thread is never kept waiting by another process.
/// Method: another connection holds the file's lock; meanwhile this thread, the only one, must go on.
#[tokio::test]
async fn a_sole_writer_never_blocks_its_thread_on_the_lock_of_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.db");
    let journal = open(&path).await;
    let lease = lease(&journal, session(1), "w").await;
    let mut head = 0;
    let patience = Instant::now() + Duration::from_secs(60);
    while journal.counters().inline_writes < 3 {
        assert!(Instant::now() < patience, "never alone: {:?}", journal.counters());
        head = append(&journal, &lease, head, 1).await;
    }
    let other = Connection::open(&path).unwrap();
    for _ in 0..5 {
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let waiting = append(&journal, &lease, head, 1);
        tokio::pin!(waiting);
        // Were it blocked, this would not come to its end before the lock is free, and it never would be.
        assert!(futures::poll!(&mut waiting).is_pending());
        other.execute_batch("ROLLBACK").unwrap();
        head = waiting.await;
        head = append(&journal, &lease, head, 1).await;
        head = append(&journal, &lease, head, 1).await;
    }
    assert_eq!(read_all(&journal, session(1)).await.len() as u64, head);
}
