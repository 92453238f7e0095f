//! The native engine with scripted models, on a journal in memory, under a paused clock; `llama` has a real model server.
//! `crash` and `waiting` are programs of their own: one is its own runner, the other measures its whole process.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on fails where it stands, and says what it tried"
)]

mod channels;
mod llama;
mod pipeline;
mod turns;
