//! Each test is a promise.

use std::time::Duration;

use budao_core::{
    Kind,
    event::{Answer, CommandBody, Decision, Event, Origin, SessionId, Stage, StopReason, TaskEnd},
    fault::Fact,
    session::SessionState,
    turn,
};
use budao_pipeline::Work;
use serde_json::json;

use crate::play::{Play, answer_model, completed, failed, id};

const PLAN: &str =
    r#"{"summary": "two", "tasks": [{"id": "a", "prompt": "A"}, {"id": "b", "prompt": "B"}]}"#;

#[test]
fn a_question_is_planned_solved_and_aggregated() {
    let mut play = Play::new();
    assert_eq!(play.plan(false), ["pipeline_accepted", "turn_started", "plan_started"]);
    assert_eq!(play.session.state(), SessionState::Running);
    assert_eq!(play.answer(PLAN), ["plan_made", "task_started", "task_started"]);
    assert_eq!(play.tasks_at_work(), ["a", "b"]);
    assert_eq!(play.solve("b", completed("2")), ["task_ended"]);
    assert_eq!(play.solve("a", completed("1")), ["task_ended", "aggregate_started"]);
    let ended = ["aggregate_ended", "pipeline_ended", "text_delta", "model_answered", "turn_ended"];
    assert_eq!(play.answer("1 and 2"), ended);
    assert_eq!(play.session.last_text().as_deref(), Some("1 and 2"));
    assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::EndTurn);
    assert_eq!(play.session.state(), SessionState::Idle);
    play.check_starts();
    play.replayed();
}

#[test]
fn everything_of_a_run_has_its_turn_and_its_trace() {
    let mut play = Play::new();
    play.plan(false);
    play.answer(PLAN);
    play.solve("a", failed(Kind::ModelBadRequest));
    play.solve("b", completed("2"));
    play.answer("2");
    let trace = play.entries[2].trace;
    assert!(trace.is_some());
    for entry in &play.entries[2..] {
        assert_eq!((entry.turn, entry.trace), (1, trace), "{:?}", entry.event);
    }
}

#[test]
fn messages_wait_until_the_run_ends_and_runs_wait_for_turns() {
    let mut play = Play::new();
    play.say("first");
    assert_eq!(play.plan(false), ["pipeline_accepted"]);
    assert_eq!(play.say("last"), ["message_accepted"]);
    assert_eq!(answer_model(&mut play, "1").last(), Some(&"plan_started"));
    play.answer(r#"["x"]"#);
    play.solve("1", completed("y"));
    assert_eq!(play.answer("z").last(), Some(&"step_started"));
    answer_model(&mut play, "done");
    assert_eq!(play.session.history.len(), 6, "question and answer of a run are history");
    play.replayed();
}

#[test]
fn tasks_run_in_parallel_within_the_limit_and_the_rest_wait() {
    let mut play = Play::new();
    play.limits.parallel_calls = 2;
    let tasks = json!(["one", "two", "three", "four"]);
    let names = play.command(CommandBody::Solve { question: String::new(), tasks }).0;
    assert_eq!(names.iter().filter(|name| **name == "task_started").count(), 2);
    assert_eq!(play.tasks_at_work(), ["1", "2"]);
    assert_eq!(play.solve("2", completed("2")), ["task_ended", "task_started"]);
    assert_eq!(play.tasks_at_work(), ["1", "3"]);
    for task in ["1", "3", "4"] {
        play.solve(task, completed("x"));
    }
    assert_eq!(play.jobs()[0].stage, Stage::Aggregation);
    assert_eq!(play.pipeline().question, "one; two; three; four");
}

#[test]
fn given_tasks_need_no_planner() {
    let play = Play::solving(json!({"tasks": [{"id": 7, "prompt": "x"}]}));
    assert_eq!(play.count("plan_started"), 0);
    assert_eq!(play.count("plan_made"), 1);
    assert_eq!(play.tasks_at_work(), ["7"]);
}

#[test]
fn given_tasks_that_are_no_plan_are_refused_before_anything_begins() {
    let mut play = Play::new();
    let tasks = json!([{"id": 1, "prompt": "x"}, {"id": 1, "prompt": "y"}]);
    let fault = play.refused(CommandBody::Solve { question: "q".into(), tasks });
    assert_eq!(fault.kind(), Kind::PlanCoercionFailed);
    assert_eq!(fault.mismatches().len(), 1);
    let fault = play.refused(CommandBody::Plan { question: "  ".into(), confirm: false });
    assert_eq!(fault.kind(), Kind::ConstraintViolated);
}

#[test]
fn a_planner_without_a_valid_plan_gets_the_reason_and_one_more_attempt() {
    let mut play = Play::new();
    play.plan(false);
    let first = play.jobs()[0].clone();
    assert_eq!(play.answer("I cannot"), ["fault_raised"]);
    let again = play.jobs()[0].clone();
    assert_eq!(again.attempt, first.attempt + 1, "another child");
    assert!(play.pipeline().refused.is_some(), "which is told the reason");
    assert_eq!(play.answer(PLAN)[0], "plan_made");
    assert!(play.pipeline().refused.is_none());
    play.replayed();
}

#[test]
fn a_planner_that_never_writes_a_plan_is_refused_with_the_reason() {
    let mut play = Play::new();
    play.plan(false);
    play.answer("[]");
    let names = play.answer("[]");
    assert_eq!(names, ["plan_refused", "pipeline_ended", "recovery_failed", "turn_ended"]);
    let last = play.session.last.clone().unwrap();
    assert_eq!(last.stop, StopReason::Failed);
    assert_eq!(last.fault.unwrap().kind(), Kind::PlanCoercionFailed);
    play.check_starts();
    play.replayed();
}

#[test]
fn a_planner_that_fails_ends_the_run_with_its_fault() {
    let mut play = Play::new();
    play.plan(false);
    let job = play.jobs()[0].clone();
    let names = play.end(&job, failed(Kind::ModelAuthentication));
    let ended =
        ["plan_refused", "pipeline_ended", "recovery_failed", "turn_ended", "session_ended"];
    assert_eq!(names, ended, "a wrong key ends the session, as in any turn");
    play.check_starts();
}

#[test]
fn a_failing_task_does_not_stop_the_others_and_is_reported_to_the_aggregator() {
    let mut play = Play::solving(json!(["one", "two"]));
    assert_eq!(play.solve("1", failed(Kind::ModelOverloaded)), ["fault_raised", "task_ended"]);
    assert_eq!(play.tasks_at_work(), ["2"]);
    play.solve("2", completed("2"));
    let started = play.entries.iter().find_map(|entry| match *entry.event {
        Event::AggregateStarted { completed, failed } => Some((completed, failed)),
        _ => None,
    });
    assert_eq!(started, Some((1, 1)));
    play.answer("only 2");
    let complete = play.entries.iter().find_map(|entry| match *entry.event {
        Event::PipelineEnded { complete } => Some(complete),
        _ => None,
    });
    assert_eq!(complete, Some(false));
    assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::EndTurn);
    play.check_starts();
}

#[test]
fn a_fault_says_which_stage_and_which_task() {
    let mut play = Play::solving(json!(["one", "two"]));
    play.solve("2", failed(Kind::ModelOverloaded));
    let raised = play.entries.iter().find_map(|entry| match &*entry.event {
        Event::FaultRaised { fault, scope } => Some((fault.clone(), scope.clone())),
        _ => None,
    });
    let (fault, scope) = raised.unwrap();
    assert_eq!((scope.stage, scope.task), (Some(Stage::Solving), Some(id("2"))));
    assert_eq!(fault.detail().text(Fact::TaskId), Some("2"));
    assert_eq!(fault.detail().text(Fact::Stage), Some("solving"));
    assert!(fault.trace().is_some());
}

#[test]
fn what_goes_wrong_in_a_child_says_which_stage_and_task_it_is_about() {
    let parent = SessionId(uuid::Uuid::from_u128(1));
    let (stage, task) = (Stage::Solving, Some(id("7")));
    let mut child = Play::of(Some(Origin::Stage { parent, stage, task, depth: 1 }));
    child.say("work");
    let due = child.due();
    let [Work::Turn(turn::Work::Model { turn, step, attempt })] = due.as_slice() else {
        panic!("{due:?}")
    };
    let fault =
        budao_core::Fault::new(Kind::ModelOverloaded, budao_core::fault::Operation::ModelRequest);
    let (turn, step, attempt) = (*turn, *step, *attempt);
    child.input(turn::Input::ModelFailed { turn, step, attempt, fault });
    child.wait(Duration::from_secs(3_600));
    answer_model(&mut child, "done after all");
    let scopes = child.entries.iter().filter_map(|entry| match &*entry.event {
        Event::FaultRaised { scope, .. }
        | Event::RetryScheduled { scope, .. }
        | Event::Recovered { scope, .. } => Some(scope),
        _ => None,
    });
    let scopes: Vec<_> =
        scopes.map(|scope| (scope.step, scope.stage, scope.task.clone())).collect();
    assert_eq!(scopes, vec![(Some(1), Some(Stage::Solving), Some(id("7"))); 3]);
    child.replayed();
}

#[test]
fn when_every_task_fails_the_run_fails_with_the_first_reason() {
    let mut play = Play::solving(json!(["one", "two"]));
    play.solve("2", failed(Kind::ModelBadRequest));
    let names = play.solve("1", failed(Kind::ModelOverloaded));
    let ended = ["fault_raised", "task_ended", "pipeline_ended", "recovery_failed", "turn_ended"];
    assert_eq!(names, ended);
    let fault = play.session.last.clone().unwrap().fault.unwrap();
    assert_eq!(fault.kind(), Kind::ModelOverloaded);
    play.check_starts();
}

#[test]
fn an_aggregator_that_fails_fails_the_run_and_the_results_stay() {
    let mut play = Play::solving(json!(["one"]));
    play.solve("1", completed("kept"));
    let job = play.jobs()[0].clone();
    let names = play.end(&job, failed(Kind::ModelBadRequest));
    let ended =
        ["fault_raised", "aggregate_ended", "pipeline_ended", "recovery_failed", "turn_ended"];
    assert_eq!(names, ended);
    assert_eq!(play.pipeline().tasks[0].end, Some(completed("kept")));
    play.check_starts();
}

#[test]
fn a_plan_that_must_be_confirmed_waits_for_a_person() {
    let mut play = Play::new();
    play.plan(true);
    assert_eq!(play.answer(PLAN), ["question_asked"]);
    assert_eq!(play.session.state(), SessionState::WaitingForDecision);
    assert_eq!(play.count("plan_made"), 0, "until then it is no plan");
    assert!(matches!(play.due().as_slice(), [Work::Turn(turn::Work::Wake { .. })]));
    assert_eq!(play.crash(), ["session_resumed"], "the question survives");
    let answer = play.decide(Decision::Allow, None);
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    assert_eq!(play.tasks_at_work(), ["a", "b"]);
    assert_eq!(play.session.state(), SessionState::Running);
    play.replayed();
}

#[test]
fn edited_tasks_are_the_plan() {
    let mut play = Play::new();
    play.plan(true);
    play.answer(PLAN);
    let edited = json!([{"id": "c", "prompt": "C"}]);
    play.decide(Decision::Allow, Some(edited));
    assert_eq!(play.tasks_at_work(), ["c"]);
    assert_eq!(play.pipeline().summary, "two", "what was not edited stays");
    play.replayed();
}

#[test]
fn edited_tasks_that_are_no_plan_are_refused_and_the_question_stays_open() {
    let mut play = Play::new();
    play.plan(true);
    play.answer(PLAN);
    for edited in [json!([]), json!([{"id": 1, "prompt": "x"}, {"id": 1, "prompt": "y"}])] {
        let Answer::Rejected { fault } = play.decide(Decision::Allow, Some(edited)) else {
            panic!("an edited plan is checked too")
        };
        assert_eq!(fault.kind(), Kind::PlanCoercionFailed);
    }
    assert_eq!(play.session.state(), SessionState::WaitingForDecision);
    play.decide(Decision::Allow, None);
    assert_eq!(play.tasks_at_work(), ["a", "b"]);
}

#[test]
fn a_declined_plan_is_not_carried_out() {
    let mut play = Play::new();
    play.plan(true);
    play.answer(PLAN);
    play.decide(Decision::Deny, None);
    assert_eq!(play.count("task_started"), 0);
    assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::Cancelled);
    play.check_starts();
    play.replayed();
}

#[test]
fn an_unconfirmed_plan_expires() {
    let mut play = Play::new();
    play.plan(true);
    play.answer(PLAN);
    assert_eq!(play.wait(Duration::from_secs(60)), [""; 0], "too early");
    let names = play.wait(Duration::from_secs(24 * 3600));
    let ended =
        ["question_expired", "plan_cancelled", "pipeline_ended", "recovery_failed", "turn_ended"];
    assert_eq!(names, ended);
    assert_eq!(play.count("task_started"), 0, "it fails closed");
    let fault = play.session.last.clone().unwrap().fault.unwrap();
    assert_eq!(fault.kind(), Kind::QuestionExpired);
    play.check_starts();
}

#[test]
fn a_confirmation_is_bound_to_the_plan_that_was_shown() {
    let mut play = Play::new();
    play.plan(true);
    play.answer(PLAN);
    let question = play.pipeline().confirmation.clone().unwrap().question;
    let fault = play.refused(CommandBody::Decide {
        question,
        decision: Decision::Allow,
        note: None,
        arguments: None,
        digest: Some("of another plan".into()),
    });
    assert_eq!(fault.kind(), Kind::QuestionNotOpen);
}

#[test]
fn after_a_crash_the_same_children_are_due() {
    let mut play = Play::solving(json!(["one", "two", "three"]));
    let job = play.job("1");
    assert_eq!(play.opened(&job, 1), ["child_opened"]);
    assert_eq!(play.opened(&job, 1), [""; 0], "told once");
    play.solve("3", completed("3"));
    play.command(CommandBody::CancelTask { task: id("2") });
    let before = play.due();
    assert_eq!(play.crash(), ["session_resumed"]);
    assert_eq!(play.due(), before, "at work or to be stopped, exactly as before");
    assert_eq!(play.opened(&job, 1), [""; 0], "also after a crash");
    assert_eq!(play.count("task_started"), 3);
}

#[test]
fn what_children_used_the_turn_used() {
    let mut play = Play::solving(json!(["one"]));
    let job = play.job("1");
    play.opened(&job, 1);
    assert_eq!(play.end(&job, completed("1"))[0], "child_ended");
    play.answer("done");
    let used = play.session.usage;
    assert_eq!((used.input_tokens, used.output_tokens), (10, 5));
}

#[test]
fn once_the_tokens_are_spent_no_further_task_begins() {
    let mut play = Play::new();
    play.limits.parallel_calls = 1;
    play.limits.spending.turn_tokens = Some(10);
    play.command(CommandBody::Solve { question: "q".into(), tasks: json!(["one", "two"]) });
    let job = play.job("1");
    play.opened(&job, 1);
    play.end(&job, completed("1"));
    assert_eq!(play.count("task_started"), 1);
    let Some(TaskEnd::Failed { fault }) = &play.pipeline().tasks[1].end else { panic!() };
    assert_eq!(fault.kind(), Kind::SpendingCapReached);
    assert_eq!(play.jobs()[0].stage, Stage::Aggregation, "what there is is still combined");
}

#[test]
fn a_session_deep_below_a_person_starts_no_pipeline() {
    let (parent, task) = (SessionId(uuid::Uuid::from_u128(1)), None);
    let mut play = Play::of(Some(Origin::Stage { parent, stage: Stage::Planning, task, depth: 3 }));
    let fault = play.refused(CommandBody::Plan { question: "q".into(), confirm: false });
    assert_eq!(fault.kind(), Kind::DepthExceeded);
}

#[test]
fn a_run_that_is_halted_ends_everything_it_began() {
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
        let fault =
            budao_core::Fault::new(Kind::DiskFull, budao_core::fault::Operation::AppendRecords);
        play.input(turn::Input::Aborted { fault });
        assert_eq!(play.due(), [], "{stage}");
        assert_eq!(play.session.last.as_ref().unwrap().stop, StopReason::Failed);
        play.check_starts();
        play.replayed();
    }
}
