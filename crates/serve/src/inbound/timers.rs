//! Reads `user.set_timer` and `user.cancel_timer`.

use budao_core::{
    Fault, Timestamp,
    timer::{TimerId, TimerRequest},
};
use serde_json::Value;

use super::{
    Request,
    fields::{self, Fields},
};

const EXPECTED: &str = "an object with `message` and one of `at`, `after_ms` and `cron`";

pub(super) fn read_set_timer(frame: &Fields<'_>) -> Result<Request, Fault> {
    let content =
        frame.object("content")?.ok_or_else(|| fields::missing_fault("content", EXPECTED))?;
    let timer = content.text("timer_id")?.map(TimerId::from);
    let message = content.required_text("message", "what the session is told")?.to_owned();
    let (at, after) = (content.text("at")?, content.integer("after_ms")?);
    let (form, zone) = (content.text("cron")?, content.text("zone")?.map(str::to_owned));
    let when = match (at, after, form) {
        (Some(at), None, None) => TimerRequest::At(parse_time(at)?),
        (None, Some(ms), None) => TimerRequest::After(ms),
        (None, None, Some(form)) => {
            return Ok(Request::SetTimer {
                timer,
                when: TimerRequest::Cron { form: form.to_owned(), zone },
                message,
            });
        }
        (None, None, None) => return Err(fields::missing_fault("content.at", EXPECTED)),
        _ => {
            let rule = "a timer has one of `at`, `after_ms` and `cron`";
            return Err(fields::constraint_fault("content", rule, "more than one"));
        }
    };
    match zone {
        Some(zone) => {
            Err(fields::constraint_fault("content.zone", "only `cron` has a `zone`", &zone))
        }
        None => Ok(Request::SetTimer { timer, when, message }),
    }
}

pub(super) fn read_cancel_timer(frame: &Fields<'_>) -> Result<Request, Fault> {
    let expected = "the id of a timer";
    let id = match frame.get("content") {
        Some(Value::Object(map)) => Fields::nested(map, "content").text("timer_id")?,
        Some(Value::String(id)) => Some(id.as_str()),
        None => None,
        Some(other) => return Err(fields::wrong_type_fault("content", expected, other)),
    };
    let id = id.filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| fields::missing_fault("content.timer_id", expected))?;
    Ok(Request::CancelTimer { timer: TimerId::from(id) })
}

fn parse_time(text: &str) -> Result<Timestamp, Fault> {
    text.parse().map_err(|_| {
        let rule = "a time with its offset, such as 2026-11-18T09:00:00Z";
        fields::constraint_fault("content.at", rule, text)
    })
}
