//! The promises while the server has no free connection: a journal that is open waits for room, and no append is lost,
//! written twice, or answered with anything but its outcome.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::support::{
    append, entries, lease, read_all, session, world,
    writers::{check_writers, more, start_writers, within},
};
use budao_core::fault::{Fact, Kind};
use budao_journal::{
    Admin as _, Append, AppendError, Cluster as _, Journal, NodeBeat, Reader as _, Writer as _,
};
use budao_journal_postgres::{Credentials, Postgres, PostgresOptions};
use budao_testkit::postgres::PostgresServer;

/// A statement that found no room still waits after this time.
const PATIENT: Duration = Duration::from_secs(3);

/// A server with a database of the role `worker`, and the journal there.
async fn start() -> Option<(PostgresServer, Postgres)> {
    let server = PostgresServer::start()?;
    server.sql("CREATE ROLE worker LOGIN");
    server.sql("CREATE DATABASE work OWNER worker");
    let journal = open(&server).await.unwrap();
    Some((server, journal))
}

async fn open(server: &PostgresServer) -> Result<Postgres, budao_core::fault::Fault> {
    let url = format!("postgres://worker@{}/work", server.address());
    let (credentials, options) = (Credentials::default(), PostgresOptions::default());
    Postgres::open(&url, budao_journal::Access::Create, &credentials, world(), options).await
}

/// Leaves no room for connections of the role, and ends those that it has. This commit waits for no standby.
fn take_room(server: &PostgresServer) {
    server.sql("SET synchronous_commit = local; ALTER ROLE worker CONNECTION LIMIT 0");
    // One that had passed the limit and is just logging in shows up a moment later, on a busy machine much later.
    server.sql(
        "DO $$ BEGIN FOR pass IN 1..40 LOOP \
            PERFORM pg_stat_clear_snapshot(); \
            PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'worker'; \
            PERFORM pg_sleep(0.05); \
        END LOOP; END $$",
    );
}

fn make_room(server: &PostgresServer) {
    server.sql("ALTER ROLE worker CONNECTION LIMIT -1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_sessions_wait_for_a_free_connection_and_nothing_is_lost_or_twice() {
    let Some((server, journal)) = start().await else { return };
    let held = lease(&journal, session(100), "holder").await;
    append(&journal, &held, 0, 2).await;
    let journal = Arc::new(journal);
    let writing: Arc<dyn Journal> = Arc::clone(&journal) as Arc<dyn Journal>;
    let (writers, stop, answered) = start_writers(&writing, 8).await;
    for _ in 0..3 {
        within(more(&answered, 100)).await;
        take_room(&server);
        let beat = NodeBeat {
            holder: "holder".into(),
            status: Default::default(),
            joined: vec![],
            left: vec![],
        };
        let waiting = async {
            let delete = async { journal.delete(session(101)).await };
            tokio::try_join!(
                async { journal.renew(&held, Duration::from_secs(60)).await },
                async { journal.beat(beat).await },
                async { journal.info(held.session).await },
                delete,
            )
        };
        let mut waiting = std::pin::pin!(waiting);
        let early = tokio::time::timeout(PATIENT, &mut waiting).await;
        assert!(early.is_err(), "nothing fails for want of a connection: {early:?}");
        let refused = open(&server).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::JournalConnectionsFull, "opening says it: {refused:?}");
        make_room(&server);
        let (renewed, _, info, _) = within(waiting).await.unwrap();
        assert_eq!((renewed.token, info.unwrap().head), (held.token, 2));
    }
    within(more(&answered, 100)).await;
    stop.store(true, Ordering::SeqCst);
    check_writers(&*writing, writers).await;
    assert_eq!(read_all(&*writing, held.session).await.len(), 2);
    writing.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_of_unknown_outcome_is_found_when_a_connection_is_free_again() {
    let Some((server, journal)) = start().await else { return };
    let lease = lease(&journal, session(1), "writer").await;
    append(&journal, &lease, 0, 1).await;
    // The commit waits for a standby that is not there, so that its connection can be ended in the middle.
    server.sql("ALTER SYSTEM SET synchronous_standby_names = 'absent'");
    server.reload();
    let appending = journal.append(Append::new(&lease, 1, entries(1, 1, 10)));
    let starving = async {
        let waits = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        while server.sql(waits) != "t" {
            tokio::task::yield_now().await;
        }
        take_room(&server);
        server.sql("ALTER SYSTEM RESET synchronous_standby_names");
        server.reload();
    };
    let mut both = std::pin::pin!(async { tokio::join!(appending, starving).0 });
    let early = tokio::time::timeout(PATIENT * 4, &mut both).await;
    assert!(early.is_err(), "the outcome is not known yet: {early:?}");
    make_room(&server);
    assert_eq!(within(both).await, Ok(2));
    assert_eq!(read_all(&journal, lease.session).await.len(), 2);
    journal.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_that_finds_no_connection_ends_as_busy_and_names_the_reason() {
    let Some((server, journal)) = start().await else { return };
    let lease = lease(&journal, session(1), "writer").await;
    append(&journal, &lease, 0, 1).await;
    take_room(&server);
    let refused = within(journal.append(Append::new(&lease, 1, entries(1, 1, 10)))).await;
    let Err(AppendError::Failed(fault)) = refused else { panic!("{refused:?}") };
    assert_eq!(fault.kind(), Kind::JournalBusy, "{fault:?}");
    assert!(fault.causes().iter().any(|cause| cause.contains("53300")), "{fault:?}");
    assert!(fault.detail().text(Fact::Path).is_some_and(|path| path.contains("worker@")));
    make_room(&server);
    assert_eq!(within(append(&journal, &lease, 1, 1)).await, 2);
    journal.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_share_the_connections_that_a_process_has_while_it_gets_no_others() {
    let Some((server, journal)) = start().await else { return };
    let mut leases = Vec::new();
    for number in 0..8 {
        leases.push(lease(&journal, session(number), "writer").await);
    }
    // Only those that these statements opened are left.
    server.sql("ALTER ROLE worker CONNECTION LIMIT 0");
    let appends = leases.iter().map(|lease| append(&journal, lease, 0, 1));
    let heads = tokio::time::timeout(PATIENT, futures::future::join_all(appends)).await;
    assert_eq!(heads.expect("no append waits for a connection"), [1; 8]);
    let reads = leases.iter().map(|lease| journal.info(lease.session));
    let found = tokio::time::timeout(PATIENT, futures::future::try_join_all(reads)).await;
    let found = found.expect("no read waits for a connection").unwrap();
    assert!(found.into_iter().all(|info| info.unwrap().head == 1));
    make_room(&server);
    journal.close().await;
}
