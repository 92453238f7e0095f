//! Whole answers over a real socket, on every wire.

use std::sync::Arc;

use crate::support::{Signal, fault, pieces, request, world};
use budao_core::{
    limits::Limits,
    message::{Block, CallId, ModelStop, Piece, ResponseInfo, ToolUse, Usage},
};
use budao_models::{Anthropic, Model, OpenAi, OpenAiResponses};
use budao_testkit::{
    provider::{Provider, Reply},
    sse::{self, ModelOutput},
};
use serde_json::json;

fn sayings() -> Vec<ModelOutput> {
    vec![
        ModelOutput::Thinking(vec!["Let me ".into(), "see.".into()], "c2lnbmVk/+==".into()),
        ModelOutput::text("I will read it."),
        ModelOutput::call("toolu_1", "fs_read", &json!({"path": "README.md"})),
        ModelOutput::call("toolu_2", "fs_glob", &json!({"pattern": "不倒*"})),
    ]
}

fn call(id: &str, name: &str, arguments: &str) -> Piece {
    let (id, name, arguments) = (CallId::from(id), name.into(), arguments.into());
    Piece::Block(Block::ToolUse(ToolUse { id, name, arguments }))
}

fn texts(words: &[&str]) -> Vec<Piece> {
    words.iter().map(|word| Piece::Text((*word).into())).collect()
}

async fn anthropic(reply: Reply) -> (Provider, Anthropic) {
    let provider = Provider::start([reply]).await;
    let world = world(Arc::new(Signal::default()));
    let key = Some("sk-ant-secret".into());
    let model =
        Anthropic::new("m", Some(&provider.url()), key, &world, Arc::new(Limits::default()));
    (provider, model.unwrap())
}

async fn openai(reply: Reply) -> (Provider, OpenAi) {
    let provider = Provider::start([reply]).await;
    let world = world(Arc::new(Signal::default()));
    let model = OpenAi::new("m", Some(&provider.url()), None, &world, Arc::new(Limits::default()));
    (provider, model.unwrap())
}

fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

fn response(id: &str) -> Piece {
    Piece::Response(ResponseInfo { id: id.into(), model: "m".into() })
}

#[tokio::test]
async fn counts_that_cannot_be_true_are_not_believed() {
    for count in [json!(u64::MAX), json!(-5), json!(1e30), json!("many"), json!({})] {
        let body = json!({"id": "x".repeat(300), "model": "m", "choices": [{"message": {"content": "hello"},
            "finish_reason": "stop"}], "usage": {"prompt_tokens": count, "completion_tokens": count}});
        let (_provider, model) = openai(Reply::refuse(200, &body)).await;
        let got = pieces(&model, request("hi")).await.unwrap();
        let [.., named, end] = &got[..] else { panic!("{got:?}") };
        assert_eq!(*named, response(""), "an id that is too long is left out");
        let usage = Usage::default();
        assert_eq!(*end, Piece::End { stop: ModelStop::EndTurn, usage }, "{count}");
    }
}

#[tokio::test]
async fn anthropic_streams_thought_words_and_calls() {
    let (_provider, model) = anthropic(Reply::events(sse::anthropic(&sayings()))).await;
    let got = pieces(&model, request("hi")).await.unwrap();
    let mut want = vec![Piece::Thought("Let me ".into()), Piece::Thought("see.".into())];
    want.push(Piece::Block(Block::Thinking {
        text: "Let me see.".into(),
        signature: Some("c2lnbmVk/+==".into()),
    }));
    want.extend(texts(&["I ", "will ", "read ", "it."]));
    want.push(Piece::Block(Block::Text("I will read it.".into())));
    want.push(call("toolu_1", "fs_read", r#"{"path":"README.md"}"#));
    want.push(call("toolu_2", "fs_glob", r#"{"pattern":"不倒*"}"#));
    let usage = Usage { cache_write_tokens: 10, cached_tokens: 100, ..usage(135, 15) };
    want.push(response("msg_1"));
    want.push(Piece::End { stop: ModelStop::ToolUse, usage });
    assert_eq!(got, want);
}

#[tokio::test]
async fn openai_streams_thought_words_and_calls() {
    let (_provider, model) = openai(Reply::events(sse::openai(&sayings()))).await;
    let got = pieces(&model, request("hi")).await.unwrap();
    let mut want = vec![Piece::Thought("Let me ".into()), Piece::Thought("see.".into())];
    want.extend(texts(&["I ", "will ", "read ", "it."]));
    want.push(Piece::Block(Block::Thinking { text: "Let me see.".into(), signature: None }));
    want.push(Piece::Block(Block::Text("I will read it.".into())));
    want.push(call("toolu_1", "fs_read", r#"{"path":"README.md"}"#));
    want.push(call("toolu_2", "fs_glob", r#"{"pattern":"不倒*"}"#));
    let usage = Usage { cached_tokens: 4, ..usage(12, 7) };
    want.push(response("chatcmpl-1"));
    want.push(Piece::End { stop: ModelStop::ToolUse, usage });
    assert_eq!(got, want);
}

#[tokio::test]
async fn responses_streams_thought_words_and_calls() {
    let provider = Provider::start([Reply::events(sse::responses(&sayings()))]).await;
    let world = world(Arc::new(Signal::default()));
    let limits = Arc::new(Limits::default());
    let model =
        OpenAiResponses::new("m", Some(&provider.url()), Some("sk-secret".into()), &world, limits);
    let got = pieces(&model.unwrap(), request("hi")).await.unwrap();
    let item = r#"{"type":"reasoning","id":"rs_0","summary":[{"type":"summary_text","text":"Let me see."}],"encrypted_content":"c2lnbmVk/+=="}"#;
    let item: serde_json::Value = serde_json::from_str(item).unwrap();
    let mut want = vec![Piece::Thought("Let me ".into()), Piece::Thought("see.".into())];
    want.push(Piece::Block(Block::Thinking { text: "Let me see.".into(), signature: None }));
    want.push(Piece::Block(Block::Opaque(item.to_string())));
    want.extend(texts(&["I ", "will ", "read ", "it."]));
    want.push(Piece::Block(Block::Text("I will read it.".into())));
    want.push(call("toolu_1", "fs_read", r#"{"path":"README.md"}"#));
    want.push(call("toolu_2", "fs_glob", r#"{"pattern":"不倒*"}"#));
    let usage = Usage { cached_tokens: 64, reasoning_tokens: 12, ..usage(90, 30) };
    want.push(response("resp_1"));
    want.push(Piece::End { stop: ModelStop::ToolUse, usage });
    assert_eq!(got, want);
    let asked = &provider.asked()[0];
    assert_eq!(asked.path, "/v1/responses");
    assert_eq!(asked.headers.get("authorization").unwrap(), "Bearer sk-secret");
}

#[tokio::test]
async fn a_server_that_does_not_stream_is_read_all_the_same() {
    let body = json!({"choices": [{"message": {"role": "assistant", "content": "hello",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "t", "arguments": "{}"}}]},
        "finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}});
    let (_provider, model) = openai(Reply::refuse(200, &body)).await;
    let mut want = texts(&["hello"]);
    want.push(Piece::Block(Block::Text("hello".into())));
    want.push(call("a", "t", "{}"));
    let usage = Usage { input_tokens: 1, output_tokens: 2, ..Usage::default() };
    want.push(Piece::End { stop: ModelStop::ToolUse, usage });
    assert_eq!(pieces(&model, request("hi")).await.unwrap(), want);
}

#[tokio::test]
async fn a_gateway_that_does_not_stream_the_messages_api_is_read_all_the_same() {
    let body = json!({"type": "message", "role": "assistant", "stop_reason": "tool_use", "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "s/+="},
        {"type": "text", "text": "hello"},
        {"type": "tool_use", "id": "a", "name": "t", "input": {"x": 1}},
    ], "usage": {"input_tokens": 1, "output_tokens": 2}});
    let (_provider, model) = anthropic(Reply::refuse(200, &body)).await;
    let thought = Block::Thinking { text: "Hm.".into(), signature: Some("s/+=".into()) };
    let usage = Usage { input_tokens: 1, output_tokens: 2, ..Usage::default() };
    let want = [
        Piece::Thought("Hm.".into()),
        Piece::Block(thought),
        Piece::Text("hello".into()),
        Piece::Block(Block::Text("hello".into())),
        call("a", "t", r#"{"x":1}"#),
        Piece::End { stop: ModelStop::ToolUse, usage },
    ];
    assert_eq!(pieces(&model, request("hi")).await.unwrap(), want);
}

#[tokio::test]
async fn a_request_carries_its_headers_and_its_key_is_seen_nowhere_else() {
    let refusal = Reply::refuse(401, &json!({"error": {"message": "no key sk-ant-secret"}}));
    let (provider, model) = anthropic(refusal).await;
    let fault = fault(&model, request("hi")).await;
    let asked = &provider.asked()[0];
    assert_eq!(asked.path, "/v1/messages");
    let header = |name: &str| asked.headers.get(name).map(|value| value.to_str().unwrap());
    assert_eq!(header("x-api-key"), Some("sk-ant-secret"));
    assert_eq!(header("anthropic-version"), Some("2023-06-01"));
    assert_eq!(header("content-type"), Some("application/json"));
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000007-01";
    assert_eq!(header("traceparent"), Some(parent));
    for text in [format!("{model:?}"), format!("{fault:?}"), fault.to_string()] {
        assert!(!text.contains("sk-ant-secret"), "{text}");
    }
}

#[tokio::test]
async fn openai_sends_its_key_as_bearer_and_none_when_there_is_none() {
    let provider = Provider::start([Reply::status(500), Reply::status(500)]).await;
    let world = world(Arc::new(Signal::default()));
    for key in [Some("sk-secret".into()), None] {
        let limits = Arc::new(Limits::default());
        let model = OpenAi::new("m", Some(&provider.url()), key, &world, limits).unwrap();
        fault(&model, request("hi")).await;
    }
    let sent: Vec<_> =
        provider.asked().iter().map(|asked| asked.headers.get("authorization").cloned()).collect();
    assert_eq!(sent, [Some("Bearer sk-secret".parse().unwrap()), None]);
    assert_eq!(provider.asked()[0].path, "/v1/chat/completions");
}

#[tokio::test]
async fn dropping_the_stream_stops_the_request() {
    let reply = Reply::events(&sse::anthropic(&sayings())[..4]).stall();
    let (provider, model) = anthropic(reply).await;
    let stream = model.stream(request("hi")).await.unwrap();
    drop(stream);
    provider.hung_up(1).await;
}

#[tokio::test]
async fn text_after_the_end_marker_is_ignored() {
    let mut events = sse::anthropic(&[ModelOutput::text("hi")]);
    events.extend(sse::anthropic(&[ModelOutput::text("more")]));
    let (_provider, model) = anthropic(Reply::events(events)).await;
    let got = pieces(&model, request("hi")).await.unwrap();
    assert!(!format!("{got:?}").contains("more"), "{got:?}");
}
