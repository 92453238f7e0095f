//! Test support: scripted model services and their storms, a played Claude CLI and MCP server, a PostgreSQL server, a
//! fault-injecting proxy and journal, sample faults, a seeded world, and the bench harness. Only tests and benches use it.

pub mod bench;
pub mod claude;
pub mod claude_api;
pub mod collector;
pub mod faults;
pub mod journal;
pub mod mcp;
pub mod postgres;
pub mod provider;
pub mod proxy;
pub mod request_rules;
pub mod sse;
pub mod storm;
pub mod world;
