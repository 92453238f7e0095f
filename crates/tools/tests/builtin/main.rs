//! The built-in tools, called the way a model calls them.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test that cannot go on stops, and says what it tried"
)]

mod background;
mod bombs;
mod commands;
mod confinement;
mod documents;
mod edits;
mod files;
mod injection;
mod reconcile;
mod search;
mod specs;
mod supervised;
mod support;
mod todos;
