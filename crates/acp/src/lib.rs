//! The editor bridge: an ACP agent on any engine.
//!
//! One [`Bridge`] serves one connection. Each session the editor has open is looked after by one task
//! (`attendant`): it takes prompts in order, follows the session's records, projects them (`project`) and
//! writes what comes of them, updates first, the answer of the prompt last. Nothing else writes for that
//! session, so nothing of a turn can come after its end. The protocol crate is seen nowhere else.

mod attendant;
mod bridge;
mod connection;
mod content;
mod desk;
mod faults;
mod jobs;
mod lines;
mod list;
mod offer;
mod outbox;
mod outcome;
mod permission;
#[doc(hidden)]
pub mod probe;
mod project;
mod prompts;
mod words;

pub use bridge::{Bridge, ExecutionError, Front, Host, NoHost, Reach, ToolServer};
pub use offer::{Choice, Offer, OwnMode, SignIn, SlashCommand};
