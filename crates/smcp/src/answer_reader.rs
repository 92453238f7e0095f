//! Reads answers: a result, or a fault with the code, the facts and the hops that the other side named.

use crate::codes::{is_smcp_home, smcp_code};
use budao_core::{
    Lang,
    fault::{Fact, Fault, Kind, Mismatch, Operation, text},
};
use serde::Deserialize as _;
use serde_json::Value;
use strum::VariantArray as _;

use crate::wire::error;

/// Longest reason that is passed on to the model, in characters.
const REASON_CHARS: usize = 2000;

/// Mismatches that are read from one answer.
const MISMATCHES_MAX: usize = 16;

/// Longest text of a mismatch, in characters.
const MISMATCH_CHARS: usize = 400;

/// Allowed values that are read from one mismatch.
const ALLOWED_MAX: usize = 24;

/// The request behind an answer; fields that do not apply are empty.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AnswerContext<'a> {
    pub(crate) computer: &'a str,
    pub(crate) tool: &'a str,
    pub(crate) agent: &'a str,
}

/// Returns the answer, or the fault it carries. An answer that is not an object is a fault as well.
pub(crate) fn checked(
    answer: Value,
    operation: Operation,
    context: &AnswerContext<'_>,
) -> Result<Value, Fault> {
    match fault_of(&answer, operation, context) {
        Some(fault) => Err(fault),
        None if answer.is_object() => Ok(answer),
        None => Err(Fault::new(Kind::PeerFailed, operation)
            .with(Fact::Computer, context.computer.to_owned())
            .via("computer", context.computer)),
    }
}

/// The fault that an answer carries; `None` if the answer is a success.
pub(crate) fn fault_of(
    answer: &Value,
    operation: Operation,
    context: &AnswerContext<'_>,
) -> Option<Fault> {
    if !error::says_failed(answer) {
        return None;
    }
    let error = answer.get("error").filter(|error| error.is_object()).unwrap_or(answer);
    let details = error.get("details").cloned().unwrap_or_default();
    let kind = kind(answer, &details);
    let mut fault = Fault::new(kind, operation);
    for (fact, value) in facts(&details) {
        fault = fault.with(fact, value);
    }
    fault = mismatches(&details).into_iter().fold(fault, Fault::mismatch);
    let cause = error_text(answer, error);
    let is_reason = matches!(kind, Kind::ToolSaidNo | Kind::ToolFailed)
        && fault.detail().get(Fact::Reason).is_none();
    if is_reason {
        // Some tools fail without any text.
        let reason = if cause.trim().is_empty() { "no reason was given" } else { &cause };
        fault = fault.with(Fact::Reason, reason.to_owned());
    }
    if let Some(trace) = details.get("trace_id").and_then(Value::as_str) {
        fault = fault.with_trace(trace.parse().unwrap_or_default());
    }
    fault = complete(fault, context);
    // The other side's text becomes the cause, unless it equals the catalog's own text.
    let is_ours = [Lang::En, Lang::Zh].iter().any(|lang| cause == error::sentence(&fault, *lang));
    if !is_reason && !cause.is_empty() && !is_ours {
        fault = fault.with_cause(cause);
    }
    if is_claim_of_a_stranger(answer, &details, operation) {
        fault = fault.unconfirmed();
    }
    for (role, name) in hops(&details, context) {
        fault = fault.via(role, name);
    }
    Some(fault.via("agent", context.agent))
}

/// Whether the answer's code leaves open if the call began. Other hubs use the same codes for a call that never
/// reached its computer and for one whose computer disconnected, timed out or sent an invalid answer.
fn is_claim_of_a_stranger(answer: &Value, details: &Value, operation: Operation) -> bool {
    let is_ours = details.get("retryable").is_some_and(Value::is_boolean);
    operation == Operation::ToolCall
        && !is_ours
        && matches!(error::code_of(answer), Some(404 | 408 | 500))
}

/// The fault kind, from the first that applies: the cancel mark, a `message_key` that fits the code, the timeout
/// mark, the code.
fn kind(answer: &Value, details: &Value) -> Kind {
    let mark = |name: &str| {
        let meta = answer.get("meta").or_else(|| answer.get("_meta"));
        meta.and_then(|meta| meta.get(name)).and_then(Value::as_bool) == Some(true)
    };
    if mark("a2c_cancelled") {
        return Kind::Cancelled;
    }
    let code = error::code_of(answer);
    let named = details.get("message_key").and_then(Value::as_str);
    let named = named.and_then(|name| name.parse::<Kind>().ok());
    if let Some(kind) = named.filter(|kind| Some(smcp_code(*kind)) == code) {
        return kind;
    }
    if mark("a2c_timeout") || mark("timeout") {
        return Kind::DeadlinePassed;
    }
    let home = |code: u16| {
        Kind::VARIANTS.iter().copied().find(|kind| smcp_code(*kind) == code && is_smcp_home(*kind))
    };
    match code {
        // Code 500 from another program is not a bug of this one.
        Some(500) => Kind::PeerFailed,
        Some(code) => home(code).unwrap_or(Kind::PeerFailed),
        None => Kind::ToolSaidNo,
    }
}

fn facts(details: &Value) -> Vec<(Fact, Value)> {
    let map = details.as_object().into_iter().flatten();
    let known = map.filter_map(|(name, value)| Some((name.parse::<Fact>().ok()?, value.clone())));
    // A peer's claim that a repetition is safe is ignored; mismatches are read by `mismatches`.
    let is_fact = |fact: &Fact| !matches!(fact, Fact::SafeToRepeat | Fact::Mismatches);
    known.filter(|(fact, _)| is_fact(fact)).collect()
}

/// The mismatches of the arguments that the other side named, bounded in number and length.
fn mismatches(details: &Value) -> Vec<Mismatch> {
    let listed = details.get("mismatches").and_then(Value::as_array).into_iter().flatten();
    let read = listed.take(MISMATCHES_MAX).filter_map(|it| Mismatch::deserialize(it).ok());
    read.map(|mut read| {
        read.rule = clip(&read.rule).into();
        (read.pointer, read.expected) = (clip(&read.pointer), clip(&read.expected));
        (read.received, read.nearest) =
            (read.received.as_deref().map(clip), read.nearest.as_deref().map(clip));
        read.allowed.retain(|value| value.to_string().len() <= MISMATCH_CHARS);
        read.allowed.truncate(ALLOWED_MAX);
        read
    })
    .collect()
}

fn clip(text: &str) -> String {
    text.chars().take(MISMATCH_CHARS).collect()
}

/// The answer's error text: its error message, else its text content, which may be written for a model.
fn error_text(answer: &Value, error: &Value) -> String {
    let texts = answer.get("content").and_then(Value::as_array).into_iter().flatten();
    let texts: Vec<&str> =
        texts.filter_map(|item| item.get("text").and_then(Value::as_str)).collect();
    let message = error.get("message").and_then(Value::as_str);
    // The Python computer puts errors before the tool's start into `structuredContent`.
    let other = || answer.pointer("/structuredContent/error")?.as_str();
    let joined_texts = (!texts.is_empty()).then(|| texts.join("\n"));
    let cause = message.map(str::to_owned).or(joined_texts).or_else(|| other().map(str::to_owned));
    cause.unwrap_or_default().chars().take(REASON_CHARS).collect()
}

/// Adds the facts that the kind's texts require, from the request if possible, else as `unknown` or 0.
fn complete(mut fault: Fault, context: &AnswerContext<'_>) -> Fault {
    for fact in fault.row().always {
        let is_listed = *fact == Fact::Mismatches && !fault.mismatches().is_empty();
        if is_listed || fault.detail().get(*fact).is_some() {
            continue;
        }
        let known = match fact {
            Fact::ToolName => context.tool,
            Fact::Computer => context.computer,
            _ => "",
        };
        let known = if known.is_empty() { "unknown" } else { known };
        fault = match fact.shape() {
            budao_core::fault::Shape::Number => fault.with(*fact, 0),
            budao_core::fault::Shape::List => fault.with(*fact, vec![known.to_owned()]),
            _ => fault.with(*fact, known.to_owned()),
        };
    }
    debug_assert!(!text::summary(&fault).is_empty());
    fault
}

/// The hops that the other side named, else the computer that answered.
fn hops<'a>(details: &'a Value, context: &AnswerContext<'a>) -> Vec<(&'static str, String)> {
    let hops = details.get("hops").and_then(Value::as_array).into_iter().flatten();
    let hops: Vec<(&'static str, String)> = hops
        .filter_map(|hop| {
            let role = hop.get("role")?.as_str()?;
            let role =
                ["mcp_server", "computer", "server"].into_iter().find(|known| *known == role)?;
            Some((role, hop.get("name")?.as_str()?.to_owned()))
        })
        .collect();
    if hops.is_empty() && !context.computer.is_empty() {
        return vec![("computer", context.computer.to_owned())];
    }
    hops
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use budao_core::{fault::render, tool::Failure};

    use crate::wire::{Dialect, error::result, trace_of};

    const ABOUT: AnswerContext<'_> = AnswerContext { computer: "pc", tool: "t", agent: "bot" };

    fn read(answer: &Value) -> Fault {
        fault_of(answer, Operation::ToolCall, &ABOUT).unwrap()
    }

    #[test]
    fn every_kind_survives_the_wire_in_both_dialects() {
        for kind in Kind::VARIANTS {
            let sent =
                complete(Fault::new(*kind, Operation::ToolCall), &ABOUT).with_trace(trace_of("r"));
            for dialect in [Dialect::V04, Dialect::V02] {
                let read = read(&result(&sent, dialect));
                assert_eq!(read.kind(), *kind, "{dialect:?}");
                assert_eq!(read.trace(), sent.trace());
                for (fact, _) in sent.detail().iter() {
                    assert!(read.detail().get(fact).is_some(), "{kind} {fact:?}");
                }
            }
        }
    }

    #[test]
    fn every_mismatch_of_the_arguments_arrives_whole() {
        let sent = Fault::new(Kind::InvalidArguments, Operation::ToolCall)
            .mismatch(Mismatch {
                pointer: "/mode".into(),
                rule: "enum".into(),
                expected: "must be one of the allowed values".into(),
                received: Some("\"fats\"".into()),
                allowed: vec![json!("fast"), json!(2)],
                nearest: Some("fast".into()),
            })
            .mismatch(Mismatch {
                pointer: "/edits/0/path".into(),
                rule: "required".into(),
                expected: "required".into(),
                ..Mismatch::default()
            })
            .with(Fact::Example, json!({ "mode": "fast", "edits": [] }));
        for dialect in [Dialect::V04, Dialect::V02] {
            let answer = result(&sent, dialect);
            let read = read(&answer);
            assert_eq!(read.mismatches(), sent.mismatches(), "{dialect:?}");
            let failure = |fault: Fault| Failure { fault, data: None, note: None };
            let (near, far) = (failure(sent.clone()), failure(read));
            let rendered = |failure| render::render_for_model(failure, Lang::En).to_json();
            assert_eq!(
                rendered(&far),
                rendered(&near),
                "the far model reads what the near one would"
            );
            assert_eq!(
                answer["content"][0]["text"],
                rendered(&near),
                "and so does a model elsewhere"
            );
        }
    }

    #[test]
    fn mismatches_of_a_foreign_peer_are_bounded() {
        let long = "x".repeat(2000);
        let one = json!({ "pointer": long, "rule": long, "expected": long, "received": long,
            "allowed": vec![long.clone(); 50], "nearest": long });
        let many = json!({ "code": 400, "message": "no", "details": {
            "message_key": "invalid_arguments", "mismatches": vec![one; 50] } });
        let read = read(&many);
        assert!(read.mismatches().len() <= 16);
        assert!(json!(read.mismatches()).to_string().len() < 400_000);
        for odd in [json!("a: wrong"), json!([1, {}, null]), json!({ "pointer": "/a" })] {
            let answer = json!({ "code": 400, "details": {
                "message_key": "invalid_arguments", "mismatches": odd } });
            assert_eq!(super::tests::read(&answer).mismatches(), []);
        }
    }

    #[test]
    fn a_foreign_error_is_recognised_by_its_number() {
        let flat = json!({ "code": 404, "message": "nope", "details": { "computer_name": "pc" } });
        assert_eq!(read(&flat).kind(), Kind::ComputerNotFound);
        let auth = json!({ "content": [], "isError": true, "meta": { "error_code": 4006, "mcp_server": "m" } });
        assert_eq!(read(&auth).kind(), Kind::UpstreamSignInNeeded);
        let late = json!({ "content": [], "isError": true, "meta": { "a2c_timeout": true } });
        assert_eq!(read(&late).kind(), Kind::DeadlinePassed);
        let gone = json!({ "content": [], "isError": true, "meta": { "a2c_cancelled": true } });
        assert_eq!(read(&gone).kind(), Kind::Cancelled);
        assert_eq!(read(&json!({ "code": 500, "message": "x" })).kind(), Kind::PeerFailed);
        let python = json!({ "content": [], "isError": true, "structuredContent": { "error": "no such tool" } });
        assert_eq!(read(&python).detail().text(Fact::Reason), Some("no such tool"));
        assert_eq!(read(&json!({ "code": 9999 })).kind(), Kind::PeerFailed);
    }

    #[test]
    fn a_message_that_equals_our_own_text_is_not_kept_as_a_cause() {
        let full = Fault::new(Kind::RoomFull, Operation::JoinRoom).with(Fact::Room, "office");
        let ours = crate::wire::error::flat(&full, Dialect::V04);
        assert_eq!(read(&ours).causes(), &[] as &[String]);
        let mut theirs = ours;
        theirs["message"] = "Agent already in room".into();
        assert_eq!(read(&theirs).causes(), ["Agent already in room"]);
    }

    #[test]
    fn a_foreign_error_of_a_call_does_not_prove_that_the_call_did_not_begin() {
        for code in [404, 408, 500] {
            let flat = json!({ "code": code, "message": "no" });
            for answer in [flat.clone(), json!({ "error": flat })] {
                let fault = read(&answer);
                assert!(fault.is_outcome_unknown() && !fault.repeat().retryable, "{code}");
            }
        }
        let fault_of_listing =
            fault_of(&json!({ "code": 404 }), Operation::DiscoverTools, &ABOUT).unwrap();
        assert!(!fault_of_listing.is_outcome_unknown(), "what only reads can be asked again");
        let boast =
            json!({ "code": 408, "details": { "safe_to_repeat": true, "outcome_unknown": true } });
        assert!(!read(&boast).repeat().retryable, "a stranger is not believed to be harmless");
        let timed_out = Fault::new(Kind::RequestTimedOut, Operation::RelayCall);
        for dialect in [Dialect::V04, Dialect::V02] {
            assert!(!read(&result(&timed_out, dialect)).is_outcome_unknown(), "our hub knows");
            assert!(read(&result(&timed_out.clone().unconfirmed(), dialect)).is_outcome_unknown());
        }
    }

    #[test]
    fn a_plain_failure_keeps_its_reason() {
        let plain = json!({ "content": [{ "type": "text", "text": "disk is read-only" }], "isError": true });
        let fault = read(&plain);
        assert_eq!(fault.kind(), Kind::ToolSaidNo);
        assert_eq!(fault.detail().text(Fact::Reason), Some("disk is read-only"));
        let hops: Vec<_> = fault.hops().iter().map(|hop| (&*hop.role, hop.name.as_str())).collect();
        assert_eq!(hops, [("computer", "pc"), ("agent", "bot")]);
    }

    #[test]
    fn a_result_is_no_fault_and_rubbish_is() {
        assert_eq!(fault_of(&json!({ "content": [] }), Operation::ToolCall, &ABOUT), None);
        for bad in [json!(null), json!("x"), json!([])] {
            let fault = checked(bad, Operation::ToolCall, &ABOUT).unwrap_err();
            assert_eq!(fault.kind(), Kind::PeerFailed);
        }
    }
}
