//! Chat completions in the forms that different servers write.

use budao_core::message::{Block, CallId, ModelStop, Piece, ToolUse, Usage};
use serde_json::{Value, json};

use super::{plain::PlainChunk, stream::Decoder};
use crate::testing::{self, DecodedStream, event};

fn decode(chunks: &[Value]) -> DecodedStream {
    let text: String = chunks.iter().map(event).collect();
    testing::decode([Ok((text + "data: [DONE]\n\n").into_bytes())], Decoder::new(3))
}

fn delta(delta: &Value) -> Value {
    json!({"choices": [{"delta": delta}]})
}

fn calls(ended: &DecodedStream) -> Vec<(&str, &str, &str)> {
    let call = |piece| match piece {
        &Piece::Block(Block::ToolUse(ToolUse { id: CallId(ref id), ref name, ref arguments })) => {
            Some((&**id, name.as_str(), arguments.as_str()))
        }
        _ => None,
    };
    ended.pieces.iter().filter_map(call).collect()
}

fn stop(ended: &DecodedStream) -> Option<ModelStop> {
    match ended.pieces.last() {
        Some(Piece::End { stop, .. }) => Some(*stop),
        _ => None,
    }
}

#[test]
fn streams_in_the_shapes_of_other_servers_are_read() {
    // Method: one call in the form of llama.cpp, vLLM and Ollama. The files are written by hand, not recorded.
    for bytes in [
        &include_bytes!("../../tests/golden/openai_llama_cpp.sse")[..],
        include_bytes!("../../tests/golden/openai_vllm.sse"),
        include_bytes!("../../tests/golden/openai_ollama.sse"),
    ] {
        let ended = testing::decode([Ok(bytes.to_vec())], Decoder::new(1));
        assert_eq!(ended.fault, None);
        let [(id, name, arguments)] = calls(&ended)[..] else { panic!("{ended:?}") };
        assert!(!id.is_empty());
        assert_eq!((name, arguments), ("fs_read", r#"{"path":"a.md"}"#));
        assert_eq!(stop(&ended), Some(ModelStop::ToolUse));
    }
}

/// Goal: the short way for common chunks says what the long one says.
/// Method: chunks of all kinds are decoded as they are, and with a field that every chunk may have and that leads to the
/// long way. The common ones are also checked to take the short way.
#[test]
fn the_fast_reader_of_common_chunks_gives_the_same_result() {
    let deltas = [
        json!({"content": "a"}),
        json!({"role": "assistant", "content": ""}),
        json!({"content": "line\n\"b\" \u{1f600}", "refusal": null, "tool_calls": null}),
        json!({"content": null, "reasoning_content": "hm"}),
        json!({"reasoning": "so", "reasoning_content": "", "function_call": null}),
        json!({"reasoning": "one", "reasoning_content": "other", "content": "both"}),
        json!({}),
    ];
    let others = [
        json!({"content": ["a list"]}),
        json!({"content": "x", "refusal": "no"}),
        json!({"content": "x", "audio": {}}),
        json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]}),
    ];
    let heads = [
        json!({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}),
        json!({"usage": null, "error": null, "system_fingerprint": "fp"}),
        json!({"usage": {"prompt_tokens": 3}}),
        json!({"object": "error"}),
        json!({"error": {"message": "no"}}),
    ];
    let chunk = |head: &Value, delta: &Value, ended: Option<&str>, index: u64| {
        let mut chunk = head.clone();
        let choice =
            json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": ended});
        chunk["choices"] = json!([choice]);
        chunk
    };
    for (at, head) in heads.iter().enumerate() {
        for delta in deltas.iter().chain(&others) {
            for (ended, index) in [(None, 0), (Some("stop"), 0), (None, 1)] {
                let plain = chunk(head, delta, ended, index);
                let mut long = plain.clone();
                long["choices"][0]["delta"]["no_such_field"] = json!(1);
                let first = json!({"choices": [{"delta": {"content": "first "}}]});
                let said = decode(&[first.clone(), plain.clone()]);
                assert_eq!(said, decode(&[first, long]), "{plain}");
                let is_common = at < 2 && deltas.contains(delta) && (ended, index) == (None, 0);
                assert_eq!(PlainChunk::read(&plain.to_string()).is_some(), is_common, "{plain}");
            }
        }
    }
    for unusual in
        ["[]", "{}", "1", r#"{"choices":[]}"#, r#"{"choices":[{"delta":{}},{"delta":{}}]}"#]
    {
        assert!(PlainChunk::read(unusual).is_none(), "{unusual}");
    }
}

#[test]
fn a_call_in_crumbs_without_index_or_id() {
    let ended = decode(&[
        delta(&json!({"tool_calls": [{"function": {"name": "f", "arguments": ""}}]})),
        delta(&json!({"tool_calls": [{"function": {"arguments": "{\"a\""}}]})),
        delta(&json!({"tool_calls": [{"function": {"arguments": ":1}"}}]})),
        delta(&json!({"tool_calls": [{"function": {"name": "g", "arguments": {"b": 2}}}]})),
    ]);
    let want = [("call_3_1", "f", r#"{"a":1}"#), ("call_3_2", "g", r#"{"b":2}"#)];
    assert_eq!(calls(&ended), want);
    assert_eq!(stop(&ended), Some(ModelStop::ToolUse));
}

#[test]
fn crumbs_that_repeat_their_name() {
    let ended = decode(&[
        delta(&json!({"tool_calls": {"function": {"name": "f", "arguments": "{\"a\""}}})),
        delta(&json!({"tool_calls": {"function": {"name": "f", "arguments": ":1}"}}})),
        delta(&json!({"tool_calls": {"function": {"name": "f", "arguments": "{}"}}})),
    ]);
    assert_eq!(calls(&ended), [("call_3_1", "f", r#"{"a":1}"#), ("call_3_2", "f", "{}")]);
}

#[test]
fn interleaved_calls_are_distinguished_by_index_even_as_text() {
    let crumb = |index: Value, arguments: &str| {
        delta(&json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}))
    };
    let start = |index: Value, id: &str, name: &str| {
        delta(&json!({"tool_calls": [{"index": index, "id": id, "function": {"name": name}}]}))
    };
    let ended = decode(&[
        start(json!("0"), "a", "f"),
        start(json!(1), "b", "g"),
        crumb(json!(1), "{\"b\":"),
        crumb(json!("0"), "{\"a\":"),
        crumb(json!(1), "2}"),
        crumb(json!(0), "1}"),
    ]);
    assert_eq!(calls(&ended), [("a", "f", r#"{"a":1}"#), ("b", "g", r#"{"b":2}"#)]);
}

#[test]
fn complete_calls_with_index_zero_are_distinguished_by_id() {
    let whole = |id: &str| json!({"index": 0, "id": id, "function": {"name": "f", "arguments": format!("[\"{id}\"]")}});
    let ended = decode(&[
        delta(&json!({"tool_calls": [whole("a")]})),
        delta(&json!({"tool_calls": [whole("b")]})),
    ]);
    assert_eq!(calls(&ended), [("a", "f", "[\"a\"]"), ("b", "f", "[\"b\"]")]);
}

#[test]
fn the_old_way_to_write_a_call() {
    let ended = decode(&[
        delta(&json!({"function_call": {"name": "f", "arguments": "{"}})),
        delta(&json!({"function_call": {"arguments": "}"}})),
        json!({"choices": [{"delta": {}, "finish_reason": "function_call"}]}),
    ]);
    assert_eq!(calls(&ended), [("call_3_1", "f", "{}")]);
}

#[test]
fn content_may_be_null_empty_or_in_parts() {
    let ended = decode(&[
        delta(&json!({"role": "assistant", "content": null})),
        delta(&json!({"content": ""})),
        delta(&json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]})),
        json!({"choices": [{"index": 1, "delta": {"content": "another choice"}}]}),
        json!({"choices": null}),
        json!({}),
    ]);
    let want = [
        Piece::Text("ab".into()),
        Piece::Block(Block::Text("ab".into())),
        Piece::End { stop: ModelStop::EndTurn, usage: Usage::default() },
    ];
    assert_eq!(ended.pieces, want);
}

#[test]
fn numbers_may_be_text_and_usage_may_come_last() {
    let ended = decode(&[
        json!({"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": "12", "completion_tokens": "3", "prompt_cache_hit_tokens": 5}}),
    ]);
    let usage = Usage { input_tokens: 12, output_tokens: 3, cached_tokens: 5, ..Usage::default() };
    assert_eq!(ended.pieces.last(), Some(&Piece::End { stop: ModelStop::EndTurn, usage }));
}

#[test]
fn either_a_reason_or_done_ends_an_answer_and_neither_is_a_cut() {
    let said = event(&delta(&json!({"content": "a"})));
    let reason = event(&json!({"choices": [{"delta": {}, "finish_reason": "length"}]}));
    let ended = |text: String| testing::decode([Ok(text.into_bytes())], Decoder::new(1));
    assert_eq!(stop(&ended(said.clone() + &reason)), Some(ModelStop::MaxTokens));
    assert_eq!(stop(&ended(said.clone() + "data: [DONE]")), Some(ModelStop::EndTurn));
    assert_eq!(ended(said).fault, Some(budao_core::Kind::ModelStreamCut));
}

#[test]
fn a_filter_and_a_refusal_are_refusals() {
    let filtered =
        decode(&[json!({"choices": [{"delta": {}, "finish_reason": "content_filter"}]})]);
    assert_eq!(stop(&filtered), Some(ModelStop::Refusal));
    let refused =
        decode(&[delta(&json!({"refusal": "I cannot."})), delta(&json!({"refusal": null}))]);
    assert_eq!(refused.pieces[0], Piece::Text("I cannot.".into()));
    assert_eq!(stop(&refused), Some(ModelStop::Refusal));
}

testing::chunking_and_noise!(Decoder::new(1), budao_testkit::sse::openai);
