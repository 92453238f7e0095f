//! One log line for every fault, once it is durable: the log says nothing that a crash can undo.
//!
//! Faults are scrubbed before they are recorded, so the line may be written as it is. Where a fault is told
//! again because it ended something, there is no second line.

use std::sync::Arc;

use budao_core::{
    event::{Event, SessionId},
    fault::{Announcement, Fault, Severity},
};

use crate::contract::{Append, Entry};

/// The faults of one append.
pub(crate) struct Faults {
    session: SessionId,
    entries: Vec<Entry>,
}

impl Faults {
    pub(crate) fn of(append: &Append) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        for entry in &append.entries {
            let Some(fault) = entry.event.fault() else { continue };
            let is_end = match &*entry.event {
                Event::TurnEnded { .. }
                | Event::SessionEnded { .. }
                | Event::TaskEnded { .. }
                | Event::AggregateEnded { .. } => true,
                // That we gave up is news after several tries. After one it is the failure itself.
                Event::RecoveryFailed { .. } => {
                    fault.attempts().is_none_or(|tries| tries.attempt <= 1)
                }
                _ => false,
            };
            let told =
                |known: &Entry| known.event.fault().is_some_and(|it| it.kind() == fault.kind());
            if !is_end || !entries.iter().any(told) {
                entries.push(Entry { event: Arc::clone(&entry.event), ..entry.clone() });
            }
        }
        Self { session: append.session, entries }
    }

    /// Writes the lines.
    pub(crate) fn log(&self) {
        for entry in &self.entries {
            if let Some(fault) = entry.event.fault() {
                line(self.session, entry, fault);
            }
        }
    }
}

fn line(session: SessionId, entry: &Entry, fault: &Fault) {
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
    macro_rules! write_line {
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
                %session,
                turn = entry.turn,
                attempt,
                max_attempts,
                "{fault}"
            )
        };
    }
    match row.severity {
        Severity::Info => write_line!(tracing::Level::INFO),
        Severity::Warn => write_line!(tracing::Level::WARN),
        Severity::Error | Severity::Critical => write_line!(tracing::Level::ERROR),
    }
}
