//! Turns that wait while their sessions are not loaded: the wait goes on, and everything that ends or changes it works as
//! if the session were loaded.

use std::{sync::Arc, time::Duration};

use budao_core::{
    Fault, Kind,
    engine::{Engine, SessionOptions},
    event::{Answer, CommandBody, Event, SessionId, StopReason},
    fault::Operation,
    message::{Block, Message, ModelRequest},
    world::World,
};
use budao_journal::Journal;
use budao_models::script::{Ending, Script, ScriptStep};
use budao_runtime::Runtime;
use budao_testkit::world;
use futures::StreamExt;
use tokio::time::Instant;

use super::fixture::{Fixture, Setup};

fn limited(seconds: u64) -> ScriptStep {
    let fault = Fault::new(Kind::ModelRateLimited, Operation::ModelRequest);
    let fault = fault.retry_after(Duration::from_secs(seconds));
    ScriptStep::new().end(Ending::Fault(Box::new(fault)))
}

async fn say(runtime: &Runtime, session: SessionId, text: &str) {
    let content = vec![Block::Text(text.into())];
    let command = runtime.command("ada", CommandBody::Message { content });
    runtime.submit(session, command).await.unwrap();
}

async fn until(runtime: &Runtime, session: SessionId, is_there: fn(&Event) -> bool) {
    let mut records = runtime.follow(session, 0).await.unwrap();
    while !is_there(&records.next().await.unwrap().unwrap().event) {}
}

fn waiting(runtime: &Runtime) -> usize {
    runtime.gates().iter().map(|(_, gate)| gate.waiting).sum()
}

/// Another process at the same time as `world`.
fn process_beside(world: &World, journal: &Arc<dyn Journal>, script: Script) -> Runtime {
    let setup = Setup {
        journal: Some(Arc::clone(journal)),
        world: World { clock: Arc::clone(&world.clock), ..world::seeded(2) },
        ..Setup::new(script)
    };
    setup.runtime().0.runtime
}

/// A session that waits for a minute and is not loaded, because it has no observer. Another one waits loaded.
async fn suspended() -> Fixture {
    suspended_in(world::seeded(1)).await
}

async fn suspended_in(world: World) -> Fixture {
    let script = Script::new().step(limited(60)).say("ok").forever();
    let stage = Setup { world, ..Setup::new(script) }.open().await;
    stage.runtime.track_observers();
    let other = stage.runtime.open(SessionOptions::default()).await.unwrap();
    say(&stage.runtime, other, "other").await;
    until(&stage.runtime, other, |event| matches!(event, Event::RetryScheduled { .. })).await;
    stage.say("first").await;
    stage.until("request_held").await;
    assert_eq!(stage.runtime.loaded(), 2);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((stage.runtime.loaded(), waiting(&stage.runtime)), (1, 1));
    assert!(stage.runtime.is_waiting(stage.session));
    stage
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_the_answer_and_nothing_was_interrupted() {
    let stage = suspended().await;
    let before = Instant::now();
    stage.until("turn_ended").await;
    let waited = before.elapsed().as_secs();
    assert!((49..=54).contains(&waited), "{waited} s");
    assert_eq!(stage.state().await.last_text().as_deref(), Some("ok"));
    let names = stage.names().await;
    assert_eq!(stage.count("request_held").await, 1, "{names:?}");
    assert_eq!(stage.count("request_released").await, 1, "{names:?}");
    assert_eq!(stage.count("session_resumed").await, 0, "{names:?}");
    assert_eq!(stage.model.asked(), 3);
    assert!(!stage.runtime.is_waiting(stage.session));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_the_wait_at_once() {
    let stage = suspended().await;
    let before = Instant::now();
    stage.submit(CommandBody::Cancel { reason: None }).await;
    stage.until("turn_ended").await;
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
    assert_eq!(stage.state().await.last.unwrap().stop, StopReason::Cancelled);
    assert_eq!(waiting(&stage.runtime), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_waits_for_its_turn_and_the_request_keeps_its_place() {
    let stage = suspended().await;
    let third = stage.runtime.open(SessionOptions::default()).await.unwrap();
    say(&stage.runtime, third, "third").await;
    stage.say("more").await;
    assert_eq!(waiting(&stage.runtime), 2);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((stage.runtime.loaded(), waiting(&stage.runtime)), (1, 2), "unloaded again");
    until(&stage.runtime, third, |event| matches!(event, Event::TurnEnded { .. })).await;
    stage.until("turn_ended").await;
    let asked = stage.model.requests();
    let place = |text: &str| {
        let wanted = Message::user(text);
        let is_it =
            |request: &ModelRequest| request.messages.last().is_some_and(|last| **last == wanted);
        asked.iter().position(is_it)
    };
    assert!(place("first") < place("third"), "{:?}", (place("first"), place("third")));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(stage.count("turn_ended").await, 2);
    assert_eq!(stage.count("session_resumed").await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_observer_gets_the_wait_and_keeps_the_session_loaded() {
    let stage = suspended().await;
    stage.runtime.set_observed(stage.session, true);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(stage.runtime.loaded(), 2);
    assert!(stage.count("request_held").await > 1);
    assert_eq!(stage.runtime.gates()[0].1.waiting_background, 0);
    stage.runtime.set_observed(stage.session, false);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(stage.runtime.loaded(), 1);
    stage.until("turn_ended").await;
    assert_eq!(stage.state().await.last_text().as_deref(), Some("ok"));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_patience_wakes_the_session_and_names_the_service() {
    let script = Script::new().fail(Kind::ModelServerError).forever();
    let stage = Setup::new(script).open().await;
    stage.runtime.track_observers();
    let before = Instant::now();
    stage.say("go").await;
    stage.until("turn_ended").await;
    let waited = before.elapsed().as_secs();
    assert!((24 * 3600 - 60..=24 * 3600 + 60).contains(&waited), "{waited} s");
    let fault = stage.state().await.last.unwrap().fault.unwrap();
    assert_eq!(fault.kind(), Kind::ModelServerError);
    assert_eq!(waiting(&stage.runtime), 0);
}

#[tokio::test(start_paused = true)]
async fn another_process_that_gets_a_command_takes_the_session() {
    let world = world::seeded(1);
    let stage = suspended_in(world.clone()).await;
    let script = Script::new().say("elsewhere").forever();
    let other = process_beside(&world, &stage.journal, script);
    let before = Instant::now();
    let cancel = other.command("ada", CommandBody::Cancel { reason: None });
    let answer = other.submit(stage.session, cancel).await.unwrap();
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    stage.until("turn_ended").await;
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(waiting(&stage.runtime), 0, "nobody claims the request, and it is given up");
    assert_eq!(stage.runtime.gates()[0].1.in_flight, 0);
    assert_eq!(stage.count("turn_ended").await, 1);
    assert_eq!(stage.model.asked(), 2, "only the first session asked");
}

#[tokio::test(start_paused = true)]
async fn a_new_process_goes_on_with_the_wait() {
    let world = world::seeded(1);
    let stage = suspended_in(world.clone()).await;
    stage.runtime.shutdown(Duration::ZERO).await;
    let again = process_beside(&world, &stage.journal, Script::new().say("ok").forever());
    again.track_observers();
    let before = Instant::now();
    again.recover().await.unwrap();
    stage.until("turn_ended").await;
    let waited = before.elapsed().as_secs();
    assert!((45..=55).contains(&waited), "{waited} s");
    assert_eq!(stage.count("session_resumed").await, 1);
    assert_eq!(stage.model.asked(), 1, "the process that is gone asks no more");
}
