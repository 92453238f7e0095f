//! Copies sessions from one journal to another with their ids, positions, epochs and traces, and what sessions share:
//! keys of work that is done once, and notes.
//!
//! The source may be in use. An interrupted copy continues where it stopped: records that the target
//! already has are compared, not written again. Every written record is read back and compared.

use std::time::Duration;

use budao_core::{
    event::{Seq, SessionId},
    fault::{Fact, Fault, Kind, Operation},
};
use serde::Serialize;

use super::{IMPORTER, Transfer, TransferredHistory};
use crate::{
    contract::{
        Append, HistoryInfo, IfMissing, Lease, LeaseRequest, PageLimits, Snapshot, StoredRecord,
    },
    implement::{encoded::EncodedRecord, faults},
};

/// Sessions in one list of ids, keys in one list, and records in one page.
const SESSIONS: usize = 1000;
const KEYS: usize = 1000;
const PAGE: PageLimits = PageLimits { records: 1000, bytes: 4 << 20 };
const LEASE: Duration = Duration::from_secs(60);

/// The numbers of items that a copy compared and wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CopyReport {
    /// Sessions that are the same in both journals now.
    pub sessions: u64,
    /// Records written by this run.
    pub records: u64,
    /// Commands written by this run.
    pub commands: u64,
    /// Stored outputs written by this run.
    pub blobs: u64,
    /// Keys of work that is done once, written by this run.
    pub once_keys: u64,
    /// Notes written by this run.
    pub notes: u64,
    /// Sessions that the target has with another history; they were left as they are.
    pub conflicts: u64,
}

/// Copies every session, then keys and notes. `progress` gets the report so far after each session.
///
/// # Errors
/// When one of the journals fails, or a record that was read back differs. Sessions before that one are complete.
pub async fn copy(
    source: &dyn Transfer,
    target: &dyn Transfer,
    progress: &(dyn Fn(CopyReport) + Sync),
) -> Result<CopyReport, Fault> {
    let mut report = CopyReport::default();
    let mut sessions = source.session_ids(None, SESSIONS).await?;
    while let Some(last) = sessions.last().copied() {
        for session in sessions {
            let run = SessionCopy { source, target, session };
            match run.copy(&mut report).await {
                Ok(true) => report.sessions += 1,
                Ok(false) => report.conflicts += 1,
                // Deleted from the source meanwhile.
                Err(fault) if run.is_gone(&fault).await? => {}
                Err(fault) => return Err(fault),
            }
            progress(report);
        }
        sessions = source.session_ids(Some(last), SESSIONS).await?;
    }
    copy_shared(source, target, &mut report).await?;
    Ok(report)
}

/// Copies once-keys and notes, which belong to no session. The keys come after the sessions, because the records of a
/// call settle its key.
async fn copy_shared(
    source: &dyn Transfer,
    target: &dyn Transfer,
    report: &mut CopyReport,
) -> Result<(), Fault> {
    let mut keys = source.once_keys(None, KEYS).await?;
    while let Some(last) = keys.last().map(|key| key.key) {
        for key in keys {
            report.once_keys += u64::from(target.adopt_once_key(key).await?);
        }
        keys = source.once_keys(Some(last), KEYS).await?;
    }
    for (name, note) in source.notes().await? {
        report.notes += u64::from(target.adopt_note(name, note).await?);
    }
    Ok(())
}

/// The copy of one session.
struct SessionCopy<'a> {
    source: &'a dyn Transfer,
    target: &'a dyn Transfer,
    session: SessionId,
}

impl SessionCopy<'_> {
    async fn is_gone(&self, fault: &Fault) -> Result<bool, Fault> {
        let is_unknown = fault.kind() == Kind::UnknownSession;
        Ok(is_unknown && self.source.info(self.session).await?.is_none())
    }

    /// Returns false if the target has another history.
    async fn copy(&self, report: &mut CopyReport) -> Result<bool, Fault> {
        let (session, operation) = (self.session, Operation::ImportSession);
        let info = self.source.info(session).await?;
        let info = info.ok_or_else(|| faults::unknown_session(session, operation))?;
        let lease = match self.target.info(session).await? {
            Some(in_target) if in_target.epoch != info.epoch || in_target.head > info.head => {
                return Ok(false);
            }
            Some(in_target) => self.take_lease(&in_target).await?,
            None => self.create_in_target(&info).await?,
        };
        let done = self.copy_missing(&info, &lease, report).await;
        self.target.release(&lease).await?;
        done?;
        self.verify(&info).await?;
        Ok(true)
    }

    /// Takes the lease under the name with which [`Transfer::adopt`] takes it: a copy that was killed holds up none that
    /// goes on with its work.
    async fn take_lease(&self, in_target: &HistoryInfo) -> Result<Lease, Fault> {
        let request = LeaseRequest {
            session: self.session,
            holder: IMPORTER.into(),
            ttl: LEASE,
            if_missing: IfMissing::Refuse,
            dead_holder: None,
        };
        let lease = self.target.take_lease(request).await?;
        Ok(Lease { head: lease.head.max(in_target.head), ..lease })
    }

    async fn create_in_target(&self, info: &HistoryInfo) -> Result<Lease, Fault> {
        let removed_to = info.first_available - 1;
        let start = self.source.chain(self.session, 0, 0).await?.start;
        if start.seq != removed_to {
            return Err(self.difference_fault("the source removed records while they were copied"));
        }
        let page = self.source.read(self.session, 0, PageLimits { records: 1, bytes: 0 }).await?;
        let history = TransferredHistory {
            session: self.session,
            epoch: Some(info.epoch),
            removed_to,
            removed_reason: page.gap.map(|gap| gap.reason),
            removed_digest: (removed_to > 0).then_some(start.digest),
        };
        let lease = self.target.adopt(history).await?;
        Ok(Lease { head: lease.head.max(removed_to), ..lease })
    }

    async fn copy_missing(
        &self,
        info: &HistoryInfo,
        lease: &Lease,
        report: &mut CopyReport,
    ) -> Result<(), Fault> {
        let snapshot = self.source.snapshot(self.session).await?;
        self.copy_records(info, lease, snapshot, report).await?;
        self.copy_commands(lease, report).await?;
        let known = self.target.blobs_of(self.session).await?;
        for digest in self.source.blobs_of(self.session).await? {
            if known.contains(&digest) {
                continue;
            }
            if let Some(content) = self.source.blob(digest).await? {
                self.target.adopt_blob(self.session, content).await?;
                report.blobs += 1;
            }
        }
        Ok(())
    }

    /// Appends the missing records up to the head at the start of the copy, and the snapshot at its position.
    async fn copy_records(
        &self,
        info: &HistoryInfo,
        lease: &Lease,
        mut snapshot: Option<Snapshot>,
        report: &mut CopyReport,
    ) -> Result<(), Fault> {
        let mut head = lease.head;
        loop {
            if let Some(due) = snapshot.take_if(|snapshot| snapshot.seq == head) {
                let body = Some(due.body.to_vec());
                self.target.adopt_records(lease, head, Vec::new(), body).await?;
            }
            if head >= info.head {
                return Ok(());
            }
            let page = self.source.read(self.session, head, PAGE).await?;
            let until = snapshot.as_ref().filter(|s| s.seq > head).map_or(Seq::MAX, |s| s.seq);
            let until = until.min(info.head);
            let records = page.records.iter().filter(|record| record.seq <= until);
            let records: Vec<EncodedRecord> = records.map(to_encoded_record).collect();
            if records.is_empty() || page.gap.is_some() {
                return Err(
                    self.difference_fault("the source removed records while they were copied")
                );
            }
            report.records += records.len() as u64;
            head = self.target.adopt_records(lease, head, records, None).await?;
        }
    }

    async fn copy_commands(&self, lease: &Lease, report: &mut CopyReport) -> Result<(), Fault> {
        let known = self.target.commands(self.session).await?;
        for (command, answer) in self.source.commands(self.session).await? {
            let in_target = known.iter().find(|(other, _)| other.id == command.id);
            match (in_target, answer) {
                (None, answer) => {
                    self.target.adopt_command(self.session, command, answer).await?;
                    report.commands += 1;
                }
                // It was answered since an earlier run.
                (Some((_, None)), Some(answer)) => {
                    let head = self.target.info(self.session).await?.map_or(0, |info| info.head);
                    let answers = vec![(command.id, answer)];
                    let append = Append { answers, ..Append::new(lease, head, Vec::new()) };
                    let done = self.target.append(append).await;
                    done.map_err(|error| error.into_fault(self.session))?;
                    report.commands += 1;
                }
                (Some(_), _) => {}
            }
        }
        Ok(())
    }

    /// Reads both histories up to the head that the copy began with, and compares every record.
    async fn verify(&self, info: &HistoryInfo) -> Result<(), Fault> {
        let mut after = info.first_available - 1;
        while after < info.head {
            let source = self.source.read(self.session, after, PAGE).await?;
            let target = self.target.read(self.session, after, PAGE).await?;
            let pairs = source.records.iter().zip(&target.records);
            let same = pairs.take_while(|(ours, theirs)| ours == theirs).count();
            let last = source.records.get(same.wrapping_sub(1)).map(|record| record.seq);
            let is_short = same < source.records.len() && same < target.records.len();
            let Some(last) = last.filter(|_| !is_short) else {
                return Err(self
                    .difference_fault("a record that was read back differs")
                    .with(Fact::FromSeq, after + same as u64 + 1));
            };
            after = last;
        }
        Ok(())
    }

    fn difference_fault(&self, cause: &str) -> Fault {
        Fault::new(Kind::SyncFailed, Operation::ImportSession)
            .with(Fact::Path, self.target.kind())
            .with(Fact::Session, self.session.to_string())
            .with_cause(cause)
    }
}

fn to_encoded_record(record: &StoredRecord) -> EncodedRecord {
    let (at, trace, turn, body) = (record.at, record.trace, record.turn, record.body.clone());
    EncodedRecord::from_bytes(at, trace, turn, body)
}
