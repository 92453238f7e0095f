//! From a word on the command line to a model.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod support;

use std::sync::Arc;

use budao_core::{
    fault::{Fact, Fault, Kind},
    limits::Limits,
};
use budao_models::{Keys, Model, Models};
use support::{InstantClock, pieces, request, world};

fn open(text: &str, keys: Keys) -> Result<Arc<dyn Model>, Fault> {
    let world = world(Arc::new(InstantClock::default()));
    Models::new(world, Arc::new(Limits::default()), keys).open(&Models::parse_spec(text)?)
}

fn keys() -> Keys {
    Keys { anthropic: Some("sk-ant-secret".into()), openai: Some("sk-secret".into()) }
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
    ] {
        assert_eq!(&*open(spec, keys()).unwrap().gate_key().endpoint, endpoint, "{spec}");
    }
}

#[test]
fn an_official_service_needs_its_key_and_a_local_one_does_not() {
    for (spec, setting) in
        [("anthropic:claude-x", "ANTHROPIC_API_KEY"), ("openai:gpt-x", "OPENAI_API_KEY")]
    {
        let fault = open(spec, Keys::default()).unwrap_err();
        assert_eq!(fault.kind(), Kind::CredentialMissing);
        assert_eq!(fault.detail().get(Fact::RequiredConfig).unwrap().to_string(), setting);
    }
    open("openai:qwen@http://localhost:8080", Keys::default()).unwrap();
}

#[test]
fn a_wrong_address_or_file_is_told_before_anything_is_asked() {
    let fault = open("openai:x@http://", keys()).unwrap_err();
    assert_eq!(fault.kind(), Kind::ConfigurationWrong);
    assert_eq!(open("script:/no/such/file", keys()).unwrap_err().kind(), Kind::FileNotFound);
    assert!(!format!("{:?}", keys()).contains("secret"));
}
