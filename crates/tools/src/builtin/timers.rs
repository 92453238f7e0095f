//! `wake_at`, `timers_list` and `timer_cancel`: the model wakes its own session later.
//!
//! A timer belongs to the session and outlives the call, the turn and the process. A call that is repeated after a crash
//! sets the same timer again.

use budao_core::{
    Timestamp,
    fault::{Fault, Operation},
    timer::{Timer, TimerId, TimerRequest},
    tool::Effect,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    define::{Builtin, failure},
    io_errors::invalid,
};
use crate::contract::{CallContext, ToolResult};

const OPERATION: Operation = Operation::SetTimer;

/// The `wake_at` tool.
#[derive(Debug)]
pub(super) struct WakeAt;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WakeArgs {
    /// What you are told when the timer fires: what is to be done then.
    #[schemars(length(min = 1, max = 4096))]
    message: String,
    /// The time, with its offset: 2026-11-18T09:00:00Z. Give one of `at`, `after_seconds` and `cron`.
    at: Option<String>,
    /// Seconds from now.
    #[schemars(range(min = 1))]
    after_seconds: Option<u64>,
    /// Five cron fields for a repeated wake-up: minute, hour, day of month, month, day of week.
    cron: Option<String>,
    /// The IANA name of the time zone of `cron`; UTC if absent.
    zone: Option<String>,
    /// Names the timer. One with the same name is replaced.
    #[schemars(length(min = 1, max = 128))]
    id: Option<String>,
}

impl Builtin for WakeAt {
    const NAME: &'static str = "wake_at";
    const ABOUT: &'static str = "Wakes this session later: once (`at` or `after_seconds`) or again and again (`cron`). \
        You then get `message` as a new message and can go on. End your turn after it; do not wait.";
    const EFFECT: Effect = Effect::Writes;
    const IDEMPOTENT: bool = true;
    const OPERATION: Operation = OPERATION;

    type Args = WakeArgs;

    async fn run(&self, args: WakeArgs, context: &CallContext) -> ToolResult {
        let when = request(&args).map_err(failure)?;
        let timer = TimerId::from(args.id.unwrap_or_else(|| context.call.to_string()));
        let set = context.timers.set(timer, when, args.message).await.map_err(failure)?;
        Ok(shown(&set))
    }
}

/// Exactly one of the three ways to say when.
fn request(args: &WakeArgs) -> Result<TimerRequest, Fault> {
    let WakeArgs { at, after_seconds, cron, zone, .. } = args;
    match (at, after_seconds, cron) {
        (Some(at), None, None) => at.parse::<Timestamp>().map(TimerRequest::At).map_err(|_| {
            let expected = "a time with its offset, such as 2026-11-18T09:00:00Z";
            invalid(OPERATION, "/at", "format", expected, Some(at.chars().take(80).collect()))
        }),
        (None, Some(seconds), None) => Ok(TimerRequest::After(seconds.saturating_mul(1000))),
        (None, None, Some(form)) => {
            Ok(TimerRequest::Cron { form: form.clone(), zone: zone.clone() })
        }
        _ => {
            let expected = "exactly one of `at`, `after_seconds` and `cron`";
            Err(invalid(OPERATION, "", "oneOf", expected, None))
        }
    }
}

/// The `timers_list` tool.
#[derive(Debug)]
pub(super) struct TimersList;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListArgs {}

impl Builtin for TimersList {
    const NAME: &'static str = "timers_list";
    const ABOUT: &'static str = "Returns the timers that are set in this session.";
    const EFFECT: Effect = Effect::Reads;
    const IDEMPOTENT: bool = true;
    const OPERATION: Operation = OPERATION;

    type Args = ListArgs;

    async fn run(&self, _: ListArgs, context: &CallContext) -> ToolResult {
        let timers: Vec<Value> = context.timers.all().iter().map(shown).collect();
        Ok(json!({ "timers": timers, "now": context.world.clock.now().to_string() }))
    }
}

/// The `timer_cancel` tool.
#[derive(Debug)]
pub(super) struct TimerCancel;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelArgs {
    /// The timer, as `timers_list` names it.
    #[schemars(length(min = 1, max = 128))]
    id: String,
}

impl Builtin for TimerCancel {
    const NAME: &'static str = "timer_cancel";
    const ABOUT: &'static str = "Cancels a timer of this session.";
    const EFFECT: Effect = Effect::Writes;
    const IDEMPOTENT: bool = true;
    const OPERATION: Operation = OPERATION;

    type Args = CancelArgs;

    async fn run(&self, args: CancelArgs, context: &CallContext) -> ToolResult {
        let timer = TimerId::from(args.id);
        context.timers.cancel(timer).await.map_err(failure)?;
        Ok(json!({ "ok": true }))
    }
}

fn shown(timer: &Timer) -> Value {
    json!({
        "id": timer.timer,
        "next": timer.next.to_string(),
        "schedule": timer.schedule.to_string(),
        "message": timer.message,
    })
}
