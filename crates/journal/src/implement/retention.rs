//! Retention as a pure function: computes up to which position a session's records are removed.

use budao_core::{event::Seq, time::Timestamp};

use crate::contract::{GapReason, Retention};

/// The position, time and size of a record, which retention decides by.
#[derive(Clone, Copy, Debug)]
pub struct RetainedSize {
    /// The position in the session.
    pub seq: Seq,
    /// When the event happened.
    pub at: Timestamp,
    /// The size of the encoded event.
    pub bytes: u64,
}

/// Returns the last record to remove and the bound that requires it. `sizes` are oldest first. Records that the
/// newest snapshot does not cover stay, because the state is folded from them.
#[must_use]
pub fn cut(
    sizes: &[RetainedSize],
    covered: Seq,
    retention: &Retention,
    now: Timestamp,
) -> Option<(Seq, GapReason)> {
    let last = sizes.last()?;
    let by_age = retention.record_age.and_then(|age| {
        let old = sizes.iter().take_while(|size| now.since(size.at) > age);
        old.last().map(|size| (size.seq, GapReason::Age))
    });
    let by_count = retention.records.and_then(|count| {
        let to = last.seq.saturating_sub(count);
        (to >= sizes[0].seq).then_some((to, GapReason::Count))
    });
    let by_bytes = retention.bytes.and_then(|bytes| {
        let mut kept = 0;
        let heavy = sizes.iter().rev().find(|size| {
            kept += size.bytes;
            kept > bytes
        });
        heavy.map(|size| (size.seq, GapReason::Bytes))
    });
    let (to, reason) =
        by_age.into_iter().chain(by_count).chain(by_bytes).max_by_key(|cut| cut.0)?;
    let to = to.min(covered);
    (to >= sizes[0].seq).then_some((to, reason))
}
