//! Verifies the hash chain of sessions: in a journal, or in an exported file without the journal.
//!
//! The records are hashed again and compared with the digests that the batches carry. The first difference is reported
//! with its position and reason; later records prove nothing. A program that rewrites a history with all of its
//! digests is found only by an [`Anchor`] that was kept elsewhere: the `digest` of an earlier report.

mod export;
mod session_chain;

use std::collections::HashMap;

use budao_core::{
    event::{Epoch, Seq, SessionId},
    fault::Fault,
};
use serde::{Deserialize, Serialize};

pub use self::export::verify_export;
use crate::{
    contract::{Anchor, Digest},
    implement::transfer::Transfer,
};

/// Attempts of a session that is trimmed while it is verified.
const ATTEMPTS: usize = 5;
/// Sessions in one list of ids.
const SESSIONS: usize = 1000;

/// Anchors from earlier reports, by session.
#[derive(Clone, Debug, Default)]
pub struct Anchors(HashMap<SessionId, Anchor>);

impl Anchors {
    /// The anchors of an earlier report.
    #[must_use]
    pub fn of(report: &EvidenceReport) -> Self {
        let anchor = |row: &SessionEvidence| Anchor { seq: row.head, digest: row.digest };
        Self(report.sessions.iter().map(|row| (row.session, anchor(row))).collect())
    }

    fn get(&self, session: SessionId) -> Option<Anchor> {
        self.0.get(&session).copied()
    }
}

/// The result of a verification. Serialized, it is a file of anchors for a later one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceReport {
    /// One row for each session, in the order of ids.
    pub sessions: Vec<SessionEvidence>,
}

impl EvidenceReport {
    /// The number of verified records.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.sessions.iter().map(|session| session.records).sum()
    }

    /// Whether the chain of every session is whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.sessions.iter().all(|session| session.broken.is_none())
    }
}

/// The result of verifying one session's chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEvidence {
    /// The verified session.
    pub session: SessionId,
    /// The epoch of its history.
    pub epoch: String,
    /// The last position that retention removed; its digest is the start of the chain.
    pub removed_to: Seq,
    /// The number of verified records.
    pub records: u64,
    /// The last verified position.
    pub head: Seq,
    /// The digest at `head`: an anchor for a later verification.
    pub digest: Digest,
    /// The first difference; `None` if the chain is whole.
    #[serde(default)]
    pub broken: Option<ChainBreak>,
}

impl SessionEvidence {
    fn begin(session: SessionId, epoch: Epoch, start: Anchor) -> Self {
        Self {
            session,
            epoch: epoch.to_string(),
            removed_to: start.seq,
            records: 0,
            head: start.seq,
            digest: start.digest,
            broken: None,
        }
    }

    /// Counts a verified record.
    fn advance(&mut self, seq: Seq, digest: Digest) {
        self.records += 1;
        self.head = seq;
        self.digest = digest;
    }

    fn break_at(&mut self, seq: Seq, to: Seq, reason: BreakReason) {
        self.broken.get_or_insert(ChainBreak { seq, to: to.max(seq), reason });
    }
}

/// The first position where the records do not match the digests of their chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainBreak {
    /// The first affected position.
    pub seq: Seq,
    /// The last affected position: a batch has one digest for all of its records.
    pub to: Seq,
    /// The kind of difference at `seq`.
    pub reason: BreakReason,
}

/// The kind of difference between records and digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreakReason {
    /// The content of a record differs from the content that its writer hashed.
    Altered,
    /// Records are missing, and later ones are there.
    Removed,
    /// Records stand at another position than the one that their writer gave them.
    Reordered,
    /// The records do not continue the ones before them: another program wrote them.
    Appended,
    /// The end of the history is missing.
    Truncated,
    /// The records do not continue the digest of the removed ones before them.
    Start,
    /// The history differs from the anchor that was given.
    Anchor,
    /// The journal or the file has no digests for these records.
    Unproven,
}

/// Verifies sessions of a journal, all or those in `only`, and compares them with `anchors`. Changes nothing.
///
/// # Errors
/// When a named session does not exist, or the journal fails. A broken chain is a finding, not an error.
pub async fn verify_journal(
    journal: &dyn Transfer,
    only: Option<&[SessionId]>,
    anchors: &Anchors,
) -> Result<EvidenceReport, Fault> {
    let mut report = EvidenceReport::default();
    let mut sessions = match only {
        Some(sessions) => sessions.to_vec(),
        None => journal.session_ids(None, SESSIONS).await?,
    };
    while let Some(last) = sessions.last().copied() {
        for session in sessions {
            report.sessions.push(verify_session(journal, session, anchors.get(session)).await?);
        }
        sessions = match only {
            Some(_) => Vec::new(),
            None => journal.session_ids(Some(last), SESSIONS).await?,
        };
    }
    if only.is_none() {
        report.add_missing(anchors);
    }
    Ok(report)
}

/// A finding counts only if the session was not trimmed or replaced while it was verified.
async fn verify_session(
    journal: &dyn Transfer,
    session: SessionId,
    anchor: Option<Anchor>,
) -> Result<SessionEvidence, Fault> {
    let mut attempt = 1;
    loop {
        let evidence = session_chain::verify_session(journal, session, anchor).await?;
        let now = journal.chain(session, 0, 0).await?;
        let is_same =
            (now.epoch.to_string(), now.start.seq) == (evidence.epoch.clone(), evidence.removed_to);
        if evidence.broken.is_none() || is_same || attempt >= ATTEMPTS {
            return Ok(evidence);
        }
        attempt += 1;
    }
}

impl EvidenceReport {
    /// Adds a finding for each session that an anchor names and that is not there.
    fn add_missing(&mut self, anchors: &Anchors) {
        let mut missing: Vec<_> = anchors.0.iter().collect();
        missing.retain(|(session, _)| self.sessions.iter().all(|row| row.session != **session));
        missing.sort_by_key(|(session, _)| **session);
        for (session, anchor) in missing {
            let start = Anchor { seq: 0, ..*anchor };
            let mut evidence = SessionEvidence::begin(*session, Epoch(0), start);
            evidence.break_at(1, anchor.seq, BreakReason::Removed);
            self.sessions.push(evidence);
        }
    }
}
