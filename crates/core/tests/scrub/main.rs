//! The scrubber: no leaks over every format in every setting, innocent text left alone, time linear.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod corpus;
mod hostile;
mod innocent;
mod json;
mod leaks;
mod markers;
mod properties;
mod stream;
