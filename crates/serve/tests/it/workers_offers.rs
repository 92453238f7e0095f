//! Tools on offer: how long those of a tenant stay known, and the bounds on those of one session.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use budao_core::{
    event::Event,
    time::Timestamp,
    world::{Clock, World},
};
use budao_journal::Journal;
use budao_models::script::Script;
use budao_remote::{
    OfferScope, WorkerIdentity, WorkerLimits, WorkerLink, WorkerMessage, WorkerOffer, Workers,
    WorkersConfig,
};
use budao_runtime::world;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::{
    fixture::{Client, memory},
    workers::{events, is_accepted, limits, pay_with, setup},
};

/// The real time, moved ahead.
#[derive(Debug)]
struct MovedClock {
    real: Arc<dyn Clock>,
    ahead_s: AtomicU64,
}

impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        self.real.now().after(Duration::from_secs(self.ahead_s.load(Ordering::Relaxed)))
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        self.real.sleep(wait)
    }
}

impl MovedClock {
    fn move_by_hours(&self, hours: u64) {
        self.ahead_s.fetch_add(hours * 3_600, Ordering::Relaxed);
    }
}

fn moved() -> (World, Arc<MovedClock>) {
    let real = world::system();
    let clock = MovedClock { real: Arc::clone(&real.clock), ahead_s: AtomicU64::new(0) };
    let clock = Arc::new(clock);
    (World { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..real }, clock)
}

#[derive(Debug)]
struct Link;

impl WorkerLink for Link {
    fn deliver(&self, _: WorkerMessage) {}

    fn number(&self) -> u64 {
        0
    }
}

/// The workers of one server on this journal.
fn server(world: &World, journal: &Arc<dyn Journal>) -> Workers {
    let (world, store) = (world.clone(), Some(Arc::clone(journal) as _));
    Workers::new(WorkersConfig { world, limits: limits(), store, reserved: Vec::new() })
}

/// Connects a worker that offers one tool to all sessions of the tenant. Its connection has the name of the tool.
async fn connect(server: &Workers, name: &str) {
    let identity =
        WorkerIdentity { tenant: "acme".into(), user: "acme/bot".into(), patterns: None };
    let tool = serde_json::from_value(pay_with("name", name)).unwrap();
    let offer = WorkerOffer {
        worker: name.to_owned(),
        worker_id: name.to_owned(),
        capacity: 1,
        tools: vec![tool],
        holding: Vec::new(),
    };
    server.check(&identity, &OfferScope::Tenant, &offer).await.unwrap();
    server.connect(&identity, OfferScope::Tenant, &offer, (name, Arc::new(Link)));
}

async fn names(server: &Workers) -> Vec<String> {
    let tools = server.tools("acme").await.unwrap();
    tools.into_iter().map(|(_, _, tool)| tool.name.clone()).collect()
}

#[tokio::test]
async fn the_tools_of_a_worker_are_known_until_a_day_after_it_left() {
    let ((world, clock), journal) = (moved(), memory());
    let server = server(&world, &journal);
    connect(&server, "pay").await;
    clock.move_by_hours(100);
    connect(&server, "bill").await;
    assert_eq!(names(&server).await, ["bill", "pay"], "the worker is connected");
    server.disconnect("pay");
    clock.move_by_hours(23);
    connect(&server, "note").await;
    assert_eq!(names(&server).await, ["bill", "note", "pay"], "it left less than a day ago");
    clock.move_by_hours(2);
    connect(&server, "look").await;
    assert_eq!(names(&server).await, ["bill", "look", "note"], "it left more than a day ago");
}

#[tokio::test]
async fn the_tools_of_a_worker_that_is_connected_elsewhere_stay_known() {
    let ((world, clock), journal) = (moved(), memory());
    let engine = setup(Script::new(), limits()).on(&journal).open().await;
    let (one, other) = (server(&world, &journal), server(&world, &journal));
    connect(&one, "pay").await;
    for _ in 0..3 {
        clock.move_by_hours(20);
        one.exchange("one", &[], &engine.runtime).await.unwrap();
    }
    connect(&other, "bill").await;
    assert_eq!(names(&other).await, ["bill", "pay"]);
    let restarted = server(&world, &journal);
    assert_eq!(names(&restarted).await, ["bill", "pay"]);
}

/// Offers tools to one session, as a worker with this name.
async fn offer(client: &mut Client, session: &str, worker: &str, tools: Value) -> Value {
    client
        .send(json!({
            "event": "user.offer_tools", "command_id": worker, "session_id": session,
            "content": { "worker": worker, "worker_id": worker, "tools": tools },
        }))
        .await;
    loop {
        let answer = client.next().await;
        if answer["metadata"]["command_id"] == worker {
            return answer;
        }
    }
}

fn named(name: &str) -> Value {
    pay_with("name", name)
}

#[tokio::test]
async fn the_workers_of_a_session_share_its_bounds_and_its_names() {
    let small = WorkerLimits { tools: 3, tenant_bytes: 3_000, ..limits() };
    let fixture = setup(Script::new(), small).open().await;
    let mut client = fixture.client().await;
    let session = client.create(json!({})).await;
    let first = json!([named("one"), named("two")]);
    assert!(is_accepted(&offer(&mut client, &session, "a", first.clone()).await));
    let refused = offer(&mut client, &session, "b", json!([named("three"), named("four")])).await;
    assert_eq!(refused["metadata"]["context"]["limit_name"], "session_tools", "{refused}");
    let wordy = pay_with("description", "x".repeat(3_000));
    let refused = offer(&mut client, &session, "b", json!([wordy])).await;
    assert_eq!(refused["metadata"]["context"]["limit_name"], "session_tool_bytes", "{refused}");
    let refused = offer(&mut client, &session, "b", json!([named("three"), named("two")])).await;
    assert_eq!(refused["metadata"]["field"], "content.tools[1].name", "{refused}");
    assert!(is_accepted(&offer(&mut client, &session, "b", json!([named("three")])).await));
    assert!(is_accepted(&offer(&mut client, &session, "a", json!([named("one")])).await));
    let freed = offer(&mut client, &session, "b", json!([named("two")])).await;
    assert!(is_accepted(&freed), "the name is free: {freed}");
}

#[tokio::test]
async fn a_repeated_offer_to_a_session_is_not_recorded_again() {
    let fixture = setup(Script::new(), limits()).open().await;
    let mut client = fixture.client().await;
    let session = client.create(json!({})).await;
    for worker in ["a", "b", "a", "b"] {
        assert!(is_accepted(&offer(&mut client, &session, worker, json!([named(worker)])).await));
    }
    let events = events(&*fixture.journal, &session).await;
    let changes = events.iter().filter(|it| matches!(it, Event::SettingsChanged { .. })).count();
    assert_eq!(changes, 2);
}
