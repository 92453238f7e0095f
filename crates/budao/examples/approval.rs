//! A tool with side effects: the call waits for a person, who allows the first and denies the second.
//!
//!     cargo run -p budao --example approval

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use budao::{Agent, Fault, event::Decision, models::Script, tool};
use serde_json::json;

/// Sends a letter.
#[tool]
async fn send_letter(
    /// To whom.
    to: String,
    /// What it says.
    text: String,
) -> String {
    println!("(a letter to {to}: {text})");
    "sent".to_owned()
}

#[tokio::main]
async fn main() -> Result<(), Fault> {
    let model = Script::new()
        .call("send_letter", json!({"to": "Ada", "text": "Hello"}))
        .call("send_letter", json!({"to": "Bob", "text": "Goodbye"}))
        .say("One letter was sent, the other was not.");
    let agent =
        Agent::builder(model.model(budao::world::real().clock)).tool(send_letter).build()?;
    let session = agent.session().await?;
    let message = session.send("Write to Ada and to Bob.").await?;
    for (decision, note) in [(Decision::Allow, None), (Decision::Deny, Some("Bob has moved."))] {
        let paused = session.wait(&message).await?;
        println!("pending: {:?}", paused.pending.len());
        session.decide(&paused.pending[0], decision, note).await?;
    }
    let done = session.wait(&message).await?;
    println!("{}", done.text);
    Ok(())
}
