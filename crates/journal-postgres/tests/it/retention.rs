//! Retention by day: old partitions are dropped, and sessions that stay are moved out of them first.

use std::{sync::Arc, time::Duration};

use budao_core::{
    event::{Event, StopReason},
    message::Usage,
};
use budao_journal::{
    Admin as _, Append, Journal, Reader as _, Retention, Writer as _,
    conformance::{Fixture, fixture::TTL},
};
use budao_testkit::postgres::PostgresServer;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn ended() -> Event {
    let (stop, usage) = (StopReason::EndTurn, Usage::default());
    Event::TurnEnded { stop, fault: None, steps: 1, usage }
}

/// The days that have a partition, oldest first.
fn partitions(server: &PostgresServer, schema: &str) -> Vec<String> {
    let sql = format!(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
         WHERE i.inhparent = '{schema}.batch'::regclass ORDER BY 1"
    );
    server.sql(&sql).lines().map(ToOwned::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_day_whose_sessions_are_past_their_time_is_dropped_and_what_stays_is_moved() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = crate::support::schema();
    let fixture = Fixture::prepare();
    let journal = crate::support::open(&server.url(&schema), fixture.world.clone()).await;
    let fixture = fixture.with(Arc::new(journal.clone()) as Arc<dyn Journal>);
    let finished = fixture.open().await;
    fixture.append_events(&finished, 0, vec![ended()]).await;
    let long_lived = fixture.open().await;
    fixture.append(&long_lived, 0, 3).await;
    let before = partitions(&server, &schema);
    assert_eq!(before.len(), 8, "today and seven days ahead");
    fixture.clock.advance(DAY * 10);
    fixture.journal.renew(&long_lived, TTL).await.unwrap();
    fixture.append(&long_lived, 3, 2).await;
    let retention = Retention { session_age: Some(DAY * 5), ..Retention::default() };
    let report = fixture.journal.retain(retention.clone()).await.unwrap();
    assert_eq!((report.sessions, report.records), (1, 0));
    let after = partitions(&server, &schema);
    assert!(!after.contains(&before[0]), "{after:?}");
    let count = format!("SELECT count(*) FROM {schema}.cohort");
    assert_eq!(after.len().to_string(), server.sql(&count));
    assert_eq!(journal.info(finished.session).await.unwrap(), None);
    // What was moved is read, appended to and followed as before.
    assert_eq!(fixture.read_all(long_lived.session, 0).await.len(), 5);
    assert_eq!(fixture.append(&long_lived, 5, 1).await, 6);
    let again = fixture.journal.retain(retention).await.unwrap();
    assert_eq!(again.sessions, 0);
    assert_eq!(partitions(&server, &schema), after);
    journal.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_that_was_interrupted_is_finished_by_the_next_run() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = crate::support::schema();
    let fixture = Fixture::prepare();
    let journal = crate::support::open(&server.url(&schema), fixture.world.clone()).await;
    let before = partitions(&server, &schema);
    // As if a process had ended after the detaching and before the drop.
    server.sql(&format!("ALTER TABLE {schema}.batch DETACH PARTITION {schema}.{}", before[0]));
    server.sql(&format!("ALTER TABLE {schema}.batch DETACH PARTITION {schema}.{}", before[1]));
    server.sql(&format!("DROP TABLE {schema}.{}", before[1]));
    fixture.clock.advance(DAY * 10);
    let retention = Retention { session_age: Some(DAY), ..Retention::default() };
    journal.retain(retention).await.unwrap();
    let left = format!(
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = '{schema}' AND c.relname IN ('{}', '{}')",
        before[0], before[1]
    );
    assert_eq!(server.sql(&left), "0");
    let lease = crate::support::lease(&journal, crate::support::session(1), "writer").await;
    let append = Append::new(&lease, 0, crate::support::entries(0, 1, 5));
    assert_eq!(journal.append(append).await, Ok(1));
    journal.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_apply_retention_at_once_do_not_disturb_each_other() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = crate::support::schema();
    let fixture = Fixture::prepare();
    let url = server.url(&schema);
    let mut journals = Vec::new();
    for number in 0..3 {
        let world = budao_core::world::World {
            entropy: crate::support::world().entropy,
            ..fixture.world.clone()
        };
        let journal = crate::support::open(&url, world).await;
        let lease =
            crate::support::lease(&journal, crate::support::session(number), "writer").await;
        crate::support::append(&journal, &lease, 0, 5).await;
        journals.push(journal);
    }
    fixture.clock.advance(DAY * 12);
    let retention = Retention { session_age: Some(DAY * 2), ..Retention::default() };
    let runs = journals.iter().map(|journal| journal.retain(retention.clone()));
    let reports = futures::future::try_join_all(runs).await.unwrap();
    assert_eq!(reports.iter().map(|report| report.sessions).sum::<u64>(), 3);
    let days = partitions(&server, &schema);
    assert_eq!(
        server.sql(&format!("SELECT count(*) FROM {schema}.cohort")),
        days.len().to_string()
    );
    assert_eq!(
        server.sql(&format!("SELECT count(*) FROM {schema}.note")),
        "0",
        "the claim is gone"
    );
    for journal in journals {
        journal.close().await;
    }
}
