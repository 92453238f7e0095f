//! A small client of the session server: connects, comes back after a cut, misses nothing, repeats nothing.
//!
//! ```no_run
//! # async fn hello() -> Result<(), budao_client::Error> {
//! use budao_client::Client;
//!
//! let client = Client::new("ws://127.0.0.1:7333/ws").token("secret");
//! let (session, mut events) = client.create(Default::default()).await?;
//! session.send("What is the time in Lima?").await?;
//! while let Some(event) = events.next().await {
//!     let event = event?;
//!     println!("{}: {}", event.event, event.text());
//!     if event.event == "agent.final_answer" {
//!         break;
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A [`Session`] asks and its [`Events`] tell. One task between them owns the line. It keeps the cursor (epoch and
//! position), drops what came before, checks that every frame follows the one before it, and when the line is lost comes
//! back with a growing wait, resumes at the cursor and sends again what was not answered, under the same ids. A part of
//! the history that cannot be had is told as a fault that names its range; it is never skipped in silence.

mod client;
mod connection_task;
mod cursor_tracker;
mod event;
mod pending;
mod session;
mod socket;

pub use budao_core::fault::{Fact, Fault, Kind};
pub use client::{Client, SessionRequest};
pub use event::{Cursor, Event};
pub use session::{Decision, Error, Events, Session};
