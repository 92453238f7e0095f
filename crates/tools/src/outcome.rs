//! Classifies how a call ended. All outcomes are decided in this file. A call that its deadline cut off may have
//! happened, unless its tool said otherwise or is safe to repeat.
//!
//! | the call | class | kind |
//! | --- | --- | --- |
//! | returned a value; `{ok: true, data}` is unwrapped one level | – | – |
//! | returned `{ok: false, …}` | logical | `tool_said_no` |
//! | … with `_validationError`, `_thrownError` | validation, runtime | `constraint_violated`, `tool_failed` |
//! | returned a failure | its own | its own |
//! | panicked | exception | `tool_panicked` |
//! | failed after a stop request | aborted | `deadline_passed`, `cancelled` |
//! | did not stop | aborted | `tool_abandoned` |

use std::time::Duration;

use budao_core::{
    fault::{Advice, ErrorType, Fact, Fault, Kind, Operation, Progress},
    limits::Limits,
    nesting,
    tool::{Effect, Failure, Output, ToolOrigin, ToolSpec},
};
use serde_json::{Map, Value};

use crate::{
    contract::ToolResult,
    output::{self, Excess},
    run::IntoFailure as _,
};

/// Maximum characters kept of a tool's own text.
const WORDS_MAX: usize = 2_000;

/// Maximum pieces of advice from a tool.
const ADVICE_MAX: usize = 6;

/// The reason for stopping a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// The deadline passed; the value is the time limit.
    Deadline(Duration),
    /// The call's cancellation token was cancelled.
    Cancel,
}

impl StopCause {
    /// The fault for a call that stopped on request.
    pub(crate) fn fault(self, spec: &ToolSpec) -> Fault {
        match self {
            Self::Deadline(limit) => fault(Kind::DeadlinePassed, spec).with(Fact::TimeoutMs, limit),
            Self::Cancel => fault(Kind::Cancelled, spec),
        }
    }

    /// The fault for a call whose future was dropped: nobody knows how far it got, so it may have happened.
    pub(crate) fn cut_off(self, spec: &ToolSpec) -> Fault {
        may_have_happened(self.fault(spec), spec)
    }

    /// The fault for a call that did not stop and was abandoned.
    pub(crate) fn abandoned(self, spec: &ToolSpec) -> Fault {
        let fault = fault(Kind::ToolAbandoned, spec);
        match self {
            Self::Deadline(limit) => fault.with(Fact::TimeoutMs, limit),
            Self::Cancel => fault,
        }
    }
}

/// A fault that names the tool.
pub(crate) fn fault(kind: Kind, spec: &ToolSpec) -> Fault {
    Fault::new(kind, Operation::ToolCall).with(Fact::ToolName, spec.name.to_string())
}

/// How a call ended, with its data within the bounds.
#[derive(Debug)]
pub(crate) struct CallAnswer {
    pub(crate) result: Result<Output, Failure>,
    /// What the bounds took from the data.
    pub(crate) excess: Excess,
}

impl From<Fault> for CallAnswer {
    fn from(fault: Fault) -> Self {
        Self { result: Err(fault.into_failure()), excess: Excess::default() }
    }
}

impl CallAnswer {
    /// Interprets a tool's result and applies the bounds to its data. Runs where the data enters.
    pub(crate) fn of(answer: ToolResult, spec: &ToolSpec, limits: &Limits) -> Self {
        let limit = spec.output_bytes.unwrap_or(limits.output_bytes);
        let mut result = of_answer(bounded(answer), spec);
        let excess = match &mut result {
            Ok(output) => output::bound(&mut output.data, limit, limits),
            Err(Failure { data: Some(data), .. }) => output::bound(data, limit, limits),
            Err(_) => Excess::default(),
        };
        Self { result, excess }
    }
}

/// Limits the nesting of a tool's result, to protect recursive code.
fn bounded(mut answer: ToolResult) -> ToolResult {
    match &mut answer {
        Ok(data) => nesting::bound(data),
        Err(failure) => failure.data.iter_mut().for_each(nesting::bound),
    }
    answer
}

/// Interprets a tool's result, which must be [`bounded`].
fn of_answer(answer: ToolResult, spec: &ToolSpec) -> Result<Output, Failure> {
    let answer = match answer {
        Ok(Value::Object(map)) => of_object(map, spec),
        Ok(data) => Ok(Output { data, ..Output::default() }),
        Err(failure) => Err(failure),
    };
    answer.map_err(|failure| effect_known(failure, spec))
}

/// States how far a failed call of a tool with effects got, unless its author said so. A network or time-out fault
/// leaves open whether the call was done; arguments that the tool refused did nothing.
fn effect_known(failure: Failure, spec: &ToolSpec) -> Failure {
    let Failure { fault, data, note } = failure;
    let is_said = fault.progress() != Progress::Ended;
    // A server or a remote computer reports the progress of its calls itself.
    if spec.effect == Effect::Reads || is_remote(spec) || is_said {
        return Failure { fault, data, note };
    }
    let row = fault.row();
    let is_cut_off = row.code.starts_with("ERR_NET_") || row.code.starts_with("ERR_TIMEOUT_");
    let fault = match (row.error_type, is_cut_off) {
        (ErrorType::Validation, _) => fault.with_progress(Progress::NotBegun),
        // The tool stopped its own work and says so, as a command that was killed.
        (ErrorType::Aborted, _) => fault,
        (_, true) if spec.idempotent => fault.unconfirmed_but_safe(),
        (_, true) => fault.unconfirmed(),
        (_, false) => fault,
    };
    Failure { fault, data, note }
}

/// Interprets a failure that followed a stop request.
pub(crate) fn after_stop(failure: Failure, stop_cause: StopCause, spec: &ToolSpec) -> Failure {
    if failure.fault.row().error_type == ErrorType::Aborted {
        return failure;
    }
    let fault = stop_cause.fault(spec).with_cause(failure.fault.to_string());
    let fault = match (failure.fault.progress(), stop_cause) {
        // A server or a remote computer reports the progress of its calls itself.
        (Progress::Ended, StopCause::Deadline(_)) if !is_remote(spec) => {
            may_have_happened(fault, spec)
        }
        (progress, _) => fault.with_progress(progress),
    };
    Failure { fault, ..failure }
}

/// Marks a call with effects as unconfirmed. One that is safe to repeat needs no doubt.
fn may_have_happened(fault: Fault, spec: &ToolSpec) -> Fault {
    match spec.effect == Effect::Reads || spec.idempotent {
        true => fault,
        false => fault.unconfirmed(),
    }
}

fn is_remote(spec: &ToolSpec) -> bool {
    matches!(
        spec.source,
        ToolOrigin::Mcp { .. } | ToolOrigin::Computer { .. } | ToolOrigin::Worker(_)
    )
}

fn of_object(mut map: Map<String, Value>, spec: &ToolSpec) -> Result<Output, Failure> {
    // The markers are internal and are removed from the result.
    let validation = map.remove("_validationError") == Some(Value::Bool(true));
    let was_thrown = map.remove("_thrownError") == Some(Value::Bool(true));
    match map.get("ok") {
        Some(Value::Bool(false)) => Err(failure_of_refusal(map, spec, validation, was_thrown)),
        Some(Value::Bool(true)) if map.contains_key("data") => {
            let note = map.remove("note").and_then(words);
            let data = map.remove("data").unwrap_or_default();
            Ok(Output { data, note, cut: None })
        }
        _ => Ok(Output { data: Value::Object(map), ..Output::default() }),
    }
}

fn failure_of_refusal(
    mut map: Map<String, Value>,
    spec: &ToolSpec,
    validation: bool,
    was_thrown: bool,
) -> Failure {
    map.remove("ok");
    let reason = map.remove("error").and_then(words);
    let advice = map.remove("recommendations");
    let note = map.remove("note").and_then(words);
    // The remaining fields are the tool's own data, merged with `data` if that is present.
    let data = match map.remove("data") {
        Some(data) if map.is_empty() => Some(data),
        Some(data) => {
            map.insert("data".into(), data);
            Some(Value::Object(map))
        }
        None if map.is_empty() => None,
        None => Some(Value::Object(map)),
    };
    let kind = match (validation, was_thrown) {
        (true, _) => Kind::ConstraintViolated,
        (false, true) => Kind::ToolFailed,
        (false, false) => Kind::ToolSaidNo,
    };
    let mut fault = fault(kind, spec);
    if let Some(reason) = reason {
        let fact = if validation { Fact::Constraint } else { Fact::Reason };
        fault = fault.with(fact, reason);
    } else if validation {
        fault = fault.with(Fact::Constraint, "the tool's own check of its arguments");
    }
    Failure { fault: fault.advise_model(advice_of(advice)), data, note }
}

/// The tool's own advice: a list, or a single value.
fn advice_of(value: Option<Value>) -> Vec<Advice> {
    let messages: Vec<String> = match value {
        Some(Value::Array(items)) => items.into_iter().filter_map(words).collect(),
        Some(other) => words(other).into_iter().collect(),
        None => Vec::new(),
    };
    messages.into_iter().take(ADVICE_MAX).map(Advice::Custom).collect()
}

/// A tool's text, bounded: strings unchanged, other values as JSON, `None` for null.
fn words(value: Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::String(text) => text,
        other => output::json_prefix(&other, 4 * WORDS_MAX),
    };
    let text = match text.char_indices().nth(WORDS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    };
    (!text.trim().is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use budao_core::fault::Next;
    use serde_json::json;

    use super::*;

    fn spec() -> ToolSpec {
        ToolSpec {
            name: "t".into(),
            description: "".into(),
            schema: Value::Null.into(),
            effect: Effect::Reads,
            idempotent: false,
            confirm: false,
            repair: false,
            deadline: None,
            output_bytes: None,
            source: ToolOrigin::Registered,
        }
    }

    fn failure(value: Value) -> Failure {
        of_answer(Ok(value), &spec()).unwrap_err()
    }

    #[test]
    fn a_no_is_logical_and_keeps_the_words_of_the_tool() {
        let failure = failure(json!({
            "ok": false, "error": "no such city", "recommendations": ["spell it in English"],
            "data": { "known": 3 }, "note": "cached",
        }));
        assert_eq!(failure.fault.kind(), Kind::ToolSaidNo);
        assert_eq!(failure.fault.detail().text(Fact::Reason), Some("no such city"));
        assert_eq!(failure.fault.model_advice(), [Advice::Custom("spell it in English".into())]);
        assert_eq!(failure.data, Some(json!({ "known": 3 })));
        assert_eq!(failure.note.as_deref(), Some("cached"));
    }

    #[test]
    fn markers_set_the_class_and_are_not_seen_again() {
        let was_thrown = failure(json!({ "ok": false, "error": "boom", "_thrownError": true }));
        assert_eq!(was_thrown.fault.kind(), Kind::ToolFailed);
        let invalid =
            failure(json!({ "ok": false, "error": "bad", "_validationError": true, "x": 1 }));
        assert_eq!(invalid.fault.row().error_type, ErrorType::Validation);
        assert_eq!(invalid.data, Some(json!({ "x": 1 })));
        let fine = of_answer(Ok(json!({ "a": 1, "_thrownError": true })), &spec()).unwrap();
        assert_eq!(fine.data, json!({ "a": 1 }));
    }

    #[test]
    fn a_failure_states_the_progress_of_the_call_by_its_author_or_by_rule() {
        let writes = ToolSpec { effect: Effect::Writes, ..spec() };
        let safe = ToolSpec { idempotent: true, ..writes.clone() };
        let after = |kind, spec: &ToolSpec| {
            let fault = Fault::new(kind, Operation::ToolCall);
            of_answer(Err(Failure { fault, data: None, note: None }), spec).unwrap_err().fault
        };
        for kind in [Kind::NetworkUnavailable, Kind::ConnectionRefused, Kind::RequestTimedOut] {
            let doubtful = after(kind, &writes);
            assert_eq!(doubtful.progress(), Progress::Unconfirmed, "{kind}");
            assert!(!doubtful.may_auto_retry() && doubtful.repeat().next == Next::Stop, "{kind}");
            let repeatable = after(kind, &safe);
            assert_eq!(repeatable.may_auto_retry(), kind.row().auto_retry, "{kind}");
            assert_eq!(after(kind, &spec()).progress(), Progress::Ended, "{kind}: it only reads");
        }
        assert_eq!(after(Kind::ConstraintViolated, &writes).progress(), Progress::NotBegun);
        assert_eq!(after(Kind::ToolFailed, &writes).progress(), Progress::Ended);
        let said = crate::ToolError::from(Fault::new(Kind::RequestTimedOut, Operation::ToolCall));
        let sure = of_answer(Err(said.did_not_happen().into_failure("t")), &writes).unwrap_err();
        assert!(sure.fault.may_auto_retry(), "the author knows that nothing happened");
        let lost = crate::ToolError::new("no answer").answer_lost().into_failure("t");
        let lost = of_answer(Err(lost), &writes).unwrap_err().fault;
        assert_eq!((lost.progress(), lost.repeat().next), (Progress::Done, Next::Stop));
        let unsure = crate::ToolError::new("half").may_have_happened().into_failure("t");
        assert!(of_answer(Err(unsure), &writes).unwrap_err().fault.is_outcome_unknown());
    }

    #[test]
    fn a_yes_is_unwrapped_one_level() {
        let of = |value| of_answer(Ok(value), &spec()).unwrap();
        assert_eq!(
            of(json!({ "ok": true, "data": { "ok": true, "data": 1 } })).data,
            json!({ "ok": true, "data": 1 })
        );
        assert_eq!(of(json!({ "ok": true, "path": "a" })).data, json!({ "ok": true, "path": "a" }));
        assert_eq!(of(json!({ "ok": true, "data": 1, "note": "n" })).note.as_deref(), Some("n"));
        for not_false in [json!({ "ok": null }), json!({ "ok": 0 }), json!("text"), json!(null)] {
            assert_eq!(of(not_false.clone()).data, not_false);
        }
    }

    #[test]
    fn a_no_without_a_word_is_still_a_no() {
        for value in [
            json!({ "ok": false }),
            json!({ "ok": false, "error": null, "recommendations": 7 }),
            json!({ "ok": false, "error": { "code": 3 } }),
        ] {
            assert_eq!(failure(value).fault.kind(), Kind::ToolSaidNo);
        }
        let long = failure(json!({ "ok": false, "error": "长".repeat(100_000) }));
        assert!(long.fault.detail().text(Fact::Reason).unwrap().chars().count() <= WORDS_MAX + 1);
    }

    #[test]
    fn stopping_is_not_a_failure_of_its_own() {
        let stop_cause = StopCause::Deadline(Duration::from_millis(200));
        let stopped =
            after_stop(failure(json!({ "ok": false, "error": "aborted" })), stop_cause, &spec());
        assert_eq!(stopped.fault.kind(), Kind::DeadlinePassed);
        assert_eq!(stopped.fault.detail().number(Fact::TimeoutMs), Some(200));
        let unconfirmed = fault(Kind::RequestTimedOut, &spec()).unconfirmed();
        let unconfirmed =
            after_stop(Failure { fault: unconfirmed, data: None, note: None }, stop_cause, &spec());
        assert!(
            unconfirmed.fault.is_outcome_unknown(),
            "a tool that runs elsewhere may still be running"
        );
        let own = Failure { fault: fault(Kind::Cancelled, &spec()), data: None, note: None };
        assert_eq!(after_stop(own, stop_cause, &spec()).fault.kind(), Kind::Cancelled);
    }
}
