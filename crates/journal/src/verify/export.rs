//! Verifies an exported file by its own digests, without the journal that it comes from.

use std::io::BufRead;

use budao_core::{
    event::{Epoch, Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
};

use super::{Anchors, BreakReason, EvidenceReport, SessionEvidence};
use crate::{
    contract::{Anchor, Digest},
    implement::{
        chain,
        transfer::lines::{ExportLine, ParsedLine, read_line},
    },
};

/// Verifies every session of an exported file and compares it with `anchors`.
///
/// # Errors
/// When the input is no export or has an unreadable line. A broken chain is a finding, not an error.
pub fn verify_export(input: &mut dyn BufRead, anchors: &Anchors) -> Result<EvidenceReport, Fault> {
    let mut run = ExportRun { anchors, report: EvidenceReport::default(), line: 0, current: None };
    let mut text = String::new();
    loop {
        run.line += 1;
        if read_line(input, &mut text).map_err(|cause| run.line_fault(&cause))? == 0 {
            break;
        }
        let parsed: Result<ParsedLine<'_>, _> = serde_json::from_str(&text);
        // A cut in the middle of the last line is a truncation, not a malformed file.
        let line = match parsed {
            Err(_) if run.line > 1 && !text.ends_with('\n') => break,
            Err(error) => return Err(run.line_fault(&error.to_string())),
            Ok(parsed) => parsed.line().ok_or_else(|| run.line_fault("unknown kind of line"))?,
        };
        if run.take(line)? {
            return Ok(run.report);
        }
    }
    run.mark_truncated();
    Ok(run.report)
}

struct ExportRun<'a> {
    anchors: &'a Anchors,
    report: EvidenceReport,
    line: u64,
    current: Option<CurrentSession>,
}

struct CurrentSession {
    evidence: SessionEvidence,
    /// The digest at the last record; `None` if the file has none for this session.
    digest: Option<Digest>,
    /// The records of the session so far, verified or not.
    records: u64,
}

impl ExportRun<'_> {
    /// Takes a line. Returns whether it was the last one.
    fn take(&mut self, line: ExportLine<'_>) -> Result<bool, Fault> {
        match line {
            ExportLine::Head { journal: 1 } if self.line == 1 => {}
            _ if self.line == 1 => return Err(self.line_fault("not an exported journal")),
            ExportLine::Session { session, epoch, removed_to, digest, .. } => {
                self.close();
                self.begin(session, epoch, removed_to, digest);
            }
            ExportLine::Record { seq, at, trace, turn, event, digest } => {
                let content = chain::content(at, trace, turn, event.get().as_bytes());
                let anchors = self.anchors;
                self.require_current()?.take(seq, content, digest, anchors);
            }
            ExportLine::End { end, records, digest } => {
                self.require_current()?.end(end, records, digest);
                self.close();
            }
            ExportLine::Done { done } => {
                self.close();
                if done != self.report.sessions.len() as u64 {
                    return Err(
                        self.line_fault("the number of sessions differs from the `done` line")
                    );
                }
                return Ok(true);
            }
            ExportLine::Head { .. } => return Err(self.line_fault("unsupported export version")),
            ExportLine::Snapshot { .. } | ExportLine::Command { .. } | ExportLine::Blob { .. } => {}
        }
        Ok(false)
    }

    fn begin(&mut self, session: SessionId, epoch: String, seq: Seq, digest: Option<Digest>) {
        let start = Anchor { seq, digest: digest.unwrap_or_else(|| chain::seed(session)) };
        let mut evidence = SessionEvidence::begin(session, Epoch(0), start);
        evidence.epoch = epoch;
        match digest {
            None => evidence.break_at(seq + 1, seq + 1, BreakReason::Unproven),
            Some(digest) if seq == 0 && digest != chain::seed(session) => {
                evidence.break_at(1, 1, BreakReason::Start);
            }
            Some(_) => {}
        }
        self.current = Some(CurrentSession { evidence, digest, records: 0 });
    }

    fn require_current(&mut self) -> Result<&mut CurrentSession, Fault> {
        let line = self.line;
        self.current.as_mut().ok_or_else(|| line_fault(line, "the line belongs to no session"))
    }

    /// Ends the current session. One without an `end` line lost its end.
    fn close(&mut self) {
        let Some(mut current) = self.current.take() else { return };
        let head = current.evidence.head;
        if current.digest.is_some() {
            current.evidence.break_at(head + 1, head + 1, BreakReason::Truncated);
        }
        let anchor = self.anchors.get(current.evidence.session);
        if let Some(anchor) = anchor.filter(|anchor| anchor.seq > head) {
            current.evidence.break_at(head + 1, anchor.seq, BreakReason::Truncated);
        }
        self.report.sessions.push(current.evidence);
    }

    /// Handles a file without a `done` line. The lost part may contain whole sessions, so the last session counts as
    /// truncated.
    fn mark_truncated(&mut self) {
        self.close();
        if let Some(last) = self.report.sessions.last_mut() {
            let head = last.head;
            last.break_at(head + 1, head + 1, BreakReason::Truncated);
        }
    }

    fn line_fault(&self, cause: &str) -> Fault {
        line_fault(self.line, cause)
    }
}

impl CurrentSession {
    fn take(&mut self, seq: Seq, content: Digest, claimed: Option<Digest>, anchors: &Anchors) {
        self.records += 1;
        let expected = self.evidence.head + 1;
        if self.evidence.broken.is_some() {
            self.mark_reordered(seq);
            return;
        }
        let Some(before) = self.digest else { return };
        if seq != expected {
            let reason = if seq > expected { BreakReason::Removed } else { BreakReason::Reordered };
            self.evidence.break_at(expected, seq.saturating_sub(1), reason);
            return;
        }
        let digest = chain::extend(before, seq, content);
        let anchor = anchors.get(self.evidence.session);
        if claimed != Some(digest) {
            self.evidence.break_at(seq, seq, BreakReason::Altered);
        } else if anchor.is_some_and(|anchor| anchor.seq == seq && anchor.digest != digest) {
            self.evidence.break_at(seq, seq, BreakReason::Anchor);
        } else {
            self.digest = claimed;
            self.evidence.advance(seq, digest);
        }
    }

    /// A record that was reported as removed and comes later was moved, so the reason becomes `Reordered`.
    fn mark_reordered(&mut self, seq: Seq) {
        if let Some(broken) = &mut self.evidence.broken
            && broken.reason == BreakReason::Removed
            && (broken.seq..=broken.to).contains(&seq)
        {
            broken.reason = BreakReason::Reordered;
        }
    }

    fn end(&mut self, session: SessionId, records: u64, digest: Option<Digest>) {
        let Some(reached) = self.digest.take() else { return };
        let (head, removed_to) = (self.evidence.head, self.evidence.removed_to);
        let written = removed_to.saturating_add(records);
        if session != self.evidence.session || records < self.records {
            self.evidence.break_at(written + 1, head, BreakReason::Appended);
        } else if records > self.records {
            self.evidence.break_at(head + 1, written, BreakReason::Truncated);
        } else if digest != Some(reached) {
            self.evidence.break_at(head, head, BreakReason::Altered);
        }
    }
}

fn line_fault(line: u64, cause: &str) -> Fault {
    Fault::new(Kind::BadRequest, Operation::CheckJournal).with(Fact::Line, line).with_cause(cause)
}
