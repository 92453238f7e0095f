//! Subscribers of committed entries: the fault log and the trace exporter.
//!
//! They run on the session's task after an append is durable. They cannot fail and must not wait.

use std::{fmt, sync::Arc};

use budao_core::{event::SessionId, session::Session, span::SpanBuilder, world::SpanExporter};
use budao_journal::Entry;

use crate::fault_log::FaultLog;

/// Receives the committed entries of one session.
pub(crate) trait CommitSubscriber: Send + Sync + fmt::Debug {
    /// Called once for each append, in order, after it is durable.
    fn on_commit(&mut self, entries: &[Entry]);
}

/// The subscribers of one session.
#[derive(Debug)]
pub(crate) struct CommitSubscribers([Box<dyn CommitSubscriber>; 2]);

impl CommitSubscribers {
    pub(crate) fn new(session: SessionId, state: &Session, spans: &Arc<dyn SpanExporter>) -> Self {
        let tracer = SpanSubscriber {
            exporter: Arc::clone(spans),
            builder: SpanBuilder::new(session, state).with_content(spans.wants_content()),
        };
        Self([Box::new(FaultLog::new(session, &state.settings)), Box::new(tracer)])
    }

    pub(crate) fn publish(&mut self, entries: &[Entry]) {
        self.0.iter_mut().for_each(|subscriber| subscriber.on_commit(entries));
    }
}

/// Builds spans from committed entries and exports those that have ended.
#[derive(Debug)]
struct SpanSubscriber {
    exporter: Arc<dyn SpanExporter>,
    builder: SpanBuilder,
}

impl CommitSubscriber for SpanSubscriber {
    fn on_commit(&mut self, entries: &[Entry]) {
        if !self.exporter.is_enabled() {
            return;
        }
        for entry in entries {
            for span in self.builder.take(entry.at, entry.trace, entry.turn, &entry.event) {
                self.exporter.export(span);
            }
        }
    }
}
