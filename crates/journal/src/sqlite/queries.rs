//! Queries on the views: lists of sessions, unfinished sessions, counts of fault codes.

use std::path::Path;

use budao_core::{
    event::{SessionId, Settings},
    time::Timestamp,
};
use rusqlite::{Connection, ToSql};
use uuid::Uuid;

use super::{
    errors::SqliteError,
    rows::{SessionRow, read_position, sql_limit},
    view_update::summary_from_row,
};
use crate::{
    contract::{
        FaultRate, Filter, RateQuery, SessionSummary, TimedSession, TimerQuery, UnfinishedSession,
    },
    implement::views,
};

/// An SQL query that is assembled from conditions.
struct Query {
    sql: String,
    values: Vec<Box<dyn ToSql>>,
}

impl Query {
    fn add_condition<const N: usize>(&mut self, condition: &str, values: [Box<dyn ToSql>; N]) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.values.extend(values);
    }
}

pub(super) fn sessions(
    connection: &Connection,
    filter: &Filter,
) -> Result<Vec<SessionSummary>, SqliteError> {
    let mut query = Query {
        sql: "SELECT v.state, v.opened, v.updated, v.title, v.labels, v.turns, v.open_turn, \
              v.last_code, v.head, v.faults, v.timers, s.uuid \
              FROM view_session v JOIN session s ON s.id = v.session \
              WHERE v.head > 0"
            .into(),
        values: Vec::new(),
    };
    add_filter(&mut query, filter);
    query.sql.push_str(" ORDER BY v.updated DESC, s.uuid DESC LIMIT ?");
    query.values.push(Box::new(sql_limit(filter.limit)));
    let mut statement = connection.prepare_cached(&query.sql)?;
    let found = statement.query_map(rusqlite::params_from_iter(query.values), |row| {
        let session = SessionId(Uuid::from_bytes(row.get(11)?));
        summary_from_row(row, session)
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

fn add_filter(query: &mut Query, filter: &Filter) {
    if let Some((first, last)) = filter.ids {
        let bound = |id: SessionId| Box::new(id.0.as_bytes().to_vec());
        query.add_condition("s.uuid BETWEEN ? AND ?", [bound(first), bound(last)]);
    }
    if let Some(state) = filter.state {
        query.add_condition("v.state = ?", [Box::new(state.as_str())]);
    }
    if let Some(since) = filter.since {
        query.add_condition("v.updated >= ?", [Box::new(since.as_micros())]);
    }
    if let Some(until) = filter.until {
        query.add_condition("v.updated < ?", [Box::new(until.as_micros())]);
    }
    if let Some((updated, session)) = filter.after {
        let id = session.0.as_bytes().to_vec();
        query.add_condition(
            "(v.updated, s.uuid) < (?, ?)",
            [Box::new(updated.as_micros()), Box::new(id)],
        );
    }
    if let Some(trace) = filter.trace {
        let condition = "v.session IN (SELECT session FROM view_trace WHERE trace = ?)";
        query.add_condition(condition, [Box::new(trace.as_u128().to_be_bytes())]);
    }
    if let Some(code) = &filter.code {
        let condition = "v.session IN (SELECT session FROM view_code WHERE code = ?)";
        query.add_condition(condition, [Box::new(code.clone())]);
    }
    if let Some(tool) = &filter.tool {
        let condition = "v.session IN (SELECT session FROM view_tool WHERE tool = ?)";
        query.add_condition(condition, [Box::new(tool.clone())]);
    }
    if let Some((key, value)) = &filter.label {
        let condition = "v.session IN (SELECT session FROM view_label WHERE key = ? \
                         AND value = coalesce(?, value))";
        query.add_condition(condition, [Box::new(key.clone()), Box::new(value.clone())]);
    }
}

/// Unfinished sessions. `orphaned` selects those without a valid lease and those of the holders it names.
pub(super) fn unfinished(
    connection: &Connection,
    path: &Path,
    after: Option<SessionId>,
    limit: usize,
    now: Timestamp,
    orphaned: Option<&[String]>,
) -> Result<Vec<UnfinishedSession>, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT s.uuid, v.open_turn, \
         (SELECT count(*) FROM inbox i WHERE i.session = s.id AND i.answer IS NULL) \
         FROM session s LEFT JOIN view_session v ON v.session = s.id \
         WHERE s.id IN (SELECT session FROM view_session WHERE open_turn IS NOT NULL \
         UNION SELECT session FROM inbox WHERE answer IS NULL) \
         AND s.uuid > ?1 AND (?3 IS NULL OR s.expires <= ?4 \
         OR s.holder IN (SELECT value FROM json_each(?3)) \
         OR (s.token IS NULL AND (s.holder NOT IN (SELECT holder FROM node) \
         OR EXISTS (SELECT 1 FROM inbox i WHERE i.session = s.id AND i.answer IS NULL)))) \
         ORDER BY s.uuid LIMIT ?2",
    )?;
    let after = after.map_or(Vec::new(), |session| session.0.as_bytes().to_vec());
    let dead = orphaned.map(|dead| serde_json::Value::from(dead.to_vec()).to_string());
    let mut rows = statement.query((after, sql_limit(limit), dead, now.as_micros()))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let session = SessionId(Uuid::from_bytes(row.get(0)?));
        let lease = SessionRow::load(connection, path, session)?.and_then(|row| row.lease(now));
        let turn: Option<i64> = row.get(1)?;
        let pending = usize::try_from(read_position(row, 2)?).unwrap_or(usize::MAX);
        found.push(UnfinishedSession {
            session,
            turn: turn.map(i64::cast_unsigned),
            pending,
            lease,
        });
    }
    Ok(found)
}

/// Sessions with timers, by the earliest next time.
pub(super) fn sessions_with_timers(
    connection: &Connection,
    path: &Path,
    query: &TimerQuery,
    now: Timestamp,
) -> Result<Vec<TimedSession>, SqliteError> {
    let mut statement = connection.prepare_cached(
        "SELECT v.state, v.opened, v.updated, v.title, v.labels, v.turns, v.open_turn, v.last_code, \
         v.head, v.faults, v.timers, s.uuid, v.wake_at \
         FROM view_session v JOIN session s ON s.id = v.session \
         WHERE v.wake_at IS NOT NULL AND (v.wake_at, s.uuid) > (?1, ?2) \
         AND (?3 IS NULL OR coalesce((SELECT l.value FROM view_label l WHERE l.session = v.session \
         AND l.key = ?4), '') = ?3) ORDER BY v.wake_at, s.uuid LIMIT ?5",
    )?;
    let (wake_at, id) = query.after.map_or((i64::MIN, Vec::new()), |(wake_at, session)| {
        (wake_at.as_micros(), session.0.as_bytes().to_vec())
    });
    let limit = sql_limit(query.limit);
    let mut rows = statement.query((wake_at, id, &query.tenant, Settings::TENANT, limit))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let session = SessionId(Uuid::from_bytes(row.get(11)?));
        let lease = SessionRow::load(connection, path, session)?.and_then(|row| row.lease(now));
        let summary = summary_from_row(row, session)?;
        found.push(TimedSession {
            session,
            wake_at: Timestamp::from_micros(row.get(12)?),
            timers: summary.timers.timers,
            labels: summary.labels,
            lease,
        });
    }
    Ok(found)
}

pub(super) fn rates(
    connection: &Connection,
    query: &RateQuery,
) -> Result<Vec<FaultRate>, SqliteError> {
    let minutes = views::minutes_rounded_up(query.bucket);
    let length = views::BUCKET_MICROS.saturating_mul(minutes);
    let since = views::bucket_start(query.since, minutes);
    let mut statement = connection.prepare_cached(
        "SELECT code, minute - (minute % ?1 + ?1) % ?1 AS at, sum(raised), sum(ended) \
         FROM view_rate WHERE minute >= ?2 AND minute < ?3 AND (?4 IS NULL OR code = ?4) \
         GROUP BY code, at ORDER BY code, at",
    )?;
    let bounds = (length, since.as_micros(), query.until.as_micros(), &query.code);
    let found = statement.query_map(bounds, |row| {
        Ok(FaultRate {
            code: row.get(0)?,
            at: Timestamp::from_micros(row.get(1)?),
            raised: read_position(row, 2)?,
            ended: read_position(row, 3)?,
        })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}
