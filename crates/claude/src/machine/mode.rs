//! Keeps the session's permission mode and the CLI's mode equal.
//!
//! Both sides change it: a person in the settings, the CLI when the model starts to plan or a plan is
//! approved. While a change from the session is in flight, a report of the CLI may be older and is ignored.

use serde_json::{Value, json};

use super::Stepper;
use crate::permissions;

/// Topic of control requests that change the mode.
pub(super) const REQUEST: &str = "mode";

impl Stepper<'_> {
    /// Sends the session's mode to the CLI.
    pub(super) fn send_mode(&mut self) {
        let mode = permissions::mode(&self.m.session.settings);
        let request = json!({"subtype": "set_permission_mode", "mode": mode});
        self.request(REQUEST, &request);
    }

    /// Applies the mode that the CLI reports to the session's settings. A mode that sessions do not
    /// support is reverted.
    pub(super) fn mode_reported(&mut self, mode: &str) {
        // The command line calls the mode `manual` that is `default` elsewhere.
        let mode = if mode == "manual" { permissions::DEFAULT } else { mode };
        let Some(process) = &mut self.m.process else { return };
        mode.clone_into(&mut process.mode);
        let is_changing = process.requests.values().any(|topic| *topic == REQUEST);
        if !is_changing && !self.follow_mode() {
            self.send_mode();
        }
    }

    /// Handles the CLI's answer to a change of mode. After a refusal the CLI keeps its mode.
    pub(super) fn mode_answered(&mut self, is_refused: bool, response: &Value) {
        let set = permissions::mode(&self.m.session.settings).to_owned();
        let Some(process) = &mut self.m.process else { return };
        if !is_refused {
            process.mode = response["mode"].as_str().map_or(set, str::to_owned);
        }
        if !process.requests.values().any(|topic| *topic == REQUEST) {
            self.follow_mode();
        }
    }

    /// Handles the end of a tool that changes the mode. Older CLIs report the mode only at the next turn.
    pub(super) fn mode_tool_ran(&mut self, tool: &str) {
        let is_plan =
            self.m.process.as_ref().is_some_and(|process| process.mode == permissions::PLAN);
        match tool {
            permissions::HAND_IN_PLAN if is_plan => self.mode_reported(permissions::DEFAULT),
            permissions::BEGIN_PLAN if !is_plan => self.mode_reported(permissions::PLAN),
            _ => {}
        }
    }

    /// Sets the session to the CLI's mode. False if sessions do not support that mode.
    fn follow_mode(&mut self) -> bool {
        let Some(process) = &self.m.process else { return true };
        let settings = &self.m.session.settings;
        if process.mode == permissions::mode(settings) {
            return true;
        }
        match permissions::in_mode(settings, &process.mode) {
            Some(settings) => self.set(settings),
            None => return false,
        }
        true
    }
}
