//! Retry and a fallback: a model that is overloaded is tried again; while it cannot be asked, another one is.
//!
//!     cargo run -p budao --example fallback

#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use std::time::Duration;

use budao::{Agent, Channel, ChannelEvent, Fault, Kind, Limits, Script};

#[tokio::main]
async fn main() -> Result<(), Fault> {
    // The first model is overloaded once, then fails for good; the second one answers.
    let first =
        Script::new().named("first").fail(Kind::ModelOverloaded).fail(Kind::ModelQuota).forever();
    let second = Script::new().named("second").say("Here I am.");
    let mut limits = Limits::default();
    limits.retry.base = Duration::from_millis(20);
    let agent = Agent::builder(first).fallback(second).limits(limits).build()?;
    let session = agent.session().await?;
    let heard = session
        .listen(&[Channel::Monitor], 0, |envelope| async move {
            if let ChannelEvent::Error { message, severity, .. } = envelope.event {
                println!("{severity}: {message}");
            }
        })
        .await?;
    let answer = session.run("Is anybody there?").await?;
    println!("{}", answer.text);
    drop(heard);
    Ok(())
}
