//! The bridge as an editor meets it: lines in, lines out, with the native engine behind it, or with the Claude CLI.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails where it should")]

mod check;
mod claude;
mod conversation;
mod editor;
mod engines;
mod fixture;
mod greeting;
mod hostile;
mod permissions;
mod pipelined;
mod returning;
mod storm;
