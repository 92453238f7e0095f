//! Writes one log line for every durable fault, after its commit: a crash can undo none of them.
//!
//! Faults are scrubbed before they are recorded, so the line needs no further scrubbing. A fault that is repeated by
//! the end of its turn, task or session gets no second line.

use budao_core::{
    event::{Event, SessionId, Settings},
    fault::{Announcement, Fault, Severity},
};
use budao_journal::Entry;

use crate::subscribers::CommitSubscriber;

/// Logs the faults of one session.
#[derive(Debug)]
pub(crate) struct FaultLog {
    session: SessionId,
    /// The labels for tenant and owner; empty if the session has no such label.
    tenant: String,
    owner: String,
}

impl FaultLog {
    pub(crate) fn new(session: SessionId, settings: &Settings) -> Self {
        let (tenant, owner) = (settings.tenant().to_owned(), settings.owner().to_owned());
        Self { session, tenant, owner }
    }
}

impl CommitSubscriber for FaultLog {
    fn on_commit(&mut self, entries: &[Entry]) {
        for (index, entry) in entries.iter().enumerate() {
            if let Event::SessionOpened { settings, .. } = &*entry.event {
                *self = Self::new(self.session, settings);
            }
            let Some(fault) = entry.event.fault() else { continue };
            if !is_repetition(&entries[..index], &entry.event, fault) {
                self.write_line(entry, fault);
            }
        }
    }
}

/// Whether this event only repeats a fault of an earlier event of the same append.
fn is_repetition(earlier: &[Entry], event: &Event, fault: &Fault) -> bool {
    let is_end = match event {
        Event::TurnEnded { .. }
        | Event::SessionEnded { .. }
        | Event::TaskEnded { .. }
        | Event::AggregateEnded { .. } => true,
        // With one attempt, the end of the retries repeats the failure; with several it is a new fact.
        Event::RecoveryFailed { .. } => fault.attempts().is_none_or(|tries| tries.attempt <= 1),
        _ => false,
    };
    let is_same =
        |entry: &Entry| entry.event.fault().is_some_and(|known| known.kind() == fault.kind());
    is_end && earlier.iter().any(is_same)
}

impl FaultLog {
    fn write_line(&self, entry: &Entry, fault: &Fault) {
        let (tenant, user) = (non_empty(&self.tenant), non_empty(&self.owner));
        let row = fault.row();
        let scope = match &*entry.event {
            Event::FaultRaised { scope, .. } | Event::RecoveryFailed { scope, .. } => Some(scope),
            _ => None,
        };
        let event_type: &str = match &*entry.event {
            Event::RecoveryFailed { .. } => Announcement::RecoveryFailed.into(),
            _ => row.event.into(),
        };
        let stage: Option<&str> = scope.and_then(|scope| scope.stage).map(Into::into);
        let tool = scope.and_then(|scope| scope.tool.as_deref()).or(entry.event.tool());
        let attempt = fault.attempts().map(|tries| tries.attempt);
        let max_attempts = fault.attempts().map(|tries| tries.max);
        let trace = if fault.trace().is_some() { fault.trace() } else { entry.trace };
        macro_rules! write_at {
        ($level:expr) => {
            tracing::event!(
                target: "budao::fault",
                $level,
                code = row.code,
                kind = row.name,
                event_type,
                errorType = %row.error_type,
                category = %row.category,
                recoverable = row.recoverable,
                severity = %row.severity,
                stage,
                operation = %fault.operation(),
                tool,
                %trace,
                session = %self.session,
                tenant,
                user,
                host = fault.address(),
                turn = entry.turn,
                attempt,
                max_attempts,
                %fault,
                "fault recorded"
            )
        };
    }
        match row.severity {
            Severity::Info => write_at!(tracing::Level::INFO),
            Severity::Warn => write_at!(tracing::Level::WARN),
            Severity::Error | Severity::Critical => write_at!(tracing::Level::ERROR),
        }
    }
}

/// `None` for an empty text, so that the line has no empty field.
fn non_empty(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}
