//! Whose sessions get new epochs after a restore, a dump or a failover: those whose confirmed records may be missing.

use std::time::Duration;

use crate::support::{append, lease, read_all, schema, session, world};
use budao_core::{
    event::{Epoch, SessionId},
    fault::Kind,
};
use budao_journal::{
    Admin as _, Cluster as _, Lease, NodeBeat, NodeStatus, Reader as _, Writer as _,
};
use budao_journal_postgres::{Credentials, Postgres, PostgresOptions};
use budao_testkit::postgres::PostgresServer;
use futures::StreamExt as _;

/// Long enough for any wait here on a busy machine; reaching it is a failure.
const LIMIT: Duration = Duration::from_secs(60);

async fn open(url: &str) -> Postgres {
    let (credentials, options) = (Credentials::default(), PostgresOptions::default());
    let access = budao_journal::Access::Create;
    Postgres::open(url, access, &credentials, world(), options).await.unwrap()
}

/// Writes three records to a session and releases its lease.
async fn write(journal: &Postgres, number: u64) -> Lease {
    let lease = lease(journal, session(number), "writer").await;
    append(journal, &lease, 0, 3).await;
    journal.release(&lease).await.unwrap();
    lease
}

/// The epoch that readers see.
async fn epoch(journal: &Postgres, session: SessionId) -> Epoch {
    journal.info(session).await.unwrap().unwrap().epoch
}

/// The epoch with which the next writer begins.
async fn next_epoch(journal: &Postgres, number: u64) -> Epoch {
    let lease = lease(journal, session(number), "next writer").await;
    assert_eq!(epoch(journal, lease.session).await, lease.epoch);
    journal.release(&lease).await.unwrap();
    lease.epoch
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restore_to_a_point_in_time_each_session_gets_one_new_epoch_with_its_next_lease() {
    let Some(server) = PostgresServer::start() else { return };
    let journal = open(&server.url("budao")).await;
    let (first, second) = (write(&journal, 1).await, write(&journal, 2).await);
    let mut copy = server.back_up();
    server.sql("SELECT pg_create_restore_point('noon')");
    let late = lease(&journal, first.session, "late writer").await;
    append(&journal, &late, 3, 2).await;
    journal.close().await;

    copy.restore_to(&server, "noon");
    let restored = open(&copy.url("budao")).await;
    assert_eq!(epoch(&restored, first.session).await, first.epoch, "what is there, readers know");
    let mut follower = restored.follow(first.session, 0);
    assert_eq!(follower.next().await.unwrap().unwrap().len(), 3);
    let again = lease(&restored, first.session, "writer").await;
    assert_eq!(again.head, 3);
    assert_ne!(again.epoch, first.epoch, "positions 4 and 5 were confirmed once");
    assert!(again.token > late.token, "no token is given twice");
    let ahead = restored.follow(first.session, 5).next().await.unwrap();
    assert_eq!(ahead.unwrap_err().kind(), Kind::EpochMismatch);
    assert_eq!(append(&restored, &again, 3, 1).await, 4);
    let next = tokio::time::timeout(LIMIT, follower.next()).await.unwrap().unwrap().unwrap();
    assert_eq!((next[0].seq, next[0].epoch), (4, again.epoch), "not the one of the lost record");
    assert_eq!(read_all(&restored, first.session).await.len(), 4);
    restored.release(&again).await.unwrap();
    let created = write(&restored, 3).await;
    restored.close().await;

    let reopened = open(&copy.url("budao")).await;
    assert_eq!(next_epoch(&reopened, 1).await, again.epoch, "once is enough");
    assert_eq!(next_epoch(&reopened, 3).await, created.epoch);
    let renewed = next_epoch(&reopened, 2).await;
    assert_ne!(renewed, second.epoch, "also long after the restore");
    assert_eq!(next_epoch(&reopened, 2).await, renewed);
    reopened.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_dump_gives_new_epochs_and_so_does_the_command_of_an_operator() {
    let Some(server) = PostgresServer::start() else { return };
    let schema = schema();
    let journal = open(&server.url(&schema)).await;
    let written = write(&journal, 1).await;
    journal.close().await;
    let dump = server.dump(&schema);
    server.sql(&format!("DROP SCHEMA {schema} CASCADE"));
    server.run_script(&dump);
    let restored = open(&server.url(&schema)).await;
    let after_dump = next_epoch(&restored, 1).await;
    assert_ne!(after_dump, written.epoch);
    restored.renew_epochs().await.unwrap();
    let after_command = next_epoch(&restored, 1).await;
    assert_ne!(after_command, after_dump);
    assert_eq!(next_epoch(&restored, 1).await, after_command);
    restored.close().await;
}

/// A journal on both servers of a pair, with a released session 1 and a session 2 that is being written.
struct JournalOnPair {
    journal: Postgres,
    released: Lease,
    held: Lease,
}

impl JournalOnPair {
    async fn start(pair: [&PostgresServer; 2], schema: &str, has_server: bool) -> Self {
        let [first, second] = pair.map(PostgresServer::address);
        let journal =
            open(&format!("postgres://postgres@{first},{second}/postgres?{schema}")).await;
        let released = write(&journal, 1).await;
        let held = lease(&journal, session(2), "writer").await;
        append(&journal, &held, 0, 3).await;
        if has_server {
            let (joined, left) = (vec![], vec![]);
            let (holder, status) = ("a server".into(), NodeStatus::default());
            journal.beat(NodeBeat { holder, status, joined, left }).await.unwrap();
        }
        Self { journal, released, held }
    }

    /// Whether the released session keeps its epoch. The one that is being written keeps it in any case.
    async fn keeps_epoch(self) -> bool {
        let Self { journal, released, held } = self;
        assert_eq!(append(&journal, &held, 3, 1).await, 4, "its writer goes on");
        assert_eq!(epoch(&journal, held.session).await, held.epoch);
        let next = next_epoch(&journal, 1).await;
        journal.close().await;
        next == released.epoch
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_keeps_epochs_only_if_the_address_says_it_is_lossless_and_a_server_was_there() {
    let Some(primary) = PostgresServer::start() else { return };
    let standby = primary.standby("second");
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'second'");
    primary.reload();
    let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    while primary.sql(synchronous) != "1" {
        tokio::task::yield_now().await;
    }
    let pair = [&primary, &standby];
    let kept = JournalOnPair::start(pair, "schema=kept&failover=lossless", true).await;
    let unsure = JournalOnPair::start(pair, "schema=unsure", true).await;
    // A restored backup looks like this: its last beat is old.
    let old = JournalOnPair::start(pair, "schema=old&failover=lossless", false).await;
    primary.kill();
    standby.promote();
    assert!(kept.keeps_epoch().await);
    assert!(!unsure.keeps_epoch().await);
    assert!(!old.keeps_epoch().await);
}
