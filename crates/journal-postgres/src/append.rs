//! Appends: gathered in a queue, written in groups by four workers, one statement and one round trip per group.

mod group;
mod outcome;
mod queue;
mod worker;

use std::{collections::HashMap, sync::Mutex};

use budao_core::{
    event::{CommandId, Epoch, Seq, SessionId},
    fault::{Fault, Kind, Operation},
};
use budao_journal::{
    Append, AppendError, Digest, Lease, LeaseToken,
    implement::{EncodedRecord, encode, faults},
};
use tokio::{sync::oneshot, time::Instant};

use crate::{connection::lock, errors, inbox, pool::PATIENCE, shared::PostgresShared};

pub(crate) use self::queue::AppendQueue;

/// Sessions that are remembered; beyond it all are read again.
const SESSIONS: usize = 100_000;

/// The end of a session's history as its writer knows it. Valid for this token only: no other writer can move it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedSession {
    /// The key of the session's row.
    pub(crate) key: i64,
    pub(crate) epoch: Epoch,
    pub(crate) head: Seq,
    /// The digest that the next batch continues.
    pub(crate) chain: Digest,
    pub(crate) token: LeaseToken,
}

/// The sessions that this process writes.
#[derive(Debug, Default)]
pub(crate) struct SessionCache(Mutex<HashMap<SessionId, CachedSession>>);

impl SessionCache {
    fn get(&self, session: SessionId, token: LeaseToken) -> Option<CachedSession> {
        lock(&self.0).get(&session).copied().filter(|known| known.token == token)
    }

    /// The end of the history of each append, where it is known and the one that the append expects.
    fn ends<'a>(
        &self,
        appends: impl Iterator<Item = &'a EncodedAppend>,
    ) -> Vec<Option<CachedSession>> {
        let sessions = lock(&self.0);
        let end = |append: &EncodedAppend| {
            let known = sessions.get(&append.session).copied();
            known.filter(|known| known.token == append.token && known.head == append.expected)
        };
        appends.map(end).collect()
    }

    pub(crate) fn remember(&self, session: SessionId, known: CachedSession) {
        let mut sessions = lock(&self.0);
        if sessions.len() >= SESSIONS {
            sessions.clear();
        }
        // A later token stays: an append of the earlier one may end after the new lease was taken.
        let is_older = sessions.get(&session).is_some_and(|other| other.token > known.token);
        if !is_older {
            sessions.insert(session, known);
        }
    }

    pub(crate) fn forget(&self, session: SessionId, token: LeaseToken) {
        let mut sessions = lock(&self.0);
        if sessions.get(&session).is_some_and(|known| known.token == token) {
            sessions.remove(&session);
        }
    }
}

/// An append with its parts encoded.
#[derive(Debug)]
pub(crate) struct EncodedAppend {
    session: SessionId,
    token: LeaseToken,
    expected: Seq,
    records: Vec<EncodedRecord>,
    /// Command ids with their answers.
    answers: Vec<(CommandId, Vec<u8>)>,
    /// Command ids with their commands and answers.
    direct: Vec<(CommandId, Vec<u8>, Vec<u8>)>,
    snapshot: Option<Vec<u8>>,
    bytes: usize,
}

impl EncodedAppend {
    /// An append of records that are encoded already, with a snapshot that covers them.
    pub(crate) fn of_records(
        lease: &Lease,
        expected: Seq,
        records: Vec<EncodedRecord>,
        snapshot: Option<Vec<u8>>,
    ) -> Self {
        let bytes = records_size(&records) + snapshot.as_ref().map_or(0, Vec::len);
        let (session, token) = (lease.session, lease.token);
        let (answers, direct) = (Vec::new(), Vec::new());
        Self { session, token, expected, records, answers, direct, snapshot, bytes }
    }

    /// Encodes the parts and refuses an id that occurs twice: the statement would take it for one.
    fn new(append: Append) -> Result<Self, Fault> {
        let session = append.session;
        let mut records = encode(append.entries);
        records.iter_mut().for_each(EncodedRecord::hash_content);
        let answers: Vec<_> =
            append.answers.iter().map(|(id, answer)| (id.clone(), inbox::encode(answer))).collect();
        let direct: Vec<_> = append
            .direct_commands
            .iter()
            .map(|(command, answer)| {
                (command.id.clone(), inbox::encode(command), inbox::encode(answer))
            })
            .collect();
        if let Some(id) = repeated_id(answers.iter().map(|(id, _)| id)) {
            return Err(faults::command_not_pending(session, id));
        }
        if let Some(id) = repeated_id(direct.iter().map(|(id, ..)| id)) {
            return Err(faults::command_repeated(session, id));
        }
        let bytes = records_size(&records)
            + answers.iter().map(|(_, answer)| answer.len() + 80).sum::<usize>()
            + direct.iter().map(|(_, body, answer)| body.len() + answer.len() + 80).sum::<usize>()
            + append.snapshot.as_ref().map_or(0, Vec::len);
        let (token, expected, snapshot) = (append.token, append.expected, append.snapshot);
        Ok(Self { session, token, expected, records, answers, direct, snapshot, bytes })
    }
}

fn records_size(records: &[EncodedRecord]) -> usize {
    records.iter().map(|record| record.body.len() + 40).sum()
}

fn repeated_id<'a>(ids: impl Iterator<Item = &'a CommandId>) -> Option<&'a CommandId> {
    let mut seen = std::collections::HashSet::new();
    let mut ids = ids;
    ids.find(|id| !seen.insert(*id))
}

impl PostgresShared {
    pub(crate) async fn append(&self, append: Append) -> Result<Seq, AppendError> {
        let began = Instant::now();
        let done = self.append_encoded(EncodedAppend::new(append)?).await;
        if done.is_ok() {
            metrics::histogram!("budao_journal_append_seconds").record(began.elapsed());
        }
        done
    }

    /// Queues an append and waits for its outcome.
    pub(crate) async fn append_encoded(&self, append: EncodedAppend) -> Result<Seq, AppendError> {
        let session = append.session;
        let (reply, mut outcome) = oneshot::channel();
        let address = self.pool.address();
        let busy = |cause: &str| errors::busy(address, Operation::AppendRecords, cause);
        let closing = || Fault::new(Kind::ShuttingDown, Operation::AppendRecords);
        let Some(number) = self.appends.push(append, reply) else {
            let is_closed = self.appends.is_closed();
            let fault = if is_closed { closing() } else { busy("too many appends wait") };
            return Err(fault.not_started().into());
        };
        tokio::select! {
            biased;
            done = &mut outcome => return done.unwrap_or_else(|_| Err(closing().into())),
            () = tokio::time::sleep(PATIENCE) => {}
        }
        if self.appends.remove(number) {
            tracing::warn!(%session, waiting = self.appends.len(), "append waited too long");
            return Err(busy("every connection that writes is busy").not_started().into());
        }
        // A worker has it: its outcome is known soon, and giving up here would leave it unknown.
        outcome.await.unwrap_or_else(|_| Err(closing().into()))
    }
}
