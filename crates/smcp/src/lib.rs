//! A2C-SMCP: agents call tools on other people's computers through a hub, and every question has an answer.
//!
//! [`wire`] has the protocol's words and how a fault is said in them, [`server`] is the hub, [`agent`] asks: by
//! hand, or as a source of tools for a session; [`computer`] has the tools.

pub mod agent;
mod answer_reader;
pub mod computer;
pub mod finder;
mod membership;
pub mod server;
pub mod wire;

pub use membership::MemberConfig;
