//! Tests of the gates with a paused clock: who is woken, and when.

use std::time::Duration;

use budao_core::{
    event::SessionId,
    gate::{Priority, Willingness},
};
use budao_testkit::world;
use uuid::Uuid;

use super::*;

fn key(endpoint: &str) -> GateKey {
    GateKey { endpoint: endpoint.into(), model: "m".into(), credential: "".into() }
}

fn requester(session: u128) -> Requester {
    Requester {
        session: SessionId(Uuid::from_u128(session)),
        tenant: "".into(),
        priority: Priority::Interactive,
        willingness: Willingness::Wait,
    }
}

fn gates() -> Arc<Gates> {
    Gates::new(world::seeded(1), GateConfig::default())
}

async fn admit(gates: &Arc<Gates>, key: &GateKey) -> Permit {
    gates.admit(key, requester(1)).await.unwrap()
}

fn limited(wait: Duration) -> Fault {
    Fault::new(Kind::ModelRateLimited, Operation::ModelRequest).retry_after(wait)
}

#[tokio::test(start_paused = true)]
async fn a_hint_holds_all_requests_to_one_endpoint_and_none_to_another() {
    let gates = gates();
    let (one, other) = (key("http://one"), key("http://other"));
    admit(&gates, &one).await.failed(&limited(Duration::from_secs(30)));
    let before = tokio::time::Instant::now();
    admit(&gates, &other).await.answered();
    assert!(before.elapsed().is_zero());
    let Admission::Held(held) = gates.request(&one, requester(2)).unwrap() else {
        panic!("the gate is shut")
    };
    let (waiting, report) = held.progress().await.unwrap();
    assert!(before.elapsed().is_zero(), "a long wait is reported at once");
    assert_eq!(report.unwrap().fault.unwrap().kind(), Kind::ModelRateLimited);
    drop(waiting);
    admit(&gates, &one).await.answered();
    assert_eq!(before.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_waits_leaves_nothing_behind() {
    let gates = gates();
    let key = key("http://one");
    admit(&gates, &key).await.failed(&limited(Duration::from_secs(30)));
    {
        let mut waiting = Box::pin(admit(&gates, &key));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        assert_eq!(gates.status()[0].1.waiting, 1);
    }
    assert_eq!(gates.status()[0].1.waiting, 0);
    assert!(gates.lock().gates[&key].waiters.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_after_its_grant_makes_room_for_the_next() {
    let gates = gates();
    let key = key("http://one");
    for _ in 0..100 {
        drop(admit(&gates, &key).await);
    }
    assert_eq!(gates.status()[0].1.in_flight, 0);
}

#[tokio::test(start_paused = true)]
async fn the_driver_ends_when_nothing_waits_and_starts_again() {
    let gates = gates();
    let key = key("http://one");
    for _ in 0..3 {
        admit(&gates, &key).await.failed(&limited(Duration::from_secs(3)));
        admit(&gates, &key).await.answered();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!gates.lock().is_driven);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_at_a_limited_rate_all_get_their_turn() {
    let gates = gates();
    let key = key("http://one");
    let refused = [admit(&gates, &key).await, admit(&gates, &key).await];
    for _ in 0..3 {
        admit(&gates, &key).await.answered();
    }
    for permit in refused {
        permit.failed(&limited(Duration::from_secs(1)));
    }
    let before = tokio::time::Instant::now();
    let all = (0..10).map(|_| async { admit(&gates, &key).await.answered() });
    futures::future::join_all(all).await;
    assert!(before.elapsed() > Duration::from_secs(3), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_bound_on_what_waits_is_named_in_the_fault() {
    let config = GateConfig { waiting: 1, ..GateConfig::default() };
    let gates = Gates::new(world::seeded(1), config);
    let key = key("http://one");
    admit(&gates, &key).await.failed(&limited(Duration::from_secs(30)));
    let mut waiting = Box::pin(admit(&gates, &key));
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    let fault = gates.admit(&key, requester(3)).await.unwrap_err();
    assert_eq!(fault.kind(), Kind::LimitReached);
    assert_eq!(fault.detail().text(Fact::LimitName), Some("models.gate.waiting"));
}
