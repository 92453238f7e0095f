//! Writers of several sessions that go on while the database fails, and the comparison of what they were answered with
//! what is there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use budao_core::{event::Seq, fault::Kind};
use budao_journal::{Append, AppendError, Journal, Lease};

use super::{entries, lease, read_all, session};

/// Long enough for any wait here on a busy machine; reaching it is a failure.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.expect("in time")
}

/// Appends one record after another until it is told to stop. What is unknown is read, as a writer does.
async fn write_until(
    journal: &dyn Journal,
    lease: &Lease,
    stop: &AtomicBool,
    answered: &AtomicU64,
) -> (Seq, u64) {
    let (mut head, mut unknown) = (0, 0);
    while !stop.load(Ordering::SeqCst) {
        match journal.append(Append::new(lease, head, entries(head, 1, 30))).await {
            Ok(now) => {
                assert_eq!(now, head + 1);
                head = now;
                answered.fetch_add(1, Ordering::SeqCst);
            }
            Err(AppendError::Conflict { head: now }) => {
                assert_eq!(now, head + 1, "only this writer moves the head");
                head = now;
            }
            Err(AppendError::Failed(fault)) => {
                assert_eq!(fault.kind(), Kind::JournalBusy, "a writer goes on: {fault:?}");
                unknown += 1;
            }
            Err(AppendError::Fenced) => panic!("nobody took the lease"),
        }
    }
    (head, unknown)
}

pub(crate) type Writers = Vec<tokio::task::JoinHandle<(Seq, u64)>>;

/// Starts a writer for each of so many sessions, with a switch to stop them and a count of answered appends.
pub(crate) async fn start_writers(
    journal: &Arc<dyn Journal>,
    count: u64,
) -> (Writers, Arc<AtomicBool>, Arc<AtomicU64>) {
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut writers = Vec::new();
    for number in 0..count {
        let lease = lease(&**journal, session(number), "writer").await;
        let (journal, stop) = (Arc::clone(journal), Arc::clone(&stop));
        let answered = Arc::clone(&answered);
        writers.push(tokio::spawn(async move {
            write_until(&*journal, &lease, &stop, &answered).await
        }));
    }
    (writers, stop, answered)
}

/// Waits until so many more appends were answered.
pub(crate) async fn more(answered: &AtomicU64, count: u64) {
    let until = answered.load(Ordering::SeqCst) + count;
    while answered.load(Ordering::SeqCst) < until {
        tokio::task::yield_now().await;
    }
}

/// Compares the records of each session with what its writer was answered.
pub(crate) async fn check_writers(journal: &dyn Journal, writers: Writers) {
    for (number, writer) in (0..).zip(writers) {
        let (head, _) = within(writer).await.unwrap();
        // `read_all` checks that each record is the one after the last.
        let records = read_all(journal, session(number)).await.len() as u64;
        assert!(records >= head, "session {number} lost a record");
        assert!(records <= head + 1, "at most one was on its way");
    }
}
