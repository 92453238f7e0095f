//! Builds a page from packed batches: whole, in order, and up to the first damage.

use budao_core::event::{Epoch, Seq, SessionId};
use bytes::Bytes;

use super::batch_encoding::{self, BatchLocation};
use crate::contract::{Digest, PageLimits, StoredRecord};

/// Upper bound of the first allocation, since a damaged head may be any number.
const FIRST_RECORDS: usize = 16 * 1024;

/// The bounds of the history that a page is read from, as stored in the session's row.
#[derive(Clone, Copy, Debug)]
pub struct PageHistory {
    /// The session that is read.
    pub session: SessionId,
    /// The epoch of its history.
    pub epoch: Epoch,
    /// The position of its last record.
    pub head: Seq,
    /// The last record that retention removed, 0 for none.
    pub removed_to: Seq,
}

/// Collects consecutive records until the page is full, the head is reached or a record is damaged.
#[derive(Debug)]
pub struct PageBuilder {
    history: PageHistory,
    limits: PageLimits,
    /// The position of the next record.
    next: Seq,
    /// The digest that the next batch must continue; `None` before the first batch.
    chain: Option<Digest>,
    bytes: usize,
    is_full: bool,
    damaged: Option<Seq>,
    records: Vec<StoredRecord>,
}

impl PageBuilder {
    /// Starts a page after a position, which must not be beyond the head.
    #[must_use]
    pub fn new(history: PageHistory, after: Seq, limits: PageLimits) -> Self {
        let next = after.max(history.removed_to) + 1;
        let expected =
            usize::try_from((history.head + 1).saturating_sub(next)).unwrap_or(usize::MAX);
        let records = Vec::with_capacity(expected.min(limits.records).min(FIRST_RECORDS));
        let (chain, damaged) = (None, None);
        Self { history, limits, next, chain, bytes: 0, is_full: false, damaged, records }
    }

    /// Whether the page takes more records.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.next <= self.history.head && !self.is_full && self.damaged.is_none()
    }

    /// The position of the next record.
    #[must_use]
    pub fn next_seq(&self) -> Seq {
        self.next
    }

    /// Ends the page: the next record is damaged.
    pub fn mark_damaged(&mut self) {
        self.damaged = Some(self.next);
    }

    /// Adds the next batch. A batch before the page is skipped; one that does not continue the last is damage.
    pub fn take(&mut self, first: Seq, count: u64, body: &Bytes) {
        let end = first.saturating_add(count);
        if end <= self.next && self.chain.is_none() {
            return;
        }
        if first > self.next || (self.chain.is_some() && first != self.next) {
            self.mark_damaged();
            return;
        }
        let (session, epoch) = (self.history.session, self.history.epoch);
        let location = BatchLocation { session, epoch, first, count };
        let (next, before) = (self.next, self.records.len());
        let unpacked = batch_encoding::unpack(location, body, |record| {
            if record.seq >= next && !self.is_full {
                self.push(record);
            }
        });
        let taken = (self.records.len() - before) as u64;
        self.next += taken;
        let breaks_chain =
            self.chain.is_some() && unpacked.previous != self.chain && unpacked.damaged.is_none();
        if breaks_chain {
            self.records.truncate(before);
            self.next -= taken;
            self.mark_damaged();
        } else if !self.is_full {
            self.damaged = unpacked.damaged;
        }
        self.chain = unpacked.digest;
    }

    fn push(&mut self, record: StoredRecord) {
        self.bytes += record.body.len();
        let is_over =
            self.records.len() >= self.limits.records.max(1) || self.bytes > self.limits.bytes;
        if is_over && !self.records.is_empty() {
            self.is_full = true;
        } else {
            self.records.push(record);
        }
    }

    /// The records of the page. A missing record counts as damage too.
    ///
    /// # Errors
    /// The position of the first record, if that one is damaged.
    pub fn finish(mut self) -> Result<Vec<StoredRecord>, Seq> {
        if self.is_open() {
            self.mark_damaged();
        }
        match self.damaged {
            Some(seq) if self.records.is_empty() => Err(seq),
            _ => Ok(self.records),
        }
    }
}
