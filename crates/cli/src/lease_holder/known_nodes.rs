//! The other servers of a journal, as `budao serve` reads them; for other commands, the processes of this machine.

use std::sync::{Arc, LazyLock};

use budao_serve::NodeCensus;

use super::{is_gone, name};

static CENSUS: LazyLock<Arc<NodeCensus>> =
    LazyLock::new(|| Arc::new(NodeCensus::new(name(), |holder| is_gone(holder).unwrap_or(false))));

/// What this process knows of other servers.
pub(crate) fn census() -> &'static Arc<NodeCensus> {
    &CENSUS
}

pub(super) fn is_dead(holder: &str) -> bool {
    census().is_dead(holder)
}

pub(super) fn is_alive(holder: &str) -> bool {
    census().is_alive(holder)
}
