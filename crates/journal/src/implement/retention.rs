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

/// Returns the last record to remove and the bound that requires it. `weights` are oldest first. Records that the
/// newest snapshot does not cover stay, because the state is folded from them.
#[must_use]
pub fn cut(
    weights: &[RetainedSize],
    covered: Seq,
    retention: &Retention,
    now: Timestamp,
) -> Option<(Seq, GapReason)> {
    let last = weights.last()?;
    let by_age = retention.record_age.and_then(|age| {
        let old = weights.iter().take_while(|weight| now.since(weight.at) > age);
        old.last().map(|weight| (weight.seq, GapReason::Age))
    });
    let by_count = retention.records.and_then(|count| {
        let to = last.seq.saturating_sub(count);
        (to >= weights[0].seq).then_some((to, GapReason::Count))
    });
    let by_bytes = retention.bytes.and_then(|bytes| {
        let mut kept = 0;
        let heavy = weights.iter().rev().find(|weight| {
            kept += weight.bytes;
            kept > bytes
        });
        heavy.map(|weight| (weight.seq, GapReason::Bytes))
    });
    let (to, reason) =
        by_age.into_iter().chain(by_count).chain(by_bytes).max_by_key(|cut| cut.0)?;
    let to = to.min(covered);
    (to >= weights[0].seq).then_some((to, reason))
}
