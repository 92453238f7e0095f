//! The ranges of records that this process wrote, for metrics that count each record on one server only.
//!
//! A writer stores its position after each commit. [`WrittenPositions::take`] reports the ranges since its last call.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use budao_core::{
    engine::WrittenRange,
    event::{Seq, SessionId},
};

/// Upper bound of writers whose positions are stored; the oldest that have ended are dropped first.
const WRITERS_MAX: usize = 100_000;

/// The positions of one writer.
#[derive(Debug)]
pub(crate) struct WriterPosition {
    session: SessionId,
    reported: AtomicU64,
    head: AtomicU64,
}

impl WriterPosition {
    /// Stores the position of the last record that is durable.
    pub(crate) fn advance(&self, head: Seq) {
        self.head.store(head, Ordering::Release);
    }

    fn take(&self) -> Option<WrittenRange> {
        let head = self.head.load(Ordering::Acquire);
        let after = self.reported.swap(head, Ordering::AcqRel);
        (after < head).then_some(WrittenRange { session: self.session, after, head })
    }
}

/// The positions of all writers of a host since the last report.
#[derive(Clone, Debug, Default)]
pub struct WrittenPositions(Arc<Mutex<Vec<Arc<WriterPosition>>>>);

impl WrittenPositions {
    /// Adds a writer that starts at this position.
    pub(crate) fn register(&self, session: SessionId, head: Seq) -> Arc<WriterPosition> {
        let position = Arc::new(WriterPosition {
            session,
            reported: AtomicU64::new(head),
            head: AtomicU64::new(head),
        });
        let mut writers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if writers.len() >= WRITERS_MAX {
            let half = writers.len() / 2;
            let mut index = 0;
            writers.retain(|writer| {
                index += 1;
                index > half || is_in_use(writer)
            });
        }
        writers.push(Arc::clone(&position));
        position
    }

    /// Returns the ranges written since the last call, in the order in which the writers started.
    pub(crate) fn take(&self) -> Vec<WrittenRange> {
        let mut writers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut ranges = Vec::new();
        writers.retain(|writer| {
            // A writer that ends after this line is reported once more by the next call.
            let stays = is_in_use(writer);
            ranges.extend(writer.take());
            stays
        });
        ranges
    }
}

fn is_in_use(writer: &Arc<WriterPosition>) -> bool {
    Arc::strong_count(writer) > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(after: Seq, head: Seq) -> WrittenRange {
        WrittenRange { session: SessionId(uuid::Uuid::nil()), after, head }
    }

    #[test]
    fn each_record_is_reported_once_also_after_its_writer_has_ended() {
        let positions = WrittenPositions::default();
        let writer = positions.register(SessionId(uuid::Uuid::nil()), 4);
        assert_eq!(positions.take(), []);
        writer.advance(7);
        assert_eq!(positions.take(), [range(4, 7)]);
        writer.advance(9);
        drop(writer);
        assert_eq!(positions.take(), [range(7, 9)]);
        assert_eq!(positions.take(), []);
        assert!(positions.0.lock().expect("not poisoned").is_empty());
    }

    #[test]
    fn without_a_caller_the_number_of_stored_writers_is_bounded() {
        let positions = WrittenPositions::default();
        for _ in 0..=WRITERS_MAX {
            drop(positions.register(SessionId(uuid::Uuid::nil()), 0));
        }
        assert!(positions.0.lock().expect("not poisoned").len() <= WRITERS_MAX);
    }
}
