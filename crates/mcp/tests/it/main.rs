//! The crate from outside: against a server that misbehaves, against HTTP servers that do, and against a
//! server of others.

mod calls;
mod common;
mod everything;
mod life;
mod net;
