//! MCP servers as a tool source.
//!
//! One task supervises each [`ServerHandle`], which is started from its [`McpServerConfig`]. Its tools are named
//! `mcp__server__tool`. A [`ServerSet`] combines several servers. `docs/mcp.md` describes the behaviour in each case.
//!
//! rmcp implements the protocol and is not visible outside this crate. This crate adds calls that fail at once when
//! their server dies, limits on answers, cancellation without waiting, processes that leave no children behind, and the
//! older HTTP transport.

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
pub use process::ProcessVariables;
pub use resources::{ResourceChange, ResourcePage};
pub use server::{ServerHandle, ServerState};
pub use servers::ServerSet;
