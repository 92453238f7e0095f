//! Encoding of events, and what many readers ask of them.

use std::sync::Arc;

use budao_scrub::Scrubber;

use super::{CallStart, Event, Origin, TaskEnd};
use crate::{
    fault::{Fault, NodeIdentity},
    tool::{Failure, Outcome},
};

impl Event {
    /// Adds the stage and task that a child session works on to the scope of its faults.
    pub fn set_stage(&mut self, origin: Option<&Origin>) {
        let Some(Origin::Stage { stage, task, .. }) = origin else { return };
        if let Self::FaultRaised { scope, .. }
        | Self::RetryScheduled { scope, .. }
        | Self::Recovered { scope, .. }
        | Self::RecoveryFailed { scope, .. } = self
            && scope.stage.is_none()
        {
            (scope.stage, scope.task) = (Some(*stage), task.clone());
        }
    }

    /// Names the server that records the event's fault, if the event has one.
    pub fn set_server(&mut self, server: Option<&Arc<NodeIdentity>>) {
        if let Some(server) = server
            && let Some(fault) = self.fault_mut()
        {
            fault.set_server(server);
        }
    }

    /// Encodes the event as the JSON bytes that the journal stores.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        self.encode_into(&mut bytes);
        bytes
    }

    /// Appends the encoded event to `bytes`.
    pub fn encode_into(&self, bytes: &mut Vec<u8>) {
        serde_json::to_writer(bytes, self).expect("events have string keys and finite numbers");
    }

    /// Decodes bytes that [`Event::encode`] wrote.
    ///
    /// # Errors
    /// When the bytes are not an event of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Scrubs the texts of the event's fault, as required before an append. Payloads stay verbatim.
    #[must_use]
    pub fn scrub(mut self, scrubber: &Scrubber) -> Self {
        if let Some(fault) = self.fault_mut() {
            let whole = Fault::new(fault.kind(), fault.operation());
            *fault = std::mem::replace(fault, whole).scrub(scrubber);
        }
        self
    }

    /// The fault in the event's body, if any, including those that a wait or a change of the model mentions.
    pub fn fault_mut(&mut self) -> Option<&mut Fault> {
        match self {
            Self::FaultRaised { fault, .. }
            | Self::RequestHeld { fault: Some(fault), .. }
            | Self::ModelChanged { fault: Some(fault), .. }
            | Self::RecoveryFailed { fault, .. }
            | Self::PlanRefused { fault }
            | Self::SessionEnded { fault: Some(fault), .. }
            | Self::TurnEnded { fault: Some(fault), .. }
            | Self::ToolCallEnded { outcome: Outcome::Failed(Failure { fault, .. }), .. }
            | Self::TaskEnded { end: TaskEnd::Failed { fault }, .. }
            | Self::AggregateEnded { end: TaskEnd::Failed { fault } } => Some(fault),
            _ => None,
        }
    }

    /// The fault that the event carries, if any.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Self::FaultRaised { fault, .. }
            | Self::RecoveryFailed { fault, .. }
            | Self::PlanRefused { fault } => Some(fault),
            Self::SessionEnded { fault, .. } | Self::TurnEnded { fault, .. } => fault.as_ref(),
            Self::ToolCallEnded { outcome, .. } => outcome.fault(),
            Self::TaskEnded { end: TaskEnd::Failed { fault }, .. }
            | Self::AggregateEnded { end: TaskEnd::Failed { fault } } => Some(fault),
            _ => None,
        }
    }

    /// The name of the tool that the event concerns, if any.
    #[must_use]
    pub fn tool(&self) -> Option<&str> {
        match self {
            Self::ToolCallStarted(CallStart { tool, .. })
            | Self::ToolCallQueued(CallStart { tool, .. })
            | Self::ToolCallOffered { tool, .. }
            | Self::ReconcileStarted { tool, .. }
            | Self::ReconcileEnded { tool, .. }
            | Self::DoubtSettled { tool, .. }
            | Self::ToolCallEnded { tool, .. }
            | Self::ToolCallAnnotated { tool, .. }
            | Self::QuestionAsked { tool, .. } => Some(tool),
            _ => None,
        }
    }
}
