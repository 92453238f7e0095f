//! Tests of the gates with a paused clock: which request wakes, and when.

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
    let mut admission = gates.request(key, requester(1)).unwrap();
    loop {
        admission = match admission {
            AdmissionAnswer::Granted(permit) => return permit,
            AdmissionAnswer::Held(held) => held.progress().await.unwrap().0,
        };
    }
}

fn limited(wait: Duration) -> Fault {
    Fault::new(Kind::ModelRateLimited, Operation::ModelRequest).retry_after(wait)
}

#[tokio::test(start_paused = true)]
async fn a_hint_holds_all_requests_to_one_endpoint_and_none_to_another() {
    let gates = gates();
    let (one, other) = (key("http://one"), key("http://other"));
    admit(&gates, &one).await.report_failure(&limited(Duration::from_secs(30)));
    let before = tokio::time::Instant::now();
    admit(&gates, &other).await.report_answer();
    assert!(before.elapsed().is_zero());
    let AdmissionAnswer::Held(held) = gates.request(&one, requester(2)).unwrap() else {
        panic!("the gate is shut")
    };
    let (waiting, report) = held.progress().await.unwrap();
    assert!(before.elapsed().is_zero(), "a long wait is reported at once");
    assert_eq!(report.unwrap().fault.unwrap().kind(), Kind::ModelRateLimited);
    drop(waiting);
    admit(&gates, &one).await.report_answer();
    assert_eq!(before.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_waits_leaves_nothing_behind() {
    let gates = gates();
    let key = key("http://one");
    admit(&gates, &key).await.report_failure(&limited(Duration::from_secs(30)));
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
        admit(&gates, &key).await.report_failure(&limited(Duration::from_secs(3)));
        admit(&gates, &key).await.report_answer();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!gates.lock().is_driven);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_at_a_limited_rate_all_get_their_turn() {
    let gates = gates();
    let key = key("http://one");
    // The service takes three requests in any second.
    let accepted = std::sync::Mutex::new(Vec::new());
    let refusals = std::sync::atomic::AtomicUsize::new(0);
    let take = || {
        let now = tokio::time::Instant::now();
        let mut accepted = accepted.lock().unwrap();
        accepted.retain(|at| now - *at < Duration::from_secs(1));
        let has_room = accepted.len() < 3;
        accepted.extend(has_room.then_some(now));
        has_room
    };
    let before = tokio::time::Instant::now();
    let all = (0..10).map(|_| async {
        loop {
            let permit = admit(&gates, &key).await;
            if take() {
                return permit.report_answer();
            }
            refusals.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            permit.report_failure(&limited(Duration::from_secs(1)));
        }
    });
    futures::future::join_all(all).await;
    assert!(before.elapsed() >= Duration::from_secs(3), "{:?}", before.elapsed());
    let refusals = refusals.into_inner();
    assert!(refusals <= 20, "{refusals} refusals");
}

#[tokio::test(start_paused = true)]
async fn a_bound_on_what_waits_is_named_in_the_fault() {
    let config = GateConfig { waiting: 1, ..GateConfig::default() };
    let gates = Gates::new(world::seeded(1), config);
    let key = key("http://one");
    admit(&gates, &key).await.report_failure(&limited(Duration::from_secs(30)));
    let mut waiting = Box::pin(admit(&gates, &key));
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    let Err(fault) = gates.request(&key, requester(3)) else { panic!("one may wait") };
    assert_eq!(fault.kind(), Kind::LimitReached);
    assert_eq!(fault.detail().text(Fact::LimitName), Some("models.gate.waiting"));
}

#[tokio::test(start_paused = true)]
async fn a_gate_in_an_outage_is_removed_when_no_request_waits() {
    let gates = gates();
    let key = key("http://one");
    admit(&gates, &key).await.report_failure(&limited(Duration::from_secs(86_400)));
    assert_eq!(gates.status()[0].1.held, Some(HoldReason::RateLimit));
    tokio::time::sleep(Duration::from_secs(601)).await;
    assert_eq!(gates.status(), []);
}

#[tokio::test(start_paused = true)]
async fn the_number_of_gates_is_bounded_though_all_are_shut() {
    let gates = gates();
    for number in 0..GATES_MAX + 50 {
        let key = key(&format!("http://{number}"));
        admit(&gates, &key).await.report_failure(&limited(Duration::from_secs(60)));
    }
    let kept = gates.status();
    assert_eq!(kept.len(), GATES_MAX);
    assert!(kept.iter().all(|(key, _)| *key.endpoint != *"http://0"), "the oldest one is gone");
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_joins_moves_a_waiting_request_to_the_front() {
    let gates = gates();
    let key = key("http://one");
    admit(&gates, &key).await.report_failure(&limited(Duration::from_secs(86_400)));
    let background = |session| Requester { priority: Priority::Background, ..requester(session) };
    let mut held = Vec::new();
    for session in [7, 8] {
        match gates.request(&key, background(session)).unwrap() {
            AdmissionAnswer::Held(request) => held.push(request),
            AdmissionAnswer::Granted(_) => panic!("the gate is shut"),
        }
    }
    gates.set_priority(requester(8).session, Priority::Interactive);
    assert_eq!(gates.status()[0].1.waiting_background, 1);
    tokio::time::sleep(Duration::from_secs(601)).await;
    assert!(held[1].waiter.is_granted(), "the probe is that of the observed session");
    assert!(!held[0].waiter.is_granted());
}

/// Counts the sleeps of the driver: each is one wake-up.
#[derive(Debug)]
struct CountingClock(Arc<dyn budao_core::world::Clock>, std::sync::atomic::AtomicUsize);

impl budao_core::world::Clock for CountingClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn sleep(&self, wait: Duration) -> futures::future::BoxFuture<'static, ()> {
        self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.0.sleep(wait)
    }
}

#[tokio::test(start_paused = true)]
async fn of_ten_thousand_waiting_requests_a_gate_wakes_only_the_one_that_is_due() {
    let world = world::seeded(1);
    let clock = Arc::new(CountingClock(Arc::clone(&world.clock), 0.into()));
    let gates =
        Gates::new(World { clock: Arc::clone(&clock) as _, ..world }, GateConfig::default());
    let key = key("http://one");
    admit(&gates, &key).await.report_failure(&limited(Duration::from_secs(86_400)));
    let mut waiting = Vec::new();
    for session in 0..10_000 {
        let requester = Requester { priority: Priority::Background, ..requester(session) };
        match gates.request(&key, requester).unwrap() {
            AdmissionAnswer::Held(held) => waiting.push(held.progress().await.unwrap().0),
            AdmissionAnswer::Granted(_) => panic!("the gate is shut"),
        }
    }
    tokio::task::yield_now().await;
    let sleeps = || clock.1.load(std::sync::atomic::Ordering::Relaxed);
    let before = sleeps();
    let mut waits: Vec<_> = waiting
        .into_iter()
        .map(|admission| match admission {
            AdmissionAnswer::Held(held) => Box::pin(held.progress()),
            AdmissionAnswer::Granted(_) => panic!("the gate is shut"),
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(598)).await;
    assert_eq!(sleeps() - before, 0, "nothing is due within the hold");
    for wait in &mut waits {
        assert!(futures::poll!(wait.as_mut()).is_pending(), "nobody has news");
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(sleeps() - before <= 1, "the probe is due");
    let mut granted = Vec::new();
    for wait in &mut waits {
        if let std::task::Poll::Ready(admission) = futures::poll!(wait.as_mut()) {
            granted.push(admission);
        }
    }
    assert_eq!(granted.len(), 1, "and wakes one request");
}
