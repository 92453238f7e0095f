//! A tool with side effects: the call waits for a person, who changes and allows the first
//! and denies the second.
//!
//!     cargo run -p budao --example approval

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use budao::{Agent, Fault, QuestionReply, models::Script, tool};
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
        Agent::builder(model.into_model(budao::world::system().clock)).tool(send_letter).build()?;
    let session = agent.session().await?;
    let message = session.send("Write to Ada and to Bob.").await?;
    let gently = QuestionReply::allow().arguments(json!({"to": "Ada", "text": "Dear Ada, hello"}));
    for reply in [gently, QuestionReply::deny().note("Bob has moved.")] {
        let paused = session.wait(&message).await?;
        let question = &paused.pending[0];
        println!("may it? {} {}", question.tool, question.arguments);
        session.decide(question, reply).await?;
    }
    let done = session.wait(&message).await?;
    println!("{}", done.text);
    Ok(())
}
