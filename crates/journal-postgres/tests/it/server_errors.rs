//! Errors that the server reports in the middle of an append: each is told by its kind, and nothing is half written.

use std::time::{Duration, Instant};

use crate::support::{append, entries, lease, session, world, writers::within};
use budao_core::fault::Kind;
use budao_journal::{Admin as _, Append, AppendError, Lease, Reader as _, Writer as _};
use budao_journal_postgres::Postgres;
use budao_testkit::postgres::PostgresServer;

/// Makes inserts of records fail with this SQLSTATE, so many times.
fn fail_inserts(server: &PostgresServer, schema: &str, code: &str, times: u32) {
    server.sql(&format!(
        "CREATE SEQUENCE {schema}.failures; \
         CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF nextval('{schema}.failures') <= {times} THEN RAISE EXCEPTION 'made to fail' USING ERRCODE = '{code}'; END IF; \
         RETURN NEW; END $$; \
         CREATE TRIGGER fail BEFORE INSERT ON {schema}.batch FOR EACH ROW EXECUTE FUNCTION {schema}.fail()"
    ));
}

fn stop_failing(server: &PostgresServer, schema: &str) {
    server.sql(&format!(
        "DROP TRIGGER fail ON {schema}.batch; DROP FUNCTION {schema}.fail; DROP SEQUENCE {schema}.failures"
    ));
}

/// A statement that waits for the server to take writes still waits after this time.
const PATIENT: Duration = Duration::from_secs(3);

/// An append of one record with an answerless snapshot: all of it or nothing.
async fn try_append(journal: &Postgres, lease: &Lease, head: u64) -> Result<u64, AppendError> {
    let whole = Append::new(lease, head, entries(head, 1, 20));
    journal.append(Append { snapshot: Some(vec![1]), ..whole }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_the_server_has_its_kind_writes_nothing_and_passes() {
    let Some(server) = PostgresServer::shared() else { return };
    for (code, kind) in [
        ("53100", Kind::DiskFull),
        ("53200", Kind::OutOfMemory),
        ("58030", Kind::SyncFailed),
        ("XX001", Kind::JournalDamaged),
        ("XX002", Kind::JournalDamaged),
        ("22012", Kind::Bug),
    ] {
        let schema = crate::support::schema();
        let journal = crate::support::open(&server.url(&schema), world()).await;
        let (one, other) = (
            lease(&journal, session(1), "writer").await,
            lease(&journal, session(2), "writer").await,
        );
        append(&journal, &one, 0, 2).await;
        fail_inserts(&server, &schema, code, 1000);
        // Both in one group or not: neither is written.
        let (first, second) =
            tokio::join!(try_append(&journal, &one, 2), try_append(&journal, &other, 0));
        for refused in [first, second] {
            let Err(AppendError::Failed(fault)) = refused else { panic!("{code}: {refused:?}") };
            assert_eq!(fault.kind(), kind, "{code}: {fault:?}");
        }
        assert_eq!(journal.info(one.session).await.unwrap().unwrap().head, 2, "{code}");
        assert_eq!(journal.snapshot(one.session).await.unwrap(), None, "{code}");
        stop_failing(&server, &schema);
        assert_eq!(try_append(&journal, &one, 2).await, Ok(3), "{code}");
        assert_eq!(try_append(&journal, &other, 0).await, Ok(1), "{code}");
        assert_eq!(crate::support::read_all(&journal, one.session).await.len(), 3);
        journal.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_or_a_conflict_is_tried_again_and_never_for_ever() {
    let Some(server) = PostgresServer::shared() else { return };
    for code in ["40P01", "40001"] {
        let schema = crate::support::schema();
        let journal = crate::support::open(&server.url(&schema), world()).await;
        let lease = lease(&journal, session(1), "writer").await;
        fail_inserts(&server, &schema, code, 2);
        assert_eq!(try_append(&journal, &lease, 0).await, Ok(1), "{code}");
        stop_failing(&server, &schema);
        fail_inserts(&server, &schema, code, 1000);
        let refused = try_append(&journal, &lease, 1).await;
        let Err(AppendError::Failed(fault)) = refused else { panic!("{code}: {refused:?}") };
        assert_eq!(fault.kind(), Kind::JournalBusy, "{code}: {fault:?}");
        let attempts: u32 =
            server.sql(&format!("SELECT last_value FROM {schema}.failures")).parse().unwrap();
        assert!(attempts < 10, "{attempts} attempts");
        journal.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_were_dropped_and_rights_that_were_revoked_are_named() {
    let Some(server) = PostgresServer::start() else { return };
    server.sql("CREATE ROLE worker LOGIN");
    server.sql("CREATE DATABASE work OWNER worker");
    let url = format!("postgres://worker@{}/work", server.address());
    let journal = crate::support::open(&url, world()).await;
    let lease = lease(&journal, session(1), "writer").await;
    append(&journal, &lease, 0, 1).await;
    let in_database = |sql: &str| {
        let done = server.psql().args(["-d", "work", "-c", sql]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    in_database("ALTER TABLE budao.session OWNER TO postgres");
    let refused = try_append(&journal, &lease, 1).await;
    let Err(AppendError::Failed(fault)) = refused else { panic!("{refused:?}") };
    assert_eq!(fault.kind(), Kind::JournalNoRights, "{fault:?}");
    in_database("ALTER TABLE budao.session OWNER TO worker");
    assert_eq!(try_append(&journal, &lease, 1).await, Ok(2), "it goes on");
    in_database("DROP SCHEMA budao CASCADE");
    let refused = try_append(&journal, &lease, 2).await;
    let Err(AppendError::Failed(fault)) = refused else { panic!("{refused:?}") };
    assert_eq!(fault.kind(), Kind::JournalGone, "{fault:?}");
    journal.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_became_read_only_is_waited_for_named_after_20_s_and_nothing_is_written() {
    let Some(server) = PostgresServer::start() else { return };
    let journal = crate::support::open(&server.url("budao"), world()).await;
    let lease = lease(&journal, session(1), "writer").await;
    append(&journal, &lease, 0, 1).await;
    let set_read_only = |value: &str| {
        server.sql(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}"));
        server.reload();
        while server.sql("SHOW default_transaction_read_only") != value {}
    };
    set_read_only("on");
    let mut waiting = std::pin::pin!(try_append(&journal, &lease, 1));
    let early = tokio::time::timeout(PATIENT, &mut waiting).await;
    assert!(early.is_err(), "it may be a failover: {early:?}");
    set_read_only("off");
    assert_eq!(within(waiting).await, Ok(2));
    set_read_only("on");
    let began = Instant::now();
    let refused = within(try_append(&journal, &lease, 2)).await;
    let took = began.elapsed().as_secs();
    assert!((20..30).contains(&took), "refused after {took} s");
    let Err(AppendError::Failed(fault)) = refused else { panic!("{refused:?}") };
    assert_eq!(fault.kind(), Kind::JournalReadOnly, "{fault:?}");
    set_read_only("off");
    assert_eq!(journal.info(lease.session).await.unwrap().unwrap().head, 2);
    assert_eq!(within(try_append(&journal, &lease, 2)).await, Ok(3), "it goes on");
    journal.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wake_ups_that_the_server_refuses_delay_followers_and_stop_no_append() {
    let Some(server) = PostgresServer::start() else { return };
    server.sql("CREATE ROLE worker LOGIN");
    server.sql("CREATE DATABASE work OWNER worker");
    // As with a full queue of notifications, the statement that sends one fails.
    let revoke = "REVOKE EXECUTE ON FUNCTION pg_notify FROM PUBLIC";
    let done = server.psql().args(["-d", "work", "-c", revoke]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let url = format!("postgres://worker@{}/work", server.address());
    let ours = crate::support::open(&url, world()).await;
    let theirs = crate::support::open(&url, world()).await;
    crate::failures::follow_across(&ours, &theirs).await;
    ours.close().await;
    theirs.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_of_the_server_is_reported_writes_nothing_and_passes_once_there_is_space() {
    let Some(server) = PostgresServer::start_beside_small_disk() else { return };
    let disk = server.small_disk().display().to_string();
    server.sql(&format!("CREATE TABLESPACE small LOCATION '{disk}'"));
    server.sql("CREATE DATABASE work TABLESPACE small");
    let in_database = |sql: &str| {
        let done = server.psql().args(["-d", "work", "-c", sql]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    in_database(
        "CREATE TABLE filler AS SELECT repeat(md5(n::text), 20) FROM generate_series(1, 4000) n",
    );
    let url = format!("postgres://postgres@{}/work", server.address());
    let journal = crate::support::open(&url, world()).await;
    let lease = lease(&journal, session(1), "writer").await;
    let mut head = 0;
    let fault = loop {
        let whole = Append::new(&lease, head, entries(head, 4, 100_000));
        match journal.append(Append { snapshot: Some(vec![7; 1000]), ..whole }).await {
            Ok(now) => head = now,
            Err(AppendError::Failed(fault)) => break fault,
            Err(other) => panic!("{other:?}"),
        }
        assert!(head < 1000, "the disk is not small");
    };
    assert_eq!(fault.kind(), Kind::DiskFull, "{fault:?}");
    assert_eq!(journal.info(lease.session).await.unwrap().unwrap().head, head);
    assert_eq!(crate::support::read_all(&journal, lease.session).await.len() as u64, head);
    in_database("DROP TABLE filler");
    assert_eq!(append(&journal, &lease, head, 2).await, head + 2, "it goes on");
    assert_eq!(crate::support::read_all(&journal, lease.session).await.len() as u64, head + 2);
    journal.close().await;
}
