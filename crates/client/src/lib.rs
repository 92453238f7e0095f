//! A small client for the session server. It reconnects after a lost connection and delivers each event exactly once.
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
//! A [`Session`] sends commands and its [`Events`] deliver frames. One task between them owns the connection. The task
//! keeps the cursor (epoch and position), drops duplicates and checks that each frame follows the previous one. After a
//! lost connection it reconnects with growing delays, resumes at the cursor and resends unanswered commands under the
//! same ids. If a part of the history is unavailable, the events contain a fault that names its range.

mod client;
mod connection_task;
mod cursor_tracker;
mod event;
mod pending;
mod session;
mod socket;
mod worker;

pub use budao_core::fault::{Fact, Fault, Kind};
pub use client::{Client, SessionRequest};
pub use event::{Cursor, Event};
pub use session::{Decision, Error, Events, Session};
pub use worker::{CallError, Worker, WorkerCall, WorkerTool};
