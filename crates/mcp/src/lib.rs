//! MCP servers as a tool source.
//!
//! One task supervises each [`ServerHandle`], which is started from its [`McpServerConfig`]. Its tools are named
//! `mcp__server__tool`. A [`ServerSet`] combines several servers. `docs/mcp.md` describes the behaviour in each case.
//!
//! rmcp implements the protocol and is not visible outside this crate. This crate adds calls that fail at once when
//! their server dies, limits on answers, cancellation without waiting, processes that leave no children behind, and the
//! older HTTP transport.

mod answer;
mod auth;
mod catalog_tools;
mod client_file;
mod config;
mod connection;
mod elicit;
mod era;
mod error;
mod host;
mod input;
mod line;
mod name;
mod offer;
mod pending;
#[cfg(feature = "probe")]
#[doc(hidden)]
pub mod probe;
mod process;
mod prompts;
mod resources;
mod router;
mod sampling;
mod server;
mod servers;
mod sse;
mod stdio;
mod store;
mod subscription;
mod task;
mod tool;
mod web;

pub use auth::{DeviceLogin, LoginFlow, LoginState, LoginStatus, LoginStore, LoopbackListener};
pub use client_file::read_client_file;
pub use config::{
    Address, ConfineConfig, McpServerConfig, OauthConfig, Stdio, Timeouts, Transport,
};
pub use era::Era;
pub use name::of as tool_name;
pub use process::ProcessVariables;
pub use resources::{ResourceChange, ResourcePage};
pub use sampling::SamplingMode;
pub use server::{ServerHandle, ServerInfo, ServerState};
pub use servers::{ServerEnvironment, ServerSet};
pub use store::ServerStore;
