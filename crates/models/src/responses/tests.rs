//! Event shapes of the Responses API, and properties that hold for any split into packets.

#![allow(clippy::needless_pass_by_value, reason = "`json!` reads better in place")]

use budao_core::message::{Block, CallId, ModelRequest, ModelStop, Piece, ToolUse, Usage};
use budao_testkit::sse::{self, ModelOutput, response_event};
use rstest::rstest;
use serde_json::{Value, json};

use super::stream::Decoder;
use crate::{
    request_body::WireFormat as _,
    testing::{self, DecodedStream, event},
};

fn decode(events: &[String]) -> DecodedStream {
    testing::decode([Ok(events.concat().into_bytes())], Decoder::new(3))
}

fn done(index: u64, item: Value) -> String {
    response_event("response.output_item.done", json!({"output_index": index, "item": item}))
}

fn ended(kind: &str, response: Value) -> String {
    response_event(kind, json!({"response": response}))
}

fn completed() -> String {
    ended("response.completed", json!({"status": "completed"}))
}

fn call(id: &str, name: &str, arguments: &str) -> Block {
    Block::ToolUse(ToolUse { id: CallId::from(id), name: name.into(), arguments: arguments.into() })
}

fn blocks(decoded: &DecodedStream) -> Vec<Block> {
    let block = |piece: &Piece| match piece {
        Piece::Block(block) => Some(block.clone()),
        _ => None,
    };
    decoded.pieces.iter().filter_map(block).collect()
}

fn stop(decoded: &DecodedStream) -> Option<ModelStop> {
    match decoded.pieces.last() {
        Some(Piece::End { stop, .. }) => Some(*stop),
        _ => None,
    }
}

fn function_call(id: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": "fc_9", "call_id": id, "name": "f", "arguments": arguments,
        "status": "completed"})
}

fn message(parts: Value) -> Value {
    json!({"type": "message", "id": "msg_9", "role": "assistant", "content": parts})
}

/// Method: the transcript of the reference, with a seal that differs between the first and the last event.
#[test]
fn reasoning_is_kept_whole_and_in_front_of_its_call() {
    let events = sse::responses(&[
        ModelOutput::Thinking(vec!["Look ".into(), "at".into()], "gAAAfull".into()),
        ModelOutput::call("call_1", "read", &json!({"path": "a"})),
    ]);
    let decoded = decode(&events);
    let [Block::Thinking { text, signature: None }, Block::Opaque(item), used] =
        &blocks(&decoded)[..]
    else {
        panic!("{decoded:?}")
    };
    assert_eq!(text, "Look at");
    let item: Value = serde_json::from_str(item).unwrap();
    let summary = json!([{"type": "summary_text", "text": "Look at"}]);
    let want = json!({"type": "reasoning", "id": "rs_0", "summary": summary, "encrypted_content": "gAAAfull"});
    assert_eq!(item, want);
    assert_eq!(*used, call("call_1", "read", r#"{"path":"a"}"#));
    let usage = Usage {
        input_tokens: 90,
        output_tokens: 30,
        cached_tokens: 64,
        reasoning_tokens: 12,
        ..Usage::default()
    };
    assert_eq!(decoded.pieces.last(), Some(&Piece::End { stop: ModelStop::ToolUse, usage }));
}

#[test]
fn interleaved_calls_come_out_in_the_order_of_the_answer() {
    let added = |index| {
        response_event(
            "response.output_item.added",
            json!({"output_index": index, "item": {"type": "function_call"}}),
        )
    };
    let delta = |index| {
        response_event(
            "response.function_call_arguments.delta",
            json!({"output_index": index, "delta": "{"}),
        )
    };
    let events = [
        added(0),
        added(1),
        delta(1),
        delta(0),
        done(1, function_call("b", "{\"n\":2}")),
        done(0, function_call("a", "{\"n\":1}")),
        completed(),
    ];
    let want = [call("a", "f", "{\"n\":1}"), call("b", "f", "{\"n\":2}")];
    assert_eq!(blocks(&decode(&events)), want);
}

#[test]
fn a_text_that_was_never_streamed_is_shown_from_its_item() {
    let text = message(json!([{"type": "output_text", "text": "hello"}]));
    let decoded = decode(&[done(0, text), completed()]);
    assert_eq!(decoded.pieces[0], Piece::Text("hello".into()));
    assert_eq!(blocks(&decoded), [Block::Text("hello".into())]);
}

#[test]
fn the_phase_of_a_text_is_kept_beside_it() {
    let mut text = message(json!([{"type": "output_text", "text": "hello"}]));
    text["phase"] = "commentary".into();
    let [Block::Opaque(phase), Block::Text(_)] =
        &blocks(&decode(&[done(0, text), completed()]))[..]
    else {
        panic!("a phase and a text")
    };
    assert_eq!(crate::wire::OpaqueOwner::of(phase), crate::wire::OpaqueOwner::OpenAi);
}

#[test]
fn parts_of_a_summary_are_paragraphs() {
    let delta = |index, text| {
        response_event(
            "response.reasoning_summary_text.delta",
            json!({"output_index": 0, "summary_index": index, "delta": text}),
        )
    };
    let decoded = decode(&[delta(0, "one"), delta(1, "two"), completed()]);
    let thought: String = decoded
        .pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Thought(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(thought, "one\n\ntwo");
}

#[test]
fn reasoning_without_its_seal_is_not_kept_to_be_sent_back() {
    let item = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": null});
    let decoded = decode(&[done(0, item), completed()]);
    assert_eq!(blocks(&decoded), []);
}

#[rstest]
#[case(json!({"reason": "max_output_tokens"}), ModelStop::MaxTokens)]
#[case(json!({"reason": "max_messages"}), ModelStop::MaxTokens)]
#[case(json!({"reason": "content_filter"}), ModelStop::Refusal)]
#[case(json!({"reason": "steered"}), ModelStop::Other)]
#[case(Value::Null, ModelStop::Other)]
fn an_incomplete_answer_says_why_and_keeps_no_half_call(
    #[case] details: Value,
    #[case] want: ModelStop,
) {
    let delta =
        response_event("response.output_text.delta", json!({"output_index": 0, "delta": "hal"}));
    let mut half = function_call("a", "{\"n\":");
    half["status"] = "incomplete".into();
    let added =
        json!({"output_index": 2, "item": {"type": "function_call", "call_id": "b", "name": "f"}});
    let events = [
        delta,
        done(1, half),
        response_event("response.output_item.added", added),
        ended(
            "response.incomplete",
            json!({"status": "incomplete", "incomplete_details": details}),
        ),
    ];
    let decoded = decode(&events);
    assert_eq!(decoded.fault, None);
    assert_eq!(blocks(&decoded), [Block::Text("hal".into())]);
    assert_eq!(stop(&decoded), Some(want));
}

#[test]
fn a_refusal_is_an_answer_that_refuses() {
    let delta =
        response_event("response.refusal.delta", json!({"output_index": 0, "delta": "I can"}));
    let item = message(json!([{"type": "refusal", "refusal": "I cannot."}]));
    let decoded = decode(&[delta, done(0, item), completed()]);
    assert_eq!(blocks(&decoded), [Block::Text("I cannot.".into())]);
    assert_eq!(stop(&decoded), Some(ModelStop::Refusal));
}

#[rstest]
#[case("rate_limit_exceeded", budao_core::Kind::ModelRateLimited)]
#[case("server_error", budao_core::Kind::ModelServerError)]
#[case("context_length_exceeded", budao_core::Kind::ContextTooLong)]
#[case("insufficient_quota", budao_core::Kind::ModelQuota)]
#[case("server_is_overloaded", budao_core::Kind::ModelOverloaded)]
#[case("slow_down", budao_core::Kind::ModelOverloaded)]
#[case("data_residency_mismatch", budao_core::Kind::ModelPermission)]
#[case("bio_policy", budao_core::Kind::ModelRefused)]
#[case("vector_store_timeout", budao_core::Kind::ModelServerError)]
fn a_failure_in_the_stream_is_classified_by_its_code(
    #[case] code: &str,
    #[case] kind: budao_core::Kind,
) {
    let flat = response_event("error", json!({"code": code, "message": "no", "param": null}));
    let nested =
        response_event("error", json!({"error": {"type": "x", "code": code, "message": "no"}}));
    let failed = ended(
        "response.failed",
        json!({"status": "failed", "error": {"code": code, "message": "no"}}),
    );
    for event in [flat, nested, failed] {
        assert_eq!(decode(&[event]).fault, Some(kind), "{code}");
    }
}

#[test]
fn a_whole_answer_in_place_of_a_stream_is_read() {
    let output =
        [message(json!([{"type": "output_text", "text": "hi"}])), function_call("a", "{}")];
    let body = json!({"object": "response", "status": "completed", "output": output,
        "usage": {"input_tokens": 1, "output_tokens": 2}});
    let decoded = decode(&[event(&body)]);
    assert_eq!(blocks(&decoded), [Block::Text("hi".into()), call("a", "f", "{}")]);
    assert_eq!(stop(&decoded), Some(ModelStop::ToolUse));
}

#[test]
fn more_items_than_any_answer_has_are_refused() {
    let added = |index: u64| {
        response_event("response.output_item.added", json!({"output_index": index, "item": {}}))
    };
    let events: Vec<_> = (0..2_000).map(added).collect();
    assert_eq!(decode(&events).fault, Some(budao_core::Kind::ModelMalformedStream));
}

#[test]
fn the_official_service_gets_the_key_of_its_cache() {
    let request = ModelRequest { cache_key: Some("session".into()), ..testing::request("hi") };
    let responses = super::format("m").encode(&request);
    let compatible = crate::openai::format("m").encode(&request);
    let key =
        |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap()["prompt_cache_key"].clone();
    assert_eq!((key(&responses), key(&compatible)), (json!("session"), Value::Null));
}

testing::chunking_and_noise!(Decoder::new(3), sse::responses);
