//! AG-UI 1.0 over server-sent events: `POST /ag-ui` runs, `GET /ag-ui/{thread}` joins and resumes.
//! [`copilotkit`] has the same at the addresses of CopilotKit's runtime.
//!
//! [`projector`] makes events of records, [`conversation`] makes the messages of a snapshot of the same records, with
//! the same ids. [`upstream`] reads the events of a relayed agent. [`input`] reads a client's version of the thread and finds the new parts; [`handler`] submits them.

mod conversation;
mod copilotkit;
mod handler;
mod input;
mod projector;
#[cfg(test)]
mod tests;
mod upstream;

pub(crate) use copilotkit::{
    __path_info, __path_runtime_connect, __path_runtime_run, __path_runtime_stop, info,
    runtime_connect, runtime_run, runtime_stop,
};
pub(crate) use handler::{__path_cancel, __path_join, __path_run, cancel, join, run};
