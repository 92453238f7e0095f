//! A process that is gone in the middle of a run, and another one on the same journal.

use std::{sync::atomic::Ordering, time::Duration};

use budao_core::event::{Ask, StopReason, TaskId};
use budao_models::script::{Script, Step};
use serde_json::json;

use crate::stage::{AGGREGATOR, PLANNER, Setup, Stage};

const HOUR: Duration = Duration::from_secs(3600);

fn hanging() -> Script {
    Script::new().step(Step::new().text("hm").pause(HOUR * 100).text("never")).forever()
}

/// Every part but `hangs` does its work; that one hangs until the process is gone.
fn setup(hangs: Option<&str>) -> Setup {
    let mut setup = Setup::new();
    setup.limits.model_between_tokens = HOUR * 200;
    if let Some(part) = hangs {
        setup = setup.part(part, hanging());
    }
    setup
        .plans(json!([{"id": "a", "prompt": "first"}, {"id": "b", "prompt": "second"}]))
        .part("first", Script::new().call("touch", json!({})).say("one"))
        .part("second", Script::new().call("touch", json!({})).say("two"))
        .says(AGGREGATOR, "both")
}

async fn gone_while(part: &str) -> Stage {
    let first = setup(Some(part)).open().await;
    first.accepted(Ask::Plan { question: "q".into(), confirm: false }).await;
    while first.cast.asked(part) == 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Whatever else is under way comes as far as it can.
    tokio::time::sleep(Duration::from_secs(1)).await;
    first.runtime.shutdown(Duration::ZERO).await;
    assert_eq!(first.count("turn_ended").await, 0);
    first
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_in_the_next_process_and_no_task_is_done_twice() {
    for (part, touched_before) in [(PLANNER, 0), ("first", 1), ("second", 1), (AGGREGATOR, 2)] {
        let first = gone_while(part).await;
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
async fn what_was_done_before_is_not_asked_again() {
    let first = gone_while("second").await;
    let second = setup(None).instead_of(&first).await;
    second.until("turn_ended").await;
    assert_eq!(second.cast.asked(PLANNER), 0);
    assert_eq!(second.cast.asked("first"), 0);
    assert_eq!(second.cast.asked("second"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_was_begun_is_finished_by_the_next_process() {
    let first = gone_while("first").await;
    // The command comes while nobody runs the session: it waits in the journal.
    let second = setup(Some("first")).instead_of(&first).await;
    second.accepted(Ask::Cancel { reason: None }).await;
    second.until("turn_ended").await;
    assert_eq!(second.state().await.last.unwrap().stop, StopReason::Cancelled);
    second.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_restarted_has_another_child_also_after_a_crash() {
    let first = gone_while("first").await;
    let second = setup(None).part("unused", Script::new()).instead_of(&first).await;
    second.accepted(Ask::RestartTask { task: TaskId("a".into()) }).await;
    second.until("turn_ended").await;
    assert_eq!(second.state().await.last_text().as_deref(), Some("both"));
    second.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_waits_for_a_person_waits_in_the_next_process_too() {
    let first = setup(None).open().await;
    let paused = first.runtime.plan(first.session, "q", true).await.unwrap();
    first.runtime.shutdown(Duration::ZERO).await;
    let second = setup(None).instead_of(&first).await;
    second.decide(second.session, paused.pending[0].clone()).await;
    second.until("turn_ended").await;
    assert_eq!(second.state().await.last_text().as_deref(), Some("both"));
    assert_eq!(second.cast.asked(PLANNER), 0);
}
