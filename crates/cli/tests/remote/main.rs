//! Hub, computer and agent as processes of their own, some of them frozen, killed, or not reading.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "what was not tested, and figures, are said")]

mod common;
mod unconfirmed;
mod unread;
