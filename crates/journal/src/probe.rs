//! Entry points for the fuzz targets of batches and watermarks; tests run a part of them too.

use budao_core::event::{Epoch, Event, SessionId};
use bytes::Bytes;
use uuid::Uuid;

use crate::{
    implement::batch_encoding::{self, BatchLocation},
    implement::chain,
    implement::encoded::EncodedRecord,
    sqlite::watermark::{self, Watermark},
};

const SESSION: SessionId = SessionId(Uuid::from_u128(7));
/// Record counts that a batch claims to have.
const COUNTS: [u64; 4] = [1, 3, 64, u64::MAX];

/// Unpacks bytes as batches of several record counts, then packs the records again. Checks that unpacked records come
/// from the input and that the new batch is whole.
///
/// # Panics
/// If a check fails.
pub fn batch(bytes: &[u8]) {
    let body = Bytes::copy_from_slice(bytes);
    for count in COUNTS {
        let location = BatchLocation { session: SESSION, epoch: Epoch(1), first: 1, count };
        let mut records = Vec::new();
        let unpacked = batch_encoding::unpack(location, &body, |record| records.push(record));
        let total_bytes: usize = records.iter().map(|record| record.body.len()).sum();
        assert!(total_bytes <= bytes.len(), "the unpacked records are larger than the input");
        assert!(
            records.iter().zip(1..).all(|(record, seq)| record.seq == seq),
            "positions are consecutive"
        );
        match unpacked.damaged {
            Some(at) => assert_eq!(
                at,
                records.len() as u64 + 1,
                "the damaged position follows the intact records"
            ),
            None => assert_eq!(records.len() as u64, count, "an intact batch has all its records"),
        }
        repack(&records);
    }
}

fn repack(records: &[crate::StoredRecord]) {
    let entries: Vec<EncodedRecord> = records
        .iter()
        .map(|record| {
            let (at, trace, turn) = (record.at, record.trace, record.turn);
            EncodedRecord::from_bytes(at, trace, turn, record.body.clone())
        })
        .collect();
    let (body, _) = batch_encoding::pack(SESSION, 1, chain::seed(SESSION), &entries);
    let count = entries.len() as u64;
    let location = BatchLocation { session: SESSION, epoch: Epoch(1), first: 1, count };
    let unpacked = batch_encoding::unpack(location, &body.into(), |record| {
        let _ = Event::decode(&record.body);
    });
    assert_eq!(unpacked.damaged, None, "a packed batch is intact");
}

/// Packs encoded events into a valid batch, as a seed for a fuzzer.
#[must_use]
pub fn pack(events: &[&[u8]]) -> Vec<u8> {
    let entries: Vec<EncodedRecord> = events
        .iter()
        .map(|body| {
            let at = budao_core::time::Timestamp::from_micros(1_700_000_000_000_000);
            let trace = budao_core::trace::Trace::from_random(5);
            EncodedRecord::from_bytes(at, trace, 1, Bytes::copy_from_slice(body))
        })
        .collect();
    batch_encoding::pack(SESSION, 1, chain::seed(SESSION), &entries).0
}

/// Whether the watermark in `bytes` belongs to the same journal as the watermark `own` and is ahead of it.
///
/// # Panics
/// If `own` is not a valid watermark, or if `bytes` decodes but differs from its own encoding.
#[must_use]
pub fn is_ahead(bytes: &[u8], own: &[u8]) -> bool {
    let id = journal_of(own);
    let seen = watermark::decode(own, id).expect("the own watermark is valid");
    watermark::decode(bytes, id).is_some_and(|mark| {
        assert_eq!(bytes, watermark::encode(mark, id), "a decoded watermark has the same encoding");
        seen.is_behind(mark)
    })
}

/// Encodes a valid watermark for the journal of the watermark `own`, with numbers from `bytes`.
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

fn journal_of(watermark: &[u8]) -> [u8; 16] {
    let id = watermark.get(8..24).and_then(|id| id.try_into().ok());
    id.expect("a watermark names its journal")
}

/// Alters one letter of a batch's first record and makes its checksums right again, but not its digests, like a program
/// that knows the format but not the chain.
///
/// # Panics
/// If the batch is damaged.
#[must_use]
pub fn alter(session: [u8; 16], first: u64, count: u64, body: &[u8]) -> Vec<u8> {
    const TRAILER_BYTES: usize = 36;
    let session = SessionId(Uuid::from_bytes(session));
    let location = BatchLocation { session, epoch: Epoch(1), first, count };
    let mut entries = Vec::new();
    let unpacked = batch_encoding::unpack(location, &Bytes::copy_from_slice(body), |record| {
        let mut event = record.body.to_vec();
        if entries.is_empty() {
            let letter = event.iter_mut().rev().find(|byte| byte.is_ascii_alphanumeric());
            *letter.expect("an event has letters") ^= 1;
        }
        let (at, trace, turn) = (record.at, record.trace, record.turn);
        entries.push(EncodedRecord::from_bytes(at, trace, turn, event.into()));
    });
    let previous = unpacked.previous.expect("the batch is intact");
    let digest = unpacked.digest.expect("the batch is intact");
    let (mut packed, _) = batch_encoding::pack(session, first, previous, &entries);
    packed.truncate(packed.len() - TRAILER_BYTES);
    let last = packed.last_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes));
    let mut hasher = crc32fast::Hasher::new_with_initial(last.expect("a record has a checksum"));
    hasher.update(&digest.0);
    packed.extend_from_slice(&digest.0);
    packed.extend_from_slice(&hasher.finalize().to_le_bytes());
    packed
}
