//! The way of a call, from what a model wrote to what it reads.

mod bad_input;
mod deep;
mod define;
mod exhausted;
mod hooks;
mod isolation;
mod reconcile;
mod register;
mod rendering;
mod support;
