//! The statement of a group: fence, position, commands, answers and snapshots of several appends at once.
//!
//! An append that breaks a condition has no row in the answer; the others of its group are not affected.

use budao_core::event::Seq;
use budao_journal::{Digest, implement::batch_encoding};

use super::{CachedSession, EncodedAppend};
use crate::{
    connection::Parameters,
    errors::StatementError,
    pool::{Lane, PATIENCE, Pool},
};

/// A group of records alone.
const RECORDS: &str = "WITH a AS (SELECT * FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[], $5::int[], \
        $6::bytea[], $7::bytea[]) AS a(ord, id, token, expected, count, chain, body)), \
    w AS (UPDATE @session s SET head = s.head + a.count, chain = a.chain, dirty = true FROM a \
        WHERE s.id = a.id AND s.token = a.token AND s.head = a.expected \
        RETURNING a.ord, s.id, s.cohort, s.head, a.expected, a.count, a.body), \
    b AS (INSERT INTO @batch(cohort, session, first, count, body) \
        SELECT w.cohort, w.id, w.expected + 1, w.count, w.body FROM w) \
    SELECT ord, head FROM w";

/// A group with commands, answers or snapshots. `l` locks the answered commands, so that nobody withdraws one between
/// the check and the commit.
const EVERYTHING: &str = "WITH a AS (SELECT * FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[], $5::int[], \
        $6::bytea[], $7::bytea[], $8::int[], $9::int[]) AS a(ord, id, token, expected, count, chain, body, answers, direct)), \
    x AS (SELECT * FROM unnest($10::int[], $11::bigint[], $12::bytea[], $13::bytea[]) AS x(ord, id, command, answer)), \
    t AS (SELECT * FROM unnest($14::int[], $15::bigint[], $16::bytea[], $17::bytea[], $18::bytea[]) \
        AS t(ord, id, command, body, answer)), \
    p AS (SELECT * FROM unnest($19::int[], $20::bytea[]) AS p(ord, body)), \
    l AS (SELECT x.ord FROM x JOIN @inbox i ON i.session = x.id AND i.command = x.command \
        WHERE i.answer IS NULL ORDER BY x.id, x.command FOR UPDATE OF i), \
    w AS (UPDATE @session s SET head = s.head + a.count, \
        chain = CASE WHEN a.count > 0 THEN a.chain ELSE s.chain END, dirty = s.dirty OR a.count > 0 FROM a \
        WHERE s.id = a.id AND s.token = a.token AND s.head = a.expected \
        AND (a.answers = 0 OR a.answers = (SELECT count(*) FROM l WHERE l.ord = a.ord)) \
        AND (a.direct = 0 OR NOT EXISTS (SELECT 1 FROM t JOIN @inbox i ON i.session = t.id \
            AND i.command = t.command WHERE t.ord = a.ord)) \
        RETURNING a.ord, s.id, s.cohort, s.head, a.expected, a.count, a.body), \
    b AS (INSERT INTO @batch(cohort, session, first, count, body) \
        SELECT w.cohort, w.id, w.expected + 1, w.count, w.body FROM w WHERE w.count > 0), \
    u AS (UPDATE @inbox i SET answer = x.answer FROM x JOIN w ON w.ord = x.ord \
        WHERE i.session = x.id AND i.command = x.command), \
    n AS (INSERT INTO @inbox(session, command, body, answer) \
        SELECT t.id, t.command, t.body, t.answer FROM t JOIN w ON w.ord = t.ord), \
    q AS (INSERT INTO @snapshot(session, seq, body) SELECT w.id, w.head, p.body FROM p JOIN w ON w.ord = p.ord \
        ON CONFLICT (session) DO UPDATE SET seq = EXCLUDED.seq, body = EXCLUDED.body) \
    SELECT ord, head FROM w";

/// An append with its records packed for a position.
#[derive(Debug)]
pub(super) struct PackedAppend<'a> {
    pub(super) append: &'a EncodedAppend,
    pub(super) known: CachedSession,
    pub(super) body: Vec<u8>,
    /// The digest after this append.
    pub(super) chain: Digest,
}

impl<'a> PackedAppend<'a> {
    /// Packs the records after the end of the history that the writer knows.
    pub(super) fn new(append: &'a EncodedAppend, known: CachedSession) -> Self {
        let (body, chain) = if append.records.is_empty() {
            (Vec::new(), known.chain)
        } else {
            batch_encoding::pack(append.session, known.head + 1, known.chain, &append.records)
        };
        Self { append, known, body, chain }
    }

    /// The head after this append.
    pub(super) fn head(&self) -> Seq {
        self.known.head + self.append.records.len() as u64
    }

    fn is_records_alone(&self) -> bool {
        let append = self.append;
        append.answers.is_empty()
            && append.direct.is_empty()
            && append.snapshot.is_none()
            && !append.records.is_empty()
    }
}

/// The columns of a group, one array each.
#[derive(Default)]
struct GroupColumns<'a> {
    ord: Vec<i32>,
    id: Vec<i64>,
    token: Vec<i64>,
    expected: Vec<i64>,
    count: Vec<i32>,
    chain: Vec<&'a [u8]>,
    body: Vec<&'a [u8]>,
    answers: Vec<i32>,
    direct: Vec<i32>,
    answer_ord: Vec<i32>,
    answer_id: Vec<i64>,
    answer_command: Vec<&'a [u8]>,
    answer_body: Vec<&'a [u8]>,
    direct_ord: Vec<i32>,
    direct_id: Vec<i64>,
    direct_command: Vec<&'a [u8]>,
    direct_body: Vec<&'a [u8]>,
    direct_answer: Vec<&'a [u8]>,
    snapshot_ord: Vec<i32>,
    snapshot_body: Vec<&'a [u8]>,
}

impl<'a> GroupColumns<'a> {
    fn of(group: &'a [PackedAppend<'a>]) -> Self {
        let mut columns = Self::default();
        for (ord, packed) in (0..).zip(group) {
            columns.add(ord, packed);
        }
        columns
    }

    fn add(&mut self, ord: i32, packed: &'a PackedAppend<'a>) {
        let (append, key) = (packed.append, packed.known.key);
        let size = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        self.ord.push(ord);
        self.id.push(key);
        self.token.push(append.token.0.cast_signed());
        self.expected.push(append.expected.cast_signed());
        self.count.push(size(append.records.len()));
        self.chain.push(&packed.chain.0);
        self.body.push(&packed.body);
        self.answers.push(size(append.answers.len()));
        self.direct.push(size(append.direct.len()));
        for (id, answer) in &append.answers {
            self.answer_ord.push(ord);
            self.answer_id.push(key);
            self.answer_command.push(id.0.as_bytes());
            self.answer_body.push(answer);
        }
        for (id, body, answer) in &append.direct {
            self.direct_ord.push(ord);
            self.direct_id.push(key);
            self.direct_command.push(id.0.as_bytes());
            self.direct_body.push(body);
            self.direct_answer.push(answer);
        }
        if let Some(body) = &append.snapshot {
            self.snapshot_ord.push(ord);
            self.snapshot_body.push(body);
        }
    }
}

/// Writes a group, sorted by key so that two writers lock in one order. Returns for each append whether it was written.
pub(super) async fn write(
    pool: &Pool,
    lane: &Lane,
    group: &[PackedAppend<'_>],
) -> Result<Vec<bool>, StatementError> {
    let c = GroupColumns::of(group);
    let is_short = group.iter().all(PackedAppend::is_records_alone);
    let records: Parameters<'_> =
        &[&c.ord, &c.id, &c.token, &c.expected, &c.count, &c.chain, &c.body];
    let rows = if is_short {
        pool.attempt(lane, RECORDS, records, PATIENCE).await?
    } else {
        let everything: Parameters<'_> = &[
            &c.ord,
            &c.id,
            &c.token,
            &c.expected,
            &c.count,
            &c.chain,
            &c.body,
            &c.answers,
            &c.direct,
            &c.answer_ord,
            &c.answer_id,
            &c.answer_command,
            &c.answer_body,
            &c.direct_ord,
            &c.direct_id,
            &c.direct_command,
            &c.direct_body,
            &c.direct_answer,
            &c.snapshot_ord,
            &c.snapshot_body,
        ];
        pool.attempt(lane, EVERYTHING, everything, PATIENCE).await?
    };
    let mut written = vec![false; group.len()];
    for row in rows {
        if let Some(slot) =
            written.get_mut(usize::try_from(row.get::<_, i32>(0)).unwrap_or(usize::MAX))
        {
            *slot = true;
        }
    }
    Ok(written)
}
