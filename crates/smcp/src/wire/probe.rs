//! Checks for the fuzz target: any text through every parser of peer data. The test suite runs a sample of them.

use crate::codes::smcp_code;
use budao_core::fault::{Fault, Operation, render};
use serde_json::Value;

use super::{
    Dialect, error,
    event::{NotificationEvent, RequestEvent},
    request::{self, Fields},
    trace_of, version,
};
use crate::{
    answer_reader::{self, AnswerContext},
    finder::uri::Uri,
};

/// Parses a text as an event, as an answer, as a version and as an address, and checks the results.
///
/// # Panics
/// If one of these checks fails.
pub fn everything(text: &str) {
    match request::event(text, false, 4096) {
        Ok((name, payload)) => {
            if let Err(fault) = fields(&name, &payload) {
                refused(fault);
            }
            answer(payload);
        }
        Err(fault) => refused(fault),
    }
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        answer(value);
    }
    if let Err(fault) = version::judge(Some(text)) {
        assert!(matches!(
            version::refusal(&fault, budao_core::Lang::En)["code"].as_u64(),
            Some(400 | 4008)
        ));
    }
    if let Err(fault) = Uri::parse(text) {
        assert_eq!(smcp_code(fault.kind()), 4204);
        refused(fault);
    }
}

fn fields(name: &str, payload: &Value) -> Result<(), Fault> {
    let fields = Fields::new(name, Operation::RelayCall, payload)?;
    if let Ok(ask) = name.parse::<RequestEvent>() {
        let routed = fields.routed()?;
        assert!(!routed.computer.is_empty() && trace_of(&routed.req_id).is_some());
        if ask == RequestEvent::ToolCall {
            let seconds = fields.tool_call()?.timeout.as_secs();
            assert!(request::TIMEOUT_SECONDS.contains(&seconds));
        }
    } else if name.parse::<NotificationEvent>() == Ok(NotificationEvent::Join) {
        let join = fields.join()?;
        assert!(!join.name.chars().any(char::is_control));
    }
    Ok(())
}

/// Checks that a refusal is short in both dialects and that the other end can parse it.
fn refused(fault: Fault) {
    let fault = fault.with_trace(trace_of("r")).scrub(&budao_scrub::Scrubber::new());
    assert!(!render::render_for_peer(&fault, budao_core::Lang::En).message.is_empty());
    for dialect in [Dialect::V04, Dialect::V02] {
        let rendered = error::result(&fault, dialect);
        assert!(rendered.to_string().len() < 32 * 1024, "a refusal is short");
        assert_eq!(error::code_of(&rendered), Some(smcp_code(fault.kind())));
        let read =
            answer_reader::fault_of(&rendered, Operation::ToolCall, &AnswerContext::default());
        assert_eq!(read.map(|read| read.kind()), Some(fault.kind()));
    }
}

/// Checks that an answer from any peer can be inspected, whether or not it is forwarded.
fn answer(mut answer: Value) {
    let failed = error::says_failed(&answer);
    error::trace(&mut answer, trace_of("r"));
    let read = answer_reader::fault_of(&answer, Operation::ToolCall, &AnswerContext::default());
    assert_eq!(read.is_some(), failed);
    if let Some(fault) = read {
        refused(fault.scrub(&budao_scrub::Scrubber::new()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates texts that resemble events.
    fn nearly() -> impl Strategy<Value = String> {
        let names = prop_oneof![
            Just("client:tool_call"),
            Just("client:get_dpe"),
            Just("server:join_office"),
            Just("server:leave_office"),
            Just("server:tool_call_cancel"),
            Just("x"),
        ];
        let field = prop_oneof![
            Just("agent"),
            Just("req_id"),
            Just("computer"),
            Just("tool_name"),
            Just("params"),
            Just("timeout"),
            Just("role"),
            Just("name"),
            Just("office_id"),
            Just("code"),
            Just("error"),
            Just("content"),
            Just("isError"),
            Just("meta"),
            Just("details"),
            Just("message_key"),
        ];
        let value = prop_oneof![
            Just("1".to_owned()),
            Just("-1".to_owned()),
            Just("1e400".to_owned()),
            Just("4001".to_owned()),
            Just("\"agent\"".to_owned()),
            Just("{}".to_owned()),
            Just("[]".to_owned()),
            Just("null".to_owned()),
            Just("true".to_owned()),
            "\"\\PC{0,20}\"",
            Just("{\"code\":404,\"details\":{\"hops\":[1]}}".to_owned()),
        ];
        let pairs = prop::collection::vec((field, value), 0..8);
        (names, pairs, any::<bool>()).prop_map(|(name, pairs, is_cut)| {
            let body: Vec<String> =
                pairs.iter().map(|(field, value)| format!("\"{field}\":{value}")).collect();
            let text = format!("[\"{name}\",{{{}}}]", body.join(","));
            if is_cut { text.chars().take(text.len() / 2).collect() } else { text }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_message_of_a_peer_is_read_or_refused_with_a_reason(text in prop_oneof![nearly(), ".{0,200}", "dpe://\\PC{0,60}"]) {
            everything(&text);
        }
    }
}
