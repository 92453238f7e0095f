//! Connects to a Socket.IO server, sends an event, shows its answer, and then every event that comes.
//!
//! ```text
//! cargo run -p budao-socketio --example socketio_echo -- http://127.0.0.1:3000 /chat hello '{"to": "all"}'
//! ```
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, time::Duration};

use budao_socketio::{Client, Config, Event, Payload};
use budao_tools::isolation;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: socketio_echo URL NAMESPACE EVENT [ARGUMENT]";
    let (url, namespace, name) =
        (args.next().ok_or(usage)?, args.next().ok_or(usage)?, args.next().ok_or(usage)?);
    let payload = match args.next() {
        Some(text) => Payload::of(serde_json::from_str::<serde_json::Value>(&text)?),
        None => Payload::none(),
    };
    let config = Config::new(&url)?.namespace(&namespace);
    let (client, mut events) = Client::connect(config, isolation::context().world).await?;
    match client.call(&name, payload, Duration::from_secs(5)).await {
        Ok(answer) => println!("answer: {:?}", answer.args()),
        Err(error) => println!("no answer: {error}"),
    }
    while let Some(event) = events.next().await {
        match event {
            Event::Connected { sid, .. } => println!("connected as {sid}"),
            Event::Disconnected { error, retry_in } => println!("{error}; again in {retry_in:?}"),
            Event::Message { name, payload, .. } => println!("{name}: {:?}", payload.args()),
        }
    }
    Ok(())
}
