//! Types that reads return: records, pages, snapshots, digests of stored outputs.

use std::{fmt, str::FromStr, sync::Arc};

use budao_core::{
    event::{Epoch, Event, Record, Seq, SessionId, TurnNumber},
    fault::{Fact, Fault, Kind, Operation},
    limits::Limits,
    time::Timestamp,
    trace::Trace,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The first bytes of pieces of a stream.
const DELTA_PREFIXES: [&[u8]; 3] =
    [b"{\"text_delta\"", b"{\"thinking_delta\"", b"{\"tool_output_delta\""];

/// A record with its event still encoded, so that it can be forwarded without decoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// The session that the record belongs to.
    pub session: SessionId,
    /// The epoch of the history that the record belongs to.
    pub epoch: Epoch,
    /// The position in the session, from 1.
    pub seq: Seq,
    /// When the event happened, by the writer's clock.
    pub at: Timestamp,
    /// The trace of the turn that the record belongs to.
    pub trace: Trace,
    /// The turn that the record belongs to, 0 for none.
    pub turn: TurnNumber,
    /// The event as JSON.
    pub body: Bytes,
    /// The decoded event, if this process appended the record recently; [`CachedEvent::default`] otherwise.
    pub cached_event: CachedEvent,
}

/// The decoded form of a record's bytes, cached by the process that appended it. Comparisons ignore it.
#[derive(Clone, Debug, Default)]
pub struct CachedEvent(Option<Arc<Event>>);

impl CachedEvent {
    /// Caches an event as it was appended. An event with a fault is never cached: several forms of a fault's facts
    /// decode to the same form.
    #[must_use]
    pub fn of(event: &Arc<Event>) -> Self {
        Self(event.fault().is_none().then(|| Arc::clone(event)))
    }
}

impl PartialEq for CachedEvent {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for CachedEvent {}

impl StoredRecord {
    /// The event, without a copy if this process appended it recently.
    ///
    /// # Errors
    /// `journal_damaged` when this version cannot decode the bytes.
    pub fn shared_event(&self) -> Result<Arc<Event>, Fault> {
        match &self.cached_event.0 {
            Some(event) => Ok(Arc::clone(event)),
            None => self.decode().map(Arc::new),
        }
    }

    /// The decoded event, as a copy of its own.
    ///
    /// # Errors
    /// `journal_damaged` when this version cannot decode the bytes.
    pub fn event(&self) -> Result<Event, Fault> {
        match &self.cached_event.0 {
            Some(event) => Ok(Event::clone(event)),
            None => self.decode(),
        }
    }

    /// Whether the record is a piece of streamed text, thinking or output of a tool. Those are most of the records, and
    /// this needs no decoding.
    #[must_use]
    pub fn is_delta(&self) -> bool {
        DELTA_PREFIXES.iter().any(|prefix| self.body.starts_with(prefix))
    }

    fn decode(&self) -> Result<Event, Fault> {
        Event::decode(&self.body).map_err(|error| {
            Fault::new(Kind::JournalDamaged, Operation::ReadRecords)
                .with(Fact::Session, self.session.to_string())
                .with(Fact::FromSeq, self.seq)
                .caused_by(&error)
        })
    }

    /// The record without its cached event, as a read from disk returns it.
    #[must_use]
    pub fn without_cached_event(mut self) -> Self {
        self.cached_event = CachedEvent::default();
        self
    }

    /// The record with its event decoded.
    ///
    /// # Errors
    /// `journal_damaged` when this version cannot decode the bytes.
    pub fn record(&self) -> Result<Record, Fault> {
        Ok(Record {
            session: self.session,
            epoch: self.epoch,
            seq: self.seq,
            at: self.at,
            trace: self.trace,
            turn: self.turn,
            event: self.event()?,
        })
    }
}

/// Size limits of one page. One record is always allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// The largest number of records.
    pub records: usize,
    /// The largest sum of encoded event sizes, in bytes.
    pub bytes: usize,
}

impl Default for PageLimits {
    fn default() -> Self {
        Self { records: Limits::default().page_records, bytes: 8 << 20 }
    }
}

/// A part of a history, as [`crate::Reader::read`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Consecutive records, oldest first.
    pub records: Vec<StoredRecord>,
    /// The epoch of the history.
    pub epoch: Epoch,
    /// The last position of the session at the time of the read.
    pub head: Seq,
    /// The oldest position still kept; head + 1 when no record is kept.
    pub first_available: Seq,
    /// Requested records that retention has removed.
    pub gap: Option<Gap>,
}

/// A range of removed records, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The first missing position.
    pub from: Seq,
    /// The last missing position.
    pub to: Seq,
    /// The bound that removed the last record of the range.
    pub reason: GapReason,
}

/// The retention bound that removed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapReason {
    /// [`crate::Retention::record_age`] was exceeded.
    Age,
    /// [`crate::Retention::records`] was exceeded.
    Count,
    /// [`crate::Retention::bytes`] was exceeded.
    Bytes,
}

impl GapReason {
    /// The name on disk and on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Count => "count",
            Self::Bytes => "bytes",
        }
    }

    /// The reason with this name; `None` for another text.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Age, Self::Count, Self::Bytes].into_iter().find(|reason| reason.as_str() == name)
    }
}

/// A session's state, and the position it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The last record that the state includes.
    pub seq: Seq,
    /// The state, a `Session` as JSON.
    pub body: Bytes,
}

/// The epoch, positions and lease of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryInfo {
    /// The epoch of the history.
    pub epoch: Epoch,
    /// The last position, 0 for none.
    pub head: Seq,
    /// The oldest position still kept; head + 1 when no record is kept.
    pub first_available: Seq,
    /// The holder and expiry of the lease; `None` if no lease is valid.
    pub lease: Option<LeaseInfo>,
}

/// The holder and expiry of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// The holder's name from its [`crate::LeaseRequest`].
    pub holder: String,
    /// From this time on another holder may take the lease.
    pub expires: Timestamp,
}

/// A SHA-256: names a stored output or a once-key, or is the digest of a session's chain at a position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Computes the digest of `content`.
    #[must_use]
    pub fn of(content: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(content).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| serde::de::Error::custom("expected 64 hex digits"))
    }
}

impl FromStr for Digest {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let wrong = || {
            Fault::new(Kind::BadRequest, Operation::ReadBlob)
                .with(Fact::Blob, text.chars().take(80).collect::<String>())
                .with(Fact::Expected, "64 hex digits")
        };
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut digest = [0; 32];
        for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(digest))
    }
}

#[cfg(test)]
mod tests {
    use budao_core::message::CallId;

    use super::*;

    #[test]
    fn pieces_of_a_stream_are_recognised_without_decoding() {
        let text = || "a".to_owned();
        let call = CallId::from("c");
        let pieces = [
            Event::TextDelta { step: 1, text: text() },
            Event::ThinkingDelta { step: 1, text: text() },
            Event::ToolOutputDelta { call, text: text() },
        ];
        let others = [
            Event::Annotated { topic: "text_delta".into(), data: serde_json::Value::Null },
            Event::PipelineEnded { complete: true },
        ];
        let is_delta = |event: &Event| {
            let body = Bytes::from(event.encode());
            let (session, epoch, seq, turn) = (SessionId(uuid::Uuid::nil()), Epoch(1), 1, 1);
            let (at, trace) = (Timestamp::default(), Trace::NONE);
            let cached_event = CachedEvent::default();
            let record = StoredRecord { session, epoch, seq, at, trace, turn, body, cached_event };
            record.is_delta()
        };
        assert!(pieces.iter().all(is_delta));
        assert!(!others.iter().any(is_delta));
    }
}
