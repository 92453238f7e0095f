//! The common parts of the gateways for foreign front ends: threads, runs, and streams of projected records.
//!
//! A *thread* (AG-UI) or *chat* (AI SDK) is a session. A *run* is a stretch of a turn: it begins with a message or an answer
//! of the front end and ends when the turn ends or waits for the front end. A projection is a pure function of the
//! records, so a stream can be cut anywhere and continued by position. Commands go through [`Server::submit`] and
//! records come from the hub, as for every other client.
//!
//! [`Server::submit`]: crate::server::Server::submit

mod body;
mod calls;
#[cfg(test)]
pub(crate) mod generated;
mod ids;
mod notices;
mod records;
mod stream;
mod submission;
mod thread;
mod tools;

pub(crate) use body::{encode_uri, json_body, query_of};
pub(crate) use calls::{Pause, PendingQuestion, TurnCalls};
pub(crate) use ids::{
    RunAnnotation, StreamCursor, check_id, constraint_fault, message_command, run_of,
};
pub(crate) use notices::Notices;
pub(crate) use records::PagedReader;
pub(crate) use stream::{EventSink, Prelude, Projection, RESUME, StreamPlan, respond};
pub(crate) use submission::{RunAction, Submission, cancel_thread, submit_input, submit_run};
pub(crate) use thread::{Thread, turn_of_answer};
pub(crate) use tools::{FrontEndTool, offer_tools};

/// The name of the worker that stands for a front end which runs tools of its own.
pub(crate) const WORKER: &str = "front_end";
