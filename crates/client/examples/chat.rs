//! Asks a running server one question and shows what comes, whatever happens to the line:
//!
//! ```sh
//! budao serve --no-auth &
//! cargo run -p budao-client --example chat -- ws://127.0.0.1:7333/ws "list the files here"
//! ```

#![allow(clippy::print_stdout, reason = "an example talks to its terminal")]

use budao_client::{Client, Error, SessionRequest};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "ws://127.0.0.1:7333/ws".to_owned());
    let question = args.next().unwrap_or_else(|| "Who are you?".to_owned());
    let mut client = Client::new(url);
    if let Ok(token) = std::env::var("BUDAO_TOKEN") {
        client = client.token(token);
    }
    let (session, mut events) = client.create(SessionRequest::default()).await?;
    session.send(&question).await?;
    while let Some(event) = events.next().await {
        let event = event?;
        if let Some(shown) = &event.show_content {
            println!("{:>6} {:24} {shown}", event.seq.unwrap_or(0), event.event);
        }
        if event.event == "agent.final_answer" {
            break;
        }
    }
    println!("to come back: {} at {}", session.id(), events.cursor());
    Ok(())
}
