//! Renders a fault as the content and metadata of an `error.*` frame.

use std::time::Duration;

use budao_core::{
    Fault, Lang, Timestamp,
    event::Scope,
    fault::{Announcement, Attempts, Detail, Fact, FactValue, Strategy, render, text},
    retry::RetryPolicy,
};
use serde_json::{Map, Value, json};

use super::Frame;
use crate::texts::{seconds, translate_with};

/// The context in which a fault is rendered.
#[derive(Clone, Debug)]
pub struct FaultContext<'a> {
    /// The time of the fault.
    pub at: Timestamp,
    /// The language of `show_content`.
    pub lang: Lang,
    /// The call, task, stage or step that the fault concerns.
    pub scope: &'a Scope,
    /// True if no further attempt follows.
    pub not_recovered: bool,
}

/// Renders faults: `content` is English, `show_content` is in the user's language.
impl Frame {
    /// Sets content, shown text and all metadata from a fault.
    #[must_use]
    pub fn with_fault(self, fault: &Fault, context: &FaultContext<'_>) -> Self {
        let shown = text::user_text(fault, context.lang);
        self.text(text::user_text(fault, Lang::En))
            .show(format!("{shown}{}", attempts_text(fault, context)))
            .with_all(metadata_of(fault, context))
    }
}

/// The state of the attempts as text for the user: ` (try 1 of 3, next in 2 s)`. Empty if there is only one attempt.
fn attempts_text(fault: &Fault, context: &FaultContext<'_>) -> String {
    let counts = |tries: &Attempts| tries.attempt > 1 || (tries.max > 1 && fault.row().auto_retry);
    let Some(tries) = fault.attempts().filter(counts) else { return String::new() };
    let args = [("attempt", tries.attempt.into()), ("max", tries.max.into())];
    match next_attempt(fault, context) {
        Some(wait) => {
            let [attempt, max] = args;
            translate_with("try-and-wait", &[attempt, max, ("wait", seconds(wait))], context.lang)
        }
        None => translate_with("try", &args, context.lang),
    }
}

/// The wait before the next attempt; none if no attempt follows.
fn next_attempt(fault: &Fault, context: &FaultContext<'_>) -> Option<Duration> {
    fault.retry_hint().filter(|_| !context.not_recovered && fault.may_auto_retry())
}

/// The advice for the user. While the runtime retries, the advice is to wait.
fn render_recommendations(fault: &Fault, context: &FaultContext<'_>) -> Value {
    match fault.attempts().and(next_attempt(fault, context)) {
        Some(_) => json!([text::line("advice-attempt-follows", &Detail::new(), context.lang)]),
        None => json!(text::recommendations(fault, context.lang)),
    }
}

/// All metadata of a fault.
#[must_use]
pub fn metadata_of(fault: &Fault, context: &FaultContext<'_>) -> Map<String, Value> {
    let row = fault.row();
    let user = render::render_for_user(fault, context.lang);
    let mut fields = common_fields(fault, context);
    let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    if row.event == Announcement::RateLimited {
        set("backoff_multiplier", json!(RetryPolicy::default().multiplier));
        if let Some(wait) = fault.retry_hint() {
            set("rate_limit_reset", context.at.after(wait).to_string().into());
        }
    }
    if row.event == Announcement::RecoveryFailed || context.not_recovered {
        set("cause", row.name.into());
    }
    for (name, value) in fact_fields(&user.facts) {
        set(&name, value);
    }
    if !fault.mismatches().is_empty() {
        set("mismatches", json!(fault.mismatches()));
    }
    set("recommendations", render_recommendations(fault, context));
    if fault.trace().is_some() {
        set("trace_id", fault.trace().to_string().into());
    }
    if !fault.hops().is_empty() {
        set("hops", json!(fault.hops()));
    }
    set("context", context_fields(&user.context, context.scope).into());
    fields
}

/// The fields common to all `error.*` frames: kind, attempts and scope.
#[must_use]
pub fn common_fields(fault: &Fault, context: &FaultContext<'_>) -> Map<String, Value> {
    let row = fault.row();
    let scope = context.scope;
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| {
        if !value.is_null() {
            fields.insert(name.to_owned(), value);
        }
    };
    set("error_code", row.code.into());
    set("error_type", row.type_name.into());
    set("kind", row.name.into());
    set("category", <&str>::from(row.category).into());
    set("timestamp", context.at.to_string().into());
    set("recoverable", row.recoverable.into());
    set("auto_retry", (!context.not_recovered && fault.may_auto_retry()).into());
    set("recovery_strategy", <&str>::from(strategy(fault, context)).into());
    set("severity", <&str>::from(row.severity).into());
    set("operation", <&str>::from(fault.operation()).into());
    set("stage", stage_of(fault, scope).map_or(Value::Null, Value::from));
    set("task_id", task_of(fault, scope).map_or(Value::Null, Value::from));
    set("step", scope.step.map_or(Value::Null, Value::from));
    set("call_id", scope.call.as_ref().map_or(Value::Null, |call| call.to_string().into()));
    if let Some(tries) = fault.attempts() {
        set("attempt", tries.attempt.into());
        set("max_attempts", tries.max.into());
    }
    if let Some(wait) = fault.retry_hint() {
        set("retry_after_ms", millis(wait).into());
    }
    set("context", context_fields(&Detail::new(), scope).into());
    fields
}

/// The recovery strategy. If no attempt follows, a retry strategy becomes `Terminate` or `EscalateToUser`.
fn strategy(fault: &Fault, context: &FaultContext<'_>) -> Strategy {
    let row = fault.row();
    match row.strategy {
        _ if !context.not_recovered => row.strategy,
        _ if !row.recoverable => Strategy::Terminate,
        Strategy::Retry
        | Strategy::ExponentialBackoff
        | Strategy::RetryWithExponentialBackoff
        | Strategy::Fallback => Strategy::EscalateToUser,
        other => other,
    }
}

fn stage_of<'a>(fault: &'a Fault, scope: &Scope) -> Option<&'a str> {
    let named = scope.stage.map(<&'static str>::from);
    named.or_else(|| fault.detail().text(Fact::Stage))
}

fn task_of<'a>(fault: &'a Fault, scope: &'a Scope) -> Option<&'a str> {
    let named = scope.task.as_ref().map(|task| &*task.0);
    named.or_else(|| fault.detail().text(Fact::TaskId))
}

/// The facts as fields. A fact `x_ms` is repeated as `x_seconds`, rounded down.
fn fact_fields(detail: &Detail) -> Map<String, Value> {
    let mut fields = Map::new();
    for (fact, value) in detail.iter() {
        let name: &'static str = fact.into();
        if matches!(fact, Fact::Stage | Fact::TaskId | Fact::Mismatches) {
            continue;
        }
        if let (Some(base), FactValue::Number(millis)) = (name.strip_suffix("_ms"), value) {
            fields.insert(format!("{base}_seconds"), ((*millis).max(0) / 1000).into());
        }
        fields.insert(name.to_owned(), json!(value));
    }
    fields
}

/// The facts of the fault's context, and the tool's name if the fault concerns a tool.
fn context_fields(detail: &Detail, scope: &Scope) -> Map<String, Value> {
    let mut fields = fact_fields(detail);
    if let (Some(tool), false) = (&scope.tool, fields.contains_key("tool_name")) {
        fields.insert("tool_name".to_owned(), tool.as_str().into());
    }
    fields
}

pub(crate) fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}
