//! The pure parts (frames, commands of clients) and the real server in this process, on a free port, with the
//! real runtime and a scripted model.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails where it should")]
#![allow(clippy::print_stderr, reason = "what was not tested is said")]

mod access;
mod alerts;
mod conversation;
mod fixture;
mod forks;
mod frames;
mod frames_any;
mod frames_connection;
mod frames_history;
mod frames_schema;
mod front_end_ends;
mod front_end_reads;
mod front_ends;
mod handshakes;
mod http;
mod inbound;
mod input;
mod lifecycle;
mod mcp;
mod mcp_peers;
mod page;
mod reconnect;
mod stats;
mod traces;
mod workers;
mod workers_hostile;
mod workers_offers;
mod workers_reconcile;
mod workers_rules;
mod written;
