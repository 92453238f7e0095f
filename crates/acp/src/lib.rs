//! The editor bridge: an ACP agent on any engine.
//!
//! One [`Bridge`] serves one connection. Each session the editor has open is looked after by one task
//! (`attendant`): it takes prompts in order, follows the session's records, projects them (`project`) and
//! writes what comes of them, updates first, the answer of the prompt last. Nothing else writes for that
//! session, so nothing of a turn can come after its end. The protocol crate is seen nowhere else.

mod bridge;
mod connection;
mod content;
mod editor_options;
mod faults;
mod jobs;
mod lines;
mod list;
mod outbox;
mod outcome;
mod permission;
#[doc(hidden)]
pub mod probe;
mod project;
mod prompts;
mod request_handler;
mod session_task;
mod texts;

pub use bridge::{
    Bridge, ExecutionError, Host, InitializeContext, NoHost, ServerTransport, ToolServer,
};
pub use editor_options::{EditorOptions, EngineMode, ModelChoice, SignIn, SlashCommand};
