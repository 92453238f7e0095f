//! The formats of an observation: frames of the native protocol, or the records themselves.
//!
//! A front end's protocol yields several events for one record, and its events depend on where its stream began. So
//! such a stream takes records from the hub and projects them itself.

use budao_core::{
    Fault, Kind, Lang, Record, Timestamp,
    event::{Epoch, Seq, SessionId, TurnNumber},
    fault::Operation,
    session::Session,
    trace::Trace,
};
use budao_journal::StoredRecord;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{frame::Frame, outbox::EncodedFrame, project::Projector};

/// The format in which an observer receives a session. Observers with the same format share a hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ObserverFormat {
    /// Frames in this language; `None` is the session's own.
    Frames(Option<Lang>),
    /// Each record as JSON.
    Records,
}

impl ObserverFormat {
    /// Every format, in a fixed order.
    pub(crate) const ALL: [Self; 4] = [
        Self::Frames(None),
        Self::Frames(Some(Lang::En)),
        Self::Frames(Some(Lang::Zh)),
        Self::Records,
    ];

    /// The language that an observer asked for.
    pub(crate) fn language(self) -> Option<Lang> {
        match self {
            Self::Frames(language) => language,
            Self::Records => None,
        }
    }

    /// Encodes the records after `cursor`. `state` is the fold of the records up to it.
    pub(crate) fn encoder(self, state: &Session, cursor: Seq) -> RecordEncoder {
        match self {
            Self::Records => RecordEncoder::Records { last: cursor },
            Self::Frames(language) => {
                let projector = Projector::new(state, cursor);
                let projector = match language {
                    Some(language) => projector.with_language(language),
                    None => projector,
                };
                RecordEncoder::Frames(Box::new(projector))
            }
        }
    }
}

/// Encodes the records of one session for observers of one format.
#[derive(Clone, Debug)]
pub(crate) enum RecordEncoder {
    /// As frames of the native protocol.
    Frames(Box<Projector>),
    /// As JSON of the records.
    Records {
        /// The position of the last record.
        last: Seq,
    },
}

impl RecordEncoder {
    /// Encodes a record. A record that cannot be decoded is logged and skipped.
    pub(crate) fn encode_or_skip(&mut self, stored: &StoredRecord) -> Option<EncodedFrame> {
        match self {
            Self::Frames(projector) => projector.encode_or_skip(stored),
            Self::Records { last } => {
                *last = stored.seq;
                let encoded = encode_record(stored);
                if encoded.is_none() {
                    tracing::error!(session = %stored.session, seq = stored.seq, "skipping record");
                }
                encoded
            }
        }
    }

    /// The position of the last frame or record.
    pub(crate) fn last(&self) -> Seq {
        match self {
            Self::Frames(projector) => projector.last(),
            Self::Records { last } => *last,
        }
    }

    /// The language of the frames; it changes with the session's settings. Records have none.
    pub(crate) fn language(&self) -> Option<Lang> {
        match self {
            Self::Frames(projector) => Some(projector.language()),
            Self::Records { .. } => None,
        }
    }

    /// The open questions as frames; observers of records have them in their records.
    pub(crate) fn open_questions(&self, session: SessionId, at: Timestamp) -> Vec<Frame> {
        match self {
            Self::Frames(projector) => projector.open_questions(session, at),
            Self::Records { .. } => Vec::new(),
        }
    }

    /// True if the open questions may have changed since the last call.
    pub(crate) fn take_questions_changed(&mut self) -> bool {
        match self {
            Self::Frames(projector) => projector.take_questions_changed(),
            Self::Records { .. } => false,
        }
    }

    /// Drops cached data of an idle session.
    pub(crate) fn release_template(&mut self) {
        if let Self::Frames(projector) = self {
            projector.release_template();
        }
    }
}

/// A record as the JSON that [`Record`] is read from.
#[derive(Serialize)]
struct RecordJson<'a> {
    session: SessionId,
    epoch: Epoch,
    seq: Seq,
    at: Timestamp,
    trace: Trace,
    turn: TurnNumber,
    event: &'a RawValue,
}

fn encode_record(stored: &StoredRecord) -> Option<EncodedFrame> {
    let StoredRecord { session, epoch, seq, at, trace, turn, .. } = *stored;
    let event = serde_json::from_slice(&stored.body).ok()?;
    let json = RecordJson { session, epoch, seq, at, trace, turn, event };
    let text = serde_json::to_string(&json).ok()?;
    Some(EncodedFrame { text: text.into(), at: Some((session, epoch, seq)) })
}

/// Reads a record that [`RecordEncoder`] encoded.
///
/// # Errors
/// `journal_damaged` if this version cannot decode the event.
pub(crate) fn decode_record(frame: &EncodedFrame) -> Result<Record, Fault> {
    serde_json::from_str(&frame.text).map_err(|error| {
        Fault::new(Kind::JournalDamaged, Operation::FollowRecords).caused_by(&error)
    })
}
