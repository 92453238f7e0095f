//! A tool with side effects: the call waits for a person, who changes and allows the first
//! and denies the second.
//!
//!     cargo run -p budao --example approval

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use budao::{Agent, Fault, QuestionReply, Script, tool};
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
    let agent = Agent::builder(model)
        .tool(send_letter)
        .approve(|question| async move {
            println!("may it? {} {}", question.tool, question.arguments);
            match question.arguments["to"].as_str() {
                Some("Ada") => QuestionReply::allow()
                    .arguments(json!({"to": "Ada", "text": "Dear Ada, hello"})),
                _ => QuestionReply::deny().note("Bob has moved."),
            }
        })
        .build()?;
    let done = agent.session().await?.run("Write to Ada and to Bob.").await?;
    println!("{}", done.text);
    Ok(())
}
