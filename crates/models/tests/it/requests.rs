//! What is sent, compared with files. `UPDATE_GOLDEN=1` rewrites them; the difference is for people to read.

use std::{path::Path, sync::Arc};

use crate::support::{Signal, request, shared, tool, world};
use budao_core::{
    limits::Limits,
    message::{Block, CallId, Message, ModelRequest, Role, ToolUse},
};
use budao_models::{Anthropic, Gemini, Model, OpenAi, OpenAiResponses};
use budao_testkit::provider::{Provider, Reply};
use serde_json::{Value, json};

fn golden(name: &str, got: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let text = serde_json::to_string_pretty(got).unwrap() + "\n";
        std::fs::write(&path, text).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let want: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(*got, want, "{name} differs");
}

/// The bodies that all wires send for a request.
async fn sent(request: ModelRequest) -> [Value; 4] {
    let provider = Provider::start([(); 4].map(|()| Reply::status(500))).await;
    let (world, base) = (world(Arc::new(Signal::default())), provider.url());
    let limits = || Arc::new(Limits::default());
    let anthropic = Anthropic::new("claude-x", Some(&base), None, &world, limits()).unwrap();
    let openai = OpenAi::new("gpt-x", Some(&base), None, &world, limits()).unwrap();
    let responses = OpenAiResponses::new("gpt-x", Some(&base), None, &world, limits()).unwrap();
    let gemini = Gemini::new("gemini-x", Some(&base), None, &world, limits()).unwrap();
    for model in [&anthropic as &dyn Model, &openai, &responses, &gemini] {
        crate::support::fault(model, request.clone()).await;
    }
    let asked = provider.asked();
    std::array::from_fn(|at| asked[at].body.clone())
}

fn used(id: &str, name: &str, arguments: &str) -> Block {
    Block::ToolUse(ToolUse { id: CallId::from(id), name: name.into(), arguments: arguments.into() })
}

fn result(id: &str, is_error: bool, content: &str) -> Block {
    Block::ToolResult { call: CallId::from(id), is_error, content: content.into() }
}

/// A history with everything in it that is hard to send.
fn conversation() -> ModelRequest {
    let thinking = Block::Thinking { text: "Hm.\n".into(), signature: Some("sig/+==".into()) };
    let unsealed = Block::Thinking { text: "not sealed".into(), signature: None };
    let redacted = Block::Opaque(r#"{"type":"redacted_thinking","data":"x/+=="}"#.into());
    let reasoning = |id: &str| {
        let item =
            json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "gAAA"});
        Block::Opaque(item.to_string())
    };
    let phase = Block::Opaque(r#"{"type":"openai_phase","phase":"commentary"}"#.into());
    ModelRequest {
        system: Some("Be brief.".into()),
        messages: shared([
            Message {
                role: Role::User,
                content: vec![
                    Block::Text("Look:".into()),
                    Block::Image { media_type: "image/png".into(), data: "aGk=".into() },
                ],
            },
            Message {
                role: Role::Assistant,
                content: vec![
                    thinking,
                    redacted,
                    unsealed,
                    reasoning("rs_1"),
                    phase,
                    Block::Text(String::new()),
                    Block::Text("I will read.".into()),
                    used("toolu_1", "fs_read", r#"{"path": "a.md", "n": 1.0}"#),
                    reasoning("rs_2"),
                    used("call:2", "fs.read", r#"{"path": "a"#),
                    reasoning("rs_cut_off"),
                ],
            },
            Message { role: Role::User, content: vec![result("toolu_1", false, r#"{"ok":true}"#)] },
            Message {
                role: Role::User,
                content: vec![
                    Block::Text("By the way".into()),
                    result("call:2", true, r#"{"ok":false}"#),
                ],
            },
            Message { role: Role::Assistant, content: vec![Block::Text("  ".into())] },
            Message::user("Go on."),
        ]),
        tools: Arc::new([
            tool("fs_read", &json!({"path": {"type": "string"}})),
            tool("fs_glob", &json!({"pattern": {"type": "string"}})),
        ]),
        thinking_tokens: Some(2048),
        cache_key: None,
        ..request("")
    }
}

#[tokio::test]
async fn a_plain_request_is_sent_as_the_services_want_it() {
    let [anthropic, openai, responses, gemini] = sent(request("Hello")).await;
    golden("anthropic_plain.json", &anthropic);
    golden("openai_plain.json", &openai);
    golden("responses_plain.json", &responses);
    golden("gemini_plain.json", &gemini);
}

#[tokio::test]
async fn a_whole_conversation_is_sent_as_the_services_want_it() {
    let [anthropic, openai, responses, gemini] = sent(conversation()).await;
    golden("anthropic_conversation.json", &anthropic);
    golden("openai_conversation.json", &openai);
    golden("responses_conversation.json", &responses);
    golden("gemini_conversation.json", &gemini);
}

/// Goal: what a model thought goes back byte for byte.
/// Method: seal text that every careless step would change, and look at the raw text that is sent.
#[tokio::test]
async fn a_thought_goes_back_byte_for_byte() {
    let text = "  \u{feff}不倒 \"quotes\" \\ \u{2028} tab\t\r\n ";
    let thought = Block::Thinking { text: text.into(), signature: Some("a/b+c==".into()) };
    let assistant =
        Message { role: Role::Assistant, content: vec![thought, Block::Text("ok".into())] };
    let messages = shared([Message::user("hi"), assistant, Message::user("more")]);
    let [anthropic, ..] = sent(ModelRequest { messages, ..request("") }).await;
    let part = &anthropic["messages"][1]["content"][0];
    assert_eq!(part["thinking"], text);
    assert_eq!(part["signature"], "a/b+c==");
}
