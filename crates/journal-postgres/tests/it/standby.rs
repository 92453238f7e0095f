//! The promises while the standby is away, beside an old primary that came back, and beside an old snapshot.

use std::{
    io::Write as _,
    process::Stdio,
    time::{Duration, Instant},
};

use crate::support::{append, entries, lease, read_all, session, world};
use budao_core::fault::Kind;
use budao_journal::{Admin as _, Append, AppendError, IfMissing, LeaseRequest, Writer as _};
use budao_journal_postgres::{Credentials, Postgres, PostgresOptions};
use budao_testkit::postgres::PostgresServer;

/// A server has this long to answer an append …
const ANSWERED: Duration = Duration::from_secs(10);
/// … and then its outcome is read for 20 s; the rest is for a busy machine.
const REFUSED: Duration = Duration::from_secs(10 + 20 + 10);
/// Reaching it is a failure.
const LIMIT: Duration = Duration::from_secs(60);

async fn open(url: &str) -> Postgres {
    let (credentials, options) = (Credentials::default(), PostgresOptions::default());
    let access = budao_journal::Access::Create;
    Postgres::open(url, access, &credentials, world(), options).await.unwrap()
}

/// A server and its synchronous standby; `None` if PostgreSQL is not installed.
async fn pair() -> Option<(PostgresServer, PostgresServer)> {
    let primary = PostgresServer::start()?;
    let standby = primary.standby("second");
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'second'");
    primary.reload();
    let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    while primary.sql(synchronous) != "1" {
        tokio::task::yield_now().await;
    }
    Some((primary, standby))
}

/// Appends one record that nobody can confirm; it must be refused, and not answered.
async fn is_refused_as_busy(journal: &Postgres, lease: &budao_journal::Lease) {
    let began = Instant::now();
    match journal.append(Append::new(lease, 3, entries(3, 1, 10))).await {
        Err(AppendError::Failed(fault)) => assert_eq!(fault.kind(), Kind::JournalBusy, "{fault:?}"),
        other => panic!("no standby has it: {other:?}"),
    }
    let took = began.elapsed();
    assert!((ANSWERED..REFUSED).contains(&took), "refused after {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_standby_is_away_appends_are_refused_after_30_s_and_readers_go_on() {
    let Some((primary, standby)) = pair().await else { return };
    let journal = open(&primary.url("budao")).await;
    let lease = lease(&journal, session(1), "writer").await;
    append(&journal, &lease, 0, 3).await;
    standby.stop();
    let reading = async {
        let began = Instant::now();
        assert_eq!(read_all(&journal, lease.session).await.len(), 3);
        assert!(began.elapsed() < ANSWERED, "a reader does not wait");
    };
    tokio::join!(is_refused_as_busy(&journal, &lease), reading);
    standby.restart();
    // The refused append may be there now; whichever it is, the next one follows the last record.
    let mut head = 3;
    let next = async {
        loop {
            match journal.append(Append::new(&lease, head, entries(head, 1, 10))).await {
                Ok(now) => return now,
                Err(AppendError::Conflict { head: now }) => head = now,
                Err(AppendError::Failed(_)) => {}
                Err(AppendError::Fenced) => panic!("nobody took the lease"),
            }
        }
    };
    let head = tokio::time::timeout(LIMIT, next).await.expect("it goes on");
    assert_eq!(read_all(&journal, lease.session).await.len() as u64, head);
    journal.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_that_lost_its_standby_to_a_failover_answers_no_append() {
    let Some((old, new)) = pair().await else { return };
    let behind = open(&old.url("budao")).await;
    let stale = lease(&behind, session(1), "writer").await;
    append(&behind, &stale, 0, 3).await;
    // The old primary lives on, cut off: the other one is promoted.
    new.promote();
    let ahead = open(&new.url("budao")).await;
    let request = LeaseRequest {
        session: stale.session,
        holder: "heir".into(),
        ttl: Duration::from_secs(60),
        if_missing: IfMissing::Refuse,
        dead_holder: Some("writer".into()),
    };
    let heir = ahead.take_lease(request).await.unwrap();
    let (head, ()) = tokio::join!(append(&ahead, &heir, 3, 2), is_refused_as_busy(&behind, &stale));
    assert_eq!(head, 5);
    assert_eq!(read_all(&ahead, stale.session).await.len(), 5);
    ahead.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_an_old_snapshot_no_append_is_wrong_and_readers_see_all() {
    let Some(server) = PostgresServer::shared() else { return };
    let journal = open(&server.url(&crate::support::schema())).await;
    let lease = lease(&journal, session(1), "writer").await;
    append(&journal, &lease, 0, 1).await;
    let mut psql = server.psql().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = psql.stdin.take().unwrap();
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current(), 'old snapshot';";
    writeln!(input, "{begin}").unwrap();
    let holds = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' \
                 AND query LIKE '%old snapshot%'";
    while server.sql(holds) != "1" {
        tokio::task::yield_now().await;
    }
    // Every append leaves a version of the session's row that the snapshot keeps.
    for head in 1..400 {
        assert_eq!(append(&journal, &lease, head, 1).await, head + 1);
    }
    assert_eq!(read_all(&journal, lease.session).await.len(), 400);
    assert_eq!(server.sql(holds), "1", "the snapshot was held all the time");
    drop(input);
    psql.wait().unwrap();
    journal.close().await;
}
