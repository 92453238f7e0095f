//! Encodes the events of one append into a single allocation.

use std::sync::Arc;

use budao_core::{
    event::{Epoch, Event, Seq, SessionId},
    time::Timestamp,
    trace::Trace,
};
use bytes::Bytes;

use super::chain;
use crate::contract::{CachedEvent, Digest, Entry, StoredRecord};

/// Estimated size of an encoded event, for the initial allocation.
const EVENT_BYTES: usize = 128;

/// An entry with its event encoded.
#[derive(Clone, Debug)]
pub struct EncodedRecord {
    /// When the event happened, by the writer's clock.
    pub at: Timestamp,
    /// The trace of the turn that the event belongs to.
    pub trace: Trace,
    /// The turn that the event belongs to, 0 for none.
    pub turn: u64,
    /// The event as JSON.
    pub body: Bytes,
    /// The decoded event; `None` if the entry was made from bytes.
    pub event: Option<Arc<Event>>,
    /// The digest of the record without its position; `None` until it is computed ahead.
    content: Option<Digest>,
}

/// Encodes the entries of an append. Their bodies share one buffer.
#[must_use]
pub fn encode(entries: Vec<Entry>) -> Vec<EncodedRecord> {
    let mut bytes = Vec::with_capacity(entries.len() * EVENT_BYTES);
    let ends: Vec<usize> = entries
        .iter()
        .map(|entry| {
            entry.event.encode_into(&mut bytes);
            bytes.len()
        })
        .collect();
    let bytes = Bytes::from(bytes);
    let mut start = 0;
    let encoded = entries.into_iter().zip(ends).map(|(entry, end)| {
        let body = bytes.slice(start..end);
        start = end;
        let Entry { at, trace, turn, event } = entry;
        EncodedRecord { event: Some(event), ..EncodedRecord::from_bytes(at, trace, turn, body) }
    });
    encoded.collect()
}

impl EncodedRecord {
    /// An entry from an event that is already encoded.
    #[must_use]
    pub fn from_bytes(at: Timestamp, trace: Trace, turn: u64, body: Bytes) -> Self {
        Self { at, trace, turn, body, event: None, content: None }
    }

    /// Computes and stores the digest of the content, so that the append under the writer's lock need not.
    pub fn hash_content(&mut self) {
        self.content = Some(chain::content(self.at, self.trace, self.turn, &self.body));
    }

    /// The digest at the position of this entry, given the one before it.
    #[must_use]
    pub fn digest_after(&self, before: Digest, seq: Seq) -> Digest {
        let content = self
            .content
            .unwrap_or_else(|| chain::content(self.at, self.trace, self.turn, &self.body));
        chain::extend(before, seq, content)
    }

    /// Converts the entry to the record at this position.
    #[must_use]
    pub fn to_stored(&self, session: SessionId, epoch: Epoch, seq: Seq) -> StoredRecord {
        StoredRecord {
            session,
            epoch,
            seq,
            at: self.at,
            trace: self.trace,
            turn: self.turn,
            body: self.body.clone(),
            cached_event: self.event.as_ref().map(CachedEvent::of).unwrap_or_default(),
        }
    }
}
