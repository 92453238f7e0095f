//! Verifies one session of a journal: compares its records with the digests of their batches.

use std::collections::VecDeque;

use budao_core::{
    event::{Seq, SessionId},
    fault::{Fault, Kind},
};

use super::{BreakReason, SessionEvidence};
use crate::{
    contract::{Anchor, BatchLink, ChainPage, Digest, PageLimits, StoredRecord},
    implement::transfer::Transfer,
};

/// Batches in one page of digests.
const LINKS: usize = 4096;

pub(super) async fn verify_session(
    journal: &dyn Transfer,
    session: SessionId,
    anchor: Option<Anchor>,
) -> Result<SessionEvidence, Fault> {
    let page = journal.chain(session, 0, LINKS).await?;
    let head = journal.info(session).await?.map_or(0, |info| info.head);
    let mut verifier = ChainVerifier::new(session, &page, anchor);
    while verifier.evidence.head < head && verifier.evidence.broken.is_none() {
        let after = verifier.evidence.head;
        verifier.refill(journal, after).await?;
        match journal.read(session, after, PageLimits::default()).await {
            Ok(found) if found.records.is_empty() => break,
            Ok(found) => verifier.take_all(&found.records, journal).await?,
            Err(fault) if fault.kind() == Kind::JournalDamaged => {
                verifier.explain_damage(after + 1);
            }
            Err(fault) => return Err(fault),
        }
    }
    verifier.check_end(head, &page);
    if verifier.evidence.broken.is_none() {
        verifier.check_after_head(&journal.chain(session, verifier.evidence.head, 1).await?);
    }
    Ok(verifier.evidence)
}

/// Computes the chain of one session from its records and compares it with the digests of the batches.
struct ChainVerifier {
    evidence: SessionEvidence,
    digest: Digest,
    start: Anchor,
    anchor: Option<Anchor>,
    links: VecDeque<BatchLink>,
}

impl ChainVerifier {
    fn new(session: SessionId, page: &ChainPage, anchor: Option<Anchor>) -> Self {
        let mut evidence = SessionEvidence::begin(session, page.epoch, page.start);
        let (start, links) = (page.start, page.links.iter().copied().collect());
        if anchor.is_some_and(|anchor| anchor.seq == start.seq && anchor.digest != start.digest) {
            evidence.break_at(start.seq, start.seq, BreakReason::Anchor);
        }
        Self { evidence, digest: start.digest, start, anchor, links }
    }

    /// Reads more digests when the ones there are end before the next record.
    async fn refill(&mut self, journal: &dyn Transfer, after: Seq) -> Result<(), Fault> {
        if self.links.back().is_none_or(|link| link.last <= after) {
            let page = journal.chain(self.evidence.session, after, LINKS).await?;
            self.links = page.links.into();
        }
        Ok(())
    }

    async fn take_all(
        &mut self,
        records: &[StoredRecord],
        journal: &dyn Transfer,
    ) -> Result<(), Fault> {
        for record in records {
            self.refill(journal, record.seq - 1).await?;
            self.take(record);
            if self.evidence.broken.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn take(&mut self, record: &StoredRecord) {
        let seq = record.seq;
        while self.links.front().is_some_and(|link| link.last < seq) {
            self.links.pop_front();
        }
        let Some(link) = self.links.front().copied().filter(|link| link.first <= seq) else {
            return self.evidence.break_at(seq, seq, BreakReason::Unproven);
        };
        if seq == link.first && link.previous != self.digest {
            let reason = self.explain_break(link);
            return self.evidence.break_at(link.first, link.last, reason);
        }
        let digest = record.digest_after(self.digest);
        if seq == link.last && link.digest != digest {
            let is_start = self.start.seq > 0 && link.first <= self.start.seq;
            let reason = if is_start { BreakReason::Start } else { BreakReason::Altered };
            return self.evidence.break_at(link.first.max(self.start.seq + 1), link.last, reason);
        }
        if self.anchor.is_some_and(|anchor| anchor.seq == seq && anchor.digest != digest) {
            return self.evidence.break_at(seq, seq, BreakReason::Anchor);
        }
        self.digest = digest;
        self.evidence.advance(seq, digest);
    }

    /// The reason for a batch that does not continue the digest before it: removed, reordered or appended records.
    fn explain_break(&self, link: BatchLink) -> BreakReason {
        let is_known =
            |other: &BatchLink| other.first != link.first && other.digest == link.previous;
        if link.previous == Digest([0; 32]) {
            // Too short to have a digest.
            BreakReason::Altered
        } else if self.start.seq > 0 && link.first == self.start.seq + 1 {
            BreakReason::Start
        } else if self.links.iter().any(is_known) {
            BreakReason::Reordered
        } else {
            BreakReason::Appended
        }
    }

    /// Classifies a failed read: the batch at this position is missing, from another position, or altered.
    fn explain_damage(&mut self, seq: Seq) {
        let covering = self.links.iter().find(|link| link.first <= seq && seq <= link.last);
        let Some(link) = covering.copied() else {
            let next = self.links.iter().find(|link| link.first > seq);
            return match next {
                Some(next) => self.evidence.break_at(seq, next.first - 1, BreakReason::Removed),
                None => self.evidence.break_at(seq, seq, BreakReason::Truncated),
            };
        };
        let is_foreign = seq == link.first && link.previous != self.digest;
        let reason = if is_foreign { self.explain_break(link) } else { BreakReason::Altered };
        self.evidence.break_at(seq, if is_foreign { link.last } else { seq }, reason);
    }

    /// Reports batches after the stored head: another program appended them.
    fn check_after_head(&mut self, page: &ChainPage) {
        let behind = page.links.iter().find(|link| link.first > page.known_head);
        if let Some(link) = behind.filter(|_| page.head_digest.is_some()) {
            self.evidence.break_at(link.first, link.last, BreakReason::Appended);
        }
    }

    fn check_end(&mut self, head: Seq, page: &ChainPage) {
        let (reached, anchored) = (self.evidence.head, self.anchor.map_or(0, |anchor| anchor.seq));
        let known = page.known_head.max(head).max(anchored);
        if reached < known {
            self.evidence.break_at(reached + 1, known, BreakReason::Truncated);
        } else if reached == page.known_head
            && page.head_digest.is_some_and(|digest| digest != self.digest)
        {
            self.evidence.break_at(reached, reached, BreakReason::Appended);
        }
    }
}
