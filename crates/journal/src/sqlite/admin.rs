//! The operator's interface of a journal file.

use std::path::Path;

use async_trait::async_trait;
use budao_core::{
    event::{Seq, SessionId},
    fault::{Fault, Operation},
};

use rusqlite::Connection;

use super::{
    Sqlite, chain, connection_options,
    errors::SqliteError,
    into_fault, maintenance,
    rows::read_position,
    run_blocking, unexpected_reply,
    write_request::{FreeSpace, WriteReply, WriteRequest},
};
use crate::{
    contract::{Admin, ChainPage, CompactReport, JournalStats, Retention, RetentionReport},
    implement::notifier::lock,
    implement::transfer::Transfer,
};

impl Sqlite {
    /// Returns free pages to the file system. Each step is a transaction, and other requests come in between.
    async fn shrink(&self, keep: FreeSpace) -> Result<(), Fault> {
        loop {
            match self.write(WriteRequest::Shrink(keep)).await.map_err(into_fault)? {
                WriteReply::More(true) => {}
                WriteReply::More(false) => return Ok(()),
                done => return Err(unexpected_reply(Operation::ApplyRetention, &done)),
            }
        }
    }
}

/// The bytes of all pages.
fn database_bytes(connection: &Connection, _path: &Path) -> Result<u64, SqliteError> {
    let number = |sql: &str| connection.query_row(sql, [], |row| read_position(row, 0));
    Ok(number("PRAGMA page_count")? * number("PRAGMA page_size")?)
}

#[async_trait]
impl Admin for Sqlite {
    fn kind(&self) -> &'static str {
        "sqlite"
    }

    async fn retain(&self, retention: Retention) -> Result<RetentionReport, Fault> {
        self.catch_up().await?;
        if let Some(age) = retention.once_age {
            let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
            let now = self.shared.world.clock.now();
            let before = now.as_micros().saturating_sub(age);
            self.write(WriteRequest::ForgetOnce(before)).await.map_err(into_fault)?;
        }
        let mut total = RetentionReport::default();
        let mut next = Some(0);
        while let Some(after) = next {
            let request = WriteRequest::Retain(after, retention.clone());
            match self.write(request).await.map_err(into_fault)? {
                WriteReply::Retained(retained, more) => {
                    total.sessions += retained.sessions;
                    total.records += retained.records;
                    next = more;
                }
                done => return Err(unexpected_reply(Operation::ApplyRetention, &done)),
            }
        }
        match self.write(WriteRequest::Sweep).await.map_err(into_fault)? {
            WriteReply::Retained(retained, _) => total.blobs = retained.blobs,
            done => return Err(unexpected_reply(Operation::ApplyRetention, &done)),
        }
        // On a full disk there is no room to move pages. SQLite reuses the freed pages anyway.
        if let Err(fault) = self.shrink(FreeSpace::Reusable).await {
            tracing::warn!(%fault, "shrinking the journal failed");
        }
        Ok(total)
    }

    async fn compact(&self) -> Result<CompactReport, Fault> {
        let before_bytes =
            self.shared.readers.query(Operation::CheckJournal, database_bytes).await?;
        self.shrink(FreeSpace::None).await?;
        let after_bytes =
            self.shared.readers.query(Operation::CheckJournal, database_bytes).await?;
        Ok(CompactReport { before_bytes, after_bytes })
    }

    async fn delete(&self, session: SessionId) -> Result<bool, Fault> {
        // The views must include the session's fault codes before its records are removed, because counts outlive it.
        self.catch_up().await?;
        match self.write(WriteRequest::Delete(session)).await.map_err(into_fault)? {
            WriteReply::Deleted(was_there) => Ok(was_there),
            done => Err(unexpected_reply(Operation::ApplyRetention, &done)),
        }
    }

    async fn rebuild_views(&self) -> Result<(), Fault> {
        self.write(WriteRequest::RebuildViews).await.map_err(into_fault)?;
        self.catch_up().await
    }

    async fn chain(
        &self,
        session: SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<ChainPage, Fault> {
        self.shared
            .readers
            .query(Operation::CheckJournal, move |connection, path| {
                chain::chain(connection, path, session, after, limit)
            })
            .await
    }

    async fn stats(&self) -> Result<JournalStats, Fault> {
        self.shared.readers.query(Operation::CheckJournal, maintenance::stats).await
    }

    async fn backup(&self, target: &Path) -> Result<(), Fault> {
        let target = target.to_owned();
        let readers = self.shared.readers.clone();
        let setup = connection_options(&self.shared.options);
        run_blocking(Operation::BackUpJournal, move || {
            maintenance::back_up(readers.path(), &target, setup)
                .map_err(|error| error.into_fault(&target, Operation::BackUpJournal))
        })
        .await
    }

    fn transfer(&self) -> Option<&dyn Transfer> {
        Some(self)
    }

    async fn close(&self) {
        let Some(writer_handle) = &self.shared.writer_handle else { return };
        self.shared.readers.close_idle();
        drop(lock(&writer_handle.writes).take());
        let thread = lock(&writer_handle.thread).take();
        if let Some(thread) = thread {
            // The writer catches its own panics, so the result of the join carries no information.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}
