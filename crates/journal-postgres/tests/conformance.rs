//! The contract, held against PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod support;

use std::sync::Arc;

use budao_core::world::World;
use budao_journal::Journal;
use support::Guard;

/// Without a server the contract is tested on memory, and the missing server is reported.
async fn make(world: World) -> (Guard, Arc<dyn Journal>) {
    support::journal_or_memory(world).await
}

budao_journal::conformance_suite!(make);
