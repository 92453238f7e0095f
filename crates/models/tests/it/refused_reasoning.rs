//! Requests that a service refuses because of reasoning: the provider changes the request and sends it once more.

use std::sync::Arc;

use crate::support::{Signal, fault, pieces, request, shared, tool, world};
use budao_core::{
    fault::Kind,
    limits::Limits,
    message::{Block, CallId, Message, ModelRequest, Piece, Role, ToolUse},
};
use budao_models::{Gemini, Keys, Models, OpenAi, OpenAiResponses, Vendor};
use budao_testkit::{
    provider::{Provider, Reply},
    request_rules,
    sse::{self, ModelOutput},
};
use rstest::rstest;
use serde_json::{Value, json};

const COMPLAINT: &str = "Function tools with reasoning_effort are not supported for gpt-x in /v1/chat/completions. \
     Please use /v1/responses instead.";

fn error(message: &str, param: &str, code: &str) -> Reply {
    let error =
        json!({"message": message, "type": "invalid_request_error", "param": param, "code": code});
    Reply::refuse(400, &json!({"error": error}))
}

fn with_tools() -> ModelRequest {
    ModelRequest { tools: Arc::new([tool("fs_read", &json!({}))]), ..request("hi") }
}

fn chat(provider: &Provider) -> OpenAi {
    let world = world(Arc::new(Signal::default()));
    OpenAi::new("m", Some(&provider.url()), None, &world, Arc::new(Limits::default())).unwrap()
}

fn responses(provider: &Provider) -> OpenAiResponses {
    let (world, limits) = (world(Arc::new(Signal::default())), Arc::new(Limits::default()));
    OpenAiResponses::new("m", Some(&provider.url()), None, &world, limits).unwrap()
}

fn hello() -> Vec<ModelOutput> {
    vec![ModelOutput::text("hello")]
}

#[tokio::test]
async fn chat_completions_turn_reasoning_off_where_it_excludes_tools() {
    let answer = || Reply::events(sse::openai(&hello()));
    let replies = [error(COMPLAINT, "reasoning_effort", ""), answer(), answer(), answer()];
    let provider = Provider::start(replies).await;
    let model = chat(&provider);
    pieces(&model, with_tools()).await.unwrap();
    pieces(&model, with_tools()).await.unwrap();
    pieces(&model, request("no tools")).await.unwrap();
    let efforts: Vec<Value> =
        provider.asked().iter().map(|asked| asked.body["reasoning_effort"].clone()).collect();
    let none = json!("none");
    assert_eq!(efforts, [Value::Null, none.clone(), none, Value::Null], "it is remembered");
}

#[tokio::test]
async fn a_model_that_cannot_stop_reasoning_is_asked_twice_and_no_more() {
    let replies = [(); 3].map(|()| error(COMPLAINT, "reasoning_effort", ""));
    let provider = Provider::start(replies).await;
    let fault = fault(&chat(&provider), with_tools()).await;
    assert_eq!(fault.kind(), Kind::ModelBadRequest);
    assert_eq!(provider.asked().len(), 2);
}

fn reasoned(seal: &str) -> Vec<Message> {
    let item = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": seal});
    let call =
        ToolUse { id: CallId::from("call_1"), name: "fs_read".into(), arguments: "{}".into() };
    let result = Block::ToolResult { call: call.id.clone(), is_error: false, content: "{}".into() };
    vec![
        Message::user("hi"),
        Message {
            role: Role::Assistant,
            content: vec![Block::Opaque(item.to_string()), Block::ToolUse(call)],
        },
        Message { role: Role::User, content: vec![result] },
    ]
}

/// A service that accepts only what it sealed itself, and checks everything else too.
async fn strict_service() -> Provider {
    Provider::answering(|asked| {
        match request_rules::responses(&asked.body, |seal| seal == "ours") {
            Ok(()) => Reply::events(sse::responses(&hello())),
            Err(refusal) => refusal.reply(),
        }
    })
    .await
}

#[rstest]
#[case("ours")]
#[case("another service's")]
#[tokio::test]
async fn reasoning_goes_back_in_its_place_or_not_at_all(#[case] seal: &str) {
    let provider = strict_service().await;
    let messages = shared(reasoned(seal));
    let request = ModelRequest { messages, ..with_tools() };
    let got = pieces(&responses(&provider), request).await.unwrap();
    assert_eq!(got[0], Piece::Text("hello".into()));
}

#[rstest]
#[case("The encrypted content could not be verified.", "", "invalid_encrypted_content", true)]
#[case(
    "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
    "input",
    "",
    true
)]
#[case(
    "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item.",
    "input",
    "",
    true
)]
#[case("Encrypted content is not supported with this model.", "include", "", false)]
#[tokio::test]
async fn refused_reasoning_is_left_out_once(
    #[case] message: &str,
    #[case] param: &str,
    #[case] code: &str,
    #[case] still_asked_for: bool,
) {
    let answer = || Reply::events(sse::responses(&hello()));
    let provider = Provider::start([error(message, param, code), answer(), answer()]).await;
    let model = responses(&provider);
    for _ in 0..2 {
        let messages = shared(reasoned("gAAA"));
        pieces(&model, ModelRequest { messages, ..with_tools() }).await.unwrap();
    }
    let asked = provider.asked();
    let has_reasoning = |body: &Value| body["input"][1]["type"] == "reasoning";
    let sent: Vec<bool> = asked.iter().map(|asked| has_reasoning(&asked.body)).collect();
    assert_eq!(
        sent,
        [true, false, still_asked_for],
        "only a model without encryption is remembered"
    );
    assert_eq!(asked[1].body.get("include").is_some(), still_asked_for);
}

/// Goal: a model that does not reason, or not with this effort, answers with `--thinking` all the same.
/// Method: the service refuses the field by each of its names, and also cannot encrypt reasoning.
#[rstest]
#[case("reasoning.effort")]
#[case("reasoning")]
#[case("reasoning.summary")]
#[tokio::test]
async fn an_effort_that_the_service_refuses_is_left_out_and_not_asked_for_again(
    #[case] param: &str,
) {
    let answer = || Reply::events(sse::responses(&hello()));
    let effort = "Unsupported parameter: 'reasoning.effort' is not supported with this model.";
    let encrypted = "Encrypted content is not supported with this model.";
    let refusals = [error(effort, param, "unsupported_parameter"), error(encrypted, "include", "")];
    let provider = Provider::start(refusals).await;
    (0..3).for_each(|_| provider.push(answer()));
    let model = responses(&provider);
    for tokens in [2_048, 2_048, 24_576] {
        let asked = ModelRequest { thinking_tokens: Some(tokens), ..with_tools() };
        pieces(&model, asked).await.unwrap();
    }
    let efforts: Vec<Value> =
        provider.asked().iter().map(|asked| asked.body["reasoning"]["effort"].clone()).collect();
    assert_eq!(
        efforts,
        [json!("low"), Value::Null, Value::Null, Value::Null, json!("high")],
        "another effort is tried"
    );
    let most = provider.asked()[1].body["max_output_tokens"].clone();
    assert_eq!(most, u64::from(with_tools().max_tokens), "nothing is added for reasoning");
}

#[tokio::test]
async fn a_complaint_about_reasoning_that_was_not_sent_is_not_answered_by_a_repetition() {
    let provider =
        Provider::start([error("no", "reasoning.effort", ""), error("no", "", "")]).await;
    assert_eq!(fault(&responses(&provider), with_tools()).await.kind(), Kind::ModelBadRequest);
    assert_eq!(provider.asked().len(), 1);
}

#[tokio::test]
async fn an_item_that_is_not_found_is_no_unknown_model() {
    let provider = Provider::start([]).await;
    let sealed = reasoned("");
    let refusal = request_rules::responses(
        &json!({"store": false, "input": [{"type": "reasoning", "id": "rs_1"}]}),
        |_| true,
    );
    provider.push(refusal.unwrap_err().reply());
    let request = ModelRequest { messages: shared(sealed), ..with_tools() };
    let fault = fault(&responses(&provider), request).await;
    assert_eq!(fault.kind(), Kind::ModelBadRequest);
    assert_eq!(provider.asked().len(), 1);
}

#[tokio::test]
async fn a_missed_signature_is_replaced_once_and_remembered() {
    let message = "Function call is missing a thought_signature in functionCall parts.";
    let refusal = json!({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}});
    let answer = || Reply::events(sse::gemini(&hello()));
    let provider = Provider::start([Reply::refuse(400, &refusal), answer(), answer()]).await;
    let (world, limits) = (world(Arc::new(Signal::default())), Arc::new(Limits::default()));
    let model = Gemini::new("m", Some(&provider.url()), None, &world, limits).unwrap();
    for _ in 0..2 {
        let messages = shared(reasoned("gAAA"));
        pieces(&model, ModelRequest { messages, ..with_tools() }).await.unwrap();
    }
    let asked = provider.asked();
    let signature = |at: usize| &asked[at].body["contents"][1]["parts"][0]["thoughtSignature"];
    assert_eq!(signature(0), &Value::Null);
    assert_eq!(signature(1), "skip_thought_signature_validator");
    assert_eq!(signature(2), "skip_thought_signature_validator");
}

/// Goal: a deployment that does not know the key of the cache answers all the same, and is asked without it from then on.
/// Method: both forms of Azure's addresses; the first request is refused as Azure refuses it.
#[rstest]
#[case("", "/openai/v1/responses", sse::responses(&hello()))]
#[case("/openai/v1/chat/completions", "/openai/v1/chat/completions", sse::openai(&hello()))]
#[tokio::test]
async fn azure_gets_the_key_of_its_cache_until_a_deployment_refuses_it(
    #[case] base: &str,
    #[case] path: &str,
    #[case] events: Vec<String>,
) {
    let refused = error(
        "Unrecognized request argument supplied: prompt_cache_key",
        "",
        "unrecognized_request_argument",
    );
    let answer = || Reply::events(events.clone());
    let provider = Provider::start([answer(), refused, answer(), answer()]).await;
    let address = format!("azure:mine@{}{base}", provider.url());
    let keys = Keys::default().with(Vendor::Azure, "sk-secret");
    let (world, limits) = (world(Arc::new(Signal::default())), Arc::new(Limits::default()));
    let models = Models::new(world, limits, keys);
    let model = models.open(&Models::parse_spec(&address).unwrap()).unwrap();
    for _ in 0..3 {
        let request = ModelRequest { cache_key: Some("session".into()), ..request("hi") };
        pieces(&*model, request).await.unwrap();
    }
    let asked = provider.asked();
    assert!(asked.iter().all(|asked| asked.path == path));
    let sent: Vec<_> = asked.iter().map(|asked| asked.body["prompt_cache_key"].as_str()).collect();
    assert_eq!(sent, [Some("session"), Some("session"), None, None]);
}

/// Goal: servers that only speak an API of OpenAI's get no field that they may refuse.
/// Method: both APIs at an address that is not OpenAI's.
#[tokio::test]
async fn compatible_servers_get_no_key_of_a_cache() {
    let replies = [sse::responses(&hello()), sse::openai(&hello())].map(Reply::events);
    let provider = Provider::start(replies).await;
    let request = || ModelRequest { cache_key: Some("session".into()), ..request("hi") };
    pieces(&responses(&provider), request()).await.unwrap();
    pieces(&chat(&provider), request()).await.unwrap();
    for asked in provider.asked() {
        assert_eq!(asked.body.get("prompt_cache_key"), None);
    }
}
