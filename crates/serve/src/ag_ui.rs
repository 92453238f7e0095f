//! AG-UI 1.0 over server-sent events: `POST /ag-ui` runs, `GET /ag-ui/{thread}` joins and resumes.
//!
//! [`projector`] makes events of records, [`conversation`] makes the messages of a snapshot of the same records, with
//! the same ids. [`input`] reads what a client claims, and [`handler`] decides what of it is new.

mod conversation;
mod handler;
mod input;
mod projector;
#[cfg(test)]
mod tests;

pub(crate) use handler::{__path_cancel, __path_join, __path_run, cancel, join, run};
