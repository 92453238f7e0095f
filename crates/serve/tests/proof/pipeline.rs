//! Plan, solve, aggregate over the line: every task that starts has its end, whatever becomes of the others.

use std::sync::Arc;

use budao_client::Event;
use budao_core::{
    Fault, Kind,
    fault::Operation,
    message::{Block, ModelRequest, ModelStop, Piece, Usage, text_of},
};
use budao_models::{Model, PieceStream, script::Script};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::fixture::{Setup, next, until};

/// Solves what it is asked, fails for plums, and puts results together.
#[derive(Debug)]
struct PipelineModel;

#[async_trait::async_trait]
impl Model for PipelineModel {
    fn provider(&self) -> &str {
        "cast"
    }

    fn name(&self) -> &str {
        "cast"
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let confirmation: String =
            request.messages.iter().map(|answer| text_of(&answer.content)).collect();
        let aggregates = confirmation.contains("Task 1");
        if confirmation.contains("Count the plums") && !aggregates {
            return Err(Fault::new(Kind::ModelBadRequest, Operation::ModelRequest));
        }
        let text = if aggregates { "Seven, five and unknown." } else { "A number." };
        let end = Piece::End { stop: ModelStop::EndTurn, usage: Usage::default() };
        let pieces = [Piece::Text(text.into()), Piece::Block(Block::Text(text.into())), end];
        Ok(futures::stream::iter(pieces.map(Ok)).boxed())
    }
}

/// Never says a word.
#[derive(Debug)]
struct SilentModel;

#[async_trait::async_trait]
impl Model for SilentModel {
    fn provider(&self) -> &str {
        "silent"
    }

    fn name(&self) -> &str {
        "silent"
    }

    async fn stream(&self, _: ModelRequest) -> Result<PieceStream, Fault> {
        Ok(futures::stream::pending().boxed())
    }
}

/// The events of a stage with the task each is about.
fn about(events: &[Event], name: &str) -> Vec<Value> {
    let named = events.iter().filter(|event| event.event == name);
    let mut tasks: Vec<Value> = named.map(|event| event.content["task"]["id"].clone()).collect();
    tasks.sort_by_key(ToString::to_string);
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_task_has_its_terminal_event_and_the_others_go_on() {
    let setup = Setup { model: Some(Arc::new(PipelineModel)), ..Setup::new(Script::new()) };
    let stage = setup.start().await;
    let mut peer = stage.peer().await;
    let session = peer.create().await;
    let (_observer, mut events) = stage.client().attach(&session, None).await.unwrap();
    let tasks = json!(["Count the apples", "Count the plums", "Count the pears"]);
    let solve = json!({
        "event": "user.solve_tasks", "session_id": session,
        "content": {"question": "How much fruit is there?", "tasks": tasks},
    });
    assert_eq!(peer.ask(solve, "solve").await["event"], "system.notice");
    let mut received = Vec::new();
    while received.last().is_none_or(|event: &Event| event.event != "agent.final_answer") {
        received.push(next(&mut events).await);
    }
    let started = about(&received, "solver.start");
    assert_eq!(started.len(), 3, "{started:?}");
    let (failed, completed) =
        (about(&received, "solver.failed"), about(&received, "solver.completed"));
    assert_eq!((failed.len(), completed.len()), (1, 2));
    let mut ended = [failed, completed].concat();
    ended.sort_by_key(ToString::to_string);
    assert_eq!(ended, started, "every task that started has exactly one end");
    let fault = received.iter().find(|event| event.event == "solver.failed").unwrap();
    assert!(fault.meta("error_code").as_str().is_some_and(|code| code.starts_with("ERR_")));
    assert_eq!(fault.meta("stage"), "solving");
    let over = received.iter().find(|event| event.event == "pipeline.completed").unwrap();
    assert_eq!(over.meta("status"), "partial_success");
    assert_eq!(received.last().unwrap().text(), "Seven, five and unknown.");
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_plan_is_answered_with_its_effect() {
    let setup = Setup { model: Some(Arc::new(PipelineModel)), ..Setup::new(Script::new()) };
    let stage = setup.start().await;
    let mut peer = stage.peer().await;
    let session = peer.create().await;
    let question = format!("Which {} are there?", "very ".repeat(60));
    let replan = json!({
        "event": "user.replan", "session_id": session, "content": {"question": question},
    });
    let notice = peer.ask(replan, "anew").await;
    assert_eq!(notice["metadata"]["mode"], "restart", "{notice}");
    let question_text = notice["metadata"]["question"].as_str().unwrap();
    assert_eq!(question_text.chars().count(), 120);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_plan_of_a_run_that_is_under_way_is_made_in_that_run() {
    let setup = Setup { model: Some(Arc::new(SilentModel)), ..Setup::new(Script::new()) };
    let stage = setup.start().await;
    let mut peer = stage.peer().await;
    let session = peer.create().await;
    let (_observer, mut events) = stage.client().attach(&session, None).await.unwrap();
    let plan = json!({
        "event": "user.message", "session_id": session,
        "content": {"text": "How much fruit is there?", "mode": "plan"},
    });
    assert_eq!(peer.ask(plan, "plan").await["metadata"]["status"], "accepted");
    let replan = json!({
        "event": "user.replan", "session_id": session,
        "content": {"question": "How many pears?"},
    });
    let notice = peer.ask(replan, "anew").await;
    assert_eq!(notice["metadata"]["status"], "accepted", "{notice}");
    assert_eq!(notice["metadata"]["mode"], "in_run", "{notice}");
    until(&mut events, "plan.cancelled").await;
    let received = until(&mut events, "plan.start").await;
    assert_eq!(received.last().unwrap().content["question"], "How many pears?");
    assert!(received.iter().all(|event| event.event != "user.message"), "no run was begun for it");
    stage.stop().await;
}
