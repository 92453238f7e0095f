//! The session host every engine runs on.
//!
//! [`Host`] has the parts that all engines share: the registry of loaded sessions, the lease and its renewal, the
//! inbox, batches that are durable before they are answered, restart after the journal failed, take-over of sessions
//! whose process died, shutdown and follow. It implements [`budao_core::engine::Engine`].
//!
//! An engine implements [`Decider`] (input in, events out, then start the work that is due) and [`DeciderFactory`]. A
//! complete engine is about 120 lines: `tests/it/echo_engine.rs` is one. The native loop (`budao-runtime`), the Claude CLI
//! (`budao-claude`) and the relay to AG-UI agents (`budao-relay`) are the three that ship.

mod alarm;
mod batch;
mod decider;
mod fault_log;
mod flush_timer;
mod fork;
mod host;
mod registry;
mod remote;
mod restart;
pub mod sanitize;
mod session_task;
mod subscribers;
mod tenant_timers;
mod waker;
mod writer;
mod written;

pub use batch::{AdmittedCommand, Batch, Reply, TaskRefusal};
pub use decider::{Decider, DeciderFactory, HostInput, SessionContext, SignalOf, SignalSender};
pub use flush_timer::{BufferContent, FlushTimer, SteadyClock};
pub use host::{Host, HostConfig, SessionLoader};
pub use registry::SessionRegistry;
pub use remote::{
    REMOTE_ANSWER_TIMEOUT, RemoteCommand, RemoteSubmission, confirm_failure, submit_remote,
};
pub use restart::{RestartDecision, RestartPolicy, WriterExit};
pub use writer::{
    AnsweredCommands, CommandArrival, CommitResult, HolderLiveness, NoReclaimer, SessionWriter,
    SpaceReclaimer, UnknownLiveness, WriterConfig, session_busy, task_gone,
};
pub use written::WrittenPositions;
