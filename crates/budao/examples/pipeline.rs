//! Plan, solve, aggregate: tasks run side by side, one of them fails, and the answer says so.
//!
//!     cargo run -p budao --example pipeline

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use std::{sync::Arc, time::Duration};

use budao::{
    Agent, Event, Fault, Kind,
    engine::Engine,
    event::TaskEnd,
    fault::Operation,
    message::{Block, ModelRequest, ModelStop, Piece, Usage, text_of},
    models::{Model, PieceStream},
};
use futures::StreamExt;
use serde_json::json;

/// A model for three parts: it plans, solves and aggregates by what it is asked.
#[derive(Debug)]
struct Cast;

#[async_trait::async_trait]
impl Model for Cast {
    fn provider(&self) -> &str {
        "example"
    }

    fn name(&self) -> &str {
        "cast"
    }

    async fn stream(&self, request: ModelRequest) -> Result<PieceStream, Fault> {
        let asked: String = request.messages.iter().map(|m| text_of(&m.content)).collect();
        let text = if asked.contains("Count the plums") && !asked.contains("Task 1") {
            // A service that never comes back: this task fails, the others do not.
            return Err(Fault::new(Kind::ModelBadRequest, Operation::ModelRequest));
        } else if asked.contains("Task 1") {
            "There are 12 apples and pears; nobody could count the plums.".to_owned()
        } else if asked.contains("apples") {
            "7".to_owned()
        } else {
            "5".to_owned()
        };
        let end = Piece::End { stop: ModelStop::EndTurn, usage: Usage::default() };
        let pieces = [Piece::Text(text.clone()), Piece::Block(Block::Text(text)), end];
        Ok(futures::stream::iter(pieces.map(Ok)).boxed())
    }
}

#[tokio::main]
async fn main() -> Result<(), Fault> {
    let agent = Agent::builder(Cast).build()?;
    let session = agent.session().await?;
    let tasks = json!(["Count the apples", "Count the pears", "Count the plums"]);
    let answer = session.solve("How much fruit is there?", tasks).await?;

    let runtime = Arc::new(agent.runtime().clone());
    let mut records = runtime.follow(session.id(), 0).await?;
    let told = tokio::time::timeout(Duration::from_secs(5), async {
        while let Some(Ok(record)) = records.next().await {
            match record.event {
                Event::TaskEnded { task, end: TaskEnd::Completed { output } } => {
                    println!("task {task}: {output}");
                }
                Event::TaskEnded { task, end: TaskEnd::Failed { fault } } => {
                    println!("task {task} failed: {}", fault.row().code);
                }
                Event::TurnEnded { .. } => break,
                _ => {}
            }
        }
    });
    let _ = told.await;
    println!("{}", answer.text);
    Ok(())
}
