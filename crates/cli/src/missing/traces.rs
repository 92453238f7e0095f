//! The export of traces, in a program that was built without it: an endpoint is refused.

use std::sync::OnceLock;

use budao_core::{Fault, world::World};
use budao_runtime::world;

use crate::missing::{self, ProgramPart};

/// OpenTelemetry's variable for the traces endpoint.
const ONLY_TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

static IS_AIMED: OnceLock<bool> = OnceLock::new();

/// The system's world; no span leaves it.
pub(crate) fn world() -> World {
    world::system()
}

/// Notes whether an endpoint is set; the first call counts.
pub(crate) fn aim(endpoint: Option<String>, _: bool) {
    let only_traces = std::env::var(ONLY_TRACES).ok();
    let is_aimed = [endpoint, only_traces].into_iter().flatten().any(|value| !value.is_empty());
    let _ = IS_AIMED.set(is_aimed);
}

/// Refuses an endpoint.
///
/// # Errors
/// `configuration_wrong` if an endpoint is set.
pub(crate) fn start() -> Result<(), Fault> {
    if IS_AIMED.get() == Some(&true) {
        return Err(missing::fault(ProgramPart::Traces, "--traces"));
    }
    Ok(())
}

/// Returns at once: nothing waits to be sent.
pub(crate) async fn finish() {}
