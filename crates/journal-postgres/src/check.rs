//! Verifies a journal while it is in use: chains of records, heads, snapshots, commands, outputs, rows without a session.

use budao_core::{
    event::{Answer, Command, Epoch, Seq, SessionId},
    fault::{Fault, Operation},
};
use budao_journal::{
    CheckReport, Damage, Digest, Progress,
    implement::{
        batch_encoding::{self, BatchLocation},
        chain,
    },
};
use bytes::Bytes;
use tokio_postgres::{Row, types::ToSql};

use crate::{
    pool::{LaneKind, Pool},
    shared::digest,
};

/// The number of findings after which a check stops collecting.
const FINDINGS: usize = 1000;
/// Attempts of a session that is trimmed or moved while it is checked.
const ATTEMPTS: usize = 5;

const OPERATION: Operation = Operation::CheckJournal;

const COUNT: &str = "SELECT count(*), (SELECT lost FROM @meta) FROM @session";

const KEYS: &str = "SELECT id FROM @session WHERE id > $1 ORDER BY id LIMIT 256";

const SESSION: &str = "SELECT s.uuid, s.cohort, s.epoch, s.head, s.chain, s.removed_to, n.seq \
    FROM @session s LEFT JOIN @snapshot n ON n.session = s.id WHERE s.id = $1";

const BATCHES: &str = "SELECT first, count, body FROM @batch WHERE cohort = $1 AND session = $2 \
    AND first > $3 AND first <= $4 ORDER BY first LIMIT 64";

const COMMANDS: &str = "SELECT id, body, answer FROM @inbox WHERE session = $1 ORDER BY id";

const BLOBS: &str = "SELECT hash, body FROM @blob WHERE hash > $1 ORDER BY hash LIMIT 16";

const ORPHANS: &str = "SELECT (SELECT count(*) FROM @batch b WHERE NOT EXISTS (SELECT 1 FROM @session s \
        WHERE s.id = b.session AND s.cohort = b.cohort)), \
    (SELECT count(*) FROM @inbox i WHERE NOT EXISTS (SELECT 1 FROM @session s WHERE s.id = i.session)), \
    (SELECT count(*) FROM @blob_reference r WHERE NOT EXISTS (SELECT 1 FROM @blob b WHERE b.hash = r.hash))";

/// A session's row, as a check compares it with the batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CheckedSession {
    key: i64,
    session: SessionId,
    cohort: i32,
    epoch: i32,
    head: Seq,
    chain: Digest,
    removed_to: Seq,
    snapshot: Option<Seq>,
}

/// The progress through a session's batches.
#[derive(Clone, Copy, Debug, Default)]
struct ChainProgress {
    /// The last position seen; 0 before the first batch.
    end: Seq,
    chain: Option<Digest>,
    records: u64,
    damaged: Option<Seq>,
}

/// A check of all tables.
pub(crate) struct Check<'a> {
    pub(crate) pool: &'a Pool,
}

impl Check<'_> {
    /// Verifies everything. Damage is a finding, not an error.
    pub(crate) async fn run(&self, progress: &Progress) -> Result<CheckReport, Fault> {
        let mut report = CheckReport::default();
        let counted = self.pool.run(LaneKind::Read, OPERATION, COUNT, &[]).await?;
        let all = counted[0].get::<_, i64>(0).cast_unsigned();
        report.lost = counted[0].get(1);
        let (mut last, mut done) = (0_i64, 0);
        loop {
            let rows = self.pool.run(LaneKind::Read, OPERATION, KEYS, &[&last]).await?;
            let Some(newest) = rows.last() else { break };
            last = newest.get(0);
            for row in &rows {
                self.check_session(row.get(0), &mut report).await?;
                done += 1;
                progress(done, all.max(done));
            }
        }
        self.check_blobs(&mut report).await?;
        self.check_orphans(&mut report).await?;
        report.findings.truncate(FINDINGS);
        Ok(report)
    }

    async fn checked_session(&self, key: i64) -> Result<Option<CheckedSession>, Fault> {
        let rows = self.pool.run(LaneKind::Read, OPERATION, SESSION, &[&key]).await?;
        Ok(rows.first().map(|row| CheckedSession {
            key,
            session: SessionId(row.get(0)),
            cohort: row.get(1),
            epoch: row.get(2),
            head: row.get::<_, i64>(3).cast_unsigned(),
            chain: digest(row, 4),
            removed_to: row.get::<_, i64>(5).cast_unsigned(),
            snapshot: row.get::<_, Option<i64>>(6).map(i64::cast_unsigned),
        }))
    }

    /// A finding counts only if the session was not trimmed, moved or replaced while it was checked.
    async fn check_session(&self, key: i64, report: &mut CheckReport) -> Result<(), Fault> {
        let Some(mut session) = self.checked_session(key).await? else { return Ok(()) };
        for _ in 0..ATTEMPTS {
            let (chain, found) = self.walk(&session).await?;
            let Some(now) = self.checked_session(key).await? else { return Ok(()) };
            let is_same = (now.cohort, now.epoch, now.removed_to)
                == (session.cohort, session.epoch, session.removed_to);
            if found.is_empty() || is_same {
                report.sessions += 1;
                report.records += chain.records;
                report.findings.extend(found);
                return self.check_commands(&session, report).await;
            }
            session = now;
        }
        Ok(())
    }

    async fn walk(&self, session: &CheckedSession) -> Result<(ChainProgress, Vec<Damage>), Fault> {
        let (mut chain, mut last) = (ChainProgress::default(), 0_i64);
        let head = session.head.cast_signed();
        while chain.damaged.is_none() {
            let parameters: [&(dyn ToSql + Sync); 4] =
                [&session.cohort, &session.key, &last, &head];
            let rows = self.pool.run(LaneKind::Read, OPERATION, BATCHES, &parameters).await?;
            let Some(newest) = rows.last() else { break };
            last = newest.get(0);
            for row in &rows {
                chain.take(session, row);
            }
        }
        Ok((chain, findings(session, &chain)))
    }

    async fn check_commands(
        &self,
        session: &CheckedSession,
        report: &mut CheckReport,
    ) -> Result<(), Fault> {
        let rows = self.pool.run(LaneKind::Read, OPERATION, COMMANDS, &[&session.key]).await?;
        for row in &rows {
            let is_command = serde_json::from_slice::<Command>(row.get(1)).is_ok();
            let answer = row.get::<_, Option<&[u8]>>(2);
            let is_answer = answer.is_none_or(|a| serde_json::from_slice::<Answer>(a).is_ok());
            if is_command && is_answer {
                report.commands += 1;
            } else {
                let description = format!("command {} cannot be read", row.get::<_, i64>(0));
                report.findings.push(of_session(session, None, description, "its records"));
            }
        }
        Ok(())
    }

    async fn check_blobs(&self, report: &mut CheckReport) -> Result<(), Fault> {
        let mut last: Vec<u8> = Vec::new();
        loop {
            let rows = self.pool.run(LaneKind::Read, OPERATION, BLOBS, &[&last]).await?;
            let Some(newest) = rows.last() else { return Ok(()) };
            last = newest.get(0);
            for row in &rows {
                let hash: &[u8] = row.get(0);
                if Digest::of(row.get(1)).0 == hash {
                    report.blobs += 1;
                } else {
                    report
                        .findings
                        .push(of_database(format!("the stored output {hash:02x?} is altered")));
                }
            }
        }
    }

    async fn check_orphans(&self, report: &mut CheckReport) -> Result<(), Fault> {
        let rows = self.pool.run(LaneKind::Read, OPERATION, ORPHANS, &[]).await?;
        let names = [
            "batches without a session",
            "commands without a session",
            "references to missing outputs",
        ];
        for (column, name) in names.into_iter().enumerate() {
            let count: i64 = rows[0].get(column);
            if count > 0 {
                report.findings.push(of_database(format!("{count} {name}")));
            }
        }
        Ok(())
    }
}

impl ChainProgress {
    /// Adds a batch. After the first damage the rest has no meaning.
    fn take(&mut self, session: &CheckedSession, row: &Row) {
        if self.damaged.is_some() {
            return;
        }
        let first = row.get::<_, i64>(0).cast_unsigned();
        let count = u64::from(row.get::<_, i32>(1).cast_unsigned());
        let is_first = self.chain.is_none();
        let follows =
            if is_first { first <= session.removed_to + 1 } else { first == self.end + 1 };
        if !follows {
            self.damaged = Some(self.end.max(session.removed_to) + 1);
            return;
        }
        let location = BatchLocation { session: session.session, epoch: Epoch(0), first, count };
        let mut records = 0;
        let body = Bytes::copy_from_slice(row.get(2));
        let unpacked = batch_encoding::unpack(location, &body, |record| {
            records += u64::from(record.seq > session.removed_to);
        });
        let expected =
            if is_first { (first == 1).then(|| chain::seed(session.session)) } else { self.chain };
        let breaks_chain = expected.is_some() && unpacked.previous != expected;
        self.damaged = unpacked.damaged.or(breaks_chain.then_some(first));
        if self.damaged.is_none() || !breaks_chain {
            self.records += records;
        }
        self.end = first.saturating_add(count).saturating_sub(1);
        self.chain = unpacked.digest;
    }
}

fn findings(session: &CheckedSession, chain: &ChainProgress) -> Vec<Damage> {
    let mut found = Vec::new();
    if let Some(seq) = chain.damaged {
        let readable = format!("the records before {seq}");
        found.push(of_session(session, Some(seq), format!("record {seq} is damaged"), &readable));
    } else if chain.end.max(session.removed_to) != session.head {
        let description =
            format!("the history ends at {}, its head is {}", chain.end, session.head);
        found.push(of_session(session, Some(chain.end + 1), description, "the records before it"));
    } else if chain.chain.is_some_and(|digest| digest != session.chain) {
        let description = "the last record is not the one that was written last".to_owned();
        found.push(of_session(session, Some(session.head), description, "the records before it"));
    }
    if let Some(seq) = session.snapshot.filter(|seq| *seq > session.head) {
        let description =
            format!("the snapshot covers {seq} records, the history has {}", session.head);
        found.push(of_session(session, None, description, "its records"));
    }
    found
}

fn of_session(
    session: &CheckedSession,
    seq: Option<Seq>,
    description: String,
    readable: &str,
) -> Damage {
    Damage { session: Some(session.session), seq, description, readable: readable.into() }
}

fn of_database(description: String) -> Damage {
    Damage { session: None, seq: None, description, readable: "all sessions".into() }
}
