//! Times that a cron form fits, invalid forms, and changes of clocks.

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn zone(name: &str) -> TimeZone {
    jiff::tz::TimeZoneDatabase::bundled().get(name).unwrap()
}

/// The first `count` times after `after`, in UTC.
fn times(form: &str, zone_name: &str, after: &str, count: usize) -> Vec<String> {
    let (form, zone) = (CronForm::parse(form).unwrap(), zone(zone_name));
    let mut last = at(after);
    (0..count)
        .filter_map(|_| {
            last = form.next_after(last, &zone, last.after(Duration::from_secs(366 * 86_400)))?;
            Some(last.to_string().replace(":00.000Z", ""))
        })
        .collect()
}

#[test]
fn a_form_fires_at_the_times_that_fit() {
    let from = "2026-11-18T04:41:30Z";
    for (form, expected) in [
        ("* * * * *", vec!["2026-11-18T04:42", "2026-11-18T04:43"]),
        ("*/15 * * * *", vec!["2026-11-18T04:45", "2026-11-18T05:00"]),
        ("0 9 * * *", vec!["2026-11-18T09:00", "2026-11-19T09:00"]),
        ("30 8-9 * * mon-fri", vec!["2026-11-18T08:30", "2026-11-18T09:30", "2026-11-19T08:30"]),
        ("0 0 1,15 * *", vec!["2026-12-01T00:00", "2026-12-15T00:00"]),
        ("0 0 29 2 *", vec![]),
        ("0 0 * FEB sun", vec!["2027-02-07T00:00", "2027-02-14T00:00"]),
        ("0 0 * * 7", vec!["2026-11-22T00:00", "2026-11-29T00:00"]),
        // Both day fields restricted: either of them.
        ("0 0 20 * 0", vec!["2026-11-20T00:00", "2026-11-22T00:00", "2026-11-29T00:00"]),
        ("5/20 3 * * *", vec!["2026-11-19T03:05", "2026-11-19T03:25", "2026-11-19T03:45"]),
        ("@hourly", vec!["2026-11-18T05:00", "2026-11-18T06:00"]),
        ("@daily", vec!["2026-11-19T00:00"]),
        ("@weekly", vec!["2026-11-22T00:00"]),
        ("@monthly", vec!["2026-12-01T00:00"]),
        ("@yearly", vec!["2027-01-01T00:00"]),
    ] {
        let count = expected.len().max(1);
        assert_eq!(times(form, "UTC", from, count), expected, "{form}");
    }
}

#[test]
fn a_form_is_read_in_its_time_zone() {
    let shanghai = times("0 9 * * *", "Asia/Shanghai", "2026-11-18T00:00:00Z", 2);
    assert_eq!(shanghai, ["2026-11-18T01:00", "2026-11-19T01:00"]);
}

#[test]
fn a_time_that_clocks_skip_fires_once_and_one_that_they_repeat_fires_once() {
    // New York: 2026-03-08 02:00 EST becomes 03:00 EDT; 2026-11-01 02:00 EDT becomes 01:00 EST.
    let skipped = times("30 2 * * *", "America/New_York", "2026-03-07T12:00:00Z", 2);
    assert_eq!(skipped, ["2026-03-08T07:30", "2026-03-09T06:30"]);
    let repeated = times("30 1 * * *", "America/New_York", "2026-10-31T12:00:00Z", 2);
    assert_eq!(repeated, ["2026-11-01T05:30", "2026-11-02T06:30"]);
}

#[test]
fn a_form_with_any_hour_fires_in_both_of_two_repeated_hours() {
    let hourly = times("30 * * * *", "America/New_York", "2026-11-01T04:45:00Z", 3);
    assert_eq!(hourly, ["2026-11-01T05:30", "2026-11-01T06:30", "2026-11-01T07:30"]);
}

#[test]
fn an_invalid_form_is_refused_with_its_field() {
    for (form, part) in [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("* * * * * *", "seconds and years are not supported"),
        ("60 * * * *", "`60` is no minute (0 to 59)"),
        ("* 24 * * *", "`24` is no hour"),
        ("* * 0 * *", "`0` is no day of month"),
        ("* * * 13 *", "`13` is no month"),
        ("* * * * 8", "`8` is no day of week"),
        ("*/0 * * * *", "`*/0` is no minute"),
        ("5-1 * * * *", "`5-1` is no minute"),
        (",, * * * *", "is no minute"),
        ("+1 * * * *", "`+1` is no minute"),
        ("@reboot", "five fields"),
        ("99999999999999999999 * * * *", "is no minute"),
    ] {
        let refused = CronForm::parse(form).unwrap_err();
        assert!(refused.contains(part), "{form}: {refused}");
    }
}

#[test]
fn no_text_makes_the_parser_or_the_search_panic() {
    // Goal: any text is a form or a refusal, and any form finds its next time or none. Method: all texts of up to five
    // fields that a small grammar of hostile pieces makes.
    let pieces = ["*", "*/7", "0", "59", "31", "1-5", "jan", "SUN", "7/3", "-", "/", "9999", "é"];
    let (now, utc) = (at("2026-11-18T00:00:00Z"), TimeZone::UTC);
    for first in pieces {
        for second in pieces {
            for third in pieces {
                for form in [
                    format!("{first} {second} {third} * *"),
                    format!("0 {first} {second} {third} *"),
                    format!("0 0 {first} {second} {third}"),
                ] {
                    if let Ok(form) = CronForm::parse(&form) {
                        let until = now.after(Duration::from_secs(366 * 86_400));
                        let next = form.next_after(now, &utc, until);
                        assert!(next.is_none_or(|next| next > now && next <= until));
                    }
                }
            }
        }
    }
}
