//! Test support: scripted model services and their storms, a played Claude CLI and MCP server, programs as processes, a
//! PostgreSQL server, ports, a fault-injecting proxy and journal, the model of a journal, sample records and faults, worlds, and
//! the bench harness. Only tests, benches and the simulator use it.

pub mod bench;
pub mod claude;
pub mod claude_api;
pub mod collector;
pub mod faults;
pub mod journal;
pub mod journal_model;
#[cfg(feature = "launcher")]
pub mod launcher;
pub mod mcp;
pub mod oauth;
pub mod port;
pub mod postgres;
pub mod program;
pub mod provider;
pub mod proxy;
pub mod records;
pub mod request_rules;
pub mod round_trips;
pub mod sse;
pub mod storm;
pub mod world;
