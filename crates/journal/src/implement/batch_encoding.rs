//! The encoding of records in a batch: packed, each with a checksum that depends on all records before it.
//!
//! ```text
//! batch   = version:u8  previous:32  record…  digest:32  checksum:u32
//! record  = length:varint  flags:u8  at:zigzag-varint  [turn:varint]  [trace:16]  event  checksum:u32
//! ```
//!
//! `at` is the difference to the previous record in the batch, in microseconds. Turn and trace are written where they
//! change. The checksum is a CRC-32 chained from record to record; the first also covers `previous`, session, position
//! and count, so that every read finds an altered, dropped, swapped or moved record. `previous` and `digest` are the
//! hash chain ([`super::chain`]) before and after the batch; only a verification computes it again.

use budao_core::{
    event::{Epoch, Seq, SessionId},
    time::Timestamp,
    trace::Trace,
};
use bytes::Bytes;

use super::encoded::EncodedRecord;
use crate::contract::{CachedEvent, Digest, StoredRecord};

const VERSION: u8 = 2;
const HEADER_BYTES: usize = 33;
const TRAILER_BYTES: usize = 36;
const HAS_TURN: u8 = 1;
const HAS_TRACE: u8 = 2;

fn extend_checksum(checksum: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(checksum);
    hasher.update(bytes);
    hasher.finalize()
}

fn seed_checksum(previous: Digest, session: SessionId, first: Seq, count: u64) -> u32 {
    let mut location = [0; 64];
    location[..16].copy_from_slice(session.0.as_bytes());
    location[16..24].copy_from_slice(&first.to_le_bytes());
    location[24..32].copy_from_slice(&count.to_le_bytes());
    location[32..].copy_from_slice(&previous.0);
    crc32fast::hash(&location)
}

/// Packs a batch. Returns its bytes and the digest that the next batch continues.
#[must_use]
pub fn pack(
    session: SessionId,
    first: Seq,
    previous: Digest,
    entries: &[EncodedRecord],
) -> (Vec<u8>, Digest) {
    let size: usize = entries.iter().map(|entry| entry.body.len() + 40).sum();
    let mut out = Vec::with_capacity(HEADER_BYTES + size + TRAILER_BYTES);
    out.push(VERSION);
    out.extend_from_slice(&previous.0);
    let mut checksum = seed_checksum(previous, session, first, entries.len() as u64);
    let mut digest = previous;
    let (mut at, mut turn, mut trace) = (0, 0, Trace::NONE);
    for (seq, entry) in (first..).zip(entries) {
        let start = out.len();
        put_varint(&mut out, entry.body.len() as u64);
        let has_turn = entry.turn != turn;
        let has_trace = entry.trace != trace;
        out.push((u8::from(has_turn) * HAS_TURN) | (u8::from(has_trace) * HAS_TRACE));
        put_varint(&mut out, zigzag(entry.at.as_micros().wrapping_sub(at)));
        if has_turn {
            put_varint(&mut out, entry.turn);
        }
        if has_trace {
            out.extend_from_slice(&entry.trace.as_u128().to_le_bytes());
        }
        out.extend_from_slice(&entry.body);
        checksum = extend_checksum(checksum, &out[start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
        digest = entry.digest_after(digest, seq);
        (at, turn, trace) = (entry.at.as_micros(), entry.turn, entry.trace);
    }
    out.extend_from_slice(&digest.0);
    out.extend_from_slice(&extend_checksum(checksum, &digest.0).to_le_bytes());
    (out, digest)
}

/// The session and positions that a batch's row states.
#[derive(Clone, Copy, Debug)]
pub struct BatchLocation {
    /// The session that the batch belongs to.
    pub session: SessionId,
    /// The epoch of its history.
    pub epoch: Epoch,
    /// The position of its first record.
    pub first: Seq,
    /// The number of its records.
    pub count: u64,
}

/// The result of unpacking a batch.
#[derive(Debug)]
pub struct UnpackedBatch {
    /// The digest that the batch says it continues; `None` if it is unreadable.
    pub previous: Option<Digest>,
    /// The digest that the next batch must continue, as stored; `None` if it is unreadable.
    pub digest: Option<Digest>,
    /// The first damaged record; `None` if all are intact.
    pub damaged: Option<Seq>,
}

/// Unpacks a batch and passes each record before the first damage to `take`.
pub fn unpack(
    location: BatchLocation,
    body: &Bytes,
    mut take: impl FnMut(StoredRecord),
) -> UnpackedBatch {
    let bytes: &[u8] = body;
    let damaged_at = |seq, previous| UnpackedBatch { previous, digest: None, damaged: Some(seq) };
    let Some((&[VERSION, ref previous @ ..], _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return damaged_at(location.first, None);
    };
    let previous = Digest(*previous);
    let mut checksum = seed_checksum(previous, location.session, location.first, location.count);
    let mut state = DeltaState { at: 0, turn: 0, trace: Trace::NONE };
    let mut offset = HEADER_BYTES;
    let end = location.first.saturating_add(location.count);
    for seq in location.first..end {
        let Some(record) = read_record(bytes, offset, checksum, &mut state) else {
            return damaged_at(seq, Some(previous));
        };
        take(StoredRecord {
            session: location.session,
            epoch: location.epoch,
            seq,
            at: Timestamp::from_micros(state.at),
            trace: state.trace,
            turn: state.turn,
            body: body.slice(record.start..record.end),
            cached_event: CachedEvent::default(),
        });
        checksum = record.checksum;
        offset = record.end + 4;
    }
    match stored_digest(&bytes[offset..], checksum) {
        None => damaged_at(end, Some(previous)),
        digest => UnpackedBatch { previous: Some(previous), digest, damaged: None },
    }
}

/// The digest at the end of a batch; `None` if it is altered or bytes follow it.
fn stored_digest(trailer: &[u8], checksum: u32) -> Option<Digest> {
    let trailer: &[u8; TRAILER_BYTES] = trailer.try_into().ok()?;
    let (digest, sum) = trailer.split_last_chunk::<4>()?;
    let is_intact = extend_checksum(checksum, digest) == u32::from_le_bytes(*sum);
    is_intact.then(|| digest.try_into().ok().map(Digest)).flatten()
}

struct DeltaState {
    at: i64,
    turn: u64,
    trace: Trace,
}

struct RecordSpan {
    start: usize,
    end: usize,
    checksum: u32,
}

fn read_record(
    bytes: &[u8],
    offset: usize,
    checksum: u32,
    state: &mut DeltaState,
) -> Option<RecordSpan> {
    let mut at = offset;
    let length = usize::try_from(take_varint(bytes, &mut at)?).ok()?;
    let flags = *bytes.get(at)?;
    at += 1;
    let moment = state.at.wrapping_add(unzigzag(take_varint(bytes, &mut at)?));
    let turn = if flags & HAS_TURN == 0 { state.turn } else { take_varint(bytes, &mut at)? };
    let trace = if flags & HAS_TRACE == 0 {
        state.trace
    } else {
        let id = bytes.get(at..at.checked_add(16)?)?.try_into().ok()?;
        at += 16;
        match u128::from_le_bytes(id) {
            0 => Trace::NONE,
            id => Trace::from_random(id),
        }
    };
    let end = at.checked_add(length)?;
    let sum = bytes.get(end..end.checked_add(4)?)?.try_into().ok()?;
    let found = extend_checksum(checksum, &bytes[offset..end]);
    if found != u32::from_le_bytes(sum) {
        return None;
    }
    *state = DeltaState { at: moment, turn, trace };
    Some(RecordSpan { start: at, end, checksum: found })
}

const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

const fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "seven bits at a time")]
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 0x80")]
    out.push(number as u8);
}

fn take_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
#[allow(clippy::print_stderr, reason = "how many were tried is part of the result")]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    const SESSION: SessionId = SessionId(Uuid::from_u128(7));
    const BEFORE: Digest = Digest([9; 32]);

    fn location(first: Seq, count: u64) -> BatchLocation {
        BatchLocation { session: SESSION, epoch: Epoch(1), first, count }
    }

    fn entry(at: i64, trace: u128, turn: u64, body: &[u8]) -> EncodedRecord {
        let trace = if trace == 0 { Trace::NONE } else { Trace::from_random(trace) };
        let (at, body) = (Timestamp::from_micros(at), Bytes::copy_from_slice(body));
        EncodedRecord::from_bytes(at, trace, turn, body)
    }

    fn sample() -> Vec<EncodedRecord> {
        vec![
            entry(1_700_000_000_000_000, 5, 1, b"one"),
            entry(1_700_000_000_000_000, 5, 1, b"two and more"),
            entry(1_600_000_000_000_000, 0, 2, b""),
        ]
    }

    /// Goal: no altered bit of a batch is believed. Method: every bit of batches of growing records, three thousand in
    /// all; with `BUDAO_FULL` a million.
    #[test]
    fn a_flip_of_any_bit_is_noticed_and_the_records_before_it_are_good() {
        let count = if std::env::var_os("BUDAO_FULL").is_some() { 1_000_000 } else { 3_000 };
        let mut tried = 0;
        for size in 0.. {
            let mut entries = sample();
            entries[1].body = vec![b'x'; 13 * size].into();
            tried += flip_every_bit(&entries);
            if tried >= count {
                break;
            }
        }
        eprintln!("security T9: {tried} bits of batches altered, one at a time");
    }

    fn flip_every_bit(entries: &[EncodedRecord]) -> usize {
        let (good, _) = pack(SESSION, 4, BEFORE, entries);
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let mut seen = 0;
            let unpacked = unpack(location(4, 3), &bad.into(), |record| {
                assert_eq!(record.body, entries[seen].body, "bit {bit}");
                seen += 1;
            });
            assert_eq!(unpacked.damaged, Some(4 + seen as u64), "bit {bit}");
        }
        good.len() * 8
    }

    #[test]
    fn a_cut_at_any_byte_is_noticed() {
        let (good, _) = pack(SESSION, 4, BEFORE, &sample());
        for cut in 0..good.len() {
            let unpacked = unpack(location(4, 3), &Bytes::copy_from_slice(&good[..cut]), drop);
            assert!(unpacked.damaged.is_some(), "cut at {cut}");
        }
    }

    #[test]
    fn bytes_behind_the_last_record_are_noticed() {
        let (mut body, _) = pack(SESSION, 4, BEFORE, &sample());
        body.push(0);
        let mut seen = 0;
        let unpacked = unpack(location(4, 3), &body.into(), |_| seen += 1);
        assert_eq!((seen, unpacked.damaged), (3, Some(7)));
    }

    #[test]
    fn an_unterminated_number_is_refused() {
        assert_eq!(take_varint(&[0x80; 20], &mut 0), None);
        let mut most = Vec::new();
        put_varint(&mut most, u64::MAX);
        assert_eq!(take_varint(&most, &mut 0), Some(u64::MAX));
    }

    #[test]
    fn a_batch_at_another_place_is_noticed() {
        let (body, _) = pack(SESSION, 4, BEFORE, &sample());
        let other = SessionId(Uuid::from_u128(8));
        for wrong in
            [location(5, 3), location(4, 2), BatchLocation { session: other, ..location(4, 3) }]
        {
            let unpacked = unpack(wrong, &body.clone().into(), drop);
            assert_eq!(unpacked.damaged, Some(wrong.first), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn a_batch_survives_encoding_and_decoding(
            entries in prop::collection::vec(
                (any::<i64>(), any::<u128>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..300)),
                1..20,
            ),
            previous in any::<[u8; 32]>(),
        ) {
            let entries: Vec<EncodedRecord> = entries
                .iter()
                .map(|(at, trace, turn, body)| entry(*at, *trace, *turn, body))
                .collect();
            let previous = Digest(previous);
            let (body, digest) = pack(SESSION, 1, previous, &entries);
            let mut records = Vec::new();
            let count = entries.len() as u64;
            let unpacked = unpack(location(1, count), &body.into(), |record| records.push(record));
            prop_assert_eq!(unpacked.damaged, None);
            prop_assert_eq!(unpacked.previous, Some(previous));
            prop_assert_eq!(unpacked.digest, Some(digest));
            let folded = records.iter().fold(previous, |before, record| record.digest_after(before));
            prop_assert_eq!(folded, digest);
            for (record, entry) in records.iter().zip(&entries) {
                prop_assert_eq!(
                    (record.at, record.trace, record.turn, &record.body[..]),
                    (entry.at, entry.trace, entry.turn, &entry.body[..])
                );
            }
        }
    }
}
