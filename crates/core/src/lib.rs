//! The core of Budao: faults, events, and the rules for what happens next.
//!
//! Core does no I/O, reads no clock, draws no random numbers and knows no protocol. Everything that happened is an
//! [`event::Event`]. A session is the fold of its records ([`session::Session`]), and a turn is a state machine over
//! that fold ([`turn`]). Every failure is a [`fault::Fault`], classified once by its row in the catalog.

pub mod activity;
pub mod ag_ui;
pub mod brake;
pub mod elicitation;
pub mod engine;
pub mod event;
pub mod fallback;
pub mod fault;
pub mod gate;
pub mod json_patch;
pub mod lang;
pub mod limits;
pub mod message;
pub mod nesting;
pub mod pipeline;
pub mod remote;
pub mod retention;
pub mod retry;
pub mod session;
pub mod span;
pub mod spending;
pub mod tally;
pub mod texts;
pub mod time;
pub mod timer;
pub mod tool;
pub mod trace;
pub mod turn;
pub mod world;

pub use event::{Event, Record};
pub use fault::{Fault, Kind};
pub use lang::Lang;
pub use time::Timestamp;
