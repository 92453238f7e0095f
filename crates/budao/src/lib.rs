//! Agents that recover from failures: the facade for Rust users.
//!
//! An [`Agent`] has a model, tools and permissions, and opens sessions. A [`Session`] takes messages and
//! answers them. Every failure is a [`Fault`]: the model gets a rendering it can correct itself with, and the
//! caller gets the fault itself, so a failed turn never looks like a finished one.
//!
//! ```
//! use budao::{Agent, models::Script, tool};
//!
//! /// Adds two numbers.
//! #[tool(read_only)]
//! async fn add(
//!     /// The first.
//!     a: i64,
//!     /// The second.
//!     b: i64,
//! ) -> i64 {
//!     a + b
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), budao::Fault> {
//! let world = budao::world::system();
//! let model = Script::new().call("add", serde_json::json!({"a": 2, "b": 3})).say("It is 5.");
//! let agent = Agent::builder(model.into_model(world.clock)).tool(add).build()?;
//! let answer = agent.session().await?.run("What is 2 + 3?").await?;
//! assert!(answer.is_ok());
//! assert_eq!(answer.text, "It is 5.");
//! # Ok(())
//! # }
//! ```
//!
//! Where to look next: [`tools`] for tools, [`models`] for models, [`journal`] for sessions that survive
//! the process, [`channel`] for events, [`mcp`] for tools of MCP servers.

pub use budao_core::{
    Event, Fault, Kind, Lang, Record, Timestamp, engine, event, fault, limits, message, retry,
    session, trace,
};
pub use budao_derive::tool;
pub use budao_journal as journal;
pub use budao_mcp as mcp;
pub use budao_models as models;
pub use budao_runtime::{
    Agent, AgentBuilder, Builder, ListenerHandle, ModelHook, ModelSource, OneModel, Question,
    QuestionReply, RequestChange, Runtime, Session, ToolSource, TurnResult, channel,
};
pub use budao_scrub as scrub;
pub use budao_tools as tools;

/// Clock, randomness and task spawning. Components receive them as a parameter; none reads a global.
pub mod world {
    pub use budao_core::world::*;
    pub use budao_runtime::world::*;
}
pub use budao_tools::{CallContext, Tool, ToolError, Toolbox};

/// The tool contract: permissions, effects, and the outcome of a call.
pub use budao_core::tool as contract;

/// Compiles and runs the code blocks of the guides as doctests.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/tools.md")]
    struct Tools;
    #[doc = include_str!("../../../docs/sessions.md")]
    struct Sessions;
}
