//! A gateway of your own: text lines in, text lines out, on any engine and any journal.
//!
//! A gateway submits commands to an `Engine` and reads records through a `Reader`. Its own part is a pure projection from
//! an event to what its protocol sends. An observer that comes late reads the same records and sees the same lines.
//!
//!     cargo run -p budao --example gateway

#![expect(clippy::print_stdout, reason = "an example prints what it received")]

use std::sync::Arc;

use budao::{
    Agent, Answer, Block, Command, Engine, Event, Fault, Reader, Script, SessionId, SessionOptions,
};
use futures::StreamExt as _;

/// What one record becomes on the wire: at most one line.
fn project(event: &Event) -> Option<String> {
    match event {
        Event::MessageAccepted { content, .. } => Some(format!("> {}", text(content))),
        Event::ModelAnswered { content, .. } => Some(format!("< {}", text(content))),
        Event::FaultRaised { fault, .. } => Some(format!("! {fault}")),
        Event::TurnEnded { stop, .. } => Some(format!("= {stop:?}")),
        _ => None,
    }
}

fn text(content: &[Block]) -> String {
    let texts = content.iter().filter_map(|block| match block {
        Block::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// Submits one line. The id makes it safe to send again: a repeated id has no second effect.
async fn say(engine: &dyn Engine, to: SessionId, id: &str, line: &str) -> Result<Answer, Fault> {
    engine.submit(to, Command::message(id, "lines", line)).await
}

/// The lines of a session from its beginning to the end of its first turn, however late this observer comes.
async fn observe(reader: Arc<dyn Reader>, session: SessionId) -> Result<Vec<String>, Fault> {
    let (mut lines, mut batches) = (Vec::new(), reader.follow(session, 0));
    while let Some(batch) = batches.next().await {
        for stored in batch? {
            let event = stored.shared_event()?;
            lines.extend(project(&event));
            if let Event::TurnEnded { .. } = *event {
                return Ok(lines);
            }
        }
    }
    Ok(lines)
}

#[tokio::main]
async fn main() -> Result<(), Fault> {
    let agent = Agent::builder(Script::new().say("Good morning.")).build()?;
    let (engine, reader) = (agent.engine(), Arc::clone(agent.journal()));
    let session = engine.open(SessionOptions::default()).await?;
    for _ in 0..2 {
        // The connection was lost, so the client sends its line again.
        println!("{:?}", say(&*engine, session, "line-1", "Hello.").await?);
    }
    let first = observe(Arc::clone(&reader) as _, session).await?;
    let late = observe(reader, session).await?;
    assert_eq!(first, late, "every observer sees the same lines");
    assert_eq!(first.len(), 3, "the repeated line was not answered twice");
    first.iter().for_each(|line| println!("{line}"));
    Ok(())
}
