//! Stopping, coming back, and handing a session on.

use std::{sync::Arc, time::Duration};

use budao_core::{
    Fault, Kind, engine::Engine as _, event::Event, fault::Operation, limits::Limits, tool::Failure,
};
use budao_journal::{Journal, Memory};
use budao_models::script::{Script, ScriptStep};
use budao_testkit::world;
use budao_tools::RawTool;
use serde_json::json;
use tokio::time::Instant;

use crate::turns::{
    failing::{self, Failing},
    fixture::{Fixture, Setup},
};

/// Waits to be stopped, then fails or succeeds.
fn heeds(succeeds: bool) -> RawTool {
    let nothing = json!({"type": "object", "properties": {}, "additionalProperties": false});
    RawTool::new("heeds", "Waits until it is stopped.", nothing, move |_, context| async move {
        context.cancel.cancelled().await;
        let fault = Fault::new(Kind::ToolFailed, Operation::ToolCall);
        if succeeds { Ok(json!("done")) } else { Err(Failure { fault, data: None, note: None }) }
    })
}

/// A session whose turn has called `heeds`.
async fn calling(succeeds: bool) -> Fixture {
    let script = Script::new().call("heeds", json!({})).say("done");
    let stage = Setup { tools: vec![heeds(succeeds)], ..Setup::new(script) }.open().await;
    stage.say("go").await;
    stage.until("tool_call_started").await;
    stage
}

#[tokio::test(start_paused = true)]
async fn a_call_that_heeds_the_stop_does_not_hold_it_up() {
    let stage = calling(false).await;
    let before = Instant::now();
    stage.runtime.shutdown(Duration::ZERO).await;
    assert!(before.elapsed() < Limits::default().kill_grace, "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_stopped_call_is_recorded() {
    let stage = calling(true).await;
    stage.runtime.shutdown(Duration::ZERO).await;
    let records = stage.records().await;
    let ends = records.iter().filter_map(|record| match &record.event {
        Event::ToolCallEnded { outcome, .. } => Some(outcome.fault().map(Fault::kind)),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [None], "whoever resumes need not guess");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_ends_in_time_is_not_parked() {
    let pause = ScriptStep::new().pause(Duration::from_secs(5)).call("touch", &json!({}));
    let stage = Setup::new(Script::new().step(pause).say("finished")).open().await;
    stage.say("go").await;
    stage.until("step_started").await;
    stage.runtime.shutdown(Duration::from_secs(60)).await;
    assert_eq!(stage.count("turn_ended").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_released_session_is_free_at_once() {
    let first = Setup::new(Script::new().say("mine")).open().await;
    first.run("go").await;
    first.runtime.shutdown(Duration::ZERO).await;
    let (mut second, _) = Setup {
        journal: Some(Arc::clone(&first.journal)),
        world: world::seeded(2),
        ..Setup::new(Script::new().say("theirs"))
    }
    .runtime();
    second.session = first.session;
    let before = Instant::now();
    assert_eq!(second.run("and you").await.text, "theirs");
    assert!(before.elapsed() < Duration::from_secs(1), "no lease is waited for");
}

/// A session on a journal that can be told to fail.
async fn on_failing(script: Script) -> (Fixture, Arc<Failing>) {
    let mut setup = Setup::new(script);
    let failing = failing::wrap(Arc::new(Memory::new(setup.world.clone(), setup.limits.clone())));
    setup.journal = Some(Arc::clone(&failing) as Arc<dyn Journal>);
    (setup.open().await, failing)
}

#[tokio::test(start_paused = true)]
async fn a_session_that_cannot_be_loaded_at_once_is_loaded_later() {
    let (stage, failing) = on_failing(Script::new().say("back")).await;
    // Long enough for it to leave memory.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    failing.interceptor.fail_leases(Kind::JournalBusy, 2);
    let before = Instant::now();
    assert_eq!(stage.run("go").await.text, "back");
    let retry = Limits::default().retry;
    let waits = retry.delay(1, 0.0) + retry.delay(2, 0.0);
    assert!(before.elapsed() >= waits, "a journal in need gets time: {:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_journal_that_cannot_be_read_is_not_called_a_busy_session() {
    let (stage, failing) = on_failing(Script::new().say("back")).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    failing.interceptor.fail_leases(Kind::JournalDamaged, 1);
    let fault = stage.runtime.run(stage.session, "go").await.unwrap_err();
    assert_eq!(fault.kind(), Kind::JournalDamaged);
}
