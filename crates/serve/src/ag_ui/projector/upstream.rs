//! Annotations: the ids that a front end chose, and the events of a relayed agent that Budao has no facts for.

use budao_core::ag_ui::EVENT_TOPIC;
use serde_json::{Value, json};

use super::{AgUiProjector, RunState};
use crate::{
    ag_ui::upstream::{forwardable, read_name},
    front_end::{EventSink, RunAnnotation},
};

/// The most steps of a relayed agent that are open at the same time; further ones are not shown.
const STEPS_MAX: usize = 64;

impl AgUiProjector {
    pub(super) fn project_annotation(&mut self, topic: &str, data: &Value, sink: &mut EventSink) {
        if topic == EVENT_TOPIC {
            if self.state == RunState::Active {
                self.project_upstream(data, sink);
            }
            return;
        }
        let Some(annotation) = RunAnnotation::read(topic, data) else { return };
        self.sent_results.extend(annotation.results.into_keys());
        if annotation.message.is_none() {
            self.next_run = Some(annotation.run);
        }
    }

    fn project_upstream(&mut self, event: &Value, sink: &mut EventSink) {
        match event["type"].as_str() {
            // A run of the agent begins without open steps.
            Some("RUN_STARTED") => self.close_agent_steps(sink),
            Some("STEP_STARTED") => self.open_agent_step(&event["stepName"], sink),
            Some("STEP_FINISHED") => {
                if let Some(name) = event["stepName"].as_str() {
                    self.close_agent_step(name, sink);
                }
            }
            _ => {
                if let Some(event) = forwardable(event) {
                    Self::push_event(sink, &event);
                }
            }
        }
    }

    /// The verifier of the AG-UI client refuses a second step of the same name.
    fn open_agent_step(&mut self, name: &Value, sink: &mut EventSink) {
        let Some(name) = read_name(name) else { return };
        let is_own = self.step.is_some_and(|step| name == format!("step-{step}"));
        let is_open = self.agent_steps.iter().any(|open| open == name);
        if !is_own && !is_open && self.agent_steps.len() < STEPS_MAX {
            Self::push_event(sink, &json!({ "type": "STEP_STARTED", "stepName": name }));
            self.agent_steps.push(name.to_owned());
        }
    }

    /// Closes a step of the agent, if it is open.
    pub(super) fn close_agent_step(&mut self, name: &str, sink: &mut EventSink) {
        if let Some(index) = self.agent_steps.iter().position(|open| open == name) {
            self.agent_steps.remove(index);
            Self::push_event(sink, &json!({ "type": "STEP_FINISHED", "stepName": name }));
        }
    }

    pub(super) fn close_agent_steps(&mut self, sink: &mut EventSink) {
        for name in std::mem::take(&mut self.agent_steps) {
            Self::push_event(sink, &json!({ "type": "STEP_FINISHED", "stepName": name }));
        }
    }
}
