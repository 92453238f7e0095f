//! Reading a child process: bounded lines of its output, and the tail of its error output.

mod lines;
mod tail;

pub use lines::{BoundedLine, BoundedLines, LongLine};
pub use tail::{Tail, drain};
