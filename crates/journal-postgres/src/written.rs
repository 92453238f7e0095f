//! The records that this process wrote and that are not yet in the views, so that most views are updated without a read.
//!
//! The chain of the session's row tells whether memory and database have the same history; only then is memory used.

use std::{
    collections::{HashMap, VecDeque},
    sync::Mutex,
};

use budao_core::event::Seq;
use budao_journal::{Digest, StoredRecord};

use crate::connection::lock;

/// Bytes of records in memory; beyond it those of a session are left out and read from the database.
const BYTES_MAX: usize = 32 << 20;
/// Estimated size of a record beside its event.
const RECORD_BYTES: usize = 200;

/// The records of one append, and the digest after it.
#[derive(Debug)]
struct WrittenBatch {
    records: Vec<StoredRecord>,
    head: Seq,
    chain: Digest,
    bytes: usize,
}

#[derive(Debug, Default)]
struct WrittenState {
    sessions: HashMap<i64, VecDeque<WrittenBatch>>,
    bytes: usize,
}

/// The sessions that this process wrote since their views were updated, by the keys of their rows.
#[derive(Debug, Default)]
pub(crate) struct WrittenSessions(Mutex<WrittenState>);

impl WrittenSessions {
    /// Adds the records of an append that is durable.
    pub(crate) fn add(&self, key: i64, records: Vec<StoredRecord>, head: Seq, chain: Digest) {
        let bytes = records.iter().map(|record| record.body.len() + RECORD_BYTES).sum();
        let mut state = lock(&self.0);
        let state = &mut *state;
        let batches = state.sessions.entry(key).or_default();
        batches.push_back(WrittenBatch { records, head, chain, bytes });
        state.bytes += bytes;
        if state.bytes > BYTES_MAX {
            state.bytes -= batches.iter().map(|batch| batch.bytes).sum::<usize>();
            batches.clear();
        }
    }

    /// The keys of all sessions, in order.
    pub(crate) fn keys(&self) -> Vec<i64> {
        let mut keys: Vec<i64> = lock(&self.0).sessions.keys().copied().collect();
        keys.sort_unstable();
        keys
    }

    /// The head of what memory has of a session, 0 if it has nothing.
    pub(crate) fn head(&self, key: i64) -> Seq {
        let state = lock(&self.0);
        let last = state.sessions.get(&key).and_then(VecDeque::back);
        last.map_or(0, |batch| batch.head)
    }

    /// The records after `viewed` up to `head`; `None` if memory does not have all of them, or of another history than
    /// the one that ends with `chain`.
    pub(crate) fn records(
        &self,
        key: i64,
        viewed: Seq,
        head: Seq,
        chain: Digest,
    ) -> Option<Vec<StoredRecord>> {
        let state = lock(&self.0);
        let batches = state.sessions.get(&key)?;
        let is_same = batches.iter().any(|batch| batch.head == head && batch.chain == chain);
        let first = batches.front()?.records.first()?.seq;
        if !is_same || first > viewed + 1 {
            return None;
        }
        let records = batches.iter().flat_map(|batch| &batch.records);
        let wanted = records.filter(|record| record.seq > viewed && record.seq <= head);
        let wanted: Vec<StoredRecord> = wanted.cloned().collect();
        // An append of another process between two of this one leaves a gap.
        (wanted.len() as u64 == head - viewed).then_some(wanted)
    }

    /// Forgets what is in the views.
    pub(crate) fn forget(&self, key: i64, viewed: Seq) {
        let mut state = lock(&self.0);
        let state = &mut *state;
        let Some(batches) = state.sessions.get_mut(&key) else { return };
        while batches.front().is_some_and(|batch| batch.head <= viewed) {
            state.bytes -= batches.pop_front().map_or(0, |batch| batch.bytes);
        }
        if batches.is_empty() {
            state.sessions.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use budao_core::{
        event::{Epoch, SessionId},
        time::Timestamp,
        trace::Trace,
    };
    use bytes::Bytes;

    use super::*;

    fn record(seq: Seq, bytes: usize) -> StoredRecord {
        StoredRecord {
            session: SessionId(uuid::Uuid::nil()),
            epoch: Epoch(0),
            seq,
            at: Timestamp::from_micros(0),
            trace: Trace::NONE,
            turn: 0,
            body: Bytes::from(vec![b' '; bytes]),
            cached_event: Default::default(),
        }
    }

    fn add(written: &WrittenSessions, seqs: std::ops::RangeInclusive<Seq>, mark: u8) {
        let head = *seqs.end();
        let records = seqs.map(|seq| record(seq, 10)).collect();
        written.add(1, records, head, Digest([mark; 32]));
    }

    #[test]
    fn records_come_from_memory_only_if_all_are_there_and_the_history_is_the_same() {
        let written = WrittenSessions::default();
        add(&written, 1..=2, 1);
        add(&written, 3..=5, 2);
        let found = |viewed, head, mark| {
            let records = written.records(1, viewed, head, Digest([mark; 32]));
            records.map(|records| records.iter().map(|record| record.seq).collect::<Vec<Seq>>())
        };
        assert_eq!(found(0, 5, 2), Some(vec![1, 2, 3, 4, 5]));
        assert_eq!(found(1, 2, 1), Some(vec![2]));
        assert_eq!(found(0, 5, 3), None, "another history");
        assert_eq!(found(0, 4, 2), None, "no end of an append");
        assert_eq!(found(0, 9, 2), None, "memory is behind");
        written.forget(1, 2);
        assert_eq!(found(0, 5, 2), None, "the first are gone");
        assert_eq!(found(2, 5, 2), Some(vec![3, 4, 5]));
        add(&written, 8..=8, 4);
        assert_eq!(found(2, 8, 4), None, "another process wrote in between");
        written.forget(1, 8);
        assert_eq!(written.keys(), Vec::<i64>::new());
        assert_eq!(lock(&written.0).bytes, 0);
    }

    #[test]
    fn what_is_too_large_for_memory_is_left_to_the_database() {
        let written = WrittenSessions::default();
        written.add(7, vec![record(1, BYTES_MAX)], 1, Digest([1; 32]));
        assert_eq!(written.records(7, 0, 1, Digest([1; 32])), None);
        assert_eq!(written.keys(), [7], "its views are still updated");
        assert_eq!(lock(&written.0).bytes, 0);
        written.forget(7, 1);
        assert_eq!(written.keys(), Vec::<i64>::new());
    }
}
