//! MCP servers as a tool source.
//!
//! A [`Server`] is started from its [`Config`], looked after by one task, and offers its tools under
//! `mcp__server__tool`. [`Servers`] is several of them. `docs/mcp.md` says what happens when.
//!
//! rmcp does the protocol and is not seen outside this crate. What it leaves open is done here: a call that
//! fails at once when its server dies, answers that are too long, cancellation that does not wait, processes
//! that leave nothing behind, and the older HTTP transport.

mod answer;
mod config;
mod host;
mod line;
mod link;
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
mod trouble;
mod web;

pub use config::{Address, Config, Stdio, Timeouts, Transport};
pub use name::of as tool_name;
pub use resources::{ResourceNews, ResourcePage};
pub use server::{Server, State};
pub use servers::Servers;
