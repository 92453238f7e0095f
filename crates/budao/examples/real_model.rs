//! A real model in ten lines: the service and its key, one tool, one question.
//!
//!     ANTHROPIC_API_KEY=… cargo run -p budao --example real_model anthropic:claude-sonnet-4-5
//!     cargo run -p budao --example real_model demo

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use budao::{Agent, Fault, tool};

/// Tells the weather of a city.
#[tool(read_only)]
async fn weather(city: String) -> String {
    format!("It is raining in {city}.")
}

#[tokio::main]
async fn main() -> Result<(), Fault> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "demo".to_owned());
    let key = std::env::var("ANTHROPIC_API_KEY").or_else(|_| std::env::var("OPENAI_API_KEY"));
    let model = budao::model(&name, key.unwrap_or_default())?;
    let agent = Agent::builder(model).tool(weather).build()?;
    let answer = agent.session().await?.run("What is the weather in Ghent?").await?;
    println!("{}", answer.text);
    Ok(())
}
