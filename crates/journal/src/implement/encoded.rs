//! Encodes the events of one append into a single allocation.

use std::sync::Arc;

use budao_core::{
    event::{Epoch, Event, Seq, SessionId},
    time::Timestamp,
    trace::Trace,
};
use bytes::Bytes;

use crate::contract::{CachedEvent, Entry, StoredRecord};

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
        EncodedRecord { at, trace, turn, body, event: Some(event) }
    });
    encoded.collect()
}

impl EncodedRecord {
    /// Converts the entry to the record at this position.
    #[must_use]
    pub fn stored(&self, session: SessionId, epoch: Epoch, seq: Seq) -> StoredRecord {
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
