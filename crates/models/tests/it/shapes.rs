//! Answers with a shape on every wire: the service's own option where it has one, the tool where it has none, refuses or
//! ignored it.

use std::sync::Arc;

use crate::support::{Signal, fault, pieces, request, shared, tool, world};
use budao_core::{
    fault::Kind,
    limits::Limits,
    message::{Block, CallId, Message, ModelRequest, Role, ToolUse},
};
use budao_models::{Anthropic, Gemini, Model, OpenAi, OpenAiResponses};
use budao_testkit::{
    provider::{Provider, Reply},
    sse::{self, ModelOutput},
};
use serde_json::{Value, json};

fn shaped(others: &[&str]) -> ModelRequest {
    let answer = tool("final_answer", &json!({"city": {"type": "string"}}));
    let others = others.iter().map(|name| tool(name, &json!({})));
    let tools = others.chain([Arc::clone(&answer)]).collect();
    ModelRequest { tools, answer: Some(answer), ..request("Where?") }
}

fn model(wire: &str, provider: &Provider) -> Box<dyn Model> {
    let (world, limits) = (world(Arc::new(Signal::default())), Arc::new(Limits::default()));
    let url = provider.url();
    let url = Some(url.as_str());
    match wire {
        "anthropic" => Box::new(Anthropic::new("m", url, None, &world, limits).unwrap()),
        "chat" => Box::new(OpenAi::new("m", url, None, &world, limits).unwrap()),
        "responses" => Box::new(OpenAiResponses::new("m", url, None, &world, limits).unwrap()),
        _ => Box::new(Gemini::new("m", url, None, &world, limits).unwrap()),
    }
}

fn answer(wire: &str) -> Reply {
    let text = [ModelOutput::text(r#"{"city":"Paris"}"#)];
    Reply::events(match wire {
        "anthropic" => sse::anthropic(&text),
        "chat" => sse::openai(&text),
        "responses" => sse::responses(&text),
        _ => sse::gemini(&text),
    })
}

fn refusal(wire: &str) -> Reply {
    let (message, param) = match wire {
        "chat" => ("Invalid schema for response_format 'final_answer'", "response_format"),
        "responses" => ("Invalid schema for response_format 'final_answer'", "text.format.schema"),
        _ => ("Invalid value at 'generation_config.response_json_schema'", ""),
    };
    let error =
        json!({"message": message, "type": "invalid_request_error", "param": param, "code": null});
    Reply::refuse(400, &json!({ "error": error }))
}

/// The schema that a request asks for natively, and the names of the tools that it offers.
fn asked(body: &Value) -> (Option<String>, Vec<String>) {
    let native = [
        &body["text"]["format"]["schema"],
        &body["response_format"]["json_schema"]["schema"],
        &body["generationConfig"]["responseJsonSchema"],
    ];
    let native = native.into_iter().find(|it| !it.is_null()).map(ToString::to_string);
    let declared = body["tools"][0]["functionDeclarations"].as_array();
    let tools = declared.or(body["tools"].as_array()).into_iter().flatten();
    let name = |tool: &Value| {
        let name = tool["name"].as_str().or(tool["function"]["name"].as_str());
        name.unwrap().to_owned()
    };
    (native, tools.map(name).collect())
}

async fn bodies(
    wire: &str,
    replies: Vec<Reply>,
    requests: Vec<ModelRequest>,
) -> Vec<(bool, Vec<String>)> {
    let provider = Provider::start(replies).await;
    let model = model(wire, &provider);
    for request in requests {
        pieces(&*model, request).await.unwrap();
    }
    let shown = |body: &Value| {
        let (native, tools) = asked(body);
        assert!(native.as_ref().is_none_or(|schema| schema.contains("city")), "{body}");
        (native.is_some(), tools)
    };
    provider.asked().iter().map(|asked| shown(&asked.body)).collect()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn a_service_with_an_option_of_its_own_gets_the_schema_and_not_the_tool() {
    for wire in ["chat", "responses", "gemini"] {
        let sent = bodies(wire, vec![answer(wire)], vec![shaped(&[])]).await;
        assert_eq!(sent, [(true, names(&[]))], "{wire}");
    }
    for wire in ["chat", "responses"] {
        let sent = bodies(wire, vec![answer(wire)], vec![shaped(&["fs_read"])]).await;
        assert_eq!(sent, [(true, names(&["fs_read"]))], "{wire}");
    }
}

#[tokio::test]
async fn a_service_without_one_gets_the_tool() {
    let sent = bodies("anthropic", vec![answer("anthropic")], vec![shaped(&["fs_read"])]).await;
    assert_eq!(sent, [(false, names(&["fs_read", "final_answer"]))]);
    let sent = bodies("gemini", vec![answer("gemini")], vec![shaped(&["fs_read"])]).await;
    assert_eq!(sent, [(false, names(&["fs_read", "final_answer"]))], "no option beside tools");
}

#[tokio::test]
async fn a_service_that_refuses_the_schema_is_asked_for_a_tool_call_and_that_is_remembered() {
    for wire in ["chat", "responses", "gemini"] {
        let replies = vec![refusal(wire), answer(wire), answer(wire)];
        let sent = bodies(wire, replies, vec![shaped(&[]), shaped(&[])]).await;
        let tool = (false, names(&["final_answer"]));
        assert_eq!(sent, [(true, names(&[])), tool.clone(), tool], "{wire}");
    }
}

#[tokio::test]
async fn a_service_that_refuses_it_in_both_forms_is_a_fault_of_its_own() {
    for wire in ["chat", "responses", "gemini"] {
        let provider = Provider::start([refusal(wire), refusal(wire), refusal(wire)]).await;
        let fault = fault(&*model(wire, &provider), shaped(&[])).await;
        assert_eq!(fault.kind(), Kind::AnswerSchemaRefused, "{wire}");
        assert_eq!(provider.asked().len(), 2, "{wire}");
    }
    let error = json!({"type": "invalid_request_error", "message": "tools.0.custom.input_schema: JSON schema is invalid"});
    let provider =
        Provider::start([Reply::refuse(400, &json!({"type": "error", "error": error}))]).await;
    let fault = fault(&*model("anthropic", &provider), shaped(&[])).await;
    assert_eq!(fault.kind(), Kind::AnswerSchemaRefused);
}

#[tokio::test]
async fn after_an_answer_that_did_not_fit_the_tool_is_offered() {
    let call = ToolUse {
        id: CallId::from("c"),
        name: "final_answer".into(),
        arguments: "It is Paris.".into(),
    };
    let result = Block::ToolResult { call: call.id.clone(), is_error: true, content: "{}".into() };
    let messages = vec![
        Message::user("Where?"),
        Message { role: Role::Assistant, content: vec![Block::ToolUse(call)] },
        Message { role: Role::User, content: vec![result] },
    ];
    let request = ModelRequest { messages: shared(messages), ..shaped(&[]) };
    let sent = bodies("chat", vec![answer("chat")], vec![request]).await;
    assert_eq!(sent, [(false, names(&["final_answer"]))]);
}
