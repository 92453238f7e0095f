//! Event shapes of the Messages API, and properties that hold for any split into packets.

use std::io;

use budao_core::message::{
    Block, CallId, Message, ModelRequest, ModelStop, Piece, ResponseInfo, Role, ToolUse, Usage,
};
use serde_json::{Value, json};

use super::{AnthropicFormat, stream::Decoder};
use crate::request_body::WireFormat as _;
use crate::testing::{self, DecodedStream, event};

fn decode(bytes: &[u8]) -> DecodedStream {
    testing::decode([Ok(bytes.to_vec())], Decoder::default())
}

fn block(index: u64, block: &Value, deltas: &[Value]) -> String {
    let mut text =
        event(&json!({"type": "content_block_start", "index": index, "content_block": block}));
    for delta in deltas {
        text += &event(&json!({"type": "content_block_delta", "index": index, "delta": delta}));
    }
    text + &event(&json!({"type": "content_block_stop", "index": index}))
}

fn stop(reason: &str) -> String {
    event(
        &json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}),
    ) + &event(&json!({"type": "message_stop"}))
}

fn end(stop: ModelStop) -> Piece {
    Piece::End { stop, usage: Usage { output_tokens: 5, ..Usage::default() } }
}

fn response(id: &str, model: &str) -> Piece {
    Piece::Response(ResponseInfo { id: id.into(), model: model.into() })
}

#[test]
fn streams_in_the_shape_of_the_manual_are_read() {
    // Method: streams modelled on the manual's examples, stored as files. They are written by hand, not recorded.
    let hello = decode(include_bytes!("../../tests/golden/anthropic_hello.sse"));
    let usage = Usage { input_tokens: 25, output_tokens: 15, ..Usage::default() };
    assert_eq!(
        hello.pieces,
        [
            Piece::Text("Hello".into()),
            Piece::Text("!".into()),
            Piece::Block(Block::Text("Hello!".into())),
            response("msg_1nZdL29xx5MUA1yADyHTEsnR8uuvGzszyY", "claude-opus-4-1-20250805"),
            Piece::End { stop: ModelStop::EndTurn, usage },
        ]
    );
    let weather = decode(include_bytes!("../../tests/golden/anthropic_tool.sse"));
    let call = ToolUse {
        id: CallId::from("toolu_01T1x1fJ34qAmk2tNTrN7Up6"),
        name: "get_weather".into(),
        arguments: r#"{"location": "San Francisco, CA", "unit": "fahrenheit"}"#.into(),
    };
    let usage = Usage { input_tokens: 472, output_tokens: 89, ..Usage::default() };
    let last = &weather.pieces[weather.pieces.len() - 3..];
    assert_eq!(
        last,
        [
            Piece::Block(Block::ToolUse(call)),
            response("msg_014p7gG3wDgGV9EUtLvnow3U", "claude-opus-4-1-20250805"),
            Piece::End { stop: ModelStop::ToolUse, usage },
        ]
    );
    let thinking = decode(include_bytes!("../../tests/golden/anthropic_thinking.sse"));
    let signature = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds5+=".to_owned();
    let text = "Let me solve this step by step:\n\n1. First break down 27 * 453".to_owned();
    let thought = Block::Thinking { text, signature: Some(signature) };
    assert!(thinking.pieces.contains(&Piece::Block(thought)), "{:?}", thinking.pieces);
}

#[test]
fn redacted_thinking_is_kept_character_by_character() {
    let raw = r#"{"type":"redacted_thinking",  "data":"EmwKAhgBEgy\/A=="}"#;
    let start = format!(
        "data: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{raw}}}\n\n"
    );
    let text =
        start + &event(&json!({"type": "content_block_stop", "index": 0})) + &stop("end_turn");
    let want = [Piece::Block(Block::Opaque(raw.into())), end(ModelStop::EndTurn)];
    assert_eq!(decode(text.as_bytes()).pieces, want);
}

#[test]
fn an_unknown_block_is_assembled_and_kept() {
    let start = json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}});
    let delta = |part: &str| json!({"type": "input_json_delta", "partial_json": part});
    let text = block(0, &start, &[delta("{\"q\":"), delta("1}")]) + &stop("pause_turn");
    let got = decode(text.as_bytes()).pieces;
    let [Piece::Block(Block::Opaque(kept)), ended] = &got[..] else { panic!("{got:?}") };
    let want =
        json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": 1}});
    assert_eq!(serde_json::from_str::<Value>(kept).unwrap(), want);
    assert_eq!(*ended, end(ModelStop::Other));
}

#[test]
fn unknown_events_and_deltas_are_passed_over() {
    let deltas = [
        json!({"type": "text_delta", "text": "a"}),
        json!({"type": "citations_delta", "citation": {}}),
        json!({"type": "surprise"}),
    ];
    let text = event(&json!({"type": "a_new_event", "x": 1}))
        + &event(&json!({"no": "type"}))
        + &block(0, &json!({"type": "text", "text": ""}), &deltas)
        + &stop("a_new_reason");
    let want =
        [Piece::Text("a".into()), Piece::Block(Block::Text("a".into())), end(ModelStop::Other)];
    assert_eq!(decode(text.as_bytes()).pieces, want);
}

#[test]
fn a_call_without_arguments_is_an_empty_object() {
    let start = json!({"type": "tool_use", "id": "t", "name": "now", "input": {}});
    let text = block(0, &start, &[json!({"type": "input_json_delta", "partial_json": ""})])
        + &stop("tool_use");
    let call = ToolUse { id: CallId::from("t"), name: "now".into(), arguments: "{}".into() };
    assert_eq!(decode(text.as_bytes()).pieces[0], Piece::Block(Block::ToolUse(call)));
}

#[test]
fn every_stop_reason_has_its_meaning() {
    for (reason, meaning) in [
        ("end_turn", ModelStop::EndTurn),
        ("max_tokens", ModelStop::MaxTokens),
        ("model_context_window_exceeded", ModelStop::MaxTokens),
        ("refusal", ModelStop::Refusal),
        ("stop_sequence", ModelStop::Other),
        ("tool_use", ModelStop::ToolUse),
    ] {
        assert_eq!(decode(stop(reason).as_bytes()).pieces, [end(meaning)], "{reason}");
    }
}

testing::chunking_and_noise!(Decoder::default(), budao_testkit::sse::anthropic);

#[test]
fn a_line_that_breaks_is_a_cut_whatever_came_before() {
    let text = block(0, &json!({"type": "text", "text": ""}), &[]);
    let chunks = [Ok(text.into_bytes()), Err(io::ErrorKind::ConnectionReset.into())];
    let ended = testing::decode(chunks, Decoder::default());
    assert_eq!(ended.fault, Some(budao_core::Kind::ModelStreamCut));
}

#[test]
fn thinking_is_not_asked_for_in_the_middle_of_calls_that_began_without_it() {
    let call = |number: u32| {
        let id = CallId::from(format!("c{number}").as_str());
        let call = ToolUse { id: id.clone(), name: "t".into(), arguments: "{}".into() };
        let result = Block::ToolResult { call: id, is_error: false, content: "{}".into() };
        (Block::ToolUse(call), Message { role: Role::User, content: vec![result] })
    };
    let thinking = Block::Thinking { text: "hm".into(), signature: Some("s".into()) };
    let asks = |messages: Vec<Message>| {
        let request = ModelRequest { thinking_tokens: Some(2_048), ..testing::user(messages) };
        let body: Value =
            serde_json::from_slice(&AnthropicFormat { model: "m" }.encode(&request)).unwrap();
        body.get("thinking").is_some()
    };
    let (first, first_result) = call(1);
    let (second, second_result) = call(2);
    let of = |content: Vec<Block>| Message { role: Role::Assistant, content };
    let go = || Message::user("go");
    assert!(asks(vec![go()]));
    assert!(asks(vec![go(), Message::assistant("done"), Message::user("more")]));
    let foreign = vec![go(), of(vec![first.clone()]), first_result.clone()];
    assert!(!asks(foreign.clone()), "another model made the call");
    assert!(asks([foreign, vec![Message::user("more")]].concat()), "a new question");
    let own = vec![go(), of(vec![thinking, first]), first_result, of(vec![second]), second_result];
    assert!(asks(own), "it thought before the first call");
}
