//! From a word on the command line to a model.

use std::sync::Arc;

use crate::support::{Signal, fault, pieces, request, world};
use budao_core::{
    fault::{Fact, Fault, Kind},
    limits::Limits,
};
use budao_models::{Keys, Model, Models, Vendor};
use budao_testkit::provider::Provider;

fn open(text: &str, keys: Keys) -> Result<Arc<dyn Model>, Fault> {
    let world = world(Arc::new(Signal::default()));
    Models::new(world, Arc::new(Limits::default()), keys).open(&Models::parse_spec(text)?)
}

fn keys() -> Keys {
    Vendor::ALL.into_iter().fold(Keys::default(), |keys, vendor| keys.with(vendor, "sk-secret"))
}

#[tokio::test]
async fn each_form_opens_its_model() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    std::fs::write(&file, "[[step]]\ntext = 'hi'\n").unwrap();
    let script = format!("script:{}", file.display());
    for (spec, provider, name) in [
        ("anthropic:claude-x", "anthropic", "claude-x"),
        ("openai:gpt-x", "openai", "gpt-x"),
        ("openai:qwen@http://localhost:8080", "openai", "qwen"),
        ("openai-chat:gpt-x", "openai", "gpt-x"),
        ("gemini:gemini-x", "gemini", "gemini-x"),
        ("azure:mine@https://res.openai.azure.com", "azure", "mine"),
        ("bedrock:anthropic.claude-x@us-east-1", "bedrock", "anthropic.claude-x"),
        ("demo", "demo", "demo"),
        ("demo:fast", "demo", "demo:fast"),
        (&script, "script", "script"),
    ] {
        let model = open(spec, keys()).unwrap();
        assert_eq!((model.provider(), model.name()), (provider, name), "{spec}");
        assert!(!format!("{model:?}").contains("secret"), "{spec}");
    }
    assert_eq!(pieces(&*open(&script, keys()).unwrap(), request("x")).await.unwrap().len(), 3);
}

#[test]
fn the_api_follows_from_the_form_and_the_address() {
    for (spec, endpoint) in [
        ("openai:gpt-x", "https://api.openai.com/v1/responses"),
        ("openai:gpt-x@https://api.openai.com/v1", "https://api.openai.com/v1/responses"),
        ("openai-chat:gpt-x", "https://api.openai.com/v1/chat/completions"),
        (
            "openai:gpt-x@https://api.openai.com/v1/chat/completions",
            "https://api.openai.com/v1/chat/completions",
        ),
        ("openai:qwen@http://localhost:1234/v1", "http://localhost:1234/v1/chat/completions"),
        ("openai:qwen@http://localhost:1234/v1/responses", "http://localhost:1234/v1/responses"),
        (
            "gemini:gemini-x",
            "https://generativelanguage.googleapis.com/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
        ),
        (
            "azure:mine@https://res.openai.azure.com",
            "https://res.openai.azure.com/openai/v1/responses",
        ),
        (
            "azure:mine@https://res.openai.azure.com/openai/v1/chat/completions",
            "https://res.openai.azure.com/openai/v1/chat/completions",
        ),
        (
            "bedrock:anthropic.claude-x@us-east-1",
            "https://bedrock-mantle.us-east-1.api.aws/anthropic/v1/messages",
        ),
        ("bedrock:openai.gpt-x@us-east-1", "https://bedrock-mantle.us-east-1.api.aws/v1/responses"),
        (
            "bedrock:qwen.qwen3@us-east-1",
            "https://bedrock-mantle.us-east-1.api.aws/v1/chat/completions",
        ),
        (
            "bedrock:openai.gpt-oss@https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1/responses",
            "https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1/responses",
        ),
    ] {
        assert_eq!(&*open(spec, keys()).unwrap().gate_key().endpoint, endpoint, "{spec}");
    }
}

#[test]
fn an_official_service_needs_its_key_and_a_local_one_does_not() {
    for (spec, setting) in [
        ("anthropic:claude-x", "ANTHROPIC_API_KEY"),
        ("openai:gpt-x", "OPENAI_API_KEY"),
        ("openai:gpt-x@https://api.openai.com/v1", "OPENAI_API_KEY"),
        ("gemini:gemini-x", "GEMINI_API_KEY"),
        ("azure:mine@https://res.openai.azure.com", "AZURE_OPENAI_API_KEY"),
        ("bedrock:openai.gpt-x@us-east-1", "AWS_BEARER_TOKEN_BEDROCK"),
    ] {
        let fault = open(spec, Keys::default()).unwrap_err();
        assert_eq!(fault.kind(), Kind::CredentialMissing);
        assert_eq!(fault.detail().get(Fact::RequiredConfig).unwrap().to_string(), setting);
    }
    open("openai:qwen@http://localhost:8080", Keys::default()).unwrap();
}

#[test]
fn a_wrong_address_or_file_is_reported_before_any_request() {
    let fault = open("openai:x@http://", keys()).unwrap_err();
    assert_eq!(fault.kind(), Kind::ConfigurationWrong);
    assert_eq!(open("script:/no/such/file", keys()).unwrap_err().kind(), Kind::FileNotFound);
    assert!(!format!("{:?}", keys()).contains("secret"));
}

/// Goal: a cloud's own header carries its key, and nothing else does.
/// Method: each cloud's form with the address of a server here.
#[tokio::test]
async fn each_cloud_is_sent_its_key_in_its_own_header() {
    let provider = Provider::start([]).await;
    for (spec, path, name, value) in [
        ("azure:mine", "/openai/v1/responses", "api-key", "sk-secret"),
        (
            "bedrock:anthropic.claude-x",
            "/anthropic/v1/messages",
            "authorization",
            "Bearer sk-secret",
        ),
        ("bedrock:openai.gpt-x", "/v1/responses", "authorization", "Bearer sk-secret"),
        (
            "gemini:gemini-x",
            "/v1beta/models/gemini-x:streamGenerateContent",
            "x-goog-api-key",
            "sk-secret",
        ),
    ] {
        let model = open(&format!("{spec}@{}", provider.url()), keys()).unwrap();
        let fault = fault(&*model, request("hi")).await;
        assert_eq!(fault.detail().text(Fact::Service), Some(model.provider()), "{spec}");
        let asked = provider.asked();
        let asked = asked.last().unwrap();
        assert_eq!(asked.path, path, "{spec}");
        let secrets: Vec<_> = asked
            .headers
            .iter()
            .filter(|(_, value)| value.to_str().is_ok_and(|value| value.contains("sk-secret")))
            .collect();
        assert_eq!(secrets.len(), 1, "{spec}");
        assert_eq!(
            (secrets[0].0.as_str(), secrets[0].1.to_str().unwrap()),
            (name, value),
            "{spec}"
        );
    }
}
