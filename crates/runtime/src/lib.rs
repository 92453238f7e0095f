//! The native engine: model requests, tool calls, retries, permissions and resume.
//!
//! [`Runtime`] runs each loaded session as one task that owns its state (`decider`, on the host of `budao-engine`).
//! Inputs arrive through one bounded channel, `budao_pipeline::step` decides, and the journal makes the decision durable
//! before any work starts. Work runs on tasks of its own (`work`) and reports back as inputs.

mod agent;
pub mod channel;
mod check;
mod child;
mod compact;
mod config;
mod decider;
mod gates;
mod history;
mod ledger;
mod listen;
mod model;
mod model_hooks;
mod notes;
mod observers;
mod once;
mod pipeline;
mod question;
mod runtime;
mod sample;
mod sanitize;
mod session;
mod session_memory;
mod subagent;
mod text_buffer;
mod timers;
mod work;
pub mod world;

pub use agent::{Agent, AgentBuilder, AgentBuilderExt, AgentExt};
pub use budao_engine::HolderLiveness;
pub use config::{Builder, CleanUp, ModelList, ModelSource, OneModel, ToolSource};
pub use ledger::LEDGER_INDEX;
pub use listen::ListenerHandle;
pub use model_hooks::{ModelHook, RequestChange};
pub use pipeline::{StageSettings, Stages};
pub use question::{Question, QuestionReply};
pub use runtime::{Runtime, TurnResult};
pub use session::Session;
pub use subagent::{SubAgents, TASK_RUN};
