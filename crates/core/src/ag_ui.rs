//! What the relay to AG-UI agents and the gateways of front ends share: topics of annotations, and the input of a run.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::event::CommandId;

/// The value of the label `engine` for sessions of the relay.
pub const ENGINE_NAME: &str = "agui";

/// The topic of the annotations that hold the events of a relayed agent.
pub const EVENT_TOPIC: &str = "agui";

/// The topic of an annotation with an [`AgentInput`]. The relay keeps it in its own state of the session.
pub const INPUT_TOPIC: &str = "agui.input";

/// What a front end gives the agent beside a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentInput {
    /// The command of the message; absent if the input comes with answers to questions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<CommandId>,
    /// The shared state as the front end has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
    /// Facts for the agent's context.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<Value>,
    /// Properties that the front end passes to the agent's own framework.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub forwarded_props: Map<String, Value>,
}

impl AgentInput {
    /// Whether the front end gave nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.state.is_none() && self.context.is_empty() && self.forwarded_props.is_empty()
    }
}

/// The shared state in what the relay recorded for itself under [`ENGINE_STATE`](crate::session::ENGINE_STATE).
#[must_use]
pub fn shared_state(engine_state: &Value) -> Option<&Value> {
    engine_state.get("state")
}
