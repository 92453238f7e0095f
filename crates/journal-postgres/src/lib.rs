//! The journal on PostgreSQL: the same sessions for any number of processes on any number of machines.
//!
//! [`Postgres`] keeps every promise of [`budao_journal::Journal`]. An append is one statement and one round trip with
//! fence, position, commands, answers and snapshot in it; four connections write what has gathered meanwhile. Lease
//! times come from the database's clock. The outcome of a statement whose answer is lost is read, never guessed.
//! [`WakeTransport`] carries wake-ups between processes; a slow comparison of heads finds what a lost one announced.

mod address;
mod append;
mod backend;
mod check;
mod cluster;
mod cohort;
mod connection;
mod errors;
mod inbox;
mod journal;
mod lease;
mod notify;
mod once;
mod open;
mod password;
mod pool;
mod project;
mod queries;
mod reader;
mod retain;
mod schema;
mod settings;
mod shared;
mod timeline;
mod tls;
mod transfer;
mod wake;
mod written;

pub use self::{
    backend::{Credentials, PostgresBackend},
    open::{Postgres, PostgresOptions},
    shared::LeaseClock,
    wake::WakeTransport,
};
