//! Sessions as MCP tools over streamable HTTP: `POST /mcp` with `ask`, `status` and `cancel`.
//!
//! Both eras of the protocol are spoken: the handshake up to 2025-11-25 and the stateless requests of 2026-07-28, in
//! which `ask` can be a task. The server keeps no MCP session: each `ask` is a run of a session, and its state is a
//! projection of the session's records. So a client that lost its connection, or another one of the same
//! user, finds the answer by the run's id, also after a restart of the server.

mod handler;
mod outcome;
mod progress;
mod tasks;
mod tools;
mod wire;

pub(crate) use handler::{__path_message, message};
