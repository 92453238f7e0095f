//! The command inbox: one statement per submission, idempotent by the command's id.

use budao_core::{
    event::{Answer, Command, CommandId, SessionId},
    fault::{Fact, Fault, Operation},
};
use budao_journal::{
    SubmitOutcome,
    implement::{faults, retention::is_same_request},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio_postgres::{Row, types::ToSql};

use crate::{errors, pool::LaneKind, shared::PostgresShared};

/// Looks the command up and adds it if it is new and there is room. The lock keeps the session from being deleted
/// meanwhile, and makes the answer wait for the standby even if nothing is added.
const SUBMIT: &str = "WITH s AS (SELECT id FROM @session WHERE uuid = $1 FOR KEY SHARE), \
    known AS (SELECT i.body, i.answer FROM @inbox i JOIN s ON i.session = s.id WHERE i.command = $2), \
    waiting AS (SELECT count(*) AS count FROM @inbox i JOIN s ON i.session = s.id WHERE i.answer IS NULL), \
    made AS (INSERT INTO @inbox(session, command, body) SELECT s.id, $2, $3 FROM s \
        WHERE NOT EXISTS (SELECT 1 FROM known) AND (SELECT count FROM waiting) < $4 \
        ON CONFLICT DO NOTHING RETURNING 1) \
    SELECT (SELECT body FROM known), (SELECT answer FROM known), (SELECT count FROM waiting), \
        EXISTS (SELECT 1 FROM made) FROM s";

/// Rejects a command that waits or was never submitted. A row that comes back was rejected by this statement.
const WITHDRAW: &str = "WITH s AS (SELECT id FROM @session WHERE uuid = $1 FOR KEY SHARE), \
    u AS (UPDATE @inbox i SET answer = $4 FROM s WHERE i.session = s.id AND i.command = $2 \
        AND i.answer IS NULL RETURNING 1), \
    n AS (INSERT INTO @inbox(session, command, body, answer) SELECT s.id, $2, $3, $4 FROM s \
        ON CONFLICT DO NOTHING RETURNING 1) \
    SELECT 1 FROM u UNION ALL SELECT 1 FROM n";

const KNOWN: &str = "SELECT i.body, i.answer FROM @session s LEFT JOIN @inbox i ON i.session = s.id \
    AND i.command = $2 WHERE s.uuid = $1";

const ANSWERED: &str = "SELECT i.command FROM @session s LEFT JOIN @inbox i ON i.session = s.id \
    AND i.command = ANY($2) AND i.answer IS NOT NULL WHERE s.uuid = $1";

const WAITING: &str = "SELECT i.body FROM @session s LEFT JOIN @inbox i ON i.session = s.id \
    AND i.answer IS NULL WHERE s.uuid = $1 ORDER BY i.id";

/// Attempts of a submission that another one of the same id overtakes.
const ATTEMPTS: usize = 5;

/// A command as it is stored.
struct StoredCommand {
    command: Command,
    answer: Option<Answer>,
}

/// Encodes one of our own types, which cannot fail.
pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("commands and answers have string keys and finite numbers")
}

impl PostgresShared {
    pub(crate) fn decode<T: DeserializeOwned>(
        &self,
        session: SessionId,
        bytes: &[u8],
    ) -> Result<T, Fault> {
        serde_json::from_slice(bytes).map_err(|error| {
            let what = format!("a command of session {session} is damaged: {error}");
            errors::damage_fault(self.pool.address(), Operation::SubmitCommand, what)
                .with(Fact::Session, session.to_string())
        })
    }

    fn read_stored(&self, session: SessionId, row: &Row) -> Result<Option<StoredCommand>, Fault> {
        let Some(body) = row.get::<_, Option<&[u8]>>(0) else { return Ok(None) };
        let answer = row.get::<_, Option<&[u8]>>(1);
        let answer = answer.map(|answer| self.decode(session, answer)).transpose()?;
        Ok(Some(StoredCommand { command: self.decode(session, body)?, answer }))
    }

    /// One row per match; none means that the session does not exist.
    async fn ask(
        &self,
        kind: LaneKind,
        session: SessionId,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Fault> {
        let operation = Operation::SubmitCommand;
        let rows = self.pool.run(kind, operation, sql, parameters).await?;
        match rows.is_empty() {
            true => Err(faults::unknown_session(session, operation)),
            false => Ok(rows),
        }
    }

    pub(crate) async fn submit(
        &self,
        session: SessionId,
        command: &Command,
    ) -> Result<SubmitOutcome, Fault> {
        let limit = self.limits.queued_messages;
        let room = i64::try_from(limit).unwrap_or(i64::MAX);
        let (id, body) = (command.id.0.as_bytes(), encode(command));
        for _ in 0..ATTEMPTS {
            let parameters: [&(dyn ToSql + Sync); 4] = [&session.0, &id, &body, &room];
            let rows = self.ask(LaneKind::Write, session, SUBMIT, &parameters).await?;
            if let Some(known) = self.read_stored(session, &rows[0])? {
                return match known.answer {
                    _ if !is_same_request(&known.command.body, &command.body) => {
                        Err(faults::command_repeated(session, &command.id))
                    }
                    Some(answer) => Ok(SubmitOutcome::Answered(answer)),
                    None => Ok(SubmitOutcome::Pending),
                };
            }
            if rows[0].get(3) {
                return Ok(SubmitOutcome::New);
            }
            let waiting: i64 = rows[0].get(2);
            if waiting >= room {
                let (operation, actual) = (Operation::SubmitCommand, waiting + 1);
                let actual = usize::try_from(actual).unwrap_or(usize::MAX);
                return Err(faults::limit_reached(
                    operation,
                    "queued_messages",
                    "commands",
                    limit,
                    actual,
                ));
            }
        }
        Err(self.conflict_fault())
    }

    fn conflict_fault(&self) -> Fault {
        let cause = "the same command was submitted several times at once";
        errors::busy(self.pool.address(), Operation::SubmitCommand, cause)
    }

    pub(crate) async fn withdraw(
        &self,
        session: SessionId,
        command: &Command,
        fault: Fault,
    ) -> Result<Answer, Fault> {
        let rejected = Answer::Rejected { fault };
        let (id, body, answer) = (command.id.0.as_bytes(), encode(command), encode(&rejected));
        for _ in 0..ATTEMPTS {
            let rows = self.ask(LaneKind::Read, session, KNOWN, &[&session.0, &id]).await?;
            let known = self.read_stored(session, &rows[0])?;
            match known {
                Some(known) if !is_same_request(&known.command.body, &command.body) => {
                    return Err(faults::command_repeated(session, &command.id));
                }
                Some(StoredCommand { answer: Some(answer), .. }) => return Ok(answer),
                Some(StoredCommand { answer: None, .. }) | None => {}
            }
            let parameters: [&(dyn ToSql + Sync); 4] = [&session.0, &id, &body, &answer];
            let operation = Operation::SubmitCommand;
            let done = self.pool.run(LaneKind::Write, operation, WITHDRAW, &parameters).await?;
            if !done.is_empty() {
                return Ok(rejected);
            }
        }
        Err(self.conflict_fault())
    }

    pub(crate) async fn inbox(&self, session: SessionId) -> Result<Vec<Command>, Fault> {
        let rows = self.ask(LaneKind::Read, session, WAITING, &[&session.0]).await?;
        let bodies = rows.iter().filter_map(|row| row.get::<_, Option<&[u8]>>(0));
        bodies.map(|body| self.decode(session, body)).collect()
    }

    /// The outer `None` means an unknown command, the inner `None` a pending one.
    pub(crate) async fn answer(
        &self,
        session: SessionId,
        id: &CommandId,
    ) -> Result<Option<Option<Answer>>, Fault> {
        let id = id.0.as_bytes();
        let rows = self.ask(LaneKind::Read, session, KNOWN, &[&session.0, &id]).await?;
        Ok(self.read_stored(session, &rows[0])?.map(|known| known.answer))
    }

    pub(crate) async fn answered(
        &self,
        session: SessionId,
        ids: &[CommandId],
    ) -> Result<Vec<CommandId>, Fault> {
        let wanted: Vec<&[u8]> = ids.iter().map(|id| id.0.as_bytes()).collect();
        let rows = self.ask(LaneKind::Read, session, ANSWERED, &[&session.0, &wanted]).await?;
        let found: Vec<&[u8]> = rows.iter().filter_map(|row| row.get(0)).collect();
        Ok(ids.iter().filter(|id| found.contains(&id.0.as_bytes())).cloned().collect())
    }
}
