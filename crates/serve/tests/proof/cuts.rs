//! The line is cut, and the client must not notice.

use std::{sync::Arc, time::Duration};

use budao_client::{Cursor, Event, Session, SessionRequest};
use budao_core::world::Entropy;
use budao_testkit::{
    proxy::{ConnectionPlan, Ending, Lane, Proxy},
    world,
};
use futures::{StreamExt as _, stream};

use crate::fixture::{Fixture, Setup, client_at, long_run, next, seed, texts_by_event, until};

/// Sessions that run at once.
const AT_ONCE: usize = 8;

/// Hears a run to its end and has the line cut after the `index`th event of the history.
async fn cut_at(stage: &Fixture, index: usize) -> (Session, Vec<Event>) {
    let proxy = Proxy::start(stage.address, 0).await.unwrap();
    // Hardly anything is read ahead, so the line really is at that event.
    let client = client_at(proxy.address()).inbox(2);
    let (session, mut events) = client.create(SessionRequest::default()).await.unwrap();
    session.send("go").await.unwrap();
    let mut received = Vec::new();
    let mut placed = 0;
    loop {
        let event = next(&mut events).await;
        placed += usize::from(event.seq.is_some());
        if event.seq.is_some() && placed.checked_sub(1) == Some(index) {
            proxy.cut_all(Ending::Reset);
            while proxy.ended_early() == 0 {
                tokio::task::yield_now().await;
            }
        }
        let is_last = event.event == "agent.final_answer";
        received.push(event);
        if is_last {
            return (session, received);
        }
    }
}

/// What was heard is what there is: each once, in order, none missing.
async fn check(stage: &Fixture, session: &Session, received: &[Event], what: &str) {
    let mut all = texts_by_event(&stage.history(session.id()).await);
    let end = all.iter().position(|(_, name)| name == "agent.final_answer").unwrap();
    all.truncate(end + 1);
    assert_eq!(texts_by_event(received), all, "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_at_every_event_of_a_run_loses_nothing_and_repeats_nothing() {
    let first = Setup::new(long_run()).start().await;
    let (session, whole) = cut_at(&first, usize::MAX).await;
    let events = texts_by_event(&whole).len();
    assert!(events >= 200, "the run has {events} events");
    check(&first, &session, &whole, "without a cut").await;
    first.stop().await;
    stream::iter(0..events - 1)
        .for_each_concurrent(AT_ONCE, async |index| {
            let stage = Setup::new(long_run()).start().await;
            let (session, received) = cut_at(&stage, index).await;
            check(&stage, &session, &received, &format!("cut at {index}")).await;
            stage.stop().await;
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_at_random_bytes_lose_nothing_and_repeat_nothing() {
    let seed = seed();
    stream::iter(0..40_u64)
        .for_each_concurrent(AT_ONCE, async |round| {
            let stage = Setup::new(long_run()).start().await;
            let dice = world::seeded(seed.wrapping_add(round)).entropy;
            let proxy = Proxy::start(stage.address, seed.wrapping_add(round)).await.unwrap();
            proxy.plan(move |_| random_cut(&dice));
            let client = client_at(proxy.address()).silence(Duration::from_millis(500));
            let (session, mut events) = client.create(SessionRequest::default()).await.unwrap();
            session.send("go").await.unwrap();
            let received = until(&mut events, "agent.final_answer").await;
            assert!(proxy.ended_early() > 0, "seed {seed}");
            check(&stage, &session, &received, &format!("seed {seed} round {round}")).await;
            stage.stop().await;
        })
        .await;
}

/// Some way of breaking within a few frames.
pub(crate) fn random_cut(dice: &Arc<dyn Entropy>) -> ConnectionPlan {
    let bytes = 100 + dice.bits() % 12_000;
    let ending = match dice.bits() % 8 {
        0 => Ending::Silence,
        1..=3 => Ending::Close,
        _ => Ending::Reset,
    };
    let mut lane = Lane::default().cut(bytes, ending);
    if dice.bits().is_multiple_of(4) {
        lane = lane.torn(40);
    }
    if dice.bits().is_multiple_of(8) {
        lane = lane.late(Duration::from_micros(300));
    }
    match dice.bits() % 5 {
        // The way up breaks too, in the middle of a command.
        0 => {
            ConnectionPlan { up: Lane::default().cut(200 + bytes % 400, Ending::Reset), down: lane }
        }
        _ => ConnectionPlan::down(lane),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_cursor_gives_the_same_events_however_often_it_is_used() {
    let stage = Setup::new(long_run()).start().await;
    let (session, mut events) = stage.session().await;
    session.send("go").await.unwrap();
    let whole = until(&mut events, "agent.final_answer").await;
    let all = texts_by_event(&whole);
    let epoch = whole.iter().find_map(|event| event.epoch.clone()).unwrap();
    for from in [0, 1, all.len() / 2, all.len() - 1] {
        let seq = whole.iter().filter_map(|event| event.seq).nth(from).unwrap();
        for _again in 0..3 {
            let cursor = Cursor { epoch: epoch.clone(), seq };
            let (_other, mut later) =
                stage.client().attach(session.id(), Some(cursor)).await.unwrap();
            let missed = crate::fixture::replay(&mut later).await;
            assert_eq!(texts_by_event(&missed), all[from + 1..], "from {from}");
        }
    }
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_connection_takes_over_at_once_from_a_half_dead_one() {
    let stage = Setup::new(long_run()).start().await;
    let proxy = Proxy::start(stage.address, 1).await.unwrap();
    proxy.plan(|number| match number {
        0 => ConnectionPlan::down(Lane::default().cut(6000, Ending::Silence)),
        _ => ConnectionPlan::clean(),
    });
    let client = client_at(proxy.address()).silence(Duration::from_millis(300));
    let (session, mut events) = client.create(SessionRequest::default()).await.unwrap();
    session.send("go").await.unwrap();
    let received = until(&mut events, "agent.final_answer").await;
    assert_eq!(proxy.ended_early(), 1);
    let local = received.iter().find(|event| event.is_local()).unwrap();
    assert_eq!(
        (local.event.as_str(), local.meta("close_code").as_u64()),
        ("error.connection_lost", Some(1006))
    );
    assert_eq!(local.meta("error_code"), "ERR_CONN_001");
    check(&stage, &session, &received, "half-open").await;
    stage.stop().await;
}
