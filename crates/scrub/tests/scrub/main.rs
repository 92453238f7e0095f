//! The scrubber: no leaks over every format in every setting, innocent text left alone, time linear.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it tried"
)]

mod connections;
mod corpus;
mod exits;
mod formats;
mod generated;
mod hostile;
mod innocent;
mod json;
mod leaks;
mod markers;
mod properties;
mod stream;
