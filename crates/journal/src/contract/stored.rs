//! What is read: records, pages, snapshots, kept outputs.

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

/// A record as it is kept. Its event can be forwarded without being decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Whose.
    pub session: SessionId,
    /// Of which incarnation.
    pub epoch: Epoch,
    /// Where.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// The trace it belongs to.
    pub trace: Trace,
    /// The turn it belongs to, 0 for none.
    pub turn: TurnNumber,
    /// The event, encoded.
    pub body: Bytes,
    /// The event itself, while it has only just been recorded by this process.
    pub(crate) fresh: CachedEvent,
}

/// An event that need not be decoded. Says nothing the bytes do not say, so it makes no difference.
#[derive(Clone, Debug, Default)]
pub(crate) struct CachedEvent(Option<Arc<Event>>);

impl CachedEvent {
    /// Of an event as it was handed in. A fault's facts may have several forms that read back as one, so an
    /// event with a fault is decoded always.
    pub(crate) fn of(event: &Arc<Event>) -> Self {
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
    /// What happened, without a copy if it has only just happened.
    ///
    /// # Errors
    /// `journal_damaged` when the bytes are no event this version knows.
    pub fn shared_event(&self) -> Result<Arc<Event>, Fault> {
        match &self.fresh.0 {
            Some(event) => Ok(Arc::clone(event)),
            None => self.decoded().map(Arc::new),
        }
    }

    /// What happened.
    ///
    /// # Errors
    /// `journal_damaged` when the bytes are no event this version knows.
    pub fn event(&self) -> Result<Event, Fault> {
        match &self.fresh.0 {
            Some(event) => Ok(Event::clone(event)),
            None => self.decoded(),
        }
    }

    fn decoded(&self) -> Result<Event, Fault> {
        Event::decode(&self.body).map_err(|error| {
            Fault::new(Kind::JournalDamaged, Operation::ReadRecords)
                .with(Fact::Session, self.session.to_string())
                .with(Fact::FromSeq, self.seq)
                .caused_by(&error)
        })
    }

    /// As it is kept: bytes alone.
    pub(crate) fn settled(mut self) -> Self {
        self.fresh = CachedEvent::default();
        self
    }

    /// The record.
    ///
    /// # Errors
    /// `journal_damaged` when the bytes are no event this version knows.
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

/// How much one page may hold. One record is always allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimits {
    /// Records.
    pub records: usize,
    /// Bytes of their events.
    pub bytes: usize,
}

impl Default for PageLimits {
    fn default() -> Self {
        Self { records: Limits::default().page_records, bytes: 8 << 20 }
    }
}

/// Part of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Consecutive, oldest first.
    pub records: Vec<StoredRecord>,
    /// The history's incarnation.
    pub epoch: Epoch,
    /// The last position there is.
    pub head: Seq,
    /// The first position still kept; one more than the head when none is.
    pub first_available: Seq,
    /// What was asked for and is gone.
    pub gap: Option<Gap>,
}

/// Records that were removed, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The first missing position.
    pub from: Seq,
    /// The last missing position.
    pub to: Seq,
    /// Which bound removed the last of them.
    pub reason: GapReason,
}

/// The bound that removed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GapReason {
    /// They were too old.
    Age,
    /// There were too many.
    Count,
    /// They took too much room.
    Bytes,
}

impl GapReason {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Count => "count",
            Self::Bytes => "bytes",
        }
    }
}

/// A session's state, as its owner wrote it, and the position it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// It holds everything up to and including this record.
    pub seq: Seq,
    /// The state.
    pub body: Bytes,
}

/// Where a session stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryInfo {
    /// The history's incarnation.
    pub epoch: Epoch,
    /// The last position.
    pub head: Seq,
    /// The first position still kept; one more than the head when none is.
    pub first_available: Seq,
    /// Who writes it.
    pub lease: Option<LeaseInfo>,
}

/// Who writes a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// Who.
    pub holder: String,
    /// From then on others may take it.
    pub expires: Timestamp,
}

/// Names content by its SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of this content.
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
