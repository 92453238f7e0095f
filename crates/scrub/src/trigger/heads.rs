//! Trigger search in text that grows by short parts: a filter over the first three bytes of every trigger.
//!
//! The places of a text are tested independently of each other, so the processor works on several at once. An
//! automaton would wait for its previous step at every byte, and a short part is too short for parallel walks. About
//! one place of ordinary text in thirty passes the filter; the triggers with such a head are then compared.

use super::Hit;

/// Bytes of a head.
const HEAD: usize = 3;
/// Bits of the hash of a head.
const HASH_BITS: u32 = 16;
/// Hashes that share one list of triggers: a power of two.
const SHARED_BITS: u32 = 4;
const LISTS: usize = 1 << (HASH_BITS - SHARED_BITS);
/// Places that are tested before the triggers at some of them are compared: a power of two.
const PART: usize = 64;
/// The bit that an ASCII letter has in lower case only, in each of eight bytes.
const LOWER: u64 = 0x2020_2020_2020_2020;

/// The triggers by the hash of their heads.
pub(super) struct TriggerHeads {
    /// One bit for each hash that some head has.
    bits: Box<[u64; 1 << (HASH_BITS - 6)]>,
    /// Where each list starts in `entries`, and their end.
    lists: Vec<u32>,
    entries: Vec<Entry>,
    literals: Vec<Box<[u8]>>,
}

/// A trigger in a list.
#[derive(Clone, Copy)]
struct Entry {
    /// The first eight bytes with [`LOWER`] set, and which of them the trigger has.
    word: u64,
    mask: u64,
    trigger: usize,
}

impl Entry {
    fn new(trigger: usize, literal: &[u8]) -> Self {
        let (mut word, mut mask) = ([0; 8], [0; 8]);
        for (index, &byte) in literal.iter().take(8).enumerate() {
            (word[index], mask[index]) = (byte, u8::MAX);
        }
        let mask = u64::from_le_bytes(mask);
        Self { word: (u64::from_le_bytes(word) | LOWER) & mask, mask, trigger }
    }
}

impl TriggerHeads {
    pub(super) fn new(literals: &[String]) -> Self {
        let mut bits = Box::new([0; 1 << (HASH_BITS - 6)]);
        let mut lists = vec![Vec::new(); LISTS];
        for (trigger, literal) in literals.iter().enumerate() {
            let literal = literal.as_bytes();
            for hash in head_hashes(literal) {
                bits[hash >> 6] |= 1 << (hash & 63);
                let list: &mut Vec<Entry> = &mut lists[hash >> SHARED_BITS];
                if list.last().is_none_or(|last| last.trigger != trigger) {
                    list.push(Entry::new(trigger, literal));
                }
            }
        }
        let ends = lists.iter().scan(0, |end, list| {
            *end += list.len();
            u32::try_from(*end).ok()
        });
        Self {
            bits,
            lists: std::iter::once(0).chain(ends).collect(),
            entries: lists.concat(),
            literals: literals.iter().map(|literal| literal.as_bytes().into()).collect(),
        }
    }

    /// Adds every trigger that starts in `bytes[start..end]`, in the order of their starts. The longest trigger that may
    /// start there must be complete.
    pub(super) fn find(&self, bytes: &[u8], start: usize, end: usize, hits: &mut Vec<Hit>) {
        for from in (start..end).step_by(PART) {
            let part = &bytes[from..end.min(from + PART) + HEAD];
            // Every place is written down, and the next one overwrites it unless its head is known. A branch at each place
            // would often be predicted wrongly.
            let (mut places, mut count) = ([0; PART], 0);
            for (offset, word) in part.windows(HEAD + 1).enumerate() {
                let hash = hash(u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
                #[expect(clippy::cast_possible_truncation, reason = "below PART")]
                let place = offset as u8;
                places[count & (PART - 1)] = place;
                count += (self.bits[hash >> 6] >> (hash & 63) & 1) as usize;
            }
            for &offset in &places[..count] {
                self.compare(bytes, from + usize::from(offset), hits);
            }
        }
    }

    fn compare(&self, bytes: &[u8], start: usize, hits: &mut Vec<Hit>) {
        let tail = &bytes[start..];
        let word = tail.first_chunk().map_or(0, |word| u64::from_le_bytes(*word)) | LOWER;
        #[expect(clippy::cast_possible_truncation, reason = "the hash takes the first bytes")]
        let hash = hash(word as u32);
        let list = hash >> SHARED_BITS;
        let list = self.lists[list] as usize..self.lists[list + 1] as usize;
        for entry in &self.entries[list] {
            if (word ^ entry.word) & entry.mask == 0 {
                let literal = &self.literals[entry.trigger];
                let same = |(one, other): (&u8, &u8)| one.eq_ignore_ascii_case(other);
                if literal.iter().zip(tail).all(same) {
                    let end = start + literal.len();
                    hits.push(Hit { trigger: entry.trigger, start, end });
                }
            }
        }
    }
}

/// The hashes of the heads with which a trigger may start: one, or all that begin with its two bytes.
fn head_hashes(literal: &[u8]) -> Vec<usize> {
    let hash_of = |third: u8| hash(u32::from_le_bytes([literal[0], literal[1], third, 0]));
    match literal.get(2) {
        Some(&third) => vec![hash_of(third)],
        None => (0..=u8::MAX).map(hash_of).collect(),
    }
}

/// The hash of the first three bytes of `word`. Equal heads in different cases have the same hash.
#[inline]
fn hash(word: u32) -> usize {
    let head = (word | 0x0020_2020) & 0x00ff_ffff;
    (head.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}
