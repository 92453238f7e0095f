//! The scrubber: no leaks over every format in every setting, innocent text left alone, time linear.

mod corpus;
mod hostile;
mod innocent;
mod json;
mod leaks;
mod markers;
mod properties;
mod stream;
