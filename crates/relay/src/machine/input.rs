//! What a front end gives the agent beside a message: the shared state, context and forwarded properties.
//!
//! It arrives before its message, and it is part of the relay's own state, so it survives a restart with the message.

use budao_core::{
    ag_ui::AgentInput,
    event::CommandId,
    fault::{Fact, Fault, Kind, Operation},
    json_patch, nesting,
};
use serde_json::{Value, json};

use super::{RelayStepper, limit};

impl RelayStepper<'_> {
    /// Keeps an input for its message. An input without a message belongs to the running turn.
    pub(super) fn take_input(&mut self, mut data: Value) -> Result<(), Fault> {
        let most = self.env.run_limits.state_bytes;
        nesting::flatten(&mut data, self.env.limits.json_depth);
        self.env.scrubber.clean_json(&mut data);
        if json_patch::size(&data) > most {
            return Err(limit("state_bytes", most as u64).not_started());
        }
        let mut input: AgentInput = serde_json::from_value(data).map_err(|error| {
            Fault::new(Kind::BadRequest, Operation::SubmitCommand)
                .with(Fact::Field, "data")
                .with(Fact::Expected, "the input of a run")
                .with(Fact::Received, error.to_string())
        })?;
        // Work that is under way or waits will change the state after the front end saw it.
        let is_busy =
            self.m.run.is_some() || self.m.is_restoring || !self.m.session.queue.is_empty();
        let state = input.state.take();
        if !is_busy && state.is_some() {
            self.m.memory.state = state;
        }
        let is_next = match (&input.message, &self.m.session.turn) {
            (None, _) => true,
            (Some(message), Some(turn)) => turn.message == *message,
            (Some(_), None) => self.m.session.queue.is_empty(),
        };
        match is_next {
            true => self.m.memory.input = Some(input),
            false => {
                if self.waiting_bytes().saturating_add(json_patch::size(&json!(input))) > most {
                    self.forget_inputs_without_message();
                }
                if self.waiting_bytes().saturating_add(json_patch::size(&json!(input))) > most {
                    return Err(limit("state_bytes", most as u64).not_started());
                }
                self.m.memory.waiting.push(input);
            }
        }
        self.save_state();
        Ok(())
    }

    /// Chooses the input of a turn that starts. A retry has that of the turn before it.
    pub(super) fn choose_input(&mut self, message: &CommandId, is_retry: bool) {
        let memory = &mut self.m.memory;
        let is_its = |input: &AgentInput| input.message.as_ref() == Some(message);
        let waiting = memory.waiting.iter().position(is_its);
        match waiting {
            Some(index) => memory.input = Some(memory.waiting.remove(index)),
            None if is_retry => {}
            None => memory.input = memory.input.take().filter(is_its),
        }
        self.save_state();
    }

    fn waiting_bytes(&self) -> usize {
        self.m.memory.waiting.iter().map(|input| json_patch::size(&json!(input))).sum()
    }

    /// Forgets inputs whose message never came.
    fn forget_inputs_without_message(&mut self) {
        let queue = &self.m.session.queue;
        let is_queued = |input: &AgentInput| {
            queue.iter().any(|queued| input.message.as_ref() == Some(&queued.command))
        };
        self.m.memory.waiting.retain(is_queued);
    }
}
