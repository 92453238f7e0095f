//! The server's tests.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails where it should")]

mod frames;
mod frames_any;
mod frames_connection;
mod frames_history;
mod frames_schema;
mod inbound;
