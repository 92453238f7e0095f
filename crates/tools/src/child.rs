//! Listening to a child process: its lines, each bounded, and what it says on its error output.

mod lines;
mod tail;

pub use lines::{Line, Lines, Skipped};
pub use tail::{Tail, drain};
