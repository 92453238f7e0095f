//! Scripted model, flaky journal, fault proxy, simulator; for tests only.

pub mod bench;
pub mod claude;
pub mod claude_api;
pub mod collector;
pub mod faults;
pub mod mcp;
pub mod provider;
pub mod proxy;
pub mod sse;
pub mod world;
