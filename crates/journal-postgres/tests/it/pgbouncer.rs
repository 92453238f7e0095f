//! The journal behind PgBouncer: it works in session mode; in transaction mode it works or is refused when it is opened.

use std::time::Duration;

use crate::support::{append, lease, read_all, schema, session, world};
use budao_core::fault::{Fact, Fault, Kind};
use budao_journal::{
    Admin as _, Inbox as _, Reader as _, Writer as _, conformance::fixture::message,
};
use budao_journal_postgres::{Credentials, Postgres, PostgresOptions};
use budao_testkit::postgres::{
    PostgresServer,
    pgbouncer::{PgBouncer, PoolMode},
};
use futures::StreamExt as _;

/// Long enough for any wait here on a busy machine; reaching it is a failure.
const LIMIT: Duration = Duration::from_secs(60);

async fn open(url: &str) -> Result<Postgres, Fault> {
    let (credentials, options) = (Credentials::default(), PostgresOptions::default());
    Postgres::open(url, budao_journal::Access::Create, &credentials, world(), options).await
}

/// Two processes on the journal: one writes, the other one follows and sends commands.
async fn use_from_two_processes(writer: &Postgres, reader: &Postgres) {
    let mut follower = reader.follow(session(1), 0);
    let lease = lease(writer, session(1), "writer").await;
    let mut head = 0;
    for _ in 0..20 {
        head = append(writer, &lease, head, 2).await;
    }
    let mut seen = 0;
    while seen < head {
        let batch = tokio::time::timeout(LIMIT, follower.next()).await.unwrap().unwrap().unwrap();
        seen = batch.last().unwrap().seq;
    }
    reader.submit(lease.session, message("m", "x")).await.unwrap();
    assert_eq!(writer.inbox(lease.session).await.unwrap().len(), 1);
    assert_eq!(read_all(reader, lease.session).await.len() as u64, head);
    writer.renew(&lease, LIMIT).await.unwrap();
    assert_eq!(reader.stats().await.unwrap().sessions, 1);
    assert!(writer.delete(lease.session).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_with_sessions_everything_works() {
    let Some(server) = PostgresServer::start() else { return };
    let Some(pooler) = PgBouncer::start(&server, PoolMode::Session) else { return };
    let url = server.url_at(pooler.address(), &schema());
    let (writer, reader) = (open(&url).await.unwrap(), open(&url).await.unwrap());
    use_from_two_processes(&writer, &reader).await;
    writer.close().await;
    reader.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_with_transactions_everything_works_or_opening_says_what_to_change() {
    let Some(server) = PostgresServer::start() else { return };
    let Some(pooler) = PgBouncer::start(&server, PoolMode::Transaction) else { return };
    let url = server.url_at(pooler.address(), &schema());
    if pooler.knows_prepared_statements() {
        let (writer, reader) = (open(&url).await.unwrap(), open(&url).await.unwrap());
        use_from_two_processes(&writer, &reader).await;
        writer.close().await;
        return reader.close().await;
    }
    let refused = open(&url).await.expect_err("an old version loses prepared statements");
    assert_eq!(refused.kind(), Kind::JournalSettingUnsafe, "{refused:?}");
    assert_eq!(refused.detail().text(Fact::ConfigKey), Some("pool_mode"));
}
