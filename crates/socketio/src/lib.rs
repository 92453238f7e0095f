//! A Socket.IO client session with reconnection, bounded queues and acknowledged calls.
//!
//! The published codec reads and writes packets; this crate adds the session around it. Every answer reaches the call
//! that asked: ids are never reused, and a late answer is counted and dropped. A call always ends, by its answer, its
//! deadline or the loss of its connection.
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
//! Guarantees and limits:
//!
//! - The session makes the handshake by polling, so that a refusal can be read, and then upgrades to a WebSocket. If
//!   the upgrade fails, polling stays.
//! - The session reconnects after a loss, with growing, jittered delays. A refusal is final.
//! - Packets that are sent without a connection wait in a bounded queue. A call that was sent and not answered when
//!   the connection was lost fails with [`Error::Lost`]: it may or may not have arrived.
//! - Events arrive in order through one bounded queue. A full queue stops reading from the server, so take events in
//!   a task of their own and do not wait for a call there.

mod client;
mod config;
mod engine;
mod error;
mod packet;
mod payload;
mod polling;
#[cfg(feature = "probe")]
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
