//! The editor bridge: an ACP agent on any engine.
//!
//! One [`Bridge`] serves one connection. One task per open session (`editor_session`) takes prompts in order,
//! follows the session's records, projects them (`project`) and writes the updates, then the answer to the
//! prompt. Only this task writes for its session, so no update of a turn can follow the turn's end. Only this
//! crate uses the protocol crate.

mod bridge;
mod codes;
mod command_queue;
mod connection;
mod content;
mod editor_files;
mod editor_options;
mod editor_session;
mod editor_sessions;
mod faults;
mod input_question;
mod lines;
mod list;
mod outbox;
mod outcome;
mod permission;
#[cfg(feature = "probe")]
#[doc(hidden)]
pub mod probe;
mod project;
mod prompts;
mod request_handler;
mod texts;
mod user_question;

pub use bridge::{
    Bridge, EditorServices, ExecutionError, InitializeContext, NoEditorServices, ServerTransport,
    ToolServer,
};
pub use codes::json_rpc_code;
pub use editor_files::EditorFiles;
pub use editor_options::{EditorOptions, EngineMode, ModelChoice, SignIn, SlashCommand};
