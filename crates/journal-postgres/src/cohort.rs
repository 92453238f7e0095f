//! Cohorts: the records of all sessions of a day lie in one partition, so that old ones go by dropping it.

use budao_core::{
    fault::{Fault, Operation},
    time::Timestamp,
};

use crate::pool::{Exclusive, Pool};

const DAY_MICROS: i64 = 86_400_000_000;
const DAY_SECONDS: f64 = 86_400.0;
/// Partitions that are made ahead of their day.
const AHEAD: i32 = 7;
/// Fewer than this ahead, and the missing ones are made.
const AHEAD_MIN: i32 = 3;

/// Claims the dropping of days for a process, unless another one claimed it within the last ten minutes.
const CLAIM: &str = "INSERT INTO @note AS n(name, body, version) \
    VALUES ('job.cohorts', $1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) \
    ON CONFLICT (name) DO UPDATE SET body = EXCLUDED.body, version = EXCLUDED.version \
    WHERE n.body = EXCLUDED.body OR n.version < EXCLUDED.version - 600000000 RETURNING 1";

const UNCLAIM: &str = "DELETE FROM @note WHERE name = 'job.cohorts' AND body = $1";

/// The day of a time, counted from 1970.
pub(crate) fn day_of(at: Timestamp) -> i32 {
    i32::try_from(at.as_micros().div_euclid(DAY_MICROS)).unwrap_or(i32::MAX - AHEAD - 1)
}

/// The name of a day's partition, with its date for people.
fn partition(day: i32) -> String {
    let (year, month, day) = civil(i64::from(day));
    format!("batch_{year:04}{month:02}{day:02}")
}

/// The date of a day counted from 1970, in the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// Makes the partitions of today and the days ahead, if some are missing.
pub(crate) async fn make_ahead(pool: &Pool, today: i32) -> Result<(), Fault> {
    let mut connection = pool.exclusive(Operation::OpenJournal).await?;
    report_end(&mut connection).await?;
    if missing(&mut connection, today, AHEAD_MIN).await?.is_empty() {
        return Ok(());
    }
    connection.begin().await?;
    connection
        .query("SELECT pg_advisory_xact_lock(hashtextextended('budao cohort', 0))", &[])
        .await?;
    for day in missing(&mut connection, today, AHEAD).await? {
        make(&mut connection, day).await?;
    }
    connection.commit().await?;
    report_end(&mut connection).await
}

/// Reports until when there are partitions. The time passes by itself, so that an alert also finds that nobody makes any.
async fn report_end(connection: &mut Exclusive<'_>) -> Result<(), Fault> {
    let rows = connection.query("SELECT max(day) FROM @cohort", &[]).await?;
    if let Some(last) = rows.first().and_then(|row| row.get::<_, Option<i32>>(0)) {
        let end = (f64::from(last) + 1.0) * DAY_SECONDS;
        metrics::gauge!("budao_journal_partitions_end_seconds").set(end);
    }
    Ok(())
}

async fn missing(
    connection: &mut Exclusive<'_>,
    today: i32,
    ahead: i32,
) -> Result<Vec<i32>, Fault> {
    let found = connection.query("SELECT day FROM @cohort WHERE day >= $1", &[&today]).await?;
    let days: Vec<i32> = found.iter().map(|row| row.get(0)).collect();
    Ok((today..=today + ahead).filter(|day| !days.contains(day)).collect())
}

/// Makes a partition beside the table and attaches it, which waits for no reader or writer.
async fn make(connection: &mut Exclusive<'_>, day: i32) -> Result<(), Fault> {
    let name = partition(day);
    let script = format!(
        "CREATE TABLE @{name}(LIKE @batch INCLUDING STORAGE, \
         CHECK (cohort >= {day} AND cohort < {next})) WITH (toast_tuple_target = 8160); \
         CREATE UNIQUE INDEX {name}_first ON @{name}(session, first); \
         ALTER TABLE @batch ATTACH PARTITION @{name} FOR VALUES FROM ({day}) TO ({next}); \
         INSERT INTO @cohort(day) VALUES ({day})",
        next = day + 1,
    );
    connection.execute(&script).await
}

/// Drops the partitions of days before `before`, after moving the batches of sessions that stay. The newest day up to
/// today is never dropped: new sessions go there.
///
/// One process at a time does it; a second one leaves it to the first.
pub(crate) async fn drop_before(
    pool: &Pool,
    before: i32,
    today: i32,
    node: i32,
) -> Result<u64, Fault> {
    let mut connection = pool.exclusive(Operation::ApplyRetention).await?;
    let holder = node.to_be_bytes();
    if connection.query(CLAIM, &[&&holder[..]]).await?.is_empty() {
        return Ok(0);
    }
    let dropped = drop_days(&mut connection, before, today, &holder).await;
    let unclaimed = connection.query(UNCLAIM, &[&&holder[..]]).await;
    // After a failure the claim ends by its age.
    let dropped = dropped?;
    unclaimed?;
    Ok(dropped)
}

async fn drop_days(
    connection: &mut Exclusive<'_>,
    before: i32,
    today: i32,
    holder: &[u8],
) -> Result<u64, Fault> {
    let found = connection
        .query(
            "SELECT day, (SELECT max(day) FROM @cohort WHERE day <= $2) FROM @cohort \
             WHERE day < $1 ORDER BY day",
            &[&before, &today],
        )
        .await?;
    let mut dropped = 0;
    for row in found {
        let (day, newest): (i32, Option<i32>) = (row.get(0), row.get(1));
        let Some(newest) = newest.filter(|newest| *newest > day) else { continue };
        while move_session(connection, day, newest).await? {}
        drop_day(connection, day).await?;
        // Renews the claim of a run with many days.
        connection.query(CLAIM, &[&holder]).await?;
        dropped += 1;
    }
    Ok(dropped)
}

/// Detaches and drops a partition. Every step can be repeated after a crash between two of them.
async fn drop_day(connection: &mut Exclusive<'_>, day: i32) -> Result<(), Fault> {
    let name = partition(day);
    let found = connection
        .query(
            "SELECT i.inhdetachpending FROM pg_class c LEFT JOIN pg_inherits i ON i.inhrelid = c.oid \
             WHERE c.oid = to_regclass($1 || '.' || $2)",
            &[&connection.schema(), &name],
        )
        .await?;
    // Outside a transaction: readers and writers of other days are not held up.
    let detach = match found.first().map(|row| row.get::<_, Option<bool>>(0)) {
        Some(Some(false)) => Some("CONCURRENTLY"),
        Some(Some(true)) => Some("FINALIZE"),
        Some(None) | None => None,
    };
    if let Some(how) = detach {
        connection.execute(&format!("ALTER TABLE @batch DETACH PARTITION @{name} {how}")).await?;
    }
    connection.execute(&format!("DROP TABLE IF EXISTS @{name}")).await?;
    connection.query("DELETE FROM @cohort WHERE day = $1", &[&day]).await?;
    Ok(())
}

/// Moves the batches of one session that stays to another day. Returns whether there was one.
async fn move_session(connection: &mut Exclusive<'_>, from: i32, to: i32) -> Result<bool, Fault> {
    connection.begin().await?;
    let locked = connection
        .query("SELECT id FROM @session WHERE cohort = $1 ORDER BY id LIMIT 1 FOR UPDATE", &[&from])
        .await?;
    let Some(row) = locked.first() else {
        connection.commit().await?;
        return Ok(false);
    };
    let id: i64 = row.get(0);
    connection
        .query(
            "INSERT INTO @batch(cohort, session, first, count, body) \
             SELECT $3, session, first, count, body FROM @batch WHERE cohort = $1 AND session = $2",
            &[&from, &id, &to],
        )
        .await?;
    connection.query("UPDATE @session SET cohort = $2 WHERE id = $1", &[&id, &to]).await?;
    connection.commit().await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_the_date_of_its_day() {
        assert_eq!(partition(0), "batch_19700101");
        assert_eq!(partition(19_782), "batch_20240229");
        assert_eq!(partition(20_773), "batch_20261116");
        assert_eq!(day_of(Timestamp::from_micros(1_800_000_000_000_000)), 20_833);
    }
}
