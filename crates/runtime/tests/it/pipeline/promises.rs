//! What every pipeline may rely on.

use std::{sync::atomic::Ordering, time::Duration};

use budao_core::{
    Kind,
    engine::Engine,
    event::{
        Answer, CommandBody, Decision, Event, Origin, Stage as Part, StopReason, TaskEnd, TaskId,
    },
    message::{Block, text_of},
    session::SessionState,
    tool::Mode,
};
use budao_models::script::{Script, ScriptStep};
use serde_json::json;

use crate::pipeline::fixture::{AGGREGATOR, PLANNER, Setup};

const HOUR: Duration = Duration::from_secs(3600);

fn hanging() -> Script {
    Script::new().step(ScriptStep::new().text("hm").pause(HOUR * 100).text("never")).forever()
}

#[tokio::test(start_paused = true)]
async fn a_question_is_planned_solved_and_answered() {
    let setup = Setup::new().plans(&json!(["count apples", "count pears"]));
    let setup = setup.says("count apples", "7").says("count pears", "5");
    let stage = setup.says(AGGREGATOR, "12 in all").open().await;
    let result = stage.runtime.plan(stage.session, "How much fruit?", false).await.unwrap();
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(result.text, "12 in all");
    assert_eq!(stage.state().await.state(), SessionState::Idle);
    let told = stage.cast.told(AGGREGATOR);
    assert!(told.contains("How much fruit?"), "{told}");
    assert!(told.contains("Task 1: count apples\n7"), "{told}");
    assert!(told.contains("Task 2: count pears\n5"), "{told}");
    stage.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn every_child_is_linked_to_its_parent_by_stage_task_depth_and_trace() {
    let setup = Setup::new().plans(&json!([{"id": "a", "title": "A", "prompt": "do a"}]));
    let stage = setup.says("do a", "done").says(AGGREGATOR, "all").open().await;
    let result = stage.runtime.plan(stage.session, "q", false).await.unwrap();
    let children = stage.children().await;
    assert_eq!(children.len(), 3);
    let stages = [(Part::Planning, None), (Part::Solving, Some("a")), (Part::Aggregation, None)];
    for (child, (stage_is, task_is)) in children.iter().zip(stages) {
        let state = stage.runtime.state(*child).await.unwrap();
        let Some(Origin::Stage { parent, stage: part, task, depth }) = state.origin else {
            panic!("{:?}", state.origin)
        };
        assert_eq!((parent, part, depth), (stage.session, stage_is, 1));
        assert_eq!(task, task_is.map(|task| TaskId(task.into())));
        let records = stage.records_of(*child).await;
        let started = records.iter().find(|record| record.turn == 1).unwrap();
        assert_eq!(started.trace, result.trace, "one trace through all of it");
    }
    assert_eq!(stage.count("child_ended").await, 3);
    let used = stage.state().await.usage;
    assert!(used.input_tokens > 0, "what children used the session used");
}

#[tokio::test(start_paused = true)]
async fn a_failing_task_leaves_the_others_running_and_the_aggregator_gets_its_fault() {
    let setup = Setup::new()
        .part("fails", Script::new().fail(Kind::ModelBadRequest).forever())
        .says("works", "fine");
    let stage = setup.says(AGGREGATOR, "partly").open().await;
    let tasks = json!(["works", "fails"]);
    let result = stage.runtime.solve(stage.session, "q", tasks).await.unwrap();
    assert_eq!(result.text, "partly");
    assert!(stage.cast.told(AGGREGATOR).contains("FAILED: "), "told which and why");
    let ends = stage.ends().await;
    let Some((_, TaskEnd::Failed { fault })) = ends.iter().find(|(task, _)| *task.0 == *"2") else {
        panic!("{ends:?}")
    };
    assert_eq!(fault.kind(), Kind::ModelBadRequest);
    assert_eq!(fault.hops()[0].role, "agent");
    assert_eq!(fault.trace(), result.trace);
}

#[tokio::test(start_paused = true)]
async fn a_planner_is_corrected_once_from_the_reason_it_is_given() {
    let plan = json!([{"prompt": "do it"}]).to_string();
    let setup = Setup::new().part(PLANNER, Script::new().say("Sure! First, I …").say(plan));
    let stage = setup.says("do it", "did").says(AGGREGATOR, "done").open().await;
    let result = stage.runtime.plan(stage.session, "q", false).await.unwrap();
    assert_eq!(result.text, "done");
    let told = stage.cast.told(PLANNER);
    assert!(told.contains("An earlier answer could not be used"), "{told}");
    assert!(told.contains("Sure! First"), "{told}");
    assert_eq!(stage.children().await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_planner_that_never_plans_ends_the_run_with_plan_coercion_failed() {
    let stage = Setup::new().says(PLANNER, "no").open().await;
    let result = stage.runtime.plan(stage.session, "q", false).await.unwrap();
    assert_eq!(result.stop, Some(StopReason::Failed));
    assert_eq!(result.fault.unwrap().kind(), Kind::PlanCoercionFailed);
    assert_eq!(stage.count("plan_refused").await, 1);
    stage.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn tasks_run_side_by_side_within_the_limit() {
    let slow = |_: usize| Script::new().step(ScriptStep::new().delay(HOUR).text("x")).forever();
    let mut setup = Setup::new();
    setup.limits.parallel_calls = 2;
    // The cast gives up on a silent model after two minutes; let it be silent.
    setup.limits.model_first_token = HOUR * 2;
    let setup = setup.part("slow", slow(0)).says(AGGREGATOR, "done");
    let stage = setup.open().await;
    let began = tokio::time::Instant::now();
    let tasks = json!(["slow 1", "slow 2", "slow 3", "slow 4"]);
    stage.accepted(CommandBody::Solve { question: "q".into(), tasks }).await;
    stage.until_count("task_started", 2).await;
    assert_eq!(stage.count("task_started").await, 2);
    stage.until("turn_ended").await;
    let hours = began.elapsed().as_secs_f64() / 3600.0;
    assert!((1.9..2.5).contains(&hours), "two at a time take two hours, not {hours}");
}

#[tokio::test(start_paused = true)]
async fn cancel_leaves_no_running_child() {
    for part in [PLANNER, "task", AGGREGATOR] {
        let mut setup = Setup::new().part(part, hanging());
        setup.limits.model_between_tokens = HOUR * 200;
        let setup = setup.plans(&json!(["task 1", "task 2"])).says("task", "x");
        let stage = setup.says(AGGREGATOR, "all").open().await;
        stage.accepted(CommandBody::Plan { question: "q".into(), confirm: false }).await;
        while stage.cast.asked(part) == 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        stage.accepted(CommandBody::Cancel { reason: None }).await;
        stage.until("turn_ended").await;
        stage.nothing_runs().await;
        assert_eq!(stage.state().await.last.unwrap().stop, StopReason::Cancelled, "{part}");
        for child in stage.children().await {
            assert!(stage.runtime.state(child).await.unwrap().turn.is_none(), "{part}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cancel_reaches_the_tools_of_children_and_waits_for_them() {
    let setup = Setup::new().part("task", Script::new().call("slow", json!({})).say("never"));
    let stage = setup.open().await;
    let tasks = json!(["task"]);
    stage.accepted(CommandBody::Solve { question: "q".into(), tasks }).await;
    stage.until("child_opened").await;
    let child = stage.children().await[0];
    stage.until_in(child, "tool_call_started").await;
    stage.accepted(CommandBody::Cancel { reason: None }).await;
    let ended = stage.until("turn_ended").await;
    let tool = stage.until_in(child, "tool_call_ended").await;
    assert!(tool.at <= ended.at, "the run ends after the tools of its children");
    stage.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn cancel_at_once_leaves_nothing_behind() {
    // Goal: the race between asking a child and stopping it. Method: cancel after every few polls.
    for polls in 0..60 {
        let setup = Setup::new().part("task", hanging());
        let stage = setup.open().await;
        let tasks = json!(["task 1", "task 2"]);
        stage.accepted(CommandBody::Solve { question: "q".into(), tasks }).await;
        for _ in 0..polls {
            tokio::task::yield_now().await;
        }
        stage.accepted(CommandBody::Cancel { reason: None }).await;
        stage.until("turn_ended").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        stage.nothing_runs().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_task_is_stopped_and_another_restarted() {
    let script =
        Script::new().step(ScriptStep::new().text("a").pause(HOUR * 100)).say("second try");
    let mut setup = Setup::new().part("again", script).part("stop", hanging());
    setup.limits.model_between_tokens = HOUR * 200;
    let stage = setup.says(AGGREGATOR, "done").open().await;
    let tasks = json!([{"id": "r", "prompt": "again"}, {"id": "c", "prompt": "stop"}]);
    stage.accepted(CommandBody::Solve { question: "q".into(), tasks }).await;
    stage.until_count("child_opened", 2).await;
    while stage.cast.asked("again") == 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stage.accepted(CommandBody::RestartTask { task: TaskId("r".into()) }).await;
    stage.accepted(CommandBody::CancelTask { task: TaskId("c".into()) }).await;
    stage.until("turn_ended").await;
    let told = stage.cast.told(AGGREGATOR);
    assert!(told.contains("second try"), "{told}");
    assert!(told.contains("CANCELLED: stopped by ada"), "{told}");
    assert_eq!(stage.count("task_restarted").await, 1);
    assert_eq!((stage.count("task_started").await, stage.count("task_ended").await), (3, 3));
    stage.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn another_plan_replaces_the_first_and_its_children_stop() {
    let first = json!(["slow"]).to_string();
    let second = json!(["quick"]).to_string();
    let mut setup =
        Setup::new().part(PLANNER, Script::new().say(first).say(second)).part("slow", hanging());
    setup.limits.model_between_tokens = HOUR * 200;
    let stage = setup.says("quick", "x").says(AGGREGATOR, "done").open().await;
    stage.accepted(CommandBody::Plan { question: "q".into(), confirm: false }).await;
    while stage.cast.asked("slow") == 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stage.accepted(CommandBody::Replan { question: Some("better q".into()) }).await;
    stage.until("turn_ended").await;
    assert_eq!(stage.state().await.last_text().as_deref(), Some("done"));
    assert!(stage.cast.told(AGGREGATOR).contains("better q"));
    assert_eq!(stage.count("plan_started").await, 2);
    stage.nothing_runs().await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_waits_for_a_person_that_may_edit_it() {
    let setup = Setup::new().plans(&json!(["not this"])).says("but this", "x");
    let stage = setup.says(AGGREGATOR, "done").open().await;
    let paused = stage.runtime.plan(stage.session, "q", true).await.unwrap();
    assert_eq!((paused.stop, paused.pending.len()), (None, 1));
    assert_eq!(stage.state().await.state(), SessionState::WaitingForDecision);
    let question = paused.pending[0].id.clone();
    let (note, digest) = (None, None);
    let decision = Decision::Allow;
    let arguments = Some(json!(["but this"]));
    stage.accepted(CommandBody::Decide { question, decision, note, arguments, digest }).await;
    stage.until("turn_ended").await;
    assert_eq!(stage.cast.asked("but this"), 1);
    assert_eq!(stage.state().await.last_text().as_deref(), Some("done"));
}

#[tokio::test(start_paused = true)]
async fn an_unconfirmed_plan_is_never_carried_out() {
    let stage = Setup::new().plans(&json!(["task"])).says("task", "x").open().await;
    stage.accepted(CommandBody::Plan { question: "q".into(), confirm: true }).await;
    stage.until("turn_ended").await;
    assert_eq!(stage.count("question_expired").await, 1);
    assert_eq!(stage.cast.asked("task"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_waits_for_the_run_and_knows_its_answer() {
    let setup = Setup::new().says("task", "x").says(AGGREGATOR, "forty-two");
    let stage = setup.says("the question", "as I said").open().await;
    let tasks = json!(["task"]);
    stage.accepted(CommandBody::Solve { question: "the question".into(), tasks }).await;
    let result = stage.runtime.run(stage.session, "again?").await.unwrap();
    assert_eq!(result.text, "as I said");
    let history = stage.cast.request("the question").messages;
    let said: Vec<String> = history.iter().map(|message| text_of(&message.content)).collect();
    assert_eq!(said, ["the question", "forty-two", "again?"]);
}

#[tokio::test(start_paused = true)]
async fn children_never_get_more_than_their_session() {
    let touch = || Script::new().call("touch", json!({})).say("tried");
    let mut setup = Setup::new().part("task", touch());
    setup.settings.permissions.deny = vec!["touch".into()];
    let stage = setup.says(AGGREGATOR, "done").open().await;
    stage.runtime.solve(stage.session, "q", json!(["task"])).await.unwrap();
    assert_eq!(stage.touched.load(Ordering::SeqCst), 0, "denied to the session, denied to all");

    let plan = json!(["x"]).to_string();
    let planner = Script::new().call("touch", json!({})).say(plan);
    let setup = Setup::new().part(PLANNER, planner).says("x", "y").says(AGGREGATOR, "done");
    let stage = setup.open().await;
    stage.runtime.plan(stage.session, "q", false).await.unwrap();
    assert_eq!(stage.touched.load(Ordering::SeqCst), 0, "a planner only looks");
    assert!(stage.cast.request(AGGREGATOR).tools.is_empty(), "an aggregator only writes");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_asks_a_person_is_answered_through_its_own_session() {
    let setup = Setup::new().part("task", Script::new().call("touch", json!({})).say("touched"));
    let mut setup = setup.says(AGGREGATOR, "done");
    setup.settings.permissions.mode = Mode::Approval;
    let stage = setup.open().await;
    stage.accepted(CommandBody::Solve { question: "q".into(), tasks: json!(["task"]) }).await;
    let Event::Annotated { topic, data } = stage.until("annotated").await.event else { panic!() };
    assert_eq!(topic, "pipeline.child_question_asked");
    assert_eq!((&data["stage"], &data["task"]), (&json!("solving"), &json!("1")));
    let child = serde_json::from_value(data["child"].clone()).unwrap();
    let question = serde_json::from_value(data["question"].clone()).unwrap();
    let answer = stage.decide(child, question).await;
    assert!(matches!(answer, Answer::Accepted { .. }), "{answer:?}");
    stage.until("turn_ended").await;
    assert_eq!(stage.touched.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn the_same_command_starts_one_run() {
    let stage = Setup::new().says("task", "x").says(AGGREGATOR, "done").open().await;
    let body = CommandBody::Solve { question: "q".into(), tasks: json!(["task"]) };
    let command = budao_core::event::Command {
        id: "mine-1".into(),
        by: "ada".into(),
        trace: budao_core::trace::Trace::NONE,
        body,
    };
    let first = stage.runtime.submit(stage.session, command.clone()).await.unwrap();
    stage.until("turn_ended").await;
    assert_eq!(stage.runtime.submit(stage.session, command).await.unwrap(), first);
    assert_eq!(stage.count("pipeline_accepted").await, 1);
    let content = vec![Block::Text("still there?".into())];
    stage.accepted(CommandBody::Message { content }).await;
}
