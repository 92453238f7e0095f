//! The contract, spelled for a file: changes go to the writer, questions to a reader.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, CommandId, Seq, SessionId},
    fault::{Fault, Operation},
};
use bytes::Bytes;
use futures::stream::BoxStream;

use super::{
    Shared, Sqlite,
    ask::{Ask, Done, Prepared},
    into_fault, mixed_up, queries,
    reader::{self, Readers},
    witness::with_suffix,
};
use crate::{
    contract::{
        Append, AppendError, Digest, Filter, Info, Journal, Lease, LeaseRequest, Load, Page,
        PageLimits, Rate, RateQuery, Retained, Retention, Snapshot, Stored, Submitted, Summary,
        Unfinished, Watch,
    },
    faults,
    follow::{self, Pages},
};

#[async_trait]
impl Pages for Readers {
    async fn page(
        self: Arc<Self>,
        session: SessionId,
        after: Seq,
        limits: PageLimits,
    ) -> Result<Page, Fault> {
        self.ask(Operation::ReadRecords, move |connection, path| {
            reader::page(connection, path, session, after, limits)
        })
        .await
    }
}

#[async_trait]
impl Journal for Sqlite {
    async fn take_lease(&self, request: LeaseRequest) -> Result<Lease, Fault> {
        match self.write(Ask::TakeLease(request)).await.map_err(into_fault)? {
            Done::Lease(lease) => Ok(lease),
            done => Err(mixed_up(Operation::TakeLease, &done)),
        }
    }

    async fn renew(&self, lease: &Lease, ttl: Duration) -> Result<Lease, Fault> {
        match self.write(Ask::Renew(lease.clone(), ttl)).await.map_err(into_fault)? {
            Done::Lease(lease) => Ok(lease),
            done => Err(mixed_up(Operation::TakeLease, &done)),
        }
    }

    async fn release(&self, lease: &Lease) -> Result<(), Fault> {
        self.write(Ask::Release(lease.clone())).await.map_err(into_fault)?;
        Ok(())
    }

    async fn append(&self, append: Append) -> Result<Seq, AppendError> {
        let prepared = Prepared::new(append);
        let (limit, size) = (self.shared.options.append_bytes, prepared.bytes());
        if size > limit {
            let operation = Operation::AppendRecords;
            return Err(faults::limit(operation, "append_bytes", "bytes", limit, size).into());
        }
        match self.write(Ask::Append(prepared)).await? {
            Done::Head(head) => Ok(head),
            done => Err(mixed_up(Operation::AppendRecords, &done).into()),
        }
    }

    fn load(&self) -> Load {
        let waiting = self.shared.desk.as_ref().map_or(0, |desk| {
            self.shared.options.queue.max(1).saturating_sub(desk.slots.available_permits())
        });
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |found| found.len());
        let path = &self.shared.path;
        Load { waiting, bytes: size(path) + size(&with_suffix(path, "-wal")) }
    }

    async fn submit(&self, session: SessionId, command: Command) -> Result<Submitted, Fault> {
        let ask = Ask::Submit(session, Box::new(command));
        match self.write(ask).await.map_err(into_fault)? {
            Done::Submitted(submitted) => Ok(submitted),
            done => Err(mixed_up(Operation::SubmitCommand, &done)),
        }
    }

    async fn withdraw(
        &self,
        session: SessionId,
        command: Command,
        fault: Fault,
    ) -> Result<Answer, Fault> {
        let ask = Ask::Withdraw(session, Box::new(command), Answer::Rejected { fault });
        match self.write(ask).await.map_err(into_fault)? {
            Done::Submitted(Submitted::Answered(answer)) => Ok(answer),
            done => Err(mixed_up(Operation::SubmitCommand, &done)),
        }
    }

    async fn inbox(&self, session: SessionId) -> Result<Vec<Command>, Fault> {
        let readers = &self.shared.readers;
        readers
            .ask(Operation::SubmitCommand, move |connection, path| {
                reader::inbox(connection, path, session)
            })
            .await
    }

    async fn answer(&self, session: SessionId, id: &CommandId) -> Result<Option<Answer>, Fault> {
        Ok(self.shared.answer(session, id).await?.flatten())
    }

    async fn await_answer(&self, session: SessionId, id: &CommandId) -> Result<Answer, Fault> {
        let mut ear = self.shared.bell.listen(session);
        loop {
            match self.shared.answer(session, id).await? {
                Some(Some(answer)) => return Ok(answer),
                Some(None) => ear.answers_changed().await,
                None => return Err(faults::unknown_command(session, id)),
            }
        }
    }

    fn watch(&self, session: SessionId) -> Watch {
        Watch(self.shared.bell.listen(session))
    }

    async fn info(&self, session: SessionId) -> Result<Option<Info>, Fault> {
        let now = self.shared.world.clock.now();
        let readers = &self.shared.readers;
        readers
            .ask(Operation::ReadRecords, move |connection, path| {
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
    ) -> BoxStream<'static, Result<Vec<Stored>, Fault>> {
        follow::follow(self.shared.readers.clone(), &self.shared.bell, session, after)
    }

    async fn snapshot(&self, session: SessionId) -> Result<Option<Snapshot>, Fault> {
        let readers = &self.shared.readers;
        readers
            .ask(Operation::ReadRecords, move |connection, path| {
                reader::snapshot(connection, path, session)
            })
            .await
    }

    async fn put_blob(&self, session: SessionId, content: Bytes) -> Result<Digest, Fault> {
        let (limit, size) = (self.shared.options.limits.output_bytes_kept, content.len());
        if size > limit {
            let operation = Operation::WriteBlob;
            return Err(faults::limit(operation, "output_bytes_kept", "bytes", limit, size));
        }
        let digest = Digest::of(&content);
        self.write(Ask::PutBlob(session, digest, content)).await.map_err(into_fault)?;
        Ok(digest)
    }

    async fn blob(&self, digest: Digest) -> Result<Option<Bytes>, Fault> {
        let readers = &self.shared.readers;
        readers
            .ask(Operation::ReadBlob, move |connection, path| {
                reader::blob(connection, path, digest)
            })
            .await
    }

    async fn sessions(&self, filter: Filter) -> Result<Vec<Summary>, Fault> {
        self.catch_up().await?;
        let readers = &self.shared.readers;
        readers
            .ask(Operation::ReadRecords, move |connection, _| {
                queries::sessions(connection, &filter)
            })
            .await
    }

    async fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<Unfinished>, Fault> {
        self.catch_up().await?;
        let now = self.shared.world.clock.now();
        let readers = &self.shared.readers;
        readers
            .ask(Operation::ReadRecords, move |connection, path| {
                queries::unfinished(connection, path, after, limit, now)
            })
            .await
    }

    async fn rates(&self, query: RateQuery) -> Result<Vec<Rate>, Fault> {
        self.catch_up().await?;
        let readers = &self.shared.readers;
        readers
            .ask(Operation::ReadRecords, move |connection, _| queries::rates(connection, &query))
            .await
    }

    async fn rebuild_views(&self) -> Result<(), Fault> {
        self.write(Ask::RebuildViews).await.map_err(into_fault)?;
        self.catch_up().await
    }

    async fn retain(&self, retention: Retention) -> Result<Retained, Fault> {
        self.catch_up().await?;
        let mut total = Retained::default();
        let mut next = Some(0);
        while let Some(after) = next {
            let ask = Ask::Retain(after, retention.clone());
            match self.write(ask).await.map_err(into_fault)? {
                Done::Retained(retained, more) => {
                    total.sessions += retained.sessions;
                    total.records += retained.records;
                    next = more;
                }
                done => return Err(mixed_up(Operation::ApplyRetention, &done)),
            }
        }
        match self.write(Ask::Sweep).await.map_err(into_fault)? {
            Done::Retained(retained, _) => Ok(Retained { blobs: retained.blobs, ..total }),
            done => Err(mixed_up(Operation::ApplyRetention, &done)),
        }
    }

    async fn delete(&self, session: SessionId) -> Result<bool, Fault> {
        // What was counted stays counted, so it must have been counted first.
        self.catch_up().await?;
        match self.write(Ask::Delete(session)).await.map_err(into_fault)? {
            Done::Deleted(was_there) => Ok(was_there),
            done => Err(mixed_up(Operation::ApplyRetention, &done)),
        }
    }
}

impl Shared {
    async fn answer(
        &self,
        session: SessionId,
        id: &CommandId,
    ) -> Result<Option<Option<Answer>>, Fault> {
        let id = id.clone();
        self.readers
            .ask(Operation::SubmitCommand, move |connection, path| {
                reader::answer(connection, path, session, &id)
            })
            .await
    }
}
