//! Salvage: the good prefix of every session, from whatever pages are left.
//!
//! Batches name their own place and carry a chained checksum, so they can be put in order without the trees
//! that SQLite keeps around them. Sessions are known from their rows or from the index of their ids.

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
    frame::{self, BatchLocation},
    inspect::regular_file,
    pages::{DatabasePages, PageValue},
};
use crate::contract::StoredRecord;

/// What is left of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvagedSession {
    /// Which.
    pub session: SessionId,
    /// Its incarnation; 0 if its row is lost.
    pub epoch: Epoch,
    /// Consecutive records, each verified.
    pub records: Vec<StoredRecord>,
    /// Batches that were found and could not be joined to these.
    pub unusable: usize,
}

#[derive(Debug, Default)]
struct SalvageIndex {
    /// With the epoch and the last position retention removed, where the row is left.
    sessions: HashMap<i64, (SessionId, Epoch, Seq)>,
    /// By session and first position; several copies of one batch may turn up.
    batches: BTreeMap<(i64, Seq), Vec<(u64, Bytes)>>,
}

/// Reads a journal's pages without SQLite and hands each session's good records to `take`.
///
/// Not for a file that this process has open as a journal: closing a file drops the locks that the same
/// process holds on it elsewhere.
///
/// # Errors
/// Only when the file cannot be read at all.
pub fn salvage(path: &Path, mut take: impl FnMut(SalvagedSession)) -> Result<(), Fault> {
    let path = &regular_file(path, Operation::CheckJournal)?;
    let pages = DatabasePages::open(path)
        .map_err(|error| io_fault(&error, path, Operation::CheckJournal))?;
    let mut found = SalvageIndex::default();
    for number in 1..=pages.count {
        for (rowid, values) in pages.rows(number) {
            found.take(rowid, values);
        }
    }
    let mut sessions: Vec<_> = found.sessions.iter().collect();
    sessions.sort_by_key(|(_, (session, ..))| *session);
    for (key, (session, epoch, removed_to)) in sessions {
        take(join(&found, *key, *session, *epoch, *removed_to));
    }
    Ok(())
}

impl SalvageIndex {
    fn take(&mut self, rowid: i64, mut values: Vec<PageValue>) {
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
            // session: id (kept as the rowid), uuid, epoch, removed_to, why, token, holder, expires, checksum
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
            ] => {
                let epoch = epoch.integer().and_then(|epoch| u32::try_from(epoch).ok());
                let removed_to = removed_to.integer().and_then(|seq| u64::try_from(seq).ok());
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

fn join(
    found: &SalvageIndex,
    key: i64,
    session: SessionId,
    epoch: Epoch,
    removed_to: Seq,
) -> SalvagedSession {
    let mut salvaged = SalvagedSession { session, epoch, records: Vec::new(), unusable: 0 };
    let mut chain: Option<u32> = None;
    let mut next: Option<Seq> = None;
    let mut is_over = false;
    for ((_, first), copies) in found.batches.range((key, 0)..=(key, Seq::MAX)) {
        // Retention may have removed whole batches before the first one, nothing else may.
        let begins_well = next.map_or(*first <= removed_to + 1, |next| next == *first);
        let fits = begins_well && !is_over;
        let best = copies
            .iter()
            .map(|(count, body)| {
                let place = BatchLocation { session, epoch, first: *first, count: *count };
                let mut records = Vec::new();
                let unpacked = frame::unpack(place, body, |record| records.push(record));
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
        chain = Some(unpacked.checksum);
        salvaged.records.extend(records);
    }
    salvaged
}
