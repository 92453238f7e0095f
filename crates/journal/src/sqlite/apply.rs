//! Executes each request to the writer inside the open transaction.
//!
//! Every step checks before it writes, so that a refused request changes nothing in a transaction shared with others.

use std::time::Duration;

use budao_core::{
    event::{Answer, Command, CommandId, Seq, SessionId},
    fault::Operation,
};
use rusqlite::OptionalExtension;

use super::{
    errors::SqliteError,
    rows::{self, SessionRow},
    write_request::{EncodedAppend, WriteReply, WriteRequest, WriteResult},
    writer_connection::{CachedSession, WriterConnection},
    writer_thread::CommitNotice,
};
use crate::{
    contract::{AppendError, Digest, IfMissing, Lease, LeaseRequest, LeaseToken, SubmitOutcome},
    implement::batch_encoding,
    implement::encoded::EncodedRecord,
    implement::faults,
    implement::retention,
    implement::transfer::{IMPORTER, TransferredHistory},
};

impl WriterConnection {
    /// An outer error fails the transaction. An inner error refuses this request only.
    pub(super) fn apply(&mut self, request: &WriteRequest) -> Result<WriteResult, SqliteError> {
        let done = match request {
            WriteRequest::TakeLease(request) => self.take_lease(request),
            WriteRequest::Renew(lease, ttl) => self.renew(lease, *ttl),
            WriteRequest::Release(lease, reserved) => self.release(lease, *reserved),
            WriteRequest::Append(append) => self.append(append),
            WriteRequest::Submit(session, command) => self.submit(*session, command),
            WriteRequest::Withdraw(session, command, answer) => {
                self.withdraw(*session, command, answer)
            }
            WriteRequest::PutBlob(session, digest, content) => {
                self.put_blob(*session, *digest, content)
            }
            WriteRequest::ClaimOnce(key, owner, attempt) => self.claim_once(*key, owner, *attempt),
            WriteRequest::SettleOnce(owner, attempt, settlement) => {
                self.settle_once(owner, *attempt, settlement)
            }
            WriteRequest::ForgetOnce(before) => self.forget_once(*before),
            WriteRequest::UpdateViews => {
                self.update_views_slice().map(|more| Ok(WriteReply::More(more)))
            }
            WriteRequest::RebuildViews => self.clear_views().map(|()| Ok(WriteReply::Nothing)),
            WriteRequest::Retain(after, retention) => self.retain_slice(*after, retention),
            WriteRequest::Sweep => self.sweep_blobs(),
            WriteRequest::Shrink(keep) => self.return_free_pages(*keep),
            WriteRequest::Delete(session) => self.delete(*session),
            WriteRequest::Adopt(history) => self.adopt(*history),
            WriteRequest::AdoptCommand(session, command, answer) => {
                self.adopt_command(*session, command, answer.as_ref())
            }
            WriteRequest::Beat(beat) => self.beat(beat),
            WriteRequest::Leave(holder) => self.leave(holder),
            WriteRequest::SetNote(name, expected, body) => self.set_note(name, *expected, body),
            WriteRequest::AdoptOnceKey(key) => self.adopt_once_key(key),
            WriteRequest::AdoptNote(name, note) => self.adopt_note(name, note),
        };
        match done {
            // A fault of this crate concerns this request only, and nothing has been written for it.
            Err(SqliteError::Fault(fault)) => Ok(Err(fault.into())),
            done => done,
        }
    }

    fn take_lease(&mut self, request: &LeaseRequest) -> Result<WriteResult, SqliteError> {
        let now = self.context.world.clock.now();
        let session = request.session;
        let found = SessionRow::load(self.connection()?, self.path(), session)?;
        let row = match found {
            Some(row) => {
                if let Some(lease) = row.lease(now).filter(|_| row.token.is_some())
                    && lease.holder != request.holder
                    && request.dead_holder.as_ref() != Some(&lease.holder)
                {
                    let fault = faults::session_busy(session, &lease.holder, now, lease.expires);
                    return Ok(Err(fault.into()));
                }
                row
            }
            None if request.if_missing == IfMissing::Create => self.new_row(session),
            None => {
                return Ok(Err(faults::unknown_session(session, Operation::TakeLease).into()));
            }
        };
        // A session with a damaged end gets no new writer.
        self.forget_session(session);
        let mut known = self.load_session_state(&row)?;
        let token = LeaseToken((self.meta.last_token + 1).cast_unsigned());
        let mut row = SessionRow {
            token: Some(token),
            holder: request.holder.clone(),
            expires: now.after(request.ttl),
            ..row
        };
        row.update_known_end(Some(known.end()));
        if row.key == 0 {
            row.insert(self.connection()?)?;
        } else {
            row.update(self.connection()?)?;
        }
        self.meta.last_token += 1;
        self.meta.store(self.connection()?)?;
        self.mark.token = self.meta.last_token;
        self.frames += 3;
        (known.key, known.token) = (row.key, Some(token));
        let lease =
            Lease { session, token, epoch: row.epoch, head: known.head, expires: row.expires };
        self.remember(session, known);
        Ok(Ok(WriteReply::Lease(lease)))
    }

    pub(super) fn new_row(&self, session: SessionId) -> SessionRow {
        SessionRow {
            key: 0,
            session,
            epoch: crate::contract::new_epoch(&self.context.world),
            removed_to: 0,
            removed_reason: None,
            token: None,
            holder: String::new(),
            expires: self.context.world.clock.now(),
            removed_digest: None,
            known_end: None,
        }
    }

    fn adopt(&mut self, history: TransferredHistory) -> Result<WriteResult, SqliteError> {
        let TransferredHistory { session, epoch, removed_to, removed_reason, removed_digest } =
            history;
        if SessionRow::load(self.connection()?, self.path(), session)?.is_some() {
            let now = self.context.world.clock.now();
            return Ok(Err(faults::session_busy(session, "", now, now).into()));
        }
        let row = self.new_row(session);
        let epoch = epoch.unwrap_or(row.epoch);
        let mut row = SessionRow { epoch, removed_to, removed_reason, removed_digest, ..row };
        row.insert(self.connection()?)?;
        self.take_lease(&LeaseRequest {
            session,
            holder: IMPORTER.into(),
            ttl: self.context.limits.lease,
            if_missing: IfMissing::Refuse,
            dead_holder: None,
        })
    }

    fn adopt_command(
        &mut self,
        session: SessionId,
        command: &Command,
        answer: Option<&Answer>,
    ) -> Result<WriteResult, SqliteError> {
        let Some(row) = SessionRow::load(self.connection()?, self.path(), session)? else {
            return Ok(Err(faults::unknown_session(session, Operation::ImportSession).into()));
        };
        if rows::load_command(self.connection()?, self.path(), &row, &command.id.0)?.is_some() {
            return Ok(Err(faults::command_repeated(session, &command.id).into()));
        }
        self.write_command(&row, &rows::encode(command), &command.id, answer)?;
        Ok(Ok(WriteReply::Nothing))
    }

    fn renew(&mut self, lease: &Lease, ttl: Duration) -> Result<WriteResult, SqliteError> {
        let row = SessionRow::load(self.connection()?, self.path(), lease.session)?;
        let Some(mut row) = row.filter(|row| row.token == Some(lease.token)) else {
            return Ok(Err(faults::fenced(lease.session, Operation::TakeLease).into()));
        };
        let head = self.cached_session(lease.session)?.map_or(lease.head, |known| known.head);
        row.update_known_end(self.cached_end(lease));
        row.expires = self.context.world.clock.now().after(ttl);
        row.update(self.connection()?)?;
        self.frames += 2;
        Ok(Ok(WriteReply::Lease(Lease { head, expires: row.expires, ..lease.clone() })))
    }

    fn release(
        &mut self,
        lease: &Lease,
        reserved: Option<Duration>,
    ) -> Result<WriteResult, SqliteError> {
        let row = SessionRow::load(self.connection()?, self.path(), lease.session)?;
        if let Some(mut row) = row.filter(|row| row.token == Some(lease.token)) {
            row.update_known_end(self.cached_end(lease));
            let now = self.context.world.clock.now();
            row.expires = now.after(reserved.unwrap_or_default());
            if reserved.is_none() {
                row.holder.clear();
            }
            SessionRow { token: None, ..row }.update(self.connection()?)?;
            self.frames += 2;
        }
        self.forget_session(lease.session);
        Ok(Ok(WriteReply::Nothing))
    }

    fn append(&mut self, append: &EncodedAppend) -> Result<WriteResult, SqliteError> {
        let session = append.session;
        let known = self.cached_session(session)?.filter(|known| known.token == Some(append.token));
        let Some(mut known) = known else { return Ok(Err(AppendError::Fenced)) };
        if known.head != append.expected {
            return Ok(Err(AppendError::Conflict { head: known.head }));
        }
        for (id, _) in &append.answers {
            if !self.is_pending(known.key, id)? {
                return Ok(Err(faults::command_not_pending(session, id).into()));
            }
        }
        if let Err(fault) = self.write_direct_commands(session, &append.direct_commands)? {
            return Ok(Err(fault.into()));
        }
        if !append.entries.is_empty() {
            self.write_batch(session, &mut known, &append.entries)?;
        }
        for (id, answer) in &append.answers {
            self.write_answer(session, known.key, id, answer)?;
        }
        if let Some(body) = &append.snapshot {
            self.write_snapshot(known.key, known.head, body)?;
        }
        if !append.answers.is_empty() {
            self.notices.push(CommitNotice::Answered(session));
        }
        let head = known.head;
        self.remember(session, known);
        Ok(Ok(WriteReply::Head(head)))
    }

    /// Appends a batch to a session and advances its head.
    pub(super) fn write_batch(
        &mut self,
        session: SessionId,
        known: &mut CachedSession,
        entries: &[EncodedRecord],
    ) -> Result<(), SqliteError> {
        let first = known.head + 1;
        let (body, chain) = batch_encoding::pack(session, first, known.chain, entries);
        let batch_id = self.next_batch_id();
        let count = entries.len() as u64;
        self.connection()?
            .prepare_cached(
                "INSERT INTO batch(batch_id, session, first, count, body) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute((batch_id, known.key, first.cast_signed(), count.cast_signed(), &body))?;
        self.frames += 2 + body.len() as u64 / 4096;
        known.head += count;
        known.chain = chain;
        let mut batch = Vec::new();
        if self.context.notifier.has_subscribers(session) {
            let records = (first..).zip(entries);
            batch =
                records.map(|(seq, entry)| entry.to_stored(session, known.epoch, seq)).collect();
        }
        self.notices.push(CommitNotice::Records { session, head: known.head, batch });
        Ok(())
    }

    fn is_pending(&self, key: i64, id: &CommandId) -> Result<bool, SqliteError> {
        let waiting: Option<bool> = self
            .connection()?
            .prepare_cached("SELECT answer IS NULL FROM inbox WHERE session = ?1 AND command = ?2")?
            .query_row((key, &*id.0), |row| row.get(0))
            .optional()?;
        Ok(waiting == Some(true))
    }

    /// Records commands that the writer handled without the inbox. Checks all of them before it writes one.
    fn write_direct_commands(
        &mut self,
        session: SessionId,
        direct_commands: &[(Command, Answer)],
    ) -> Result<Result<(), budao_core::Fault>, SqliteError> {
        if direct_commands.is_empty() {
            return Ok(Ok(()));
        }
        let Some(row) = SessionRow::load(self.connection()?, self.path(), session)? else {
            return Ok(Err(faults::unknown_session(session, Operation::AppendRecords)));
        };
        for (index, (command, _)) in direct_commands.iter().enumerate() {
            let is_twice =
                direct_commands[..index].iter().any(|(before, _)| before.id == command.id);
            let known = rows::load_command(self.connection()?, self.path(), &row, &command.id.0)?;
            if is_twice || known.is_some() {
                return Ok(Err(faults::command_repeated(session, &command.id)));
            }
        }
        for (command, answer) in direct_commands {
            self.write_command(&row, &rows::encode(command), &command.id, Some(answer))?;
        }
        self.notices.push(CommitNotice::Answered(session));
        Ok(Ok(()))
    }

    fn write_answer(
        &mut self,
        session: SessionId,
        key: i64,
        id: &CommandId,
        answer: &[u8],
    ) -> Result<(), SqliteError> {
        let connection = self.connection()?;
        let body: Vec<u8> = connection
            .prepare_cached("SELECT body FROM inbox WHERE session = ?1 AND command = ?2")?
            .query_row((key, &*id.0), |row| row.get(0))?;
        let checksum = rows::inbox_checksum(session, &body, Some(answer));
        connection
            .prepare_cached(
                "UPDATE inbox SET answer = ?3, checksum = ?4 WHERE session = ?1 AND command = ?2",
            )?
            .execute((key, &*id.0, answer, checksum))?;
        self.frames += 2;
        Ok(())
    }

    pub(super) fn write_snapshot(
        &mut self,
        key: i64,
        seq: Seq,
        body: &[u8],
    ) -> Result<(), SqliteError> {
        self.connection()?
            .prepare_cached(
                "INSERT OR REPLACE INTO snapshot(session, seq, body, checksum) \
                 VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute((key, seq.cast_signed(), body, snapshot_checksum(seq, body)))?;
        self.frames += 2 + body.len() as u64 / 4096;
        Ok(())
    }

    fn submit(
        &mut self,
        session: SessionId,
        command: &Command,
    ) -> Result<WriteResult, SqliteError> {
        let Some(row) = SessionRow::load(self.connection()?, self.path(), session)? else {
            return Ok(Err(faults::unknown_session(session, Operation::SubmitCommand).into()));
        };
        if let Some(before) =
            rows::load_command(self.connection()?, self.path(), &row, &command.id.0)?
        {
            return Ok(match before.answer {
                _ if !retention::is_same_request(&before.command.body, &command.body) => {
                    Err(faults::command_repeated(session, &command.id).into())
                }
                Some(answer) => Ok(WriteReply::Submitted(SubmitOutcome::Answered(answer))),
                None => Ok(WriteReply::Submitted(SubmitOutcome::Pending)),
            });
        }
        let limit = self.context.limits.queued_messages;
        let waiting = self.count_pending(row.key)?;
        if waiting >= limit {
            let operation = Operation::SubmitCommand;
            let fault =
                faults::limit_reached(operation, "queued_messages", "commands", limit, waiting + 1);
            return Ok(Err(fault.into()));
        }
        self.write_command(&row, &rows::encode(command), &command.id, None)?;
        self.notices.push(CommitNotice::Command(session));
        Ok(Ok(WriteReply::Submitted(SubmitOutcome::New)))
    }

    fn withdraw(
        &mut self,
        session: SessionId,
        command: &Command,
        rejected: &Answer,
    ) -> Result<WriteResult, SqliteError> {
        let Some(row) = SessionRow::load(self.connection()?, self.path(), session)? else {
            return Ok(Err(faults::unknown_session(session, Operation::SubmitCommand).into()));
        };
        match rows::load_command(self.connection()?, self.path(), &row, &command.id.0)? {
            Some(before) if !retention::is_same_request(&before.command.body, &command.body) => {
                return Ok(Err(faults::command_repeated(session, &command.id).into()));
            }
            Some(before) => {
                if let Some(answer) = before.answer {
                    return Ok(Ok(WriteReply::Submitted(SubmitOutcome::Answered(answer))));
                }
                self.write_answer(session, row.key, &command.id, &rows::encode(rejected))?;
            }
            None => {
                self.write_command(&row, &rows::encode(command), &command.id, Some(rejected))?;
            }
        }
        self.notices.push(CommitNotice::Answered(session));
        Ok(Ok(WriteReply::Submitted(SubmitOutcome::Answered(rejected.clone()))))
    }

    pub(super) fn write_command(
        &mut self,
        row: &SessionRow,
        body: &[u8],
        id: &CommandId,
        answer: Option<&Answer>,
    ) -> Result<(), SqliteError> {
        let answer = answer.map(rows::encode);
        let checksum = rows::inbox_checksum(row.session, body, answer.as_deref());
        let connection = self.connection()?;
        connection
            .prepare_cached(
                "INSERT INTO inbox(session, command, body, answer, checksum) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute((row.key, &*id.0, body, &answer, checksum))?;
        self.mark.inbox = connection.last_insert_rowid();
        self.frames += 4;
        Ok(())
    }

    pub(super) fn count_pending(&self, key: i64) -> Result<usize, SqliteError> {
        let count = self
            .connection()?
            .prepare_cached("SELECT count(*) FROM inbox WHERE session = ?1 AND answer IS NULL")?
            .query_row([key], |row| rows::read_position(row, 0))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    fn put_blob(
        &mut self,
        session: SessionId,
        digest: Digest,
        content: &[u8],
    ) -> Result<WriteResult, SqliteError> {
        let Some(known) = self.cached_session(session)? else {
            return Ok(Err(faults::unknown_session(session, Operation::WriteBlob).into()));
        };
        self.write_blob(known.key, digest, content)?;
        Ok(Ok(WriteReply::Nothing))
    }

    pub(super) fn write_blob(
        &mut self,
        key: i64,
        digest: Digest,
        content: &[u8],
    ) -> Result<(), SqliteError> {
        let connection = self.connection()?;
        let is_new = connection
            .prepare_cached("INSERT OR IGNORE INTO blob(hash, body) VALUES (?1, ?2)")?
            .execute((digest.0, content))?
            > 0;
        let blob = if is_new { connection.last_insert_rowid() } else { self.mark.blob };
        connection
            .prepare_cached("INSERT OR IGNORE INTO blob_reference(session, hash) VALUES (?1, ?2)")?
            .execute((key, digest.0))?;
        self.mark.blob = blob;
        self.frames += 4 + content.len() as u64 / 4096;
        Ok(())
    }
}

pub(super) fn snapshot_checksum(seq: Seq, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&seq.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}
