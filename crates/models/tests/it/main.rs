//! Model services, played by a local server: what is sent, what is read, and what a failure becomes.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on fails where it stands, and says what it tried"
)]

mod answers;
mod bombs;
mod demo_with_tools;
mod failures;
mod histories;
mod litellm;
mod refused_reasoning;
mod registry;
mod requests;
mod shapes;
mod support;
