//! Chunks of the Gemini API, and properties that hold for any split into packets.

use budao_core::{
    Kind,
    message::{Block, CallId, Message, ModelStop, Piece, Role, ToolUse, Usage},
};
use budao_testkit::sse::{self, ModelOutput};
use rstest::rstest;
use serde_json::{Value, json};

use super::{GeminiFormat, plain::PlainChunk, stream::Decoder};
use crate::{
    request_body::WireFormat as _,
    shape::ShapeForm,
    testing::{self, DecodedStream, event},
};

fn decode(chunks: &[Value]) -> DecodedStream {
    let text: String = chunks.iter().map(event).collect();
    testing::decode([Ok(text.into_bytes())], Decoder::new(3))
}

fn parts(parts: &Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}}]})
}

fn finished(reason: &str) -> Value {
    json!({"candidates": [{"finishReason": reason}]})
}

/// Goal: the short way for common chunks says what the long one says.
/// Method: chunks of all kinds are decoded as they are, and with a field that every part may have and that leads to the
/// long way. The common ones are also checked to take the short way.
#[test]
fn the_fast_reader_of_common_chunks_gives_the_same_result() {
    let common = [json!({"text": "a"}), json!({"text": "line\n\"b\" \u{1f600}", "thought": true})];
    let others = [
        json!({"text": "a", "thoughtSignature": "s"}),
        json!({"text": "", "thoughtSignature": "s"}),
        json!({"functionCall": {"name": "f", "args": {}}}),
        json!({"text": 3}),
    ];
    let heads = [
        json!({"responseId": "r", "modelVersion": "m"}),
        json!({"usageMetadata": {"promptTokenCount": 3, "thoughtsTokenCount": 2, "extra": []}}),
        json!({"usageMetadata": {"promptTokenCount": "3", "candidatesTokenCount": 4}}),
        json!({"promptFeedback": {"blockReason": "SAFETY"}}),
        json!({"error": {"message": "no"}}),
    ];
    for (at, head) in heads.iter().enumerate() {
        for part in common.iter().chain(&others) {
            for reason in [None, Some("STOP")] {
                let mut plain = head.clone();
                let content = json!({"role": "model", "parts": [part]});
                plain["candidates"] = json!([{"content": content, "index": 0}]);
                if let Some(reason) = reason {
                    plain["candidates"][0]["finishReason"] = json!(reason);
                }
                let mut long = plain.clone();
                long["candidates"][0]["content"]["parts"][0]["noSuchField"] = json!(1);
                let (first, last) = (parts(&json!([{"text": "first "}])), finished("STOP"));
                let said = decode(&[first.clone(), plain.clone(), last.clone()]);
                assert_eq!(said, decode(&[first, long, last]), "{plain}");
                let is_common = at < 2 && common.contains(part) && reason.is_none();
                assert_eq!(PlainChunk::read(&plain.to_string()).is_some(), is_common, "{plain}");
            }
        }
    }
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

/// The parts that go back for an answer, as the service receives them.
fn sent_back(answer: Vec<Block>, substitute: bool) -> Value {
    let answer = Message { role: Role::Assistant, content: answer };
    let request = testing::user(vec![Message::user("hi"), answer, Message::user("more")]);
    let body: Value = serde_json::from_slice(
        &GeminiFormat { substitute, form: ShapeForm::Native }.encode(&request),
    )
    .unwrap();
    body["contents"][1]["parts"].clone()
}

fn call(id: &str) -> Block {
    Block::ToolUse(ToolUse { id: CallId::from(id), name: "f".into(), arguments: "{}".into() })
}

/// Method: parallel calls, each at the first place of its own chunk, of which only the first is signed; then a text
/// and a signature in an empty part.
#[test]
fn signatures_go_back_where_they_were() {
    let chunks = [
        parts(&json!([{"text": "Hm.", "thought": true}])),
        parts(
            &json!([{"functionCall": {"name": "f", "args": {"n": 1}}, "thoughtSignature": "s1/+="}]),
        ),
        parts(&json!([{"functionCall": {"id": "x", "name": "f", "args": {"n": 2}}}])),
        parts(&json!([{"text": "so"}])),
        parts(&json!([{"text": "", "thoughtSignature": "s2"}])),
        finished("STOP"),
    ];
    let decoded = decode(&chunks);
    assert_eq!(stop(&decoded), Some(ModelStop::ToolUse));
    let want = json!([
        {"functionCall": {"id": "call_3_1", "name": "f", "args": {"n": 1}}, "thoughtSignature": "s1/+="},
        {"functionCall": {"id": "x", "name": "f", "args": {"n": 2}}},
        {"text": "so"},
        {"text": "", "thoughtSignature": "s2"},
    ]);
    assert_eq!(sent_back(blocks(&decoded), false), want);
}

#[test]
fn calls_of_another_model_carry_the_substitute_once_it_is_wanted() {
    let foreign = Block::Opaque(r#"{"type":"reasoning","encrypted_content":"x"}"#.into());
    let answer = || vec![foreign.clone(), call("a"), call("b")];
    let unsigned = |id: &str| json!({"functionCall": {"id": id, "name": "f", "args": {}}});
    assert_eq!(sent_back(answer(), false), json!([unsigned("a"), unsigned("b")]));
    let mut first = unsigned("a");
    first["thoughtSignature"] = "skip_thought_signature_validator".into();
    assert_eq!(sent_back(answer(), true), json!([first, unsigned("b")]));
}

#[rstest]
#[case("STOP", ModelStop::EndTurn)]
#[case("MAX_TOKENS", ModelStop::MaxTokens)]
#[case("SAFETY", ModelStop::Refusal)]
#[case("IMAGE_SAFETY", ModelStop::Refusal)]
#[case("LANGUAGE", ModelStop::Other)]
#[case("SOMETHING_NEW", ModelStop::Other)]
fn a_finish_reason_is_told_as_it_is(#[case] reason: &str, #[case] want: ModelStop) {
    let decoded = decode(&[parts(&json!([{"text": "a"}])), finished(reason)]);
    assert_eq!((decoded.fault, stop(&decoded)), (None, Some(want)));
}

#[test]
fn a_malformed_call_is_no_answer() {
    let decoded = decode(&[finished("MALFORMED_FUNCTION_CALL"), finished("STOP")]);
    assert_eq!(decoded.fault, Some(Kind::ModelMalformedStream));
}

#[test]
fn a_blocked_prompt_is_a_refusal() {
    let decoded = decode(&[json!({"promptFeedback": {"blockReason": "SAFETY"}})]);
    assert_eq!(stop(&decoded), Some(ModelStop::Refusal));
}

#[test]
fn thinking_counts_as_output_and_later_counts_replace_earlier_ones() {
    let usage = |out: u64| {
        json!({"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": out,
        "thoughtsTokenCount": 4, "cachedContentTokenCount": 5}})
    };
    let decoded = decode(&[usage(1), finished("STOP"), usage(3)]);
    let usage = Usage {
        input_tokens: 9,
        output_tokens: 7,
        cached_tokens: 5,
        reasoning_tokens: 4,
        ..Usage::default()
    };
    assert_eq!(decoded.pieces, [Piece::End { stop: ModelStop::EndTurn, usage }]);
}

#[test]
fn an_error_may_be_a_list_of_one() {
    let error =
        json!([{"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED"}}]);
    assert_eq!(decode(&[error]).fault, Some(Kind::ModelRateLimited));
}

#[test]
fn a_whole_answer_in_place_of_a_stream_is_read() {
    let answer =
        json!([parts(&json!([{"text": "a"}])), parts(&json!([{"text": "b"}])), finished("STOP")]);
    assert_eq!(blocks(&decode(&[answer])), [Block::Text("ab".into())]);
}

testing::chunking_and_noise!(Decoder::new(3), sse::gemini);

#[test]
fn a_written_answer_is_read() {
    let decoded = decode_text(&sse::gemini(&[ModelOutput::text("hi")]).concat());
    assert_eq!(blocks(&decoded), [Block::Text("hi".into())]);
}

fn decode_text(text: &str) -> DecodedStream {
    testing::decode([Ok(text.as_bytes().to_vec())], Decoder::new(3))
}
