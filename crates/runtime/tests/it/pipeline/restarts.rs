//! A process that is gone in the middle of a run, and another one on the same journal.

use std::{sync::atomic::Ordering, time::Duration};

use budao_core::{
    engine::Engine as _,
    event::{CommandBody, Event, StopReason, TaskId},
};
use budao_models::script::{Script, ScriptStep};
use serde_json::json;

use crate::pipeline::fixture::{AGGREGATOR, Fixture, PLANNER, Setup, name};

const HOUR: Duration = Duration::from_secs(3600);

fn hanging() -> Script {
    Script::new().step(ScriptStep::new().text("hm").pause(HOUR * 100).text("never")).forever()
}

/// Every part but `hangs` does its work; that one hangs until the process is gone.
fn setup(hangs: Option<&str>) -> Setup {
    let mut setup = Setup::new();
    setup.limits.model_between_tokens = HOUR * 200;
    if let Some(part) = hangs {
        setup = setup.part(part, hanging());
    }
    setup
        .plans(&json!([{"id": "a", "prompt": "first"}, {"id": "b", "prompt": "second"}]))
        .part("first", Script::new().call("touch", json!({})).say("one"))
        .part("second", Script::new().call("touch", json!({})).say("two"))
        .says(AGGREGATOR, "both")
}

/// How a process goes.
#[derive(Clone, Copy, Debug)]
enum Exit {
    /// It parks what it has.
    Stopped,
    /// It just is no more. Whatever of it still runs here is a stale writer, and refused as such.
    Killed,
}

async fn gone_while(part: &str, exit: Exit) -> Fixture {
    let first = setup(Some(part)).open().await;
    first.accepted(CommandBody::Plan { question: "q".into(), confirm: false }).await;
    while first.cast.asked(part) == 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Whatever else is under way comes as far as it can.
    tokio::time::sleep(Duration::from_secs(1)).await;
    if let Exit::Stopped = exit {
        first.runtime.shutdown(Duration::ZERO).await;
    }
    assert_eq!(first.count("turn_ended").await, 0);
    first
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_in_the_next_process_and_no_task_is_done_twice() {
    let parts = [(PLANNER, 0), ("first", 1), ("second", 1), (AGGREGATOR, 2)];
    let exits = [Exit::Stopped, Exit::Killed];
    for ((part, touched_before), exit) in
        parts.iter().flat_map(|part| exits.map(|exit| (*part, exit)))
    {
        let first = gone_while(part, exit).await;
        assert_eq!(first.touched.load(Ordering::SeqCst), touched_before, "{part}");
        let second = setup(None).instead_of(&first).await;
        second.until("turn_ended").await;
        let state = second.state().await;
        assert_eq!(state.last.as_ref().unwrap().stop, StopReason::EndTurn, "{part}");
        assert_eq!(state.last_text().as_deref(), Some("both"), "{part}");
        let touched = first.touched.load(Ordering::SeqCst) + second.touched.load(Ordering::SeqCst);
        assert_eq!(touched, 2, "every task did its work once, gone while {part}");
        assert_eq!(second.count("task_started").await, 2, "{part}");
        assert_eq!(second.count("task_ended").await, 2, "{part}");
        assert_eq!(second.count("child_opened").await, 4, "the same children, {part}");
        second.nothing_runs().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_process_repeats_no_finished_task() {
    let first = gone_while("second", Exit::Killed).await;
    let second = setup(None).instead_of(&first).await;
    second.until("turn_ended").await;
    assert_eq!(second.cast.asked(PLANNER), 0);
    assert_eq!(second.cast.asked("first"), 0);
    assert_eq!(second.cast.asked("second"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_run_of_a_process_that_is_gone_can_be_cancelled_in_the_next() {
    let first = gone_while("first", Exit::Stopped).await;
    let second = setup(Some("first")).instead_of(&first).await;
    second.accepted(CommandBody::Cancel { reason: None }).await;
    second.until("turn_ended").await;
    assert_eq!(second.state().await.last.unwrap().stop, StopReason::Cancelled);
    second.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_was_begun_is_finished_by_the_next_process() {
    // Goal: nothing is left when the process dies between the cancel and the end of its children.
    let mut setup = setup(None);
    setup = setup.part("stubborn", Script::new().call("deaf", json!({})));
    let first = setup.open().await;
    first.accepted(CommandBody::Solve { question: "q".into(), tasks: json!(["stubborn"]) }).await;
    first.until("child_opened").await;
    let child = first.children().await[0];
    first.until_in(child, "tool_call_started").await;
    first.accepted(CommandBody::Cancel { reason: None }).await;
    assert_eq!(first.count("turn_ended").await, 0, "its child is still being stopped");
    let second = crate::pipeline::fixture::Setup::new().instead_of(&first).await;
    second.until("turn_ended").await;
    assert_eq!(second.state().await.last.unwrap().stop, StopReason::Cancelled);
    second.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_restarted_has_another_child_also_after_a_crash() {
    let first = gone_while("first", Exit::Killed).await;
    let second = setup(None).instead_of(&first).await;
    second.accepted(CommandBody::RestartTask { task: TaskId("a".into()) }).await;
    second.until("turn_ended").await;
    assert_eq!(second.state().await.last_text().as_deref(), Some("both"));
    second.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn coming_back_to_a_child_does_not_disturb_what_it_does() {
    let hanging = setup(None).part("task", hanging());
    let first = hanging.open().await;
    first.accepted(CommandBody::Solve { question: "q".into(), tasks: json!(["task"]) }).await;
    first.until("child_opened").await;
    let child = first.children().await[0];
    first.until_in(child, "text_delta").await;
    let script = Script::new().call("nap", json!({})).say("slept");
    let second = setup(None).part("task", script).replacing(&first);
    second.runtime.touch(child);
    second.until_in(child, "tool_call_started").await;
    second.runtime.touch(second.session);
    second.until("turn_ended").await;
    let records = second.records_of(child).await;
    let names: Vec<_> = records.iter().map(|record| name(&record.event)).collect();
    assert_eq!(names.iter().filter(|name| *name == "session_resumed").count(), 1, "{names:?}");
    let Event::ToolCallEnded { outcome, .. } =
        second.until_in(child, "tool_call_ended").await.event
    else {
        panic!()
    };
    assert!(outcome.is_done(), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_waits_for_a_person_waits_in_the_next_process_too() {
    let first = setup(None).open().await;
    let paused = first.runtime.plan(first.session, "q", true).await.unwrap();
    first.runtime.shutdown(Duration::ZERO).await;
    let second = setup(None).instead_of(&first).await;
    second.decide(second.session, paused.pending[0].id.clone()).await;
    second.until("turn_ended").await;
    assert_eq!(second.state().await.last_text().as_deref(), Some("both"));
    assert_eq!(second.cast.asked(PLANNER), 0);
}
