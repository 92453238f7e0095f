//! Plan, solve, aggregate: tasks run side by side, one of them fails, and the answer says so.
//!
//!     cargo run -p budao --example pipeline

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use budao::{
    Agent, Block, Channel, ChannelEvent, Fault, Kind, Model, ModelRequest, ModelStop, Operation,
    Piece, PieceStream, Usage,
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
        let blocks = request.messages.iter().flat_map(|message| &message.content);
        let texts = blocks.filter_map(|block| match block {
            Block::Text(text) => Some(text.as_str()),
            _ => None,
        });
        let asked: String = texts.collect();
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

    let mut events = Box::pin(session.events(&[Channel::Monitor, Channel::Progress], 0).await?);
    while let Some(event) = events.next().await {
        match event?.event {
            ChannelEvent::StageEnd { task_id: Some(task), state, text, .. } => {
                println!("task {task} {state}: {text}");
            }
            ChannelEvent::Done { .. } => break,
            _ => {}
        }
    }
    println!("{}", answer.text);
    Ok(())
}
