//! Reads a session's past for embedders: its messages, its calls, and forks of it.

use std::sync::Arc;

use budao_core::{
    Fault, Record,
    engine::{Engine as _, ForkPoint, ForkRequest},
    event::{Event, Seq},
    message::Message,
    session,
};
use budao_journal::{PageLimits, fold, fold_at};

use crate::{
    Session,
    channel::{CallSnapshot, Projector},
};

impl Session {
    /// Returns the whole conversation with failed results and compacted messages. If retention removed its
    /// beginning, the conversation begins with the snapshot's history.
    ///
    /// # Errors
    /// The records cannot be read.
    pub async fn messages(&self) -> Result<Vec<Message>, Fault> {
        let records = self.read_records().await?;
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
        let history = Arc::unwrap_or_clone(session.history);
        Ok(history.into_iter().map(Arc::unwrap_or_clone).collect())
    }

    /// Returns every ended call with its audit trail, oldest first. Calls that retention removed are missing.
    ///
    /// # Errors
    /// The records cannot be read.
    pub async fn calls(&self) -> Result<Vec<CallSnapshot>, Fault> {
        let lang = self.state().await?.settings.language;
        let mut projector = Projector::auditing(lang);
        for record in self.read_records().await? {
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
        let point = at.map_or(ForkPoint::End, ForkPoint::After);
        let request = ForkRequest { parent: self.id, session: None, point };
        let id = self.runtime.fork(request).await?;
        Ok(Self { id, ..self.clone() })
    }

    /// Folds the session up to its latest snapshot.
    async fn at_snapshot(&self) -> Result<session::Session, Fault> {
        let journal = self.runtime.journal();
        let (_, snapshot) = fold(&**journal, self.id).await?;
        fold_at(&**journal, self.id, snapshot).await
    }

    /// Reads the records that retention has kept.
    async fn read_records(&self) -> Result<Vec<Record>, Fault> {
        let mut records: Vec<Record> = Vec::new();
        loop {
            let after = records.last().map_or(0, |record| record.seq);
            let page = self.runtime.journal().read(self.id, after, PageLimits::default()).await?;
            if page.records.is_empty() {
                return Ok(records);
            }
            for stored in page.records {
                records.push(stored.record()?);
            }
        }
    }
}
