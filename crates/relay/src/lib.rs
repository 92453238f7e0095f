//! Any AG-UI agent as an engine: one POST per turn, its event stream recorded and projected.
//!
//! [`machine`] decides and is pure: upstream events and commands in, domain events and actions out. [`Relay`]
//! is the session host with it. Each upstream event is recorded verbatim under the topic
//! [`TOPIC`], and its meaning follows as the same domain events that the other engines record, so every gateway works.
//!
//! The agent runs in a foreign process. The relay posts a run again only if it was certainly not sent, or if
//! [`RelayConfig::resubmit`] permits it, and records that the effects of a cut run are unknown.

mod client;
mod config;
mod decider;
mod draft;
mod engine;
mod interrupt;
pub mod machine;
mod partial;
mod request;
pub mod wire;

pub use config::{RelayConfig, RelayLimits};
pub use engine::{ENGINE_NAME, Relay, RelayParts};
pub use partial::PartialTurn;

/// The topic of the annotations that hold upstream events.
pub const TOPIC: &str = budao_core::ag_ui::EVENT_TOPIC;

/// The model name of sessions of this engine; the agent chooses its model itself.
pub const MODEL: &str = "agui";

/// Name of the foreign agent in faults.
pub(crate) const SERVICE: &str = "agui";
