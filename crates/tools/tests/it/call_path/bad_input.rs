//! Whatever a model writes ends as one well-formed answer, and the toolbox stays usable.

use budao_core::{
    fault::{ErrorType, Fact, Kind},
    limits::Limits,
    tool::Outcome,
};
use budao_tools::{RawTool, ToolOptions, Toolbox};
use serde_json::{Value, json};

use crate::call_path::support::{self, call, read, refused, toolbox};

/// The answer is well formed: one shape, a class, a code, advice.
fn is_well_formed(fault: &budao_core::Fault) {
    let rendered = read(&Outcome::from(fault.clone()));
    assert_eq!(rendered["ok"], false);
    assert_eq!(rendered["errorType"], "validation");
    assert_eq!(rendered["retryable"], false);
    assert!(!rendered["error"].as_str().unwrap().contains('⟨'), "{rendered}");
    let advice = rendered["recommendations"].as_array().unwrap();
    assert!((1..=8).contains(&advice.len()));
    assert!(rendered.to_string().len() < 16 * 1024, "an answer is bounded");
}

#[tokio::test]
async fn an_unknown_tool_is_answered_with_the_nearest_names() {
    let toolbox = toolbox();
    let fault = refused(&toolbox, "fs_multiedit", "{}");
    assert_eq!(fault.kind(), Kind::UnknownTool);
    let nearest = fault.detail().get(Fact::Nearest).unwrap().to_string();
    assert_eq!(nearest, "fs_multi_edit");
    is_well_formed(&fault);
    for odd in ["", "\u{0}", "不倒", &"x".repeat(1_000_000), "../../etc/passwd"] {
        is_well_formed(&refused(&toolbox, odd, "{}"));
    }
    support::still_works(&toolbox).await;
}

#[tokio::test]
async fn truncated_json_never_runs() {
    // Goal: cut a call at every byte; none of the cuts may pass, also for a tool that repairs.
    let toolbox = toolbox();
    let whole = r#"{"query": "不倒 \"x\"", "limit": 5, "tags": ["a", "b"], "exact": true}"#;
    for tool in ["search", "fs_multi_edit"] {
        for cut in (1..whole.len()).filter(|at| whole.is_char_boundary(*at)) {
            let fault = refused(&toolbox, tool, &whole[..cut]);
            assert_eq!(fault.kind(), Kind::MalformedArguments, "{}", &whole[..cut]);
            assert!(fault.detail().number(Fact::Position).is_some());
            assert!(fault.detail().text(Fact::Excerpt).unwrap().contains("<HERE>"));
            is_well_formed(&fault);
        }
    }
    support::still_works(&toolbox).await;
}

#[tokio::test]
async fn a_20_mb_argument_is_refused_before_it_is_parsed() {
    let toolbox = toolbox();
    let huge = format!(r#"{{"query": "{}"}}"#, "x".repeat(20_000_000));
    let fault = refused(&toolbox, "search", huge);
    assert_eq!(fault.kind(), Kind::FrameTooLarge);
    is_well_formed(&fault);
    support::still_works(&toolbox).await;
}

#[tokio::test]
async fn json_100_000_levels_deep_is_refused() {
    let toolbox = toolbox();
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        let fault = refused(&toolbox, "search", deep);
        assert_eq!(fault.kind(), Kind::JsonTooDeep);
        assert_eq!(fault.detail().number(Fact::Limit), Some(64));
        is_well_formed(&fault);
    }
    // Inside a text that would be read as JSON, too.
    let inside = json!({ "query": "x", "tags": "[".repeat(100_000) }).to_string();
    assert_eq!(refused(&toolbox, "search", inside).kind(), Kind::InvalidArguments);
    support::still_works(&toolbox).await;
}

#[tokio::test]
async fn duplicate_keys_are_refused_and_named() {
    let toolbox = toolbox();
    let fault = refused(&toolbox, "search", r#"{"query": "a", "limit": 1, "query": "b"}"#);
    assert_eq!(fault.kind(), Kind::MalformedArguments);
    let rendered = read(&Outcome::from(fault.clone()));
    assert!(rendered["recommendations"][0].as_str().unwrap().contains("query"), "{rendered}");
    is_well_formed(&fault);
    support::still_works(&toolbox).await;
}

#[tokio::test]
async fn all_mismatches_are_reported_together() {
    let toolbox = toolbox();
    let values = [json!(null), json!(7), json!(true), json!("text"), json!([1]), json!({ "a": 1 })];
    for value in &values {
        let whole = value.to_string();
        if !value.is_object() {
            is_well_formed(&refused(&toolbox, "fs_multi_edit", whole));
        }
        for field in ["path", "find", "replace", "replace_all"] {
            let mut edit = json!({ "path": "a", "find": "b", "replace": "c" });
            edit[field] = value.clone();
            let fits = if field == "replace_all" { value.is_boolean() } else { value.is_string() };
            let arguments = json!({ "edits": [edit] }).to_string();
            if !fits {
                let fault = refused(&toolbox, "fs_multi_edit", arguments);
                assert_eq!(fault.mismatches().len(), 1);
                assert_eq!(fault.mismatches()[0].pointer, format!("/edits/0/{field}"));
                is_well_formed(&fault);
            }
        }
    }
    let all =
        json!({ "edits": [{ "path": 1, "find": 2, "replace": 3, "replace_all": 4, "x": 5 }] });
    let fault = refused(&toolbox, "fs_multi_edit", all.to_string());
    assert_eq!(fault.mismatches().len(), 5);
    support::still_works(&toolbox).await;
}

#[tokio::test]
async fn many_mistakes_are_bounded() {
    let toolbox = toolbox();
    let edits: Vec<Value> = (0..5_000).map(|number| json!({ "path": number })).collect();
    let fault = refused(&toolbox, "fs_multi_edit", json!({ "edits": edits }).to_string());
    assert_eq!(fault.mismatches().len(), budao_tools::MISMATCHES_MAX);
    is_well_formed(&fault);
    let keys: serde_json::Map<_, _> =
        (0..5_000).map(|number| (format!("key{number}"), json!(1))).collect();
    is_well_formed(&refused(&toolbox, "search", Value::Object(keys).to_string()));
}

#[tokio::test]
async fn invalid_utf8_in_arguments_is_refused_with_its_place() {
    let toolbox = toolbox();
    let bytes = b"{\"query\": \"\xff\xfe\"}";
    let fault = toolbox.check_text("search", bytes, &Limits::default()).unwrap_err();
    assert_eq!(fault.kind(), Kind::InvalidUtf8);
    assert_eq!(fault.detail().number(Fact::Position), Some(11));
    is_well_formed(&fault);
    // Half a surrogate pair is text, but no character.
    let fault = refused(&toolbox, "fs_multi_edit", r#"{"edits": "\ud800"}"#);
    assert_eq!(fault.row().error_type, ErrorType::Validation);
    is_well_formed(&fault);
}

#[tokio::test]
async fn empty_arguments_are_no_arguments() {
    let toolbox = toolbox();
    for nothing in ["", "  \n", "{}"] {
        let fault = refused(&toolbox, "search", nothing);
        assert_eq!(fault.mismatches()[0].to_string(), "query: required");
    }
}

#[tokio::test]
async fn secrets_in_wrong_arguments_do_not_come_back() {
    let toolbox = toolbox();
    let key = "sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG";
    let fault = refused(&toolbox, "search", json!({ "query": "x", "limit": key }).to_string());
    let rendered = read(&Outcome::from(fault)).to_string();
    assert!(!rendered.contains("abcdefghijklmnop"), "{rendered}");
}

#[tokio::test]
async fn arguments_that_are_odd_but_valid_pass() {
    let toolbox = toolbox();
    for query in ["\u{0}", "\u{202e}abc", &"長".repeat(100_000), "${IFS}", "\"\\"] {
        let arguments = json!({ "query": query }).to_string();
        let ready = toolbox.check(&call("search", arguments), &Limits::default()).unwrap();
        assert_eq!(ready.arguments()["query"], *query);
    }
}

#[test]
fn a_default_of_the_wrong_sort_does_not_spoil_arguments_that_fit() {
    let schema = json!({"properties": {"n": {"type": "integer", "default": {}}}});
    let tool = |name: &str, repair: bool| {
        RawTool::new(name, "", schema.clone(), |arguments, _| async move { Ok(arguments) })
            .options(ToolOptions::read_only().repair(repair))
    };
    let builder = Toolbox::builder().add(tool("plain", false)).unwrap();
    let toolbox = builder.add(tool("mended", true)).unwrap().build();
    for (tool, text) in [("plain", "{}"), ("mended", "{}"), ("mended", r#"{"n": null}"#)] {
        let ready = toolbox.check_text(tool, text.as_bytes(), &Limits::default()).unwrap();
        assert!(toolbox.fits(tool, ready.arguments()), "{tool} {text}");
    }
}
