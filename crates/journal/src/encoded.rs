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
pub(crate) struct EncodedRecord {
    pub(crate) at: Timestamp,
    pub(crate) trace: Trace,
    pub(crate) turn: u64,
    pub(crate) body: Bytes,
    /// The decoded event; `None` if the entry was made from bytes.
    pub(crate) event: Option<Arc<Event>>,
}

/// Encodes the entries of an append. Their bodies share one buffer.
pub(crate) fn encode(entries: Vec<Entry>) -> Vec<EncodedRecord> {
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
    pub(crate) fn stored(&self, session: SessionId, epoch: Epoch, seq: Seq) -> StoredRecord {
        StoredRecord {
            session,
            epoch,
            seq,
            at: self.at,
            trace: self.trace,
            turn: self.turn,
            body: self.body.clone(),
            fresh: self.event.as_ref().map(CachedEvent::of).unwrap_or_default(),
        }
    }
}
