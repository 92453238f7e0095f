//! Processes of two versions on one journal: what a newer one adds disturbs nobody.

use crate::support::{append, entries, lease, read_all, session, world};
use budao_core::event::Answer;
use budao_journal::{
    Admin as _, Append, Digest, Filter, IfMissing, Inbox as _, LeaseRequest, OnceKeys as _,
    OnceOwner, Reader as _, Retention, TimerQuery, Writer as _, conformance::fixture::message,
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
    let unfinished = journal.unfinished(None, 10).await.unwrap();
    assert!(unfinished.iter().all(|found| found.session != lease.session), "{unfinished:?}");
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

/// Everything that versions after the first one added.
const DOWNGRADE: &str = "
DROP TABLE @once_key;
ALTER TABLE @view_session DROP COLUMN wake_at;
ALTER TABLE @meta DROP COLUMN origin, DROP COLUMN generation;
ALTER TABLE @session DROP COLUMN generation;
UPDATE @meta SET version = 3, oldest_reader = 3;
";

/// Statements as a program of the first version sends them: a lease of a new session and of a known one, a command, a
/// view, a beat, a finding.
const OF_THE_FIRST_VERSION: &str = "
INSERT INTO @session(uuid, cohort, epoch, chain, token, holder, expires)
    SELECT '00000000-0000-0000-0000-000000000064', max(day), 7, '\\x00', nextval('@token'), 'old', 0 FROM @cohort;
UPDATE @session SET token = nextval('@token'), holder = 'old', expires = 0
    WHERE uuid = '00000000-0000-0000-0000-000000000002';
INSERT INTO @inbox(session, command, body) SELECT id, '\\x6f', '\\x7b7d' FROM @session WHERE epoch = 7;
INSERT INTO @view_session(session, state, updated, open_turn, body)
    SELECT session, state, updated, open_turn, body FROM @view_session LIMIT 1
    ON CONFLICT (session) DO UPDATE SET state = EXCLUDED.state, updated = EXCLUDED.updated,
    open_turn = EXCLUDED.open_turn, body = EXCLUDED.body;
INSERT INTO @node(holder, beat, status) VALUES ('old', 0, '\\x7b7d');
UPDATE @meta SET lost = left(concat_ws('; ', lost, 'something'), 4000);
";

/// All tables and columns of a schema, for comparing.
fn columns(server: &PostgresServer, schema: &str) -> Vec<String> {
    let sql = format!(
        "SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' \
         || coalesce(replace(column_default, '{schema}', ''), '') FROM information_schema.columns \
         WHERE table_schema = '{schema}' ORDER BY 1"
    );
    server.sql(&sql).lines().map(str::to_owned).collect()
}

/// All that a reader sees of a journal.
async fn content(journal: &Postgres) -> (String, String) {
    let mut lines = Vec::new();
    journal.export(None, &mut lines).await.unwrap();
    let mut sessions = journal.sessions(Filter::default()).await.unwrap();
    sessions.sort_by_key(|summary| summary.session);
    (String::from_utf8(lines).unwrap(), format!("{sessions:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_the_first_version_are_upgraded_with_their_data_and_its_statements_still_work() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = crate::support::schema();
    let run = |script: &str| server.run_script(&script.replace('@', &format!("{schema}.")));
    let before = crate::support::open(&server.url(&schema), world()).await;
    for number in 1..=3 {
        use_all(&before, number).await;
    }
    before.submit(session(3), message("waits", "x")).await.unwrap();
    let (kept, today) = (content(&before).await, columns(&server, &schema));
    before.close().await;
    run(DOWNGRADE);
    let first = columns(&server, &schema);
    let added: Vec<&String> = today.iter().filter(|column| !first.contains(column)).collect();
    assert_eq!((added.len(), first.len() + 10), (10, today.len()), "{added:?}");

    let after = crate::support::open(&server.url(&schema), world()).await;
    assert_eq!(columns(&server, &schema), today, "the same tables as new ones");
    assert_eq!(content(&after).await, kept);
    run(OF_THE_FIRST_VERSION);
    use_all(&after, 1_000).await;
    let seized = lease(&after, session(1), "new").await;
    assert_eq!(append(&after, &seized, 5, 2).await, 7, "after a lease of the first version");
    let request = LeaseRequest {
        session: session(99),
        holder: "new".into(),
        ttl: std::time::Duration::from_secs(60),
        if_missing: IfMissing::Refuse,
        dead_holder: None,
    };
    assert_eq!(after.take_lease(request).await.unwrap().epoch.0, 7);
    let owner = OnceOwner { session: session(1), call: "c".into() };
    after.claim_once(Digest::of(b"key"), owner, 1).await.unwrap();
    let timed = TimerQuery { tenant: None, after: None, limit: 9 };
    assert_eq!(after.sessions_with_timers(timed).await.unwrap(), []);
    assert_eq!(after.stats().await.unwrap().lost.as_deref(), Some("something"));
    after.close().await;
}
