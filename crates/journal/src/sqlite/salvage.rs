//! Salvage: recovers the intact prefix of every session from the remaining pages.
//!
//! A batch holds its own position and a chained checksum, so batches can be ordered without SQLite's trees. Sessions
//! are found by their rows or by the index of their ids.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use budao_core::{
    event::{Epoch, Seq, SessionId},
    fault::{Fault, Operation},
};
use bytes::Bytes;
use uuid::Uuid;

use super::{
    errors::io_fault,
    inspect::regular_file,
    pages::{DatabasePages, PageValue},
};
use crate::{
    contract::{Digest, StoredRecord},
    implement::batch_encoding::{self, BatchLocation},
};

/// The recovered part of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvagedSession {
    /// The id of the session.
    pub session: SessionId,
    /// The epoch of the history; 0 if the session's row is lost.
    pub epoch: Epoch,
    /// Consecutive records with valid checksums.
    pub records: Vec<StoredRecord>,
    /// The number of intact batches that do not continue these records.
    pub unusable: usize,
}

#[derive(Debug, Default)]
struct SalvageIndex {
    /// By row key: the id, the epoch and the last position that retention removed. The last two are 0 without a row.
    sessions: HashMap<i64, (SessionId, Epoch, Seq)>,
    /// By session and first position. Several copies of one batch may exist.
    batches: BTreeMap<(i64, Seq), Vec<(u64, Bytes)>>,
}

/// Reads a journal's pages without SQLite and passes each session's intact records to `take`.
///
/// Not for a file that this process has open as a journal: closing the file would drop the locks that the process holds
/// on it.
///
/// # Errors
/// Only when the file cannot be read at all.
pub fn salvage(path: &Path, mut take: impl FnMut(SalvagedSession)) -> Result<(), Fault> {
    let path = &regular_file(path, Operation::CheckJournal)?;
    let pages = DatabasePages::open(path)
        .map_err(|error| io_fault(&error, path, Operation::CheckJournal))?;
    let mut found = SalvageIndex::default();
    for number in 1..=pages.count {
        for (rowid, values) in pages.read_rows(number) {
            found.add_row(rowid, values);
        }
    }
    let mut sessions: Vec<_> = found.sessions.iter().collect();
    sessions.sort_by_key(|(_, (session, ..))| *session);
    for (key, (session, epoch, removed_to)) in sessions {
        take(join_batches(&found, *key, *session, *epoch, *removed_to));
    }
    Ok(())
}

impl SalvageIndex {
    fn add_row(&mut self, rowid: i64, mut values: Vec<PageValue>) {
        match values.as_mut_slice() {
            // batch: batch_id (kept as the rowid), session, first, count, body
            [
                PageValue::Null,
                PageValue::Integer(session),
                PageValue::Integer(first),
                PageValue::Integer(count),
                PageValue::Blob(body),
            ] => {
                let (Ok(first), Ok(count)) = (u64::try_from(*first), u64::try_from(*count)) else {
                    return;
                };
                let body = Bytes::from(std::mem::take(body));
                self.batches.entry((*session, first)).or_default().push((count, body));
            }
            // session: id (kept as the rowid), uuid, epoch, removed_to, removed_reason, token, holder, expires,
            // checksum, removed_digest, known_end_seq, known_end_digest
            [
                PageValue::Null,
                PageValue::Blob(uuid),
                epoch,
                removed_to,
                _,
                _,
                PageValue::Text(_),
                _,
                _,
                _,
                _,
                _,
            ] => {
                let epoch = epoch.as_integer().and_then(|epoch| u32::try_from(epoch).ok());
                let removed_to = removed_to.as_integer().and_then(|seq| u64::try_from(seq).ok());
                if let (Ok(uuid), Some(epoch), Some(removed_to)) =
                    (Uuid::from_slice(uuid), epoch, removed_to)
                {
                    self.sessions.insert(rowid, (SessionId(uuid), Epoch(epoch), removed_to));
                }
            }
            // the index of session ids
            [PageValue::Blob(uuid), PageValue::Integer(key)] => {
                if let Ok(uuid) = Uuid::from_slice(uuid) {
                    self.sessions.entry(*key).or_insert((SessionId(uuid), Epoch(0), 0));
                }
            }
            _ => {}
        }
    }
}

fn join_batches(
    found: &SalvageIndex,
    key: i64,
    session: SessionId,
    epoch: Epoch,
    removed_to: Seq,
) -> SalvagedSession {
    let mut salvaged = SalvagedSession { session, epoch, records: Vec::new(), unusable: 0 };
    let mut chain: Option<Digest> = None;
    let mut next: Option<Seq> = None;
    let mut is_over = false;
    for ((_, first), copies) in found.batches.range((key, 0)..=(key, Seq::MAX)) {
        // Retention removes whole batches from the front; any other gap is damage.
        let is_contiguous = next.map_or(*first <= removed_to + 1, |next| next == *first);
        let fits = is_contiguous && !is_over;
        let best = copies
            .iter()
            .map(|(count, body)| {
                let location = BatchLocation { session, epoch, first: *first, count: *count };
                let mut records = Vec::new();
                let unpacked =
                    batch_encoding::unpack(location, body, |record| records.push(record));
                (records, unpacked)
            })
            .filter(|(_, unpacked)| chain.is_none() || unpacked.previous == chain)
            .max_by_key(|(records, _)| records.len());
        let Some((records, unpacked)) = best.filter(|_| fits) else {
            salvaged.unusable += 1;
            is_over = true;
            continue;
        };
        is_over = unpacked.damaged.is_some();
        salvaged.unusable += usize::from(records.is_empty());
        next = Some(first + records.len() as u64);
        chain = unpacked.digest;
        salvaged.records.extend(records);
    }
    salvaged
}
