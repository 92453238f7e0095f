//! Retention as pure functions: up to which position a session's records are removed, the snapshot that has to cover
//! them, and the remains of the commands that caused them.

use budao_core::{
    event::{Answer, Command, CommandBody, Seq},
    session::Session,
    time::Timestamp,
};

use crate::contract::{Digest, GapReason, Retention, StoredRecord};

/// The topic that stands for the content of a command that retention removed.
pub const REMOVED_TOPIC: &str = "journal.removed";

/// The properties of a record that retention bounds refer to.
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
pub fn find_removal_end(
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

/// A session's state at its last record, for a snapshot that lets retention remove what is before it. `None` if the
/// records do not continue the snapshot, or one of them cannot be decoded.
#[must_use]
pub fn state_at_head<'a>(
    snapshot: Option<(Seq, &[u8])>,
    records: impl IntoIterator<Item = &'a StoredRecord>,
) -> Option<Session> {
    let usable = snapshot.and_then(|(seq, body)| {
        let state: Session = serde_json::from_slice(body).ok()?;
        (state.head == seq).then_some(state)
    });
    let mut state = usable.unwrap_or_default();
    for record in records {
        if record.seq <= state.head {
            continue;
        }
        if record.seq != state.head + 1 {
            return None;
        }
        state.apply(&record.event().ok()?, record.at, record.trace);
    }
    Some(state)
}

/// Whether retention removes the content of an answered command, once the records up to `to` are removed.
#[must_use]
pub fn removes_content(answer: &Answer, to: Seq) -> bool {
    match answer {
        Answer::Accepted { at } => *at < to,
        Answer::Rejected { .. } => true,
    }
}

/// Replaces the content of a command by its digest, by which a repetition is still recognised.
#[must_use]
pub fn strip_content(command: &Command) -> Command {
    Command { body: content_digest(&command.body), ..command.clone() }
}

/// Whether a repeated command has the same content as the stored one, whose content may be reduced to a digest.
#[must_use]
pub fn is_same_request(stored: &CommandBody, repeated: &CommandBody) -> bool {
    stored == repeated || (is_removed(stored) && *stored == content_digest(repeated))
}

fn is_removed(body: &CommandBody) -> bool {
    matches!(body, CommandBody::Annotate { topic, .. } if topic == REMOVED_TOPIC)
}

fn content_digest(body: &CommandBody) -> CommandBody {
    if is_removed(body) {
        return body.clone();
    }
    // `Value` sorts the keys, so the digest does not depend on the sender's order.
    let json = serde_json::to_value(body).unwrap_or_default().to_string();
    let data = Digest::of(json.as_bytes()).to_string().into();
    CommandBody::Annotate { topic: REMOVED_TOPIC.to_owned(), data }
}
