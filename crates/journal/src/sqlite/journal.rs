//! Reading and writing a journal file: changes go to the writer, queries to a read connection.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, CommandId, Seq, SessionId},
    fault::{Fault, Operation},
};
use bytes::Bytes;
use futures::stream::BoxStream;

use super::{
    Sqlite, SqliteShared, into_fault, queries,
    reader::{self, Readers},
    unexpected_reply,
    watermark::with_suffix,
    write_request::{EncodedAppend, WriteReply, WriteRequest},
};
use crate::{
    contract::{
        Append, AppendError, ChangeWatch, Digest, FaultRate, Filter, HistoryInfo, Inbox,
        JournalLoad, Lease, LeaseRequest, Page, PageLimits, RateQuery, Reader, SessionSummary,
        Snapshot, StoredRecord, SubmitOutcome, TimedSession, TimerQuery, UnfinishedSession, Writer,
    },
    implement::faults,
    implement::follow::{self, PageSource},
};

#[async_trait]
impl PageSource for Readers {
    async fn page(
        self: Arc<Self>,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        self.query(Operation::ReadRecords, move |connection, path| {
            reader::page(connection, path, session, after, limits)
        })
        .await
    }
}

#[async_trait]
impl Reader for Sqlite {
    async fn info(&self, session: SessionId) -> Result<Option<HistoryInfo>, Fault> {
        let now = self.shared.world.clock.now();
        let readers = &self.shared.readers;
        readers
            .query(Operation::ReadRecords, move |connection, path| {
                reader::info(connection, path, session, now)
            })
            .await
    }

    async fn read(
        &self,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        self.shared.readers.clone().page(session, after, limits).await
    }

    fn follow(
        &self,
        session: SessionId,
        after: Seq,
    ) -> BoxStream<'static, Result<Vec<StoredRecord>, Fault>> {
        follow::follow(self.shared.readers.clone(), &self.shared.notifier, session, after)
    }

    async fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault> {
        let readers = &self.shared.readers;
        readers
            .query(Operation::ReadRecords, move |connection, path| {
                reader::snapshot(connection, path, session)
            })
            .await
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Bytes>, Fault> {
        let readers = &self.shared.readers;
        readers
            .query(Operation::ReadBlob, move |connection, path| {
                reader::blob(connection, path, digest)
            })
            .await
    }

    async fn sessions(&self, filter: Filter) -> Result<Vec<SessionSummary>, Fault> {
        self.catch_up().await?;
        let readers = &self.shared.readers;
        readers
            .query(Operation::ReadRecords, move |connection, _| {
                queries::sessions(connection, &filter)
            })
            .await
    }

    async fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<UnfinishedSession>, Fault> {
        self.catch_up().await?;
        let now = self.shared.world.clock.now();
        let readers = &self.shared.readers;
        readers
            .query(Operation::ReadRecords, move |connection, path| {
                queries::unfinished(connection, path, after, limit, now, None)
            })
            .await
    }

    async fn sessions_with_timers(&self, query: TimerQuery) -> Result<Vec<TimedSession>, Fault> {
        self.catch_up().await?;
        let now = self.shared.world.clock.now();
        let readers = &self.shared.readers;
        readers
            .query(Operation::ReadRecords, move |connection, path| {
                queries::sessions_with_timers(connection, path, &query, now)
            })
            .await
    }

    async fn rates(&self, query: RateQuery) -> Result<Vec<FaultRate>, Fault> {
        self.catch_up().await?;
        let readers = &self.shared.readers;
        readers
            .query(Operation::ReadRecords, move |connection, _| queries::rates(connection, &query))
            .await
    }

    fn load(&self) -> JournalLoad {
        let queued_requests = self.shared.writer_handle.as_ref().map_or(0, |writer_handle| {
            self.shared.options.queue.max(1).saturating_sub(writer_handle.slots.available_permits())
        });
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        let path = &self.shared.path;
        let bytes = size(path) + size(&with_suffix(path, "-wal"));
        JournalLoad { queued_requests, bytes, commits: self.counters().transactions }
    }
}

#[async_trait]
impl Inbox for Sqlite {
    async fn submit(&self, session: SessionId, command: Command) -> Result<SubmitOutcome, Fault> {
        let request = WriteRequest::Submit(session, Box::new(command));
        match self.write(request).await.map_err(into_fault)? {
            WriteReply::Submitted(submitted) => Ok(submitted),
            done => Err(unexpected_reply(Operation::SubmitCommand, &done)),
        }
    }

    async fn withdraw(
        &self,
        session: SessionId,
        command: Command,
        fault: Fault,
    ) -> Result<Answer, Fault> {
        let request =
            WriteRequest::Withdraw(session, Box::new(command), Answer::Rejected { fault });
        match self.write(request).await.map_err(into_fault)? {
            WriteReply::Submitted(SubmitOutcome::Answered(answer)) => Ok(answer),
            done => Err(unexpected_reply(Operation::SubmitCommand, &done)),
        }
    }

    async fn inbox(&self, session: SessionId) -> Result<Vec<Command>, Fault> {
        let readers = &self.shared.readers;
        readers
            .query(Operation::SubmitCommand, move |connection, path| {
                reader::inbox(connection, path, session)
            })
            .await
    }

    async fn answer(&self, session: SessionId, id: &CommandId) -> Result<Option<Answer>, Fault> {
        Ok(self.shared.answer(session, id).await?.flatten())
    }

    async fn answered(
        &self,
        session: SessionId,
        ids: &[CommandId],
    ) -> Result<Vec<CommandId>, Fault> {
        let ids = ids.to_vec();
        let readers = &self.shared.readers;
        readers
            .query(Operation::SubmitCommand, move |connection, path| {
                reader::answered(connection, path, session, ids)
            })
            .await
    }

    async fn await_answer(&self, session: SessionId, id: &CommandId) -> Result<Answer, Fault> {
        let mut subscription = self.shared.notifier.subscribe(session);
        loop {
            match self.shared.answer(session, id).await? {
                Some(Some(answer)) => return Ok(answer),
                Some(None) => subscription.wait_for_answer_change().await,
                None => return Err(faults::unknown_command(session, id)),
            }
        }
    }

    fn watch(&self, session: SessionId) -> ChangeWatch {
        ChangeWatch::new(self.shared.notifier.subscribe(session))
    }
}

#[async_trait]
impl Writer for Sqlite {
    async fn take_lease(&self, request: LeaseRequest) -> Result<Lease, Fault> {
        match self.write(WriteRequest::TakeLease(request)).await.map_err(into_fault)? {
            WriteReply::Lease(lease) => Ok(lease),
            done => Err(unexpected_reply(Operation::TakeLease, &done)),
        }
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Lease, Fault> {
        match self.write(WriteRequest::Renew(lease.clone(), ttl)).await.map_err(into_fault)? {
            WriteReply::Lease(lease) => Ok(lease),
            done => Err(unexpected_reply(Operation::TakeLease, &done)),
        }
    }

    async fn release(&self, lease: &Lease) -> Result<(), Fault> {
        self.write(WriteRequest::Release(lease.clone(), None)).await.map_err(into_fault)?;
        Ok(())
    }

    async fn reserve(&self, lease: &Lease, time: Duration) -> Result<(), Fault> {
        self.write(WriteRequest::Release(lease.clone(), Some(time))).await.map_err(into_fault)?;
        Ok(())
    }

    async fn append(&self, append: Append) -> Result<Seq, AppendError> {
        let prepared = EncodedAppend::new(append);
        let (limit, size) = (self.shared.options.append_bytes, prepared.bytes());
        if size > limit {
            let operation = Operation::AppendRecords;
            return Err(
                faults::limit_reached(operation, "append_bytes", "bytes", limit, size).into()
            );
        }
        match self.write(WriteRequest::Append(prepared)).await? {
            WriteReply::Head(head) => Ok(head),
            done => Err(unexpected_reply(Operation::AppendRecords, &done).into()),
        }
    }

    async fn put_blob(&self, session: SessionId, content: Bytes) -> Result<Digest, Fault> {
        let (limit, size) = (self.shared.options.limits.output_bytes_kept, content.len());
        if size > limit {
            let operation = Operation::WriteBlob;
            return Err(faults::limit_reached(
                operation,
                "output_bytes_kept",
                "bytes",
                limit,
                size,
            ));
        }
        let digest = Digest::of(&content);
        self.write(WriteRequest::PutBlob(session, digest, content)).await.map_err(into_fault)?;
        Ok(digest)
    }
}

impl SqliteShared {
    async fn answer(
        &self,
        session: SessionId,
        id: &CommandId,
    ) -> Result<Option<Option<Answer>>, Fault> {
        let id = id.clone();
        self.readers
            .query(Operation::SubmitCommand, move |connection, path| {
                reader::answer(connection, path, session, &id)
            })
            .await
    }
}
