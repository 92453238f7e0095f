//! MCP servers as a tool source.
//!
//! A [`ServerHandle`] is started from its [`McpServerConfig`], looked after by one task, and offers its tools under
//! `mcp__server__tool`. [`ServerSet`] is several of them. `docs/mcp.md` says what happens when.
//!
//! rmcp does the protocol and is not seen outside this crate. What it leaves open is done here: a call that
//! fails at once when its server dies, answers that are too long, cancellation that does not wait, processes
//! that leave nothing behind, and the older HTTP transport.

mod answer;
mod config;
mod connection;
mod error;
mod host;
mod line;
mod name;
#[doc(hidden)]
pub mod probe;
mod process;
mod resources;
mod server;
mod servers;
mod sse;
mod stdio;
mod tool;
mod web;

pub use config::{Address, McpServerConfig, Stdio, Timeouts, Transport};
pub use name::of as tool_name;
pub use resources::{ResourceChange, ResourcePage};
pub use server::{ServerHandle, ServerState};
pub use servers::ServerSet;
