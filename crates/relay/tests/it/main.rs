//! Tests of the relay: its projection, and its behaviour with agents that do everything wrong.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod common;
mod first_text;
mod input;
mod machine;
mod restart;
mod upstream;
