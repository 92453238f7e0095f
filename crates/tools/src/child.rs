//! Listening to a child process: its lines, each bounded, and what it says on its error output.

mod lines;
mod tail;

pub use lines::{BoundedLine, BoundedLines, LongLine};
pub use tail::{Tail, drain};
