//! Sessions that timers wake.

use std::time::Duration;

use budao_core::{
    event::{Event, NewTimer, SessionEnd, SessionId, Settings},
    time::Timestamp,
    timer::Schedule,
};

use super::Fixture;
use crate::contract::{Retention, TimerQuery};

fn query() -> TimerQuery {
    TimerQuery { tenant: None, after: None, limit: 10 }
}

fn set(timer: &str, next: Timestamp) -> Event {
    let (schedule, by) = (Schedule::At(next), "test".to_owned());
    Event::TimerSet(NewTimer { timer: timer.into(), schedule, message: "m".into(), next, by })
}

fn fired(timer: &str, due: Timestamp, next: Option<Timestamp>) -> Event {
    let (command, content) = (format!("own-{timer}").into(), Vec::new());
    Event::TimerFired { timer: timer.into(), command, content, due, missed: 0, next }
}

fn opened(tenant: Option<&str>) -> Event {
    let labels = tenant.map(|tenant| (Settings::TENANT.to_owned(), tenant.to_owned()));
    let labels = labels.into_iter().collect();
    Event::SessionOpened { settings: Settings { labels, ..Settings::default() }, origin: None }
}

/// The listed sessions with their next time and the number of their timers.
async fn listed(fixture: &Fixture, query: TimerQuery) -> Vec<(SessionId, Timestamp, usize)> {
    let timed = fixture.journal.sessions_with_timers(query).await.unwrap();
    timed.iter().map(|timed| (timed.session, timed.wake_at, timed.timers.len())).collect()
}

/// From the first timer that is set to the last that ends, also through pages and after the views were made again.
pub async fn sessions_with_timers_are_listed_by_their_next_time(fixture: &Fixture) {
    let now = fixture.world.clock.now();
    let at = |seconds: u64| now.after(Duration::from_secs(seconds));
    let (a, b, c) = (fixture.open().await, fixture.open().await, fixture.open().await);
    fixture.append_events(&a, 0, vec![opened(None), set("x", at(30)), set("y", at(10))]).await;
    fixture.append_events(&b, 0, vec![opened(None), set("x", at(20))]).await;
    fixture.append_events(&c, 0, vec![opened(None)]).await;
    let expected = vec![(a.session, at(10), 2), (b.session, at(20), 1)];
    assert_eq!(listed(fixture, query()).await, expected);
    let first = listed(fixture, TimerQuery { limit: 1, ..query() }).await;
    assert_eq!(first, expected[..1]);
    let rest = TimerQuery { after: Some((at(10), a.session)), ..query() };
    assert_eq!(listed(fixture, rest).await, expected[1..]);
    let leases = fixture.journal.sessions_with_timers(query()).await.unwrap();
    assert_eq!(leases[0].lease.as_ref().map(|lease| &*lease.holder), Some("writer"));

    fixture.append_events(&a, 3, vec![fired("y", at(10), Some(at(40)))]).await;
    let expected = vec![(b.session, at(20), 1), (a.session, at(30), 2)];
    assert_eq!(listed(fixture, query()).await, expected);
    fixture.journal.rebuild_views().await.unwrap();
    assert_eq!(listed(fixture, query()).await, expected);

    fixture.append_events(&b, 2, vec![fired("x", at(20), None)]).await;
    let cancelled = Event::TimerCancelled { timer: "x".into(), by: "test".into() };
    fixture.append_events(&a, 4, vec![cancelled]).await;
    assert_eq!(listed(fixture, query()).await, [(a.session, at(40), 1)]);
    let closed = Event::SessionEnded { end: SessionEnd::Closed, fault: None };
    fixture.append_events(&a, 5, vec![closed]).await;
    assert_eq!(listed(fixture, query()).await, []);
}

/// Sessions without the label of a tenant are a tenant of their own.
pub async fn the_timers_of_a_tenant_are_counted_apart(fixture: &Fixture) {
    let next = fixture.world.clock.now().after(Duration::from_secs(60));
    let mut sessions = Vec::new();
    for tenant in [Some("red"), Some("blue"), None] {
        let lease = fixture.open().await;
        fixture.append_events(&lease, 0, vec![opened(tenant), set("t", next)]).await;
        sessions.push(lease.session);
    }
    for (tenant, session) in ["red", "blue", ""].into_iter().zip(sessions) {
        let query = TimerQuery { tenant: Some(tenant.to_owned()), ..query() };
        assert_eq!(listed(fixture, query).await, [(session, next, 1)], "{tenant}");
    }
    let nobody = TimerQuery { tenant: Some("green".to_owned()), ..query() };
    assert_eq!(listed(fixture, nobody).await, []);
}

/// The session goes when its last timer has ended.
pub async fn a_session_with_a_timer_is_not_removed_for_its_age(fixture: &Fixture) {
    let next = fixture.world.clock.now().after(Duration::from_secs(3600));
    let lease = fixture.open().await;
    fixture.append_events(&lease, 0, vec![opened(None), set("t", next)]).await;
    fixture.journal.release(&lease).await.unwrap();
    let age = Duration::from_secs(60);
    let retention = Retention { session_age: Some(age), ..Retention::default() };
    fixture.clock.advance(age * 2);
    assert_eq!(fixture.journal.retain(retention.clone()).await.unwrap().sessions, 0);
    let lease = fixture.lease(lease.session, "writer").await;
    fixture.append_events(&lease, 2, vec![fired("t", next, None)]).await;
    fixture.journal.release(&lease).await.unwrap();
    fixture.clock.advance(age * 2);
    assert_eq!(fixture.journal.retain(retention).await.unwrap().sessions, 1);
}

/// Retention removes the record that set a timer; the views have it, also when they are made again.
pub async fn timers_outlive_the_records_that_set_them(fixture: &Fixture) {
    let now = fixture.world.clock.now();
    let (next, later) = (now.after(Duration::from_secs(60)), now.after(Duration::from_secs(90)));
    let lease = fixture.open().await;
    let events = vec![opened(None), set("kept", next), set("ended", later)];
    let head = fixture.append_events(&lease, 0, events).await;
    let head = fixture.append(&lease, head, 20).await;
    let retention = Retention { records: Some(5), ..Retention::default() };
    assert!(fixture.journal.retain(retention).await.unwrap().records > 0);
    assert_eq!(listed(fixture, query()).await, [(lease.session, next, 2)]);
    fixture.journal.rebuild_views().await.unwrap();
    assert_eq!(listed(fixture, query()).await, [(lease.session, next, 2)]);
    fixture.append_events(&lease, head, vec![fired("ended", later, None)]).await;
    assert_eq!(listed(fixture, query()).await, [(lease.session, next, 1)]);
    fixture.journal.rebuild_views().await.unwrap();
    assert_eq!(listed(fixture, query()).await, [(lease.session, next, 1)]);
}
