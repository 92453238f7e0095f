//! One session of a journal in memory: its records, commands, lease, views and retention.

use std::collections::VecDeque;

use budao_core::{
    event::{Answer, Command, Epoch, Seq, SessionId},
    fault::Fault,
    time::Timestamp,
    trace::Trace,
};

use super::timers::TimerState;
use crate::{
    contract::{
        Digest, GapReason, LeaseInfo, LeaseToken, Retention, SessionSummary, Snapshot, StoredRecord,
    },
    implement::chain,
    implement::retention::{self, RetainedSize},
    implement::views::{self, RecordChanges},
};

/// The view changes of one record, with its time and trace.
pub(super) type RecordChangesAt = (Timestamp, Trace, RecordChanges);

/// Records, commands, lease and views of one session.
#[derive(Debug)]
pub(super) struct MemorySession {
    pub(super) epoch: Epoch,
    pub(super) records: VecDeque<StoredRecord>,
    /// The last record removed from the front, and the bound that removed it.
    pub(super) removed: Option<(Seq, GapReason)>,
    pub(super) head: Seq,
    /// The digest at the last removed record. The digests after it are computed when they are asked for.
    pub(super) removed_digest: Digest,
    pub(super) token: Option<LeaseToken>,
    pub(super) holder: String,
    pub(super) expires: Timestamp,
    pub(super) commands: Vec<(Command, Option<Answer>)>,
    pub(super) snapshot: Option<Snapshot>,
    /// The timers and labels, folded when records are appended because they are read often.
    pub(super) timed: TimerState,
    /// The view changes of removed records: a view covers the whole history, not only the records kept.
    removed_views: RemovedHistory,
}

/// The views of records that retention removed.
#[derive(Debug, Default)]
struct RemovedHistory {
    summary: Option<SessionSummary>,
    changes: Vec<RecordChangesAt>,
}

impl MemorySession {
    pub(super) fn new(id: SessionId, epoch: Epoch, now: Timestamp) -> Self {
        Self {
            epoch,
            records: VecDeque::new(),
            removed: None,
            head: 0,
            removed_digest: chain::seed(id),
            token: None,
            holder: String::new(),
            expires: now,
            commands: Vec::new(),
            snapshot: None,
            timed: TimerState::default(),
            removed_views: RemovedHistory::default(),
        }
    }

    pub(super) fn first_available(&self) -> Seq {
        self.removed.map_or(1, |(to, _)| to + 1)
    }

    /// Makes a snapshot at the head if the one there is does not reach `to`. Returns the position of the snapshot.
    fn ensure_snapshot(&mut self, to: Seq) -> Seq {
        let covered = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.seq);
        if covered >= to {
            return covered;
        }
        let snapshot = self.snapshot.as_ref().map(|snapshot| (snapshot.seq, &*snapshot.body));
        let Some(state) = retention::state_at_head(snapshot, &self.records) else { return covered };
        let Ok(body) = serde_json::to_vec(&state) else { return covered };
        self.snapshot = Some(Snapshot { seq: state.head, body: body.into() });
        state.head
    }

    /// Removes the content of the commands whose records are removed.
    fn remove_contents(&mut self, to: Seq) {
        for (command, answer) in &mut self.commands {
            if answer.as_ref().is_some_and(|answer| retention::removes_content(answer, to)) {
                *command = retention::strip_content(command);
            }
        }
    }

    pub(super) fn pending(&self) -> impl Iterator<Item = &Command> {
        self.commands.iter().filter(|(_, answer)| answer.is_none()).map(|(command, _)| command)
    }

    /// The lease or the reservation of a holder.
    pub(super) fn lease(&self, now: Timestamp) -> Option<LeaseInfo> {
        (self.expires > now && !self.holder.is_empty())
            .then(|| LeaseInfo { holder: self.holder.clone(), expires: self.expires })
    }

    /// Whether the session has no lease but is reserved for its last holder.
    pub(super) fn is_reserved(&self, now: Timestamp) -> bool {
        self.token.is_none() && self.lease(now).is_some()
    }

    /// Folds the views from the removed and the kept records: the summary, and the changes of each record.
    pub(super) fn fold(
        &self,
        id: SessionId,
    ) -> Result<(SessionSummary, Vec<RecordChangesAt>), Fault> {
        let removed = &self.removed_views;
        let mut summary = removed.summary.clone().unwrap_or_else(|| views::empty_summary(id));
        let mut all = Vec::new();
        for (at, trace, changes) in &removed.changes {
            let code = changes.code.as_ref().map(|mark| views::CodeMark { ..*mark });
            let tool = changes.tool.clone();
            all.push((*at, *trace, RecordChanges { tool, code, ..RecordChanges::default() }));
        }
        for record in &self.records {
            let changes = views::apply(&mut summary, record)?;
            all.push((record.at, record.trace, changes));
        }
        Ok((summary, all))
    }

    pub(super) fn is_expired(
        &self,
        summary: &SessionSummary,
        retention: &Retention,
        now: Timestamp,
    ) -> bool {
        let last = if self.head == 0 { self.expires } else { summary.updated_at };
        retention.session_age.is_some_and(|age| now.since(last) > age)
            && summary.open_turn.is_none()
            && summary.timers.is_empty()
            && self.pending().next().is_none()
            && self.lease(now).is_none()
    }

    /// Removes the records that a bound does not keep, once a snapshot covers them. Returns their number.
    pub(super) fn retain(
        &mut self,
        id: SessionId,
        retention: &Retention,
        now: Timestamp,
    ) -> Result<u64, Fault> {
        let sizes: Vec<RetainedSize> = self.records.iter().map(retained_size).collect();
        let wanted = retention::find_removal_end(&sizes, Seq::MAX, retention, now);
        let covered = wanted.map_or(0, |(to, _)| self.ensure_snapshot(to));
        let Some((to, reason)) = retention::find_removal_end(&sizes, covered, retention, now)
        else {
            return Ok(0);
        };
        let count = self.records.partition_point(|record| record.seq <= to);
        let removed: Vec<StoredRecord> = self.records.drain(..count).collect();
        let views = &mut self.removed_views;
        let mut summary = views.summary.take().unwrap_or_else(|| views::empty_summary(id));
        for record in &removed {
            let changes = views::apply(&mut summary, record)?;
            views.changes.push((record.at, record.trace, changes));
        }
        views.summary = Some(summary);
        self.removed_digest = digest_after(self.removed_digest, &removed);
        self.removed = Some((to, reason));
        self.remove_contents(to);
        Ok(removed.len() as u64)
    }
}

pub(super) fn digest_after<'a>(
    before: Digest,
    records: impl IntoIterator<Item = &'a StoredRecord>,
) -> Digest {
    records.into_iter().fold(before, |before, record| record.digest_after(before))
}

fn retained_size(record: &StoredRecord) -> RetainedSize {
    RetainedSize { seq: record.seq, at: record.at, bytes: record.body.len() as u64 }
}
