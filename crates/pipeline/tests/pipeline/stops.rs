//! What is cancelled, restarted or planned anew: it stops first, and every start keeps its one end.

use budao_core::{
    Kind,
    event::{Answer, CommandBody, Stage, StopReason, TaskEnd},
    fault::Fact,
};
use serde_json::json;

use crate::play::{Play, completed, failed, id};

const PLAN: &str = r#"[{"id": "a", "prompt": "A"}, {"id": "b", "prompt": "B"}]"#;

#[test]
fn cancel_waits_for_every_child_and_leaves_nothing_due() {
    for tasks in [0, 1, 2] {
        let mut play = Play::new();
        play.plan(false);
        if tasks > 0 {
            play.answer(PLAN);
        }
        if tasks > 1 {
            play.solve("a", completed("1"));
        }
        assert_eq!(play.cancel(), ["cancel_requested"], "it ends when its children have stopped");
        assert_eq!(play.jobs(), [], "no child is to work any more");
        assert!(!play.stops().is_empty());
        assert_eq!(play.cancel(), [""; 0], "cancel is idempotent");
        assert_eq!(play.all_stop().last(), Some(&"turn_ended"));
        assert_eq!(play.due(), []);
        assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::Cancelled);
        play.check_starts();
        play.replayed();
    }
}

#[test]
fn cancel_stops_the_aggregator_too() {
    let mut play = Play::solving(json!(["one"]));
    play.solve("1", completed("x"));
    play.cancel();
    assert_eq!(play.stops()[0].stage, Stage::Aggregation);
    assert_eq!(play.all_stop(), ["aggregate_ended", "pipeline_ended", "turn_ended"]);
    play.check_starts();
}

#[test]
fn a_result_that_comes_while_everything_stops_is_a_cancelled_one() {
    let mut play = Play::solving(json!(["one"]));
    let job = play.job("1");
    play.cancel();
    play.end(&job, completed("too late"));
    assert!(matches!(play.pipeline().tasks[0].end, Some(TaskEnd::Cancelled { .. })));
    assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::Cancelled);
}

#[test]
fn one_task_is_cancelled_and_the_others_go_on() {
    let mut play = Play::solving(json!(["one", "two"]));
    let (names, _) = play.command(CommandBody::CancelTask { task: id("1") });
    assert_eq!(names, ["task_stop_requested"]);
    assert_eq!(play.tasks_at_work(), ["2"]);
    assert_eq!(play.all_stop(), ["task_ended"]);
    let fault = play.refused(CommandBody::CancelTask { task: id("1") });
    assert_eq!(fault.kind(), Kind::ConstraintViolated, "it has ended");
    play.solve("2", completed("2"));
    assert_eq!(play.jobs()[0].stage, Stage::Aggregation);
    play.answer("2 without 1");
    play.check_starts();
}

#[test]
fn a_task_that_waits_is_cancelled_at_once() {
    let mut play = Play::new();
    play.limits.parallel_calls = 1;
    play.command(CommandBody::Solve { question: "q".into(), tasks: json!(["one", "two"]) });
    assert_eq!(play.command(CommandBody::CancelTask { task: id("2") }).0, ["task_ended"]);
    assert_eq!(play.solve("1", completed("1")), ["task_ended", "aggregate_started"]);
    play.replayed();
}

#[test]
fn when_every_task_was_cancelled_the_run_is_cancelled() {
    let mut play = Play::solving(json!(["one"]));
    play.command(CommandBody::CancelTask { task: id("1") });
    assert_eq!(play.all_stop(), ["task_ended", "pipeline_ended", "turn_ended"]);
    assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::Cancelled);
}

#[test]
fn a_running_task_is_stopped_before_it_is_restarted() {
    let mut play = Play::solving(json!(["one", "two"]));
    let first = play.job("1");
    play.command(CommandBody::RestartTask { task: id("1") });
    assert_eq!(
        play.command(CommandBody::RestartTask { task: id("1") }).0,
        [""; 0],
        "asked for already"
    );
    assert_eq!(play.all_stop(), ["task_ended", "task_restarted", "task_started"]);
    let second = play.job("1");
    assert_eq!(second.attempt, 2);
    assert_eq!(play.end(&first, completed("stale")), ["late_arrival_dropped"]);
    assert_eq!(play.end(&second, completed("fresh")), ["task_ended"]);
    assert_eq!(play.pipeline().tasks[0].end, Some(completed("fresh")));
    play.replayed();
}

#[test]
fn a_task_that_ended_is_restarted_while_others_are_solved() {
    let mut play = Play::solving(json!(["one", "two"]));
    play.solve("1", failed(Kind::ModelOverloaded));
    let (names, _) = play.command(CommandBody::RestartTask { task: id("1") });
    assert_eq!(names, ["task_restarted", "task_started"]);
    play.solve("2", completed("2"));
    assert_eq!(play.tasks_at_work(), ["1"], "the aggregator waits for it");
    play.solve("1", completed("1"));
    play.answer("both");
    play.check_starts();
}

#[test]
fn tasks_cannot_be_changed_outside_solving() {
    let mut play = Play::new();
    play.refused(CommandBody::RestartTask { task: id("a") });
    play.refused(CommandBody::CancelTask { task: id("a") });
    play.refused(CommandBody::CancelPlan);
    play.plan(false);
    play.refused(CommandBody::RestartTask { task: id("a") });
    play.answer(PLAN);
    let fault = play.refused(CommandBody::RestartTask { task: id("zebra") });
    assert_eq!(fault.detail().get(Fact::ProvidedValue).unwrap().to_string(), "zebra");
    play.solve("a", completed("1"));
    play.solve("b", completed("2"));
    play.refused(CommandBody::RestartTask { task: id("a") });
    play.answer("done");
    play.refused(CommandBody::RestartTask { task: id("a") });
}

#[test]
fn the_plan_is_cancelled_while_it_is_made_confirmed_or_solved() {
    for stage in 0..3 {
        let mut play = Play::new();
        play.plan(stage == 1);
        if stage > 0 {
            play.answer(PLAN);
        }
        let (_, answer) = play.command(CommandBody::CancelPlan);
        assert!(matches!(answer, Answer::Accepted { .. }));
        play.all_stop();
        assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::Cancelled, "{stage}");
        assert_eq!(play.count("plan_cancelled"), usize::from(stage < 2));
        play.check_starts();
        play.replayed();
    }
}

#[test]
fn another_plan_is_made_while_the_first_is_made_confirmed_solved_or_aggregated() {
    for stage in 0..4 {
        let mut play = Play::new();
        play.plan(stage == 1);
        if stage > 0 {
            play.answer(PLAN);
        }
        if stage > 2 {
            play.solve("a", completed("1"));
            play.solve("b", completed("2"));
        }
        let old = play.pipeline().jobs();
        let (_, answer) = play.command(CommandBody::Replan { question: Some("how?".into()) });
        assert!(matches!(answer, Answer::Accepted { .. }));
        play.all_stop();
        assert_eq!(play.pipeline().question, "how?", "{stage}");
        let planning = play.jobs();
        assert_eq!((planning.len(), planning[0].stage), (1, Stage::Planning), "{stage}");
        assert!(!old.contains(&planning[0]), "a new plan has a new child");
        for job in old {
            assert_eq!(play.end(&job, completed("stale")), ["late_arrival_dropped"]);
        }
        play.cancel();
        play.all_stop();
        assert_eq!((play.count("turn_started"), play.count("pipeline_ended")), (1, 1));
        play.check_starts();
        play.replayed();
    }
}

#[test]
fn replanning_when_nothing_runs_is_a_new_run_of_the_last_question() {
    let mut play = Play::new();
    let fault = play.refused(CommandBody::Replan { question: None });
    assert_eq!(fault.kind(), Kind::ConstraintViolated, "there is no last question");
    play.plan(false);
    play.cancel();
    play.all_stop();
    let (names, _) = play.command(CommandBody::Replan { question: None });
    assert_eq!(names, ["pipeline_accepted", "turn_started", "plan_started"]);
    assert_eq!(play.pipeline().question, "why?");
}
