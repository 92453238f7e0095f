//! A Socket.IO client session: what a program needs to talk to a Socket.IO server and to trust the answers.
//!
//! The packets are read and written by the published codec; what is ours is the session around it.
//! Every answer reaches the call that asked: ids are never used twice, an answer that comes too late is
//! counted and dropped, and a call always ends, by its answer, its deadline or the loss of its connection.
//!
//! ```no_run
//! # async fn example(world: budao_core::world::World) -> Result<(), budao_socketio::Error> {
//! use budao_socketio::{Client, Config, Event, Payload};
//! use std::time::Duration;
//!
//! let config = Config::new("http://127.0.0.1:3000")?.namespace("/chat").auth(serde_json::json!({"token": "t"}));
//! let (client, mut events) = Client::connect(config, world).await?;
//! let answer = client.call("echo", Payload::of("hello"), Duration::from_secs(5)).await?;
//! assert_eq!(answer.args(), ["hello"]);
//! while let Some(event) = events.next().await {
//!     if let Event::Message { payload, reply: Some(reply), .. } = event {
//!         reply.send(payload).await?;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What is promised, and what is not:
//!
//! - The handshake is made by polling, so that a refusal can be read, and then upgraded to a WebSocket. Where no
//!   WebSocket gets through, polling stays.
//! - After a loss the session connects again by itself, with growing, jittered waits. A refusal is final.
//! - What is sent while there is no connection waits in a bounded queue. What was sent and not answered
//!   when the connection was lost has failed with [`Error::Lost`]: it may or may not have arrived.
//! - Events are handed out in order through one bounded queue. Whoever does not take them stops the reading; take them
//!   in a task of their own, and do not wait for a call there.

mod client;
mod config;
mod engine;
mod error;
mod packet;
mod payload;
mod polling;
#[doc(hidden)]
pub mod probe;
mod session;
mod shared;
mod websocket;

pub use client::{Client, Event, Events, Reply};
pub use config::{Auth, Config, Limits, Transports};
pub use error::{Error, HttpRefusal, Loss};
pub use payload::Payload;
pub use shared::Stats;
