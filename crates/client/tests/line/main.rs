//! The line against a server that is played word by word: what is asked again, what is told, and when it gives up.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails where it should")]

mod comes_back;
mod gives_up;
mod readers;
mod server;
