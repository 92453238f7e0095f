//! The built-in tools, called the way a model calls them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod background;
mod commands;
mod confinement;
mod edits;
mod files;
mod search;
mod specs;
mod support;
mod todos;
