//! Any bytes as a batch of records, and as a witness: for the fuzz targets, and for a share of them in every run.

use budao_core::event::{Epoch, Event, SessionId};
use bytes::Bytes;
use uuid::Uuid;

use crate::{
    encoded::EncodedRecord,
    sqlite::{
        frame::{self, BatchLocation},
        watermark::{self, Watermark},
    },
};

const SESSION: SessionId = SessionId(Uuid::from_u128(7));
/// Records a batch claims to have: from here up.
const COUNTS: [u64; 4] = [1, 3, 64, u64::MAX];

/// Unpacks bytes as a batch of several sizes. What comes out of it stood in it, and whoever packs it again gets a
/// batch that is whole.
///
/// # Panics
/// If a promise does not hold.
pub fn batch(bytes: &[u8]) {
    let body = Bytes::copy_from_slice(bytes);
    for count in COUNTS {
        let place = BatchLocation { session: SESSION, epoch: Epoch(1), first: 1, count };
        let mut records = Vec::new();
        let unpacked = frame::unpack(place, &body, |record| records.push(record));
        let held: usize = records.iter().map(|record| record.body.len()).sum();
        assert!(held <= bytes.len(), "more came out than went in");
        assert!(records.iter().zip(1..).all(|(record, seq)| record.seq == seq), "in order");
        match unpacked.damaged {
            Some(at) => assert_eq!(at, records.len() as u64 + 1, "told where it went wrong"),
            None => assert_eq!(records.len() as u64, count, "all of them, or it says so"),
        }
        repack(&records);
    }
}

fn repack(records: &[crate::StoredRecord]) {
    let entries: Vec<EncodedRecord> = records
        .iter()
        .map(|record| {
            let (at, trace, turn) = (record.at, record.trace, record.turn);
            EncodedRecord { at, trace, turn, body: record.body.clone(), event: None }
        })
        .collect();
    let (body, _) = frame::pack(SESSION, 1, 9, &entries);
    let count = entries.len() as u64;
    let place = BatchLocation { session: SESSION, epoch: Epoch(1), first: 1, count };
    let unpacked = frame::unpack(place, &body.into(), |record| {
        let _ = Event::decode(&record.body);
    });
    assert_eq!(unpacked.damaged, None, "what was packed is whole");
}

/// A batch that is whole, of these events: something for a fuzzer to begin with.
#[must_use]
pub fn packed(events: &[&[u8]]) -> Vec<u8> {
    let entries: Vec<EncodedRecord> = events
        .iter()
        .map(|body| EncodedRecord {
            at: budao_core::time::Timestamp::from_micros(1_700_000_000_000_000),
            trace: budao_core::trace::Trace::from_random(5),
            turn: 1,
            body: Bytes::copy_from_slice(body),
            event: None,
        })
        .collect();
    frame::pack(SESSION, 1, 9, &entries).0
}

/// Does the witness in `bytes` belong to the journal of the witness `own`, and say that it had come further?
///
/// # Panics
/// If `own` is no witness, or if `bytes` is one in another spelling than it is written.
#[must_use]
pub fn is_ahead(bytes: &[u8], own: &[u8]) -> bool {
    let id = journal_of(own);
    let seen = watermark::decode(own, id).expect("a witness of ours");
    watermark::decode(bytes, id).is_some_and(|mark| {
        assert_eq!(bytes, watermark::encode(mark, id), "a witness is written in one way");
        seen.is_behind(mark)
    })
}

/// A whole witness for the journal of the witness `own`, with numbers from `bytes`.
#[must_use]
pub fn watermark_from(bytes: &[u8], own: &[u8]) -> Vec<u8> {
    let mut numbers = bytes.chunks(8).map(|chunk| {
        let mut number = [0; 8];
        number[..chunk.len()].copy_from_slice(chunk);
        i64::from_le_bytes(number)
    });
    let mut next = || numbers.next().unwrap_or(0);
    let mark = Watermark { batch_id: next(), inbox: next(), token: next(), blob: next() };
    watermark::encode(mark, journal_of(own)).to_vec()
}

fn journal_of(witness: &[u8]) -> [u8; 16] {
    let id = witness.get(8..24).and_then(|id| id.try_into().ok());
    id.expect("a witness names its journal")
}
