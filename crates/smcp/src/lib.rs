//! A2C-SMCP: agents call tools on remote computers through a hub, and every request gets an answer.
//!
//! [`wire`] has the protocol's messages and error format. [`server`] is the hub. [`agent`] calls tools, directly or
//! as a tool source for a session. [`computer`] offers the tools.

pub mod agent;
mod answer_reader;
pub mod codes;
pub mod computer;
pub mod finder;
mod membership;
pub mod server;
pub mod wire;

pub use membership::MemberConfig;
