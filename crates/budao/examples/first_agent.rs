//! A first agent: one tool, one question. The scripted model makes one invalid call, then the corrected one.
//!
//!     cargo run -p budao --example first_agent

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use budao::{Agent, Channel, ChannelEvent, Fault, Script, tool};
use futures::StreamExt;
use serde_json::json;

/// Tells the weather of a city.
#[tool(read_only)]
async fn weather(
    /// The city's name.
    city: String,
) -> String {
    format!("It is raining in {city}.")
}

#[tokio::main]
async fn main() -> Result<(), Fault> {
    // The first call is invalid: `weather` has no parameter `town`. With a key, the example
    // `real_model` does the same.
    let model = Script::new()
        .call("weather", json!({"town": "Ghent"}))
        .call("weather", json!({"city": "Ghent"}))
        .say("Take an umbrella.");
    let agent = Agent::builder(model).tool(weather).build()?;
    let session = agent.session().await?;
    let answer = session.run("What is the weather in Ghent?").await?;

    let mut events = Box::pin(session.events(&[Channel::Progress], 0).await?);
    while let Some(event) = events.next().await {
        match event?.event {
            ChannelEvent::ToolError { error, .. } => println!("told the model: {error}"),
            ChannelEvent::ToolEnd { call } => println!("{} {}", call.name, call.state),
            ChannelEvent::Done { reason, .. } => {
                println!("{reason}: {}", answer.text);
                break;
            }
            _ => {}
        }
    }
    Ok(())
}
