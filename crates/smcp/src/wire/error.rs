//! Renders faults for the wire, in the shape that the receiver understands.
//!
//! A failed tool call carries its error twice in one object: as a flat error, and as an MCP result with `isError` and
//! the code in its `meta`. A receiver that knows only one of the shapes still gets the code.

use crate::codes::smcp_code;
use budao_core::{
    Lang,
    fault::{Fact, Fault, Kind, render, text},
    tool::Failure,
    trace::Trace,
};
use serde_json::{Map, Value, json};

use super::Dialect;

/// Longest text of a foreign error that is passed on, in characters.
const FOREIGN_CHARS: usize = 400;

/// How an error is rendered for the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rendering {
    /// The protocol version of the receiver.
    pub dialect: Dialect,
    /// The language of the texts.
    pub lang: Lang,
}

impl From<Dialect> for Rendering {
    /// English texts in this dialect.
    fn from(dialect: Dialect) -> Self {
        Self { dialect, lang: Lang::En }
    }
}

/// The fault as the answer to a request other than a tool call.
#[must_use]
pub fn flat(fault: &Fault, rendering: impl Into<Rendering>) -> Value {
    let Rendering { dialect, lang } = rendering.into();
    let rendered = render::render_for_peer(fault, lang);
    let mut error = Map::new();
    error.insert("code".into(), smcp_code(fault.kind()).into());
    error.insert("message".into(), sentence(fault, lang).into());
    // The protocol requires these two facts beside the code.
    if matches!(fault.kind(), Kind::McpServerNotFound | Kind::CapabilityUnsupported) {
        for fact in [Fact::McpServer, Fact::Capability] {
            if let Some(text) = fault.detail().text(fact) {
                error.insert(<&str>::from(fact).into(), text.into());
            }
        }
    }
    error.insert("details".into(), details(fault, &rendered.hops));
    match dialect {
        Dialect::V04 => Value::Object(error),
        Dialect::V02 => json!({ "error": error }),
    }
}

/// One sentence for the other side. Where the catalog's sentence is general, it names the reason or the field.
#[must_use]
pub fn sentence(fault: &Fault, lang: Lang) -> String {
    let (kind, reason) = (fault.kind(), fault.detail().text(Fact::Reason));
    match reason {
        Some(reason) if matches!(kind, Kind::NotAllowed | Kind::NotAuthenticated) => {
            let (title, reason) = (text::of_kind(kind, "title", lang), text::reason(reason, lang));
            let colon = if lang == Lang::Zh { "：" } else { ": " };
            format!("{title}{colon}{reason}")
        }
        _ if kind == Kind::BadRequest && fault.detail().text(Fact::Field).is_some() => {
            text::model_text(fault, lang)
        }
        _ => text::user_text(fault, lang),
    }
}

/// The `details` object: the facts, the mismatches, the catalog key and the hops.
fn details(fault: &Fault, hops: &[budao_core::fault::Hop]) -> Value {
    let mut details = match serde_json::to_value(fault.detail()) {
        Ok(Value::Object(facts)) => facts,
        _ => Map::new(),
    };
    // The names that other hubs use for these facts.
    if let Some(computer) = fault.detail().text(Fact::Computer) {
        details.insert("computer_name".into(), computer.into());
    }
    if let Some(skill) = fault.detail().text(Fact::Skill) {
        details.insert("name".into(), skill.into());
    }
    if !fault.mismatches().is_empty() {
        details.insert("mismatches".into(), json!(fault.mismatches()));
    }
    let row = fault.row();
    details.insert("error_code".into(), row.code.into());
    details.insert("message_key".into(), row.name.into());
    let repeat = fault.repeat();
    details.insert("retryable".into(), repeat.retryable.into());
    if repeat.outcome_unknown {
        details.insert("outcome_unknown".into(), true.into());
    }
    if fault.trace().is_some() {
        details.insert("trace_id".into(), fault.trace().to_string().into());
    }
    if !hops.is_empty() {
        details.insert("hops".into(), json!(hops));
    }
    Value::Object(details)
}

/// The fault as the result of a tool call, in both shapes. Its `content` is written for the model that called.
#[must_use]
pub fn result(fault: &Fault, rendering: impl Into<Rendering>) -> Value {
    let rendering @ Rendering { dialect, lang } = rendering.into();
    let mut error = flat(fault, rendering);
    let is_timeout = matches!(fault.kind(), Kind::RequestTimedOut | Kind::DeadlinePassed);
    let mut meta = Map::new();
    meta.insert("error_code".into(), smcp_code(fault.kind()).into());
    if fault.trace().is_some() {
        meta.insert("a2c_trace_id".into(), fault.trace().to_string().into());
    }
    // The draft prescribes a text for a timeout. It comes first, and the catalog's text follows.
    let mut texts = vec![model_text(fault, lang)];
    if dialect == Dialect::V02 && is_timeout {
        texts.insert(0, "Tool call timeout".to_owned());
        texts.truncate(if fault.is_outcome_unknown() { 2 } else { 1 });
    }
    if is_timeout {
        meta.insert(timeout_mark(dialect).into(), true.into());
    }
    if fault.kind() == Kind::Cancelled {
        meta.insert("a2c_cancelled".into(), true.into());
        meta.insert("a2c_cancel_reason".into(), "agent_requested".into());
    }
    upstream(fault, &mut meta, lang);
    if let Value::Object(error) = &mut error {
        let text = |text: String| json!({ "type": "text", "text": text });
        error.insert("content".into(), texts.into_iter().map(text).collect());
        error.insert("isError".into(), true.into());
        error.insert("meta".into(), meta.into());
    }
    error
}

/// What a model reads of this fault: the same JSON that our own engines put into a tool result.
fn model_text(fault: &Fault, lang: Lang) -> String {
    let failure = Failure { fault: fault.clone(), data: None, note: None };
    render::render_for_model(&failure, lang).to_json()
}

/// Adds the marks of a missing or refused sign-in.
fn upstream(fault: &Fault, meta: &mut Map<String, Value>, lang: Lang) {
    if !matches!(fault.kind(), Kind::UpstreamSignInNeeded | Kind::UpstreamSignInRefused) {
        return;
    }
    if let Some(server) = fault.detail().text(Fact::McpServer) {
        meta.insert("mcp_server".into(), server.into());
    }
    let action = fault.detail().text(Fact::AuthAction).unwrap_or("user_authorization_required");
    let message = render::render_for_peer(fault, lang).message;
    meta.insert("auth_hint".into(), json!({ "action": action, "message": message }));
}

/// The name of the mark for a call that timed out.
#[must_use]
pub fn timeout_mark(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::V04 => "a2c_timeout",
        Dialect::V02 => "timeout",
    }
}

/// Whether a computer may answer a tool call with this: a result, or an error in either shape.
#[must_use]
pub fn is_result(answer: &Value) -> bool {
    answer.get("content").is_some_and(Value::is_array) || is_error(answer)
}

/// Whether the answer is an error, flat or under `error`.
#[must_use]
pub fn is_error(answer: &Value) -> bool {
    let code =
        answer.get("code").or_else(|| answer.get("error").and_then(|error| error.get("code")));
    code.is_some_and(Value::is_i64)
}

/// Whether the answer reports a failure: an error, or a result with `isError`.
#[must_use]
pub fn says_failed(answer: &Value) -> bool {
    is_error(answer) || answer.get("isError").and_then(Value::as_bool) == Some(true)
}

/// The code of a failed answer, from any of its places; `None` if it has none.
#[must_use]
pub fn code_of(answer: &Value) -> Option<u16> {
    let meta = answer.get("meta").or_else(|| answer.get("_meta"));
    let code = answer
        .get("code")
        .or_else(|| answer.get("error").and_then(|error| error.get("code")))
        .or_else(|| meta.and_then(|meta| meta.get("error_code")));
    u16::try_from(code?.as_u64()?).ok()
}

/// Adds the request's trace to a failed answer, unless the answer has one.
pub fn trace(answer: &mut Value, trace: Trace) {
    let Some(object) = answer.as_object_mut() else { return };
    if object.contains_key("content") {
        add_trace(object, "meta", "a2c_trace_id", trace);
    }
    let error = if object.get("error").is_some_and(Value::is_object) {
        object.get_mut("error").and_then(Value::as_object_mut)
    } else {
        Some(object)
    };
    if let Some(error) = error.filter(|error| error.contains_key("code")) {
        add_trace(error, "details", "trace_id", trace);
    }
}

/// Sets `field` of the object at `key`, unless it is set. A place that holds something else stays as it is.
fn add_trace(object: &mut Map<String, Value>, key: &str, field: &str, trace: Trace) {
    let inner = object.entry(key).or_insert(Value::Null);
    if inner.is_null() {
        *inner = json!({});
    }
    if let Some(inner) = inner.as_object_mut() {
        inner.entry(field).or_insert_with(|| trace.to_string().into());
    }
}

/// Whether the answer claims to be an error and has no usable code: text, a fraction, a number out of range.
#[must_use]
pub fn has_odd_code(answer: &Value) -> bool {
    let nested = answer.get("error").filter(|error| error.is_object());
    let error = nested.unwrap_or(answer);
    let is_usable = |code: &Value| code.as_u64().is_some_and(|code| u16::try_from(code).is_ok());
    let is_said = error.get("message").is_some() || answer.get("isError").is_some();
    error.get("code").is_some_and(|code| !is_usable(code)) && (is_said || nested.is_some())
}

/// The text of a foreign error, for the reason of ours; empty if there is none.
#[must_use]
pub fn foreign_text(answer: &Value) -> String {
    let pointers = ["/message", "/error/message", "/content/0/text", "/error", "/detail"];
    let found = pointers.iter().find_map(|key| answer.pointer(key)?.as_str());
    found.unwrap_or_default().chars().take(FOREIGN_CHARS).collect()
}

/// Completes an object that is no result and claims no failure: it becomes the text of one. `None` if it claims one.
#[must_use]
pub fn completed(answer: &Value) -> Option<Value> {
    const CLAIMS: [&str; 8] =
        ["error", "errors", "code", "message", "detail", "details", "exception", "isError"];
    let object = answer.as_object().filter(|object| !object.is_empty())?;
    if CLAIMS.iter().any(|claim| object.contains_key(*claim)) || object.contains_key("content") {
        return None;
    }
    let mut result = object.clone();
    result.insert("content".into(), json!([{ "type": "text", "text": answer.to_string() }]));
    result.insert("isError".into(), false.into());
    Some(Value::Object(result))
}

#[cfg(test)]
mod tests {
    use budao_core::fault::Operation;

    use super::*;
    use crate::wire::trace_of;

    fn not_found() -> Fault {
        Fault::new(Kind::ComputerNotFound, Operation::RelayCall)
            .with(Fact::Computer, "pc1")
            .with_trace(trace_of("0af7651916cd43dd8448eb211c80319c"))
            .via("server", "hub")
    }

    #[test]
    fn one_fault_in_two_dialects() {
        insta::assert_json_snapshot!("flat_04", flat(&not_found(), Dialect::V04));
        insta::assert_json_snapshot!("nested_02", flat(&not_found(), Dialect::V02));
    }

    #[test]
    fn a_timeout_carries_the_mark_of_its_dialect() {
        let fault =
            Fault::new(Kind::RequestTimedOut, Operation::RelayCall).with(Fact::TimeoutMs, 2000);
        insta::assert_json_snapshot!("timeout_04", result(&fault, Dialect::V04));
        insta::assert_json_snapshot!("timeout_02", result(&fault, Dialect::V02));
    }

    #[test]
    fn a_call_without_a_confirmed_end_keeps_its_code_and_is_marked_unknown_in_both_dialects() {
        let new = |kind| Fault::new(kind, Operation::ToolCall).with(Fact::ToolName, "s__t");
        let faults = [
            new(Kind::DeadlinePassed).with(Fact::TimeoutMs, 2000),
            new(Kind::RequestTimedOut).with(Fact::TimeoutMs, 7000),
            new(Kind::ComputerGone).with(Fact::Computer, "pc"),
            new(Kind::NotInRoom),
            new(Kind::PeerFailed).with(Fact::Computer, "pc"),
            new(Kind::Cancelled),
        ];
        for fault in faults {
            let (known, unknown) = (fault.clone(), fault.unconfirmed());
            for dialect in [Dialect::V04, Dialect::V02] {
                let error = |fault| {
                    let rendered = result(fault, dialect);
                    rendered.get("error").cloned().unwrap_or(rendered)
                };
                let (known, rendered) = (error(&known), error(&unknown));
                assert_eq!(rendered["code"], known["code"]);
                assert_eq!(known["details"].get("outcome_unknown"), None);
                assert_eq!(rendered["details"]["outcome_unknown"], true, "{rendered}");
                assert_eq!(rendered["details"]["retryable"], false, "{rendered}");
                let whole = result(&unknown, dialect).to_string();
                assert!(whole.contains("may still be running"), "{whole}");
                assert!(!whole.contains("was stopped"), "{whole}");
            }
        }
        let late = new(Kind::DeadlinePassed).with(Fact::TimeoutMs, 2000).unconfirmed();
        insta::assert_json_snapshot!("unconfirmed_04", result(&late, Dialect::V04));
        insta::assert_json_snapshot!("unconfirmed_02", result(&late, Dialect::V02));
    }

    #[test]
    fn a_refused_and_a_missing_login_have_their_reason() {
        let new = |kind| Fault::new(kind, Operation::ToolCall).with(Fact::ToolName, "s__t");
        let refused = new(Kind::NeedsConfirmation)
            .with(Fact::Reason, "the computer's owner said no: not on a Sunday");
        insta::assert_json_snapshot!("refused_04", result(&refused, Dialect::V04));
        let sign_in = new(Kind::UpstreamSignInRefused)
            .with(Fact::McpServer, "s")
            .with(Fact::AuthAction, "token_refresh_required");
        insta::assert_json_snapshot!("sign_in_04", result(&sign_in, Dialect::V04));
    }

    #[test]
    fn an_answer_is_distinguished_from_invalid_data() {
        for good in [
            json!({ "content": [] }),
            json!({ "code": 4001, "message": "no" }),
            json!({ "error": { "code": 4001 } }),
            result(&not_found(), Dialect::V04),
            result(&not_found(), Dialect::V02),
        ] {
            assert!(is_result(&good), "{good}");
        }
        for bad in [
            json!(null),
            json!(1),
            json!([]),
            json!({}),
            json!({ "content": "x" }),
            json!({"code": "4"}),
        ] {
            assert!(!is_result(&bad), "{bad}");
        }
        assert_eq!(code_of(&result(&not_found(), Dialect::V02)), Some(404));
        assert_eq!(code_of(&json!({ "content": [], "meta": { "error_code": 4006 } })), Some(4006));
    }

    #[test]
    fn a_trace_is_added_once() {
        let mut answer = json!({ "content": [], "isError": true, "meta": null });
        trace(&mut answer, trace_of("a"));
        trace(&mut answer, trace_of("b"));
        assert_eq!(answer["meta"]["a2c_trace_id"], trace_of("a").to_string());
    }
}
