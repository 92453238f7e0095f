//! Queries on the views: lists of sessions, unfinished sessions, counts of fault codes.

use budao_core::{
    event::{SessionId, Settings},
    fault::{Fault, Operation},
    time::Timestamp,
};
use budao_journal::{
    FaultRate, Filter, LeaseInfo, RateQuery, SessionSummary, TimedSession, TimerQuery,
    UnfinishedSession, implement::views,
};
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::{errors, project::index_prefix, shared::PostgresShared};

/// A query that is assembled from conditions. Each condition has `?` where its values go.
struct SearchQuery {
    sql: String,
    values: Vec<(Box<dyn ToSql + Send + Sync>, Type)>,
}

impl SearchQuery {
    fn value(&mut self, value: impl ToSql + Send + Sync + 'static, kind: Type) -> String {
        self.values.push((Box::new(value), kind));
        format!("${}", self.values.len())
    }

    fn and(&mut self, condition: &str, value: impl ToSql + Send + Sync + 'static, kind: Type) {
        let place = self.value(value, kind);
        self.sql.push_str(" AND ");
        self.sql.push_str(&condition.replace('?', &place));
    }
}

fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn sessions_query(filter: &Filter) -> SearchQuery {
    let sql =
        "SELECT v.body, s.uuid FROM @view_session v JOIN @session s ON s.id = v.session WHERE true";
    let mut query = SearchQuery { sql: sql.into(), values: Vec::new() };
    if let Some((first, last)) = filter.ids {
        let first = query.value(first.0, Type::UUID);
        query.and(&format!("s.uuid BETWEEN {first} AND ?"), last.0, Type::UUID);
    }
    if let Some(state) = filter.state {
        query.and("v.state = ?", state.as_str(), Type::TEXT);
    }
    if let Some(since) = filter.since {
        query.and("v.updated >= ?", since.as_micros(), Type::INT8);
    }
    if let Some(until) = filter.until {
        query.and("v.updated < ?", until.as_micros(), Type::INT8);
    }
    if let Some((updated, session)) = filter.after {
        let updated = query.value(updated.as_micros(), Type::INT8);
        query.and(&format!("(v.updated, s.uuid) < ({updated}, ?)"), session.0, Type::UUID);
    }
    if let Some(trace) = filter.trace {
        let condition = "v.session IN (SELECT session FROM @view_trace WHERE trace = ?)";
        query.and(condition, trace.as_u128().to_be_bytes().to_vec(), Type::BYTEA);
    }
    if let Some(code) = filter.code.clone().filter(|code| !code.contains('\0')) {
        let condition = "v.session IN (SELECT session FROM @view_code WHERE code = ?)";
        query.and(condition, code, Type::TEXT);
    }
    if let Some(tool) = &filter.tool {
        let condition = "v.session IN (SELECT session FROM @view_tool WHERE tool = ?)";
        query.and(condition, index_prefix(tool).to_vec(), Type::BYTEA);
    }
    if let Some((key, value)) = &filter.label {
        let value = value.as_ref().map(|value| index_prefix(value).to_vec());
        let value = query.value(value, Type::BYTEA);
        let condition = format!(
            "v.session IN (SELECT session FROM @view_label WHERE key = ? AND value = coalesce({value}, value))"
        );
        query.and(&condition, index_prefix(key).to_vec(), Type::BYTEA);
    }
    let limit = query.value(sql_limit(filter.limit), Type::INT8);
    query.sql.push_str(&format!(" ORDER BY v.updated DESC, s.uuid DESC LIMIT {limit}"));
    query
}

const UNFINISHED: &str = "SELECT s.uuid, v.open_turn, \
    (SELECT count(*) FROM @inbox i WHERE i.session = s.id AND i.answer IS NULL), s.holder, s.expires, \
    s.expires > coalesce($3, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) \
    FROM @session s LEFT JOIN @view_session v ON v.session = s.id \
    WHERE s.id IN (SELECT session FROM @view_session WHERE open_turn IS NOT NULL \
        UNION SELECT session FROM @inbox WHERE answer IS NULL) \
    AND ($1 IS NULL OR s.uuid > $1) AND ($4 IS NULL OR s.holder = ANY($4) \
        OR s.expires <= coalesce($3, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) \
        OR (s.token IS NULL AND (s.holder NOT IN (SELECT holder FROM @node) \
            OR EXISTS (SELECT 1 FROM @inbox i WHERE i.session = s.id AND i.answer IS NULL)))) \
    ORDER BY s.uuid LIMIT $2";

const TIMED: &str = "SELECT v.body, s.uuid, v.wake_at, s.holder, s.expires, \
    s.expires > coalesce($6, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) \
    FROM @view_session v JOIN @session s ON s.id = v.session \
    WHERE v.wake_at IS NOT NULL AND ($1 IS NULL OR (v.wake_at, s.uuid) > ($1, $2)) \
    AND ($3 IS NULL OR coalesce((SELECT l.value FROM @view_label l WHERE l.session = v.session \
        AND l.key = $4), '') = $3) \
    ORDER BY v.wake_at, s.uuid LIMIT $5";

const RATES: &str = "SELECT code, minute - (minute % $1 + $1) % $1 AS at, sum(raised)::bigint, sum(ended)::bigint \
    FROM @view_rate WHERE minute >= $2 AND minute < $3 AND ($4 IS NULL OR code = $4) \
    GROUP BY code, at ORDER BY code COLLATE \"C\", at";

impl PostgresShared {
    pub(crate) async fn sessions(&self, filter: &Filter) -> Result<Vec<SessionSummary>, Fault> {
        self.catch_up().await?;
        let operation = Operation::ReadRecords;
        let query = sessions_query(filter);
        let values: Vec<(&(dyn ToSql + Sync), Type)> =
            query.values.iter().map(|(value, kind)| (&**value as _, kind.clone())).collect();
        let rows = self.pool.search(operation, &query.sql, &values).await?;
        let summaries = rows.iter().map(|row| {
            views::decode_summary(row.get(0)).ok_or_else(|| {
                let session: Uuid = row.get(1);
                let what = format!("the view of session {session} is damaged");
                errors::damage_fault(self.pool.address(), operation, what)
            })
        });
        summaries.collect()
    }

    /// Unfinished sessions. `orphaned` selects those without a valid lease and those of the holders it names.
    pub(crate) async fn unfinished(
        &self,
        after: Option<SessionId>,
        limit: usize,
        orphaned: Option<&[String]>,
    ) -> Result<Vec<UnfinishedSession>, Fault> {
        self.catch_up().await?;
        let (after, limit, now) = (after.map(|id| id.0), sql_limit(limit), self.lease_time());
        let values: [(&(dyn ToSql + Sync), Type); 4] = [
            (&after, Type::UUID),
            (&limit, Type::INT8),
            (&now, Type::INT8),
            (&orphaned, Type::TEXT_ARRAY),
        ];
        let rows = self.pool.search(Operation::ReadRecords, UNFINISHED, &values).await?;
        let unfinished = rows.iter().map(|row| UnfinishedSession {
            session: SessionId(row.get(0)),
            turn: row.get::<_, Option<i64>>(1).map(i64::cast_unsigned),
            pending: usize::try_from(row.get::<_, i64>(2)).unwrap_or(usize::MAX),
            lease: row.get::<_, bool>(5).then(|| LeaseInfo {
                holder: row.get(3),
                expires: Timestamp::from_micros(row.get(4)),
            }),
        });
        Ok(unfinished.collect())
    }

    pub(crate) async fn sessions_with_timers(
        &self,
        query: &TimerQuery,
    ) -> Result<Vec<TimedSession>, Fault> {
        self.catch_up().await?;
        let wake_at = query.after.map(|(wake_at, _)| wake_at.as_micros());
        let (after, limit) = (query.after.map(|(_, id)| id.0), sql_limit(query.limit));
        let tenant = query.tenant.as_deref().map(index_prefix);
        let (label, now) = (Settings::TENANT.as_bytes(), self.lease_time());
        let values: [(&(dyn ToSql + Sync), Type); 6] = [
            (&wake_at, Type::INT8),
            (&after, Type::UUID),
            (&tenant, Type::BYTEA),
            (&label, Type::BYTEA),
            (&limit, Type::INT8),
            (&now, Type::INT8),
        ];
        let operation = Operation::ReadRecords;
        let rows = self.pool.search(operation, TIMED, &values).await?;
        let timed = rows.iter().map(|row| {
            let session = SessionId(row.get(1));
            let summary = views::decode_summary(row.get(0)).ok_or_else(|| {
                let what = format!("the view of session {session} is damaged");
                errors::damage_fault(self.pool.address(), operation, what)
            })?;
            Ok(TimedSession {
                session,
                wake_at: Timestamp::from_micros(row.get(2)),
                timers: summary.timers.timers,
                labels: summary.labels,
                lease: row.get::<_, bool>(5).then(|| LeaseInfo {
                    holder: row.get(3),
                    expires: Timestamp::from_micros(row.get(4)),
                }),
            })
        });
        timed.collect()
    }

    pub(crate) async fn rates(&self, query: &RateQuery) -> Result<Vec<FaultRate>, Fault> {
        self.catch_up().await?;
        let minutes = views::minutes_rounded_up(query.bucket);
        let length = views::BUCKET_MICROS.saturating_mul(minutes);
        let since = views::bucket_start(query.since, minutes).as_micros();
        let until = query.until.as_micros();
        let code = query.code.clone().filter(|code| !code.contains('\0'));
        let values: [(&(dyn ToSql + Sync), Type); 4] = [
            (&length, Type::INT8),
            (&since, Type::INT8),
            (&until, Type::INT8),
            (&code, Type::TEXT),
        ];
        let rows = self.pool.search(Operation::ReadRecords, RATES, &values).await?;
        let rates = rows.iter().map(|row| FaultRate {
            code: row.get(0),
            at: Timestamp::from_micros(row.get(1)),
            raised: row.get::<_, i64>(2).cast_unsigned(),
            ended: row.get::<_, i64>(3).cast_unsigned(),
        });
        Ok(rates.collect())
    }
}
