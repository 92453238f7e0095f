//! Many sessions and a service in trouble: every turn that can finish does.

use std::{sync::Arc, time::Duration};

use budao_core::{
    Fault, Kind,
    engine::{Engine, SessionOptions},
    event::{CommandBody, Event, StopReason},
    fault::Operation,
    gate::HoldReason,
    message::Block,
};
use budao_models::script::{Ending, Script, ScriptStep};
use budao_runtime::Runtime;
use budao_testkit::world;
use futures::StreamExt;
use tokio::time::Instant;

use crate::turns::fixture::{Fixture, Setup};

/// Opens `count` sessions and lets each run one turn; returns how many were answered with "ok".
async fn storm(runtime: &Runtime, count: usize) -> usize {
    let mut turns = Vec::new();
    for _ in 0..count {
        let session = runtime.open(SessionOptions::default()).await.unwrap();
        let runtime = runtime.clone();
        turns.push(tokio::spawn(async move { runtime.run(session, "go").await.unwrap() }));
    }
    let mut answered = 0;
    for turn in turns {
        let result = turn.await.unwrap();
        assert_eq!(result.fault, None);
        answered += usize::from(result.text == "ok");
    }
    answered
}

fn limited(wait: Duration) -> ScriptStep {
    let fault = Fault::new(Kind::ModelRateLimited, Operation::ModelRequest).retry_after(wait);
    ScriptStep::new().end(Ending::Fault(Box::new(fault)))
}

#[tokio::test(start_paused = true)]
async fn an_outage_ends_no_turn_of_fifty_sessions() {
    let mut script = Script::new();
    for _ in 0..16 {
        script = script.fail(Kind::ModelServerError);
    }
    let (stage, _) = Setup::new(script.say("ok").forever()).runtime();
    let before = Instant::now();
    assert_eq!(storm(&stage.runtime, 50).await, 50);
    assert_eq!(stage.model.asked(), 66, "one request for each answer, the rest probes");
    assert!(before.elapsed() < Duration::from_secs(90), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_waited_for_by_all_and_costs_few_requests() {
    let script = Script::new().step(limited(Duration::from_secs(60))).say("ok").forever();
    let (stage, _) = Setup::new(script).runtime();
    let before = Instant::now();
    assert_eq!(storm(&stage.runtime, 100).await, 100);
    let waited = before.elapsed().as_secs();
    assert!((60..=64).contains(&waited), "{waited} s");
    assert_eq!(stage.model.asked(), 101);
}

/// A session whose request waits, because another session's request was refused for a minute.
async fn held() -> Fixture {
    let script = Script::new().step(limited(Duration::from_secs(60))).say("ok").forever();
    let stage = Setup::new(script).open().await;
    let other = stage.runtime.open(SessionOptions::default()).await.unwrap();
    let content = vec![Block::Text("go".into())];
    let command = stage.runtime.command("ada", CommandBody::Message { content });
    stage.runtime.submit(other, command).await.unwrap();
    let mut records = stage.runtime.follow(other, 0).await.unwrap();
    while !matches!(records.next().await.unwrap().unwrap().event, Event::RetryScheduled { .. }) {}
    stage.say("go").await;
    stage.until("request_held").await;
    stage
}

#[tokio::test(start_paused = true)]
async fn a_session_learns_of_its_wait_and_of_its_end() {
    let stage = held().await;
    stage.until("turn_ended").await;
    let names = stage.names().await;
    let of_wait = ["fault_raised", "request_held", "request_released", "recovered"];
    let told: Vec<_> = names.iter().filter(|name| of_wait.contains(&name.as_str())).collect();
    assert_eq!(told.first().map(|name| name.as_str()), Some("request_held"), "{told:?}");
    assert_eq!(told[told.len() - 2..], ["request_released", "recovered"], "{told:?}");
    let held = stage.records().await.into_iter().find_map(|record| match record.event {
        Event::RequestHeld { reason, fault, until, .. } => Some((reason, fault, until)),
        _ => None,
    });
    let (reason, fault, until) = held.unwrap();
    assert_eq!((reason, fault.unwrap().kind()), (HoldReason::RateLimit, Kind::ModelRateLimited));
    assert!(until.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_ends_a_wait_at_once() {
    let stage = held().await;
    let before = Instant::now();
    stage.submit(CommandBody::Cancel { reason: None }).await;
    stage.until("turn_ended").await;
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
    assert_eq!(stage.state().await.last.unwrap().stop, StopReason::Cancelled);
    let waiting: usize = stage.runtime.gates().iter().map(|(_, gate)| gate.waiting).sum();
    assert_eq!(waiting, 0, "nothing waits for a cancelled turn");
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_of_a_wait_goes_on() {
    let first = held().await;
    first.runtime.shutdown(Duration::ZERO).await;
    let (mut second, _) = Setup {
        journal: Some(Arc::clone(&first.journal)),
        world: world::seeded(2),
        ..Setup::new(Script::new().say("after the restart").forever())
    }
    .runtime();
    second.session = first.session;
    second.runtime.touch(first.session);
    second.until("turn_ended").await;
    assert_eq!(second.state().await.last_text().as_deref(), Some("after the restart"));
    assert_eq!(second.count("request_released").await, 1, "the wait has an end");
}

#[tokio::test(start_paused = true)]
async fn a_restart_remembers_the_hold_and_makes_no_burst_of_requests() {
    let first = held().await;
    for _ in 0..9 {
        let session = first.runtime.open(SessionOptions::default()).await.unwrap();
        let content = vec![Block::Text("go".into())];
        let command = first.runtime.command("ada", CommandBody::Message { content });
        first.runtime.submit(session, command).await.unwrap();
        let mut records = first.runtime.follow(session, 0).await.unwrap();
        while !matches!(records.next().await.unwrap().unwrap().event, Event::RequestHeld { .. }) {}
    }
    first.runtime.shutdown(Duration::ZERO).await;
    let script = Script::new().step(limited(Duration::from_secs(20))).say("ok").forever();
    let (second, _) = Setup {
        journal: Some(Arc::clone(&first.journal)),
        world: world::seeded(2),
        ..Setup::new(script)
    }
    .runtime();
    assert_eq!(second.runtime.recover().await.unwrap(), 11);
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(second.model.asked(), 0, "the hold of a minute is not over");
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(second.model.asked(), 1, "one probe");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(second.model.asked(), 12, "and then everybody, once");
}

#[tokio::test(start_paused = true)]
async fn the_engine_knows_which_sessions_wait() {
    let stage = held().await;
    assert!(stage.runtime.is_waiting(stage.session));
    stage.until("turn_ended").await;
    stage.runtime.shutdown(Duration::ZERO).await;
    assert!(!stage.runtime.is_waiting(stage.session));
}

/// Two models under their own names, each with its own gate.
#[derive(Debug)]
struct TwoModels([Arc<budao_models::ScriptedModel>; 2]);

impl budao_runtime::ModelSource for TwoModels {
    fn model(&self, name: &str) -> Result<Arc<dyn budao_models::Model>, Fault> {
        Ok(Arc::clone(&self.0[usize::from(name == "other")]) as _)
    }
}

#[tokio::test(start_paused = true)]
async fn another_model_is_asked_at_once_when_it_is_set_during_a_hold() {
    let world = world::seeded(1);
    let script = Script::new().step(limited(Duration::from_secs(600)));
    let one = script.say("one").forever().into_model(Arc::clone(&world.clock)).named("one");
    let other = Script::new().say("other").forever();
    let other = other.into_model(Arc::clone(&world.clock)).named("other");
    let models = Arc::new(TwoModels([Arc::new(one), Arc::new(other)]));
    let limits = budao_core::limits::Limits::default();
    let journal = Arc::new(budao_journal::Memory::new(world.clone(), limits));
    let tools = Arc::new(budao_tools::Toolbox::builder().build());
    let runtime = budao_runtime::Builder::new(journal, models, tools).world(world).build().unwrap();
    let refused = runtime.open(SessionOptions::default()).await.unwrap();
    let session = runtime.open(SessionOptions::default()).await.unwrap();
    for session in [refused, session] {
        let content = vec![Block::Text("go".into())];
        let command = runtime.command("ada", CommandBody::Message { content });
        runtime.submit(session, command).await.unwrap();
        let mut records = runtime.follow(session, 0).await.unwrap();
        let waits = |event: &Event| {
            matches!(event, Event::RetryScheduled { .. } | Event::RequestHeld { .. })
        };
        while !waits(&records.next().await.unwrap().unwrap().event) {}
    }
    let before = Instant::now();
    let settings = budao_core::event::Settings { model: "other".into(), ..Default::default() };
    let command = runtime
        .command("ada", CommandBody::Settings { settings: Box::new(settings), before: None });
    runtime.submit(session, command).await.unwrap();
    let mut records = runtime.follow(session, 0).await.unwrap();
    while !matches!(records.next().await.unwrap().unwrap().event, Event::TurnEnded { .. }) {}
    assert!(before.elapsed() < Duration::from_secs(1), "{:?}", before.elapsed());
}

/// A hook that takes its time, and looks at the gates meanwhile.
#[derive(Debug)]
struct SlowHook(Arc<tokio::sync::Semaphore>);

#[async_trait::async_trait]
impl budao_runtime::ModelHook for SlowHook {
    fn name(&self) -> &'static str {
        "slow"
    }

    async fn before(
        &self,
        _: &budao_core::message::ModelRequest,
    ) -> Option<budao_runtime::RequestChange> {
        self.0.acquire().await.unwrap().forget();
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_hook_takes_no_room_from_the_requests_of_others() {
    let may_end = Arc::new(tokio::sync::Semaphore::new(0));
    let mut setup = Setup::new(Script::new().say("ok").forever());
    setup.model_hooks = vec![Arc::new(SlowHook(Arc::clone(&may_end)))];
    let stage = setup.open().await;
    stage.say("go").await;
    stage.until("step_started").await;
    tokio::task::yield_now().await;
    let in_flight: usize = stage.runtime.gates().iter().map(|(_, gate)| gate.in_flight).sum();
    assert_eq!(in_flight, 0, "the request is not under way");
    may_end.add_permits(1);
    stage.until("turn_ended").await;
}

#[tokio::test(start_paused = true)]
async fn a_session_without_observers_waits_for_a_day() {
    let script = Script::new().fail(Kind::ModelServerError).forever();
    let stage = Setup::new(script).open().await;
    stage.runtime.set_observed(stage.session, false);
    let before = Instant::now();
    let result = stage.run("go").await;
    assert_eq!(result.stop, Some(StopReason::Failed));
    let waited = before.elapsed().as_secs();
    assert!((23 * 3600..=24 * 3600).contains(&waited), "{waited} s");
    assert!(stage.model.asked() < 5_000, "{} requests in a day", stage.model.asked());
}
