//! The contract, held against PostgreSQL.

use std::sync::Arc;

use crate::support::Guard;
use budao_core::world::World;
use budao_journal::Journal;

/// Without a server the contract is tested on memory, and the missing server is reported.
async fn make(world: World) -> (Guard, Arc<dyn Journal>) {
    crate::support::journal_or_memory(world).await
}

budao_journal::conformance_suite!(make);
