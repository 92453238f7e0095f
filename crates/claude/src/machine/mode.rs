//! The permission mode in force: what the session is set to and what the CLI says are kept the same.
//!
//! Both sides change it: a person in the settings, the CLI when the model begins to plan or a plan was approved. A
//! report that may be older than a change of ours does not count: ours is on its way and is what will be in force.

use serde_json::{Value, json};

use super::Stepper;
use crate::permissions;

/// What a request for another mode is about.
pub(super) const REQUEST: &str = "mode";

impl Stepper<'_> {
    /// Tells the CLI the session's mode.
    pub(super) fn send_mode(&mut self) {
        let mode = permissions::mode(&self.m.session.settings);
        let request = json!({"subtype": "set_permission_mode", "mode": mode});
        self.request(REQUEST, &request);
    }

    /// The CLI says which mode it is in: the session's settings follow. One that sessions cannot be set to is undone.
    pub(super) fn mode_reported(&mut self, mode: &str) {
        // The word of the command line for what is `default` elsewhere.
        let mode = if mode == "manual" { permissions::DEFAULT } else { mode };
        let Some(up) = &mut self.m.up else { return };
        mode.clone_into(&mut up.mode);
        let is_changing = up.requests.values().any(|about| *about == REQUEST);
        if !is_changing && !self.follow_mode() {
            self.send_mode();
        }
    }

    /// The CLI took a mode of ours, or refused it and stays where it was.
    pub(super) fn mode_answered(&mut self, is_refused: bool, response: &Value) {
        let set = permissions::mode(&self.m.session.settings).to_owned();
        let Some(up) = &mut self.m.up else { return };
        if !is_refused {
            up.mode = response["mode"].as_str().map_or(set, str::to_owned);
        }
        if !up.requests.values().any(|about| *about == REQUEST) {
            self.follow_mode();
        }
    }

    /// A tool ran that changes the mode. An older CLI says so only when its next turn begins.
    pub(super) fn mode_tool_ran(&mut self, tool: &str) {
        let is_plan = self.m.up.as_ref().is_some_and(|up| up.mode == permissions::PLAN);
        match tool {
            permissions::HAND_IN_PLAN if is_plan => self.mode_reported(permissions::DEFAULT),
            permissions::BEGIN_PLAN if !is_plan => self.mode_reported(permissions::PLAN),
            _ => {}
        }
    }

    /// Sets the session to the CLI's mode. False if it is one that sessions cannot be set to.
    fn follow_mode(&mut self) -> bool {
        let Some(up) = &self.m.up else { return true };
        let settings = &self.m.session.settings;
        if up.mode == permissions::mode(settings) {
            return true;
        }
        match permissions::in_mode(settings, &up.mode) {
            Some(settings) => self.set(settings),
            None => return false,
        }
        true
    }
}
