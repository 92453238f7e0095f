//! Typed tools: registry, validation, repair, isolated execution; the built-in set.
//!
//! A tool author writes a function or a struct ([`tool`], [`typed`]); the model gets a schema; every
//! mistake comes back as something it can act on. The way of a call is in [`call`].

pub mod contract;

pub use contract::{Blobs, CallContext, Memory, Note, Notes, Tool, ToolResult};
