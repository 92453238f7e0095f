//! When a timer fires: at one time, or again and again by a cron form in a time zone.

use std::{sync::OnceLock, time::Duration};

use jiff::tz::{TimeZone, TimeZoneDatabase};
use serde::{Deserialize, Serialize};

use super::{MISSED_MAX, cron::CronForm};
use crate::{
    fault::{Fact, FactValue, Fault, Kind, Operation},
    limits::Limits,
    time::Timestamp,
};

/// The time zone of a schedule that names none.
const UTC: &str = "UTC";

/// The longest cron form or name of a time zone, in bytes.
const TEXT_MAX: usize = 256;

/// Firings whose distance is checked when a schedule is set.
const CHECKED_FIRINGS: usize = 64;

/// When a timer fires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Fires once, at this time.
    At(Timestamp),
    /// Whenever the local time fits.
    Cron {
        /// Minute, hour, day of month, month and day of week, or a nickname such as `@daily`.
        form: String,
        /// The IANA name of the time zone.
        zone: String,
    },
}

/// When a sender wants a timer to fire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimerRequest {
    /// Once, at a time.
    At(Timestamp),
    /// Once, this many milliseconds after the command is handled.
    After(u64),
    /// By a cron form, in a time zone (UTC if absent).
    Cron {
        /// Minute, hour, day of month, month and day of week, or a nickname such as `@daily`.
        form: String,
        /// The IANA name of the time zone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        zone: Option<String>,
    },
}

impl TimerRequest {
    /// The schedule that is wanted, and its first time.
    ///
    /// # Errors
    /// `time_in_past`; `schedule_refused` for a form that cannot be read, never fires or fires too often, an unknown time
    /// zone, or a time beyond the horizon.
    pub fn resolve(self, now: Timestamp, limits: &Limits) -> Result<(Schedule, Timestamp), Fault> {
        match self {
            Self::At(at) => resolve_time(at, now, limits),
            Self::After(ms) => resolve_time(now.after(Duration::from_millis(ms)), now, limits),
            Self::Cron { form, zone } => {
                resolve_form(form, zone.unwrap_or_else(|| UTC.to_owned()), now, limits)
            }
        }
    }
}

impl Schedule {
    /// The first time after `after`, up to the horizon; none if there is none.
    #[must_use]
    pub fn next_after(&self, after: Timestamp, horizon: Duration) -> Option<Timestamp> {
        match self {
            Self::At(at) => (*at > after).then_some(*at),
            Self::Cron { form, zone } => {
                let (form, zone) = (CronForm::parse(form).ok()?, time_zone(zone)?);
                form.next_after(after, &zone, after.after(horizon))
            }
        }
    }

    /// How many times lie after `due` and not after `now`, at most [`MISSED_MAX`].
    #[must_use]
    pub fn count_missed(&self, due: Timestamp, now: Timestamp) -> u64 {
        let Self::Cron { form, zone } = self else { return 0 };
        let (Ok(form), Some(zone)) = (CronForm::parse(form), time_zone(zone)) else { return 0 };
        let (mut missed, mut last) = (0, due);
        while missed < MISSED_MAX
            && let Some(next) = form.next_after(last, &zone, now)
        {
            (missed, last) = (missed + 1, next);
        }
        missed
    }
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::At(at) => at.fmt(f),
            Self::Cron { form, zone } => write!(f, "{form} ({zone})"),
        }
    }
}

fn resolve_time(
    at: Timestamp,
    now: Timestamp,
    limits: &Limits,
) -> Result<(Schedule, Timestamp), Fault> {
    if at <= now {
        return Err(Fault::new(Kind::TimeInPast, Operation::SetTimer)
            .with(Fact::Field, "at")
            .with(Fact::Constraint, "the time is in the future")
            .with(Fact::ProvidedValue, FactValue::Json(at.to_string().into()))
            .with(Fact::DueAt, at.to_string())
            .with(Fact::Now, now.to_string()));
    }
    if at > now.after(limits.timer_horizon) {
        let rule = format!("the time is at most {} ahead (timer_horizon)", days(limits));
        return Err(refused("at", &at.to_string(), rule));
    }
    Ok((Schedule::At(at), at))
}

fn resolve_form(
    form: String,
    zone: String,
    now: Timestamp,
    limits: &Limits,
) -> Result<(Schedule, Timestamp), Fault> {
    if form.len().max(zone.len()) > TEXT_MAX {
        let rule = format!("a cron form or a time zone has at most {TEXT_MAX} bytes");
        return Err(refused("cron", &form, rule));
    }
    let parsed = CronForm::parse(&form).map_err(|rule| refused("cron", &form, rule))?;
    let Some(found) = time_zone(&zone) else {
        let rule = "the time zone has an IANA name, such as UTC or Asia/Shanghai";
        return Err(refused("zone", &zone, rule.to_owned()));
    };
    let until = now.after(limits.timer_horizon);
    let Some(first) = parsed.next_after(now, &found, until) else {
        let rule = format!("the form fits a time within {} (timer_horizon)", days(limits));
        return Err(refused("cron", &form, rule));
    };
    let mut last = first;
    for _ in 0..CHECKED_FIRINGS {
        let Some(next) = parsed.next_after(last, &found, until) else { break };
        if next.since(last) < limits.timer_period {
            let seconds = limits.timer_period.as_secs_f64();
            let rule = format!("two firings are at least {seconds} s apart (timer_period)");
            return Err(refused("cron", &form, rule));
        }
        last = next;
    }
    Ok((Schedule::Cron { form, zone }, first))
}

fn days(limits: &Limits) -> String {
    format!("{} days", limits.timer_horizon.as_secs() / 86_400)
}

fn refused(field: &'static str, value: &str, rule: String) -> Fault {
    let value: String = value.chars().take(TEXT_MAX).collect();
    Fault::new(Kind::ScheduleRefused, Operation::SetTimer)
        .with(Fact::Field, field)
        .with(Fact::Constraint, rule)
        .with(Fact::ProvidedValue, FactValue::Json(value.into()))
}

/// A time zone of the database inside the program: no server depends on the files of its machine.
fn time_zone(name: &str) -> Option<TimeZone> {
    static ZONES: OnceLock<TimeZoneDatabase> = OnceLock::new();
    match name {
        UTC => Some(TimeZone::UTC),
        name => ZONES.get_or_init(TimeZoneDatabase::bundled).get(name).ok(),
    }
}
