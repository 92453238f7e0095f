//! Reads a session's past for embedders: its messages, its calls, and forks of it.

use std::{sync::Arc, time::Duration};

use budao_core::{
    Fault, Kind, Record,
    event::{Event, Origin, Seq, SessionId},
    fault::{Fact, Operation},
    message::Message,
    session,
};
use budao_journal::{Append, Entry, IfMissing, LeaseRequest, PageLimits, fold, fold_at};

use crate::{
    Session,
    channel::{CallSnapshot, Projector},
};

/// Records copied in one append when a session is forked.
const FORK_PAGE: usize = 1_000;

impl Session {
    /// Returns the whole conversation with failed results and compacted messages. If retention removed its
    /// beginning, the conversation begins with the snapshot's history.
    ///
    /// # Errors
    /// The records cannot be read.
    pub async fn messages(&self) -> Result<Vec<Message>, Fault> {
        let records = self.kept(Seq::MAX).await?;
        let mut session = match records.first() {
            Some(first) if first.seq > 1 => self.at_snapshot().await?,
            _ => session::Session::default(),
        };
        let known = session.head;
        for record in records.iter().filter(|record| record.seq > known) {
            if !matches!(record.event, Event::HistoryCompacted(_)) {
                session.apply_record(record);
            }
        }
        Ok(Arc::unwrap_or_clone(session.history))
    }

    /// Returns every ended call with its audit trail, oldest first. Calls that retention removed are missing.
    ///
    /// # Errors
    /// The records cannot be read.
    pub async fn calls(&self) -> Result<Vec<CallSnapshot>, Fault> {
        let lang = self.state().await?.settings.language;
        let mut projector = Projector::auditing(lang);
        for record in self.kept(Seq::MAX).await? {
            drop(projector.project(&record));
        }
        Ok(projector.into_calls())
    }

    /// Creates a session with a copy of the history up to `at`, which must lie between turns. `None` stands
    /// for the end of the last turn.
    ///
    /// # Errors
    /// A turn is running at `at`, retention has removed part of the history, or the journal fails.
    pub async fn fork(&self, at: Option<Seq>) -> Result<Self, Fault> {
        let records = until_safe(self.whole(at.unwrap_or(Seq::MAX)).await?, at)?;
        let journal = Arc::clone(self.runtime.journal());
        let id = SessionId(self.runtime.world().uuid());
        let request = LeaseRequest {
            session: id,
            holder: format!("fork-{id}"),
            ttl: Duration::from_secs(60),
            if_missing: IfMissing::Create,
            dead_holder: None,
        };
        let lease = journal.take_lease(request).await?;
        let mut head = 0;
        for page in copies(self.id, records).chunks(FORK_PAGE) {
            let append = Append::new(&lease, head, page.to_vec());
            head = journal.append(append).await.map_err(|error| error.into_fault(id))?;
        }
        journal.release(&lease).await?;
        Ok(Self { id, ..self.clone() })
    }

    /// Folds the session up to its latest snapshot.
    async fn at_snapshot(&self) -> Result<session::Session, Fault> {
        let journal = self.runtime.journal();
        let (_, snapshot) = fold(&**journal, self.id).await?;
        fold_at(&**journal, self.id, snapshot).await
    }

    /// Reads every record from the first one on; `history_gap` if retention removed some.
    async fn whole(&self, until: Seq) -> Result<Vec<Record>, Fault> {
        let records = self.kept(until).await?;
        match records.first() {
            Some(first) if first.seq > 1 => {
                Err(Fault::new(Kind::HistoryGap, Operation::ReadRecords)
                    .with(Fact::Session, self.id.to_string())
                    .with(Fact::FromSeq, 1)
                    .with(Fact::ToSeq, first.seq - 1)
                    .with(Fact::OldestSeq, first.seq))
            }
            _ => Ok(records),
        }
    }

    /// Reads the records that retention has kept, up to `until`.
    async fn kept(&self, until: Seq) -> Result<Vec<Record>, Fault> {
        let mut records: Vec<Record> = Vec::new();
        loop {
            let after = records.last().map_or(0, |record| record.seq);
            let page = self.runtime.journal().read(self.id, after, PageLimits::default()).await?;
            if page.records.is_empty() {
                return Ok(records);
            }
            for stored in page.records {
                if stored.seq > until {
                    return Ok(records);
                }
                records.push(stored.record()?);
            }
        }
    }
}

/// Cuts the records at the last position between turns, or exactly at `at`.
fn until_safe(mut records: Vec<Record>, at: Option<Seq>) -> Result<Vec<Record>, Fault> {
    let mut state = session::Session::default();
    let mut safe = 0;
    for (index, record) in records.iter().enumerate() {
        state.apply_record(record);
        if state.turn.is_none() && state.queue.is_empty() {
            safe = index + 1;
        }
    }
    if at.is_some() && safe != records.len() {
        return Err(Fault::new(Kind::ConstraintViolated, Operation::OpenSession)
            .with(Fact::Field, "at")
            .with(Fact::Constraint, "at lies between turns")
            .with(Fact::ProvidedValue, serde_json::json!(at)));
    }
    records.truncate(safe);
    Ok(records)
}

fn copies(parent: SessionId, records: Vec<Record>) -> Vec<Entry> {
    let at = records.last().map_or(0, |record| record.seq);
    let copy = |record: Record| {
        let event = match record.event {
            Event::SessionOpened { settings, .. } => {
                Event::SessionOpened { settings, origin: Some(Origin::Fork { parent, at }) }
            }
            event => event,
        };
        Entry { at: record.at, trace: record.trace, turn: record.turn, event: event.into() }
    };
    records.into_iter().map(copy).collect()
}
