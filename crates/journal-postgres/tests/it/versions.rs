//! Processes of two versions on one journal: what a newer one adds disturbs nobody.

use crate::support::{append, entries, lease, read_all, session, world};
use budao_core::event::Answer;
use budao_journal::{
    Admin as _, Append, Filter, Inbox as _, Reader as _, Retention, Writer as _,
    conformance::fixture::message,
};
use budao_journal_postgres::Postgres;
use budao_testkit::postgres::PostgresServer;

/// Uses every face of a journal once.
async fn use_all(journal: &Postgres, number: u64) {
    let lease = lease(journal, session(number), "writer").await;
    let head = append(journal, &lease, 0, 3).await;
    journal.submit(lease.session, message("m", "x")).await.unwrap();
    let answers = vec![("m".into(), Answer::Accepted { at: head })];
    let snapshot = Some(vec![1, 2, 3]);
    let whole = Append { answers, snapshot, ..Append::new(&lease, head, entries(head, 2, 9)) };
    assert_eq!(journal.append(whole).await, Ok(5));
    journal.put_blob(lease.session, "output".into()).await.unwrap();
    journal.renew(&lease, std::time::Duration::from_secs(9)).await.unwrap();
    assert_eq!(read_all(journal, lease.session).await.len(), 5);
    assert!(!journal.sessions(Filter::default()).await.unwrap().is_empty());
    assert_eq!(journal.unfinished(None, 10).await.unwrap(), []);
    journal.retain(Retention::default()).await.unwrap();
    journal.release(&lease).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_goes_on_while_a_newer_one_adds_columns_and_tables() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = crate::support::schema();
    let old = crate::support::open(&server.url(&schema), world()).await;
    use_all(&old, 1).await;
    let tables = [
        "session",
        "batch",
        "inbox",
        "snapshot",
        "blob",
        "blob_reference",
        "view_session",
        "view_label",
        "view_trace",
        "view_tool",
        "view_code",
        "view_rate",
        "note",
        "cohort",
        "meta",
    ];
    for table in tables {
        server.sql(&format!("ALTER TABLE {schema}.{table} ADD COLUMN added text"));
    }
    server
        .sql(&format!("CREATE TABLE {schema}.added(n int); UPDATE {schema}.meta SET version = 99"));
    // With statements that were prepared before, and with new ones.
    use_all(&old, 2).await;
    let opened_later = crate::support::open(&server.url(&schema), world()).await;
    use_all(&opened_later, 3).await;
    assert_eq!(read_all(&old, session(3)).await.len(), 5);
    assert_eq!(server.sql(&format!("SELECT version FROM {schema}.meta")), "99");
    old.close().await;
    opened_later.close().await;
}
