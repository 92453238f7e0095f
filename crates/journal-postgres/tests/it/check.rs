//! A check finds what is damaged, names it, and finds nothing in a journal that is well.

use crate::support::{append, entries, lease, session, world};
use budao_core::fault::{Fact, Kind};
use budao_journal::{
    Admin as _, Append, Backend as _, CheckReport, Inbox as _, PageLimits, Reader as _, Retention,
    Writer as _, conformance::fixture::message,
};
use budao_journal_postgres::PostgresBackend;
use budao_testkit::postgres::PostgresServer;

async fn check(url: &str) -> CheckReport {
    PostgresBackend::default().check(url, Box::new(|done, all| assert!(done <= all))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_found_with_session_and_position_and_the_others_go_on() {
    let Some(server) = PostgresServer::shared() else { return };
    let schema = crate::support::schema();
    let url = server.url(&schema);
    let journal = crate::support::open(&url, world()).await;
    let trimmed = lease(&journal, session(6), "writer").await;
    let mut head = 0;
    for _ in 0..4 {
        head = append(&journal, &trimmed, head, 3).await;
    }
    let snapshot =
        Append { snapshot: Some(vec![1]), ..Append::new(&trimmed, head, entries(12, 1, 5)) };
    journal.append(snapshot).await.unwrap();
    journal.retain(Retention { records: Some(5), ..Retention::default() }).await.unwrap();
    let mut leases = Vec::new();
    for number in 1..=5 {
        let lease = lease(&journal, session(number), "writer").await;
        let mut head = 0;
        for _ in 0..4 {
            head = append(&journal, &lease, head, 3).await;
        }
        leases.push(lease);
    }
    leases.push(trimmed);
    let last = &leases[5];
    journal.submit(last.session, message("m", "x")).await.unwrap();
    journal.put_blob(last.session, "an output".into()).await.unwrap();
    let well = check(&url).await;
    assert_eq!((well.sessions, well.records, well.commands, well.blobs), (6, 65, 1, 1));
    assert_eq!(well.findings, []);
    let of = |number: usize| leases[number].session;
    let key = |n: usize| format!("(SELECT id FROM {schema}.session WHERE uuid = '{}')", of(n));
    // One byte of a body, a missing batch, two swapped, and a head beyond the records.
    server.sql(&format!("UPDATE {schema}.batch SET body = set_byte(body, 60, get_byte(body, 60) # 1) WHERE session = {} AND first = 7", key(0)));
    server.sql(&format!("DELETE FROM {schema}.batch WHERE session = {} AND first = 4", key(1)));
    server.sql(&format!("UPDATE {schema}.session SET head = 15 WHERE id = {}", key(2)));
    server.sql(&format!("UPDATE {schema}.batch b SET body = (SELECT body FROM {schema}.batch o WHERE o.session = {} AND o.first = 4) WHERE b.session = {} AND b.first = 4", key(4), key(3)));
    server.sql(&format!("UPDATE {schema}.blob SET body = 'another'"));
    let found = check(&url).await;
    let positions: Vec<_> = found.findings.iter().map(|d| (d.session, d.seq)).collect();
    assert_eq!(
        positions,
        [(of(0), 7), (of(1), 4), (of(2), 13), (of(3), 4)]
            .map(|(session, seq)| (Some(session), Some(seq)))
            .into_iter()
            .chain([(None, None)])
            .collect::<Vec<_>>(),
        "{:?}",
        found.findings
    );
    // Readers get the records before the damage, then a fault with the position.
    let limits = PageLimits::default();
    assert_eq!(journal.read(of(0), 0, limits).await.unwrap().records.len(), 6);
    let fault = journal.read(of(0), 6, limits).await.unwrap_err();
    assert_eq!(
        (fault.kind(), fault.detail().number(Fact::FromSeq)),
        (Kind::JournalDamaged, Some(7))
    );
    assert_eq!(append(&journal, &leases[4], 12, 1).await, 13, "another session goes on");
    journal.close().await;
}

#[tokio::test]
async fn a_check_of_nothing_says_that_there_is_no_journal() {
    let Some(server) = PostgresServer::shared() else { return };
    let backend = PostgresBackend::default();
    let checked = backend.check(&server.url(&crate::support::schema()), Box::new(|_, _| {})).await;
    assert_eq!(checked.unwrap_err().kind(), Kind::NoJournal);
}
