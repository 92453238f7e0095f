//! The program `budao` as users, editors, servers and operators start it, a module for each subject. One test program: each
//! links the whole product.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on fails where it stands, and says what it tried"
)]

mod acp;
mod answer_schema;
mod cluster;
mod computer;
mod config;
mod demo;
mod doubts;
mod evidence;
mod explain;
mod fallback;
mod journal_copy;
mod journal_path;
mod journal_postgres;
mod killed;
mod mcp;
mod mcp_doubts;
mod mcp_questions;
mod mcp_tasks;
mod phoenix;
mod relay;
mod remote;
mod retry;
mod run;
mod same_numbers;
mod serve;
mod serve_smcp;
mod sessions;
mod shell;
mod smcp;
mod smcp_doubts;
mod spending;
mod terminal;
mod traces;
mod transcript;
mod waits;
mod workers;
