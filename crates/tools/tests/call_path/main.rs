//! The way of a call, from what a model wrote to what it reads.

mod bad_input;
mod define;
mod hooks;
mod isolation;
mod register;
mod support;
mod told;
