//! `budao acp` as a real process, on either engine.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails where it should")]
#![allow(clippy::print_stderr, reason = "what was not tested is said")]

mod claude;
mod editor;
mod ends;
mod gateways;
mod native;
