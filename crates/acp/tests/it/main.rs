//! The bridge as an editor meets it: lines in, lines out, with the native engine behind it.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails where it should")]

mod check;
mod conversation;
mod editor;
mod hostile;
mod permissions;
mod returning;
mod stage;
mod storm;
