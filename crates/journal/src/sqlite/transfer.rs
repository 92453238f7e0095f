//! Moves sessions into and out of a journal file.

use std::io::Write;

use async_trait::async_trait;
use budao_core::{
    event::{Answer, Command, Seq, SessionId},
    fault::{Fault, Kind, Operation},
};
use bytes::Bytes;

use super::{
    Sqlite, cluster, into_fault, once, reader,
    salvage::salvage,
    unexpected_reply,
    write_request::{EncodedAppend, WriteReply, WriteRequest},
};
use crate::{
    contract::{Digest, ExportReport, GapReason, Lease, Note},
    implement::{
        EncodedRecord,
        transfer::{
            Transfer, TransferredHistory, TransferredKey,
            lines::{ExportLine, write_line, write_record},
        },
    },
};

#[async_trait]
impl Transfer for Sqlite {
    async fn session_ids(
        &self,
        after: Option<SessionId>,
        limit: usize,
    ) -> Result<Vec<SessionId>, Fault> {
        self.shared
            .readers
            .query(Operation::BackUpJournal, move |connection, _| {
                reader::session_ids(connection, after, limit)
            })
            .await
    }

    async fn commands(&self, session: SessionId) -> Result<Vec<(Command, Option<Answer>)>, Fault> {
        self.shared
            .readers
            .query(Operation::BackUpJournal, move |connection, path| {
                reader::commands(connection, path, session)
            })
            .await
    }

    async fn blobs_of(&self, session: SessionId) -> Result<Vec<Digest>, Fault> {
        self.shared
            .readers
            .query(Operation::BackUpJournal, move |connection, path| {
                reader::blobs_of(connection, path, session)
            })
            .await
    }

    async fn adopt(&self, history: TransferredHistory) -> Result<Lease, Fault> {
        self.write_for_lease(WriteRequest::Adopt(history)).await
    }

    async fn adopt_command(
        &self,
        session: SessionId,
        command: Command,
        answer: Option<Answer>,
    ) -> Result<(), Fault> {
        let request = WriteRequest::AdoptCommand(session, Box::new(command), answer);
        self.write_ignoring_reply(request).await
    }

    async fn adopt_records(
        &self,
        lease: &Lease,
        expected: Seq,
        records: Vec<EncodedRecord>,
        snapshot: Option<Vec<u8>>,
    ) -> Result<Seq, Fault> {
        self.append_prepared(EncodedAppend::from_encoded(lease, expected, records, snapshot)).await
    }

    async fn adopt_blob(&self, session: SessionId, content: Bytes) -> Result<(), Fault> {
        let digest = Digest::of(&content);
        self.write_ignoring_reply(WriteRequest::PutBlob(session, digest, content)).await
    }

    async fn once_keys(
        &self,
        after: Option<Digest>,
        limit: usize,
    ) -> Result<Vec<TransferredKey>, Fault> {
        self.shared
            .readers
            .query(Operation::BackUpJournal, move |connection, _| {
                once::once_keys(connection, after, limit)
            })
            .await
    }

    async fn adopt_once_key(&self, key: TransferredKey) -> Result<bool, Fault> {
        self.write_adoption(WriteRequest::AdoptOnceKey(key)).await
    }

    async fn notes(&self) -> Result<Vec<(String, Note)>, Fault> {
        let read = |connection: &_, _: &_| cluster::all_notes(connection);
        self.shared.readers.query(Operation::BackUpJournal, read).await
    }

    async fn adopt_note(&self, name: String, note: Note) -> Result<bool, Fault> {
        self.write_adoption(WriteRequest::AdoptNote(name, note)).await
    }
}

impl Sqlite {
    async fn write_adoption(&self, request: WriteRequest) -> Result<bool, Fault> {
        match self.write(request).await.map_err(into_fault)? {
            WriteReply::Adopted(changed) => Ok(changed),
            done => Err(unexpected_reply(Operation::ImportSession, &done)),
        }
    }
}

/// Writes the records salvaged from a damaged file as JSON lines, without SQLite.
///
/// # Errors
/// When the file cannot be read at all, or writing fails.
pub(super) fn export_salvage(
    path: &std::path::Path,
    out: &mut (dyn Write + Send),
) -> Result<ExportReport, Fault> {
    let mut report = ExportReport::default();
    let mut done = write_line(out, &ExportLine::Head { journal: 1 });
    salvage(path, |found| {
        let mut write = || {
            let removed_to = found.records.first().map_or(0, |first| first.seq - 1);
            let removed_reason = (removed_to > 0).then_some(GapReason::Age);
            let (session, epoch) = (found.session, found.epoch.to_string());
            let digest = None;
            let head = ExportLine::Session { session, epoch, removed_to, removed_reason, digest };
            write_line(out, &head)?;
            for record in &found.records {
                write_record(out, record, None)?;
            }
            let records = found.records.len() as u64;
            report.sessions += 1;
            report.records += records;
            report.cut += u64::from(found.unusable > 0);
            write_line(out, &ExportLine::End { end: session, records, digest })
        };
        if done.is_ok() {
            done = write();
        }
    })?;
    done?;
    write_line(out, &ExportLine::Done { done: report.sessions })?;
    out.flush().map_err(|error| {
        Fault::new(Kind::SyncFailed, Operation::BackUpJournal).caused_by(&error)
    })?;
    Ok(report)
}
