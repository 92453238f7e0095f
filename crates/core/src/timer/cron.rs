//! The cron form: five fields (minute, hour, day of month, month, day of week) or a nickname such as `@daily`.
//!
//! A field is `*`, a number, a range `a-b`, either with a step `/n`, or a list of these. Months and days of the week have
//! English names too; Sunday is 0 or 7. If both day fields are restricted, a day that fits either of them counts.
//!
//! When clocks go forward, a time that does not exist fires as much later as the clocks jump. When clocks go back, a
//! form with fixed hours fires once, in the first of the two hours; one with the hour `*` fires in both.

use std::time::Duration;

use jiff::{civil, tz::TimeZone};

use crate::time::Timestamp;

/// Real minutes that are looked at one by one, for forms with any hour; longer than a change of clocks.
const MINUTES: u32 = 180;

/// A parsed cron form. Bit n of a field is set if the value n fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CronForm {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    is_any_day: bool,
    is_any_weekday: bool,
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// A field of the form: its name, its range, and names for its values from the smallest on.
struct Field {
    name: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", min: 0, max: 59, names: &[] },
    Field { name: "hour", min: 0, max: 23, names: &[] },
    Field { name: "day of month", min: 1, max: 31, names: &[] },
    Field { name: "month", min: 1, max: 12, names: &MONTHS },
    Field { name: "day of week", min: 0, max: 7, names: &WEEKDAYS },
];

impl CronForm {
    /// Parses a form. The error names the rule that is broken.
    pub(super) fn parse(form: &str) -> Result<Self, String> {
        let form = match form.trim() {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            other => other,
        };
        let parts: Vec<&str> = form.split_ascii_whitespace().take(FIELDS.len() + 2).collect();
        let Ok([minute, hour, day, month, weekday]) = <[&str; 5]>::try_from(parts) else {
            return Err(
                "a cron form has five fields: minute hour day-of-month month day-of-week; \
                        seconds and years are not supported"
                    .to_owned(),
            );
        };
        let weekdays = FIELDS[4].parse(weekday)?;
        Ok(Self {
            minutes: FIELDS[0].parse(minute)?,
            hours: FIELDS[1].parse(hour)?,
            days: FIELDS[2].parse(day)?,
            months: FIELDS[3].parse(month)?,
            // Sunday has two numbers.
            weekdays: weekdays | (weekdays >> 7 & 1),
            is_any_day: day.starts_with('*'),
            is_any_weekday: weekday.starts_with('*'),
        })
    }

    /// The first time after `after` and not after `until` that fits; none if there is none.
    pub(super) fn next_after(
        &self,
        after: Timestamp,
        zone: &TimeZone,
        until: Timestamp,
    ) -> Option<Timestamp> {
        let is_any_hour = self.hours == Self::all(&FIELDS[1]);
        let near = is_any_hour.then(|| self.next_minute(after, zone)).flatten();
        near.or_else(|| self.next_date(after, zone, until)).filter(|next| *next <= until)
    }

    fn all(field: &Field) -> u64 {
        (field.min..=field.max).fold(0, |bits, value| bits | 1 << value)
    }

    /// Looks at the next real minutes. Both of two repeated hours are among them.
    fn next_minute(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let micros = after.as_micros();
        let minute = Timestamp::from_micros(micros - micros.rem_euclid(60_000_000));
        let ahead = (1..=MINUTES).map(|n| minute.after(Duration::from_secs(60 * u64::from(n))));
        ahead.into_iter().find(|at| {
            local(*at, zone).is_some_and(|local| {
                self.fits_date(local.date()) && has(self.minutes, local.minute())
            })
        })
    }

    /// Walks the calendar, day by day.
    fn next_date(&self, after: Timestamp, zone: &TimeZone, until: Timestamp) -> Option<Timestamp> {
        let start = local(after, zone)?;
        let last = local(until, zone)?.date();
        let mut date = start.date();
        while date <= last {
            if self.fits_date(date)
                && let Some(found) = self.first_time(date, start, after, zone)
            {
                return Some(found);
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    /// The first time of a day that fits and is after `after`. `start` is `after` in local time.
    fn first_time(
        &self,
        date: civil::Date,
        start: civil::DateTime,
        after: Timestamp,
        zone: &TimeZone,
    ) -> Option<Timestamp> {
        let is_first = date == start.date();
        let hours = (0..24).filter(|hour| has(self.hours, *hour));
        let hours = hours.filter(|hour| !is_first || *hour >= start.hour());
        for hour in hours {
            for minute in (0..60).filter(|minute| has(self.minutes, *minute)) {
                let time = date.at(hour, minute, 0, 0);
                let found = zone.to_ambiguous_zoned(time).compatible().ok()?.timestamp();
                let found = Timestamp::from_micros(found.as_microsecond());
                if found > after {
                    return Some(found);
                }
            }
        }
        None
    }

    fn fits_date(&self, date: civil::Date) -> bool {
        let day = has(self.days, date.day());
        let weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        let is_day = match (self.is_any_day, self.is_any_weekday) {
            (false, false) => day || weekday,
            _ => day && weekday,
        };
        has(self.months, date.month()) && is_day
    }
}

fn has(bits: u64, value: i8) -> bool {
    bits >> value.unsigned_abs() & 1 == 1
}

fn local(at: Timestamp, zone: &TimeZone) -> Option<civil::DateTime> {
    let at = jiff::Timestamp::from_microsecond(at.as_micros()).ok()?;
    Some(zone.to_datetime(at))
}

impl Field {
    fn parse(&self, text: &str) -> Result<u64, String> {
        text.split(',').try_fold(0, |bits, item| {
            self.item(item).map(|item| bits | item).ok_or_else(|| {
                let item: String = item.chars().take(20).collect();
                format!("`{item}` is no {} ({} to {})", self.name, self.min, self.max)
            })
        })
    }

    /// `*`, `a` or `a-b`, each with a step if wanted.
    fn item(&self, text: &str) -> Option<u64> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => (range, Some(number(step).filter(|step| *step > 0)?)),
            None => (text, None),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (self.min, self.max),
            Some((first, last)) => (self.value(first)?, self.value(last)?),
            // A step makes an open range of a number.
            None if step.is_some() => (self.value(range)?, self.max),
            None => (self.value(range)?, self.value(range)?),
        };
        let step = usize::try_from(step.unwrap_or(1)).ok()?;
        (first <= last)
            .then(|| (first..=last).step_by(step).fold(0, |bits, value| bits | 1 << value))
    }

    fn value(&self, text: &str) -> Option<u32> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let value = match named {
            Some(index) => self.min + u32::try_from(index).ok()?,
            None => number(text)?,
        };
        (self.min..=self.max).contains(&value).then_some(value)
    }
}

/// Reads up to three digits and nothing else.
fn number(text: &str) -> Option<u32> {
    let is_number = (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
