//! What a model reads, word for word.

use budao_core::{Lang, fault::Fault, limits::Limits, tool::Outcome};
use budao_tools::{Toolbox, advice, isolation};
use serde_json::{Value, json};

use crate::call_path::support::{any, call, multi_edit, refused, run_in, search, toolbox};

fn english(fault: Fault) -> Value {
    serde_json::from_str(&Outcome::from(fault).render_for_model(Lang::En).0).unwrap()
}

/// Error text and the first advice in both languages: what a reader looks at first.
fn lines(fault: &Fault) -> String {
    [Lang::En, Lang::Zh]
        .map(|lang| {
            let rendered: Value =
                serde_json::from_str(&Outcome::from(fault.clone()).render_for_model(lang).0)
                    .unwrap();
            let advice = rendered["recommendations"].as_array().unwrap();
            let advice: Vec<_> =
                advice.iter().map(|line| format!("  - {}", line.as_str().unwrap())).collect();
            format!("{}\n{}", rendered["error"].as_str().unwrap(), advice.join("\n"))
        })
        .join("\n")
}

#[test]
fn a_missing_parameter() {
    let arguments = r#"{"edits":[{"find":"old","replace":"new"}]}"#;
    insta::assert_json_snapshot!(english(refused(&toolbox(), "fs_multi_edit", arguments)));
}

#[test]
fn a_misspelt_parameter() {
    let arguments = r#"{"edits":[{"pth":"a.rs","find":"old","replace":"new"}]}"#;
    insta::assert_json_snapshot!(english(refused(&toolbox(), "fs_multi_edit", arguments)));
}

#[test]
fn every_sort_of_mistake() {
    let sent = json!({
        "limit": 99, "sort": "datee", "since": "yesterday", "tags": [1, "a"], "exact": "maybe",
        "limti": 3, "verbose": true,
    });
    insta::assert_snapshot!(lines(&refused(&toolbox(), "search", sent.to_string())));
}

#[test]
fn malformed_arguments() {
    let toolbox = toolbox();
    let all: Vec<String> = [
        r#"{"edits": [{"path": "a.rs" "find": "x"}]}"#,
        r#"{"edits": [{"path": "a.rs", "find": "x"#,
        r#"{"edits": [], "edits": []}"#,
    ]
    .iter()
    .map(|text| lines(&refused(&toolbox, "fs_multi_edit", *text)))
    .collect();
    insta::assert_snapshot!(all.join("\n\n"));
}

#[test]
fn an_unknown_tool() {
    let toolbox = toolbox();
    insta::assert_snapshot!(format!(
        "{}\n\n{}",
        lines(&refused(&toolbox, "multi_edit", "{}")),
        lines(&refused(&toolbox, "fly_to_the_moon", "{}"))
    ));
}

#[test]
fn alternatives_speak_of_the_closest() {
    let schema = json!({
        "properties": {
            "target": {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": { "kind": { "const": "file" }, "path": { "type": "string" } },
                        "required": ["kind", "path"],
                        "additionalProperties": false,
                    },
                    {
                        "type": "object",
                        "properties": { "kind": { "const": "url" }, "url": { "type": "string", "format": "uri" } },
                        "required": ["kind", "url"],
                        "additionalProperties": false,
                    },
                ],
            },
            "size": { "anyOf": [{ "type": "integer" }, { "enum": ["small", "large"] }] },
        },
        "required": ["target"],
    });
    let tool = budao_tools::RawTool::new("open", "", schema, |_, _| async { Ok(json!(null)) });
    let toolbox = Toolbox::builder().add(tool).unwrap().build();
    let all: Vec<String> = [
        json!({ "target": { "kind": "url" } }),
        json!({ "target": { "kind": "file", "path": 7 } }),
        json!({ "target": { "kind": "folder", "path": "a" } }),
        json!({ "target": "a.rs" }),
        json!({ "target": { "kind": "file", "path": "a" }, "size": true }),
        json!({ "target": { "kind": "file", "path": "a" }, "size": "smal" }),
    ]
    .iter()
    .map(|sent| {
        let fault = refused(&toolbox, "open", sent.to_string());
        let rendered = english(fault);
        format!("{sent}\n{}\n{}", rendered["error"].as_str().unwrap(), rendered["example"])
    })
    .collect();
    insta::assert_snapshot!(all.join("\n\n"));
}

/// Goal: among alternatives without tags, the keys that were sent say which one was meant.
#[test]
fn the_schema_alternative_with_the_sent_keys_is_explained() {
    let one = |keys: &[&str]| {
        let properties: serde_json::Map<_, _> =
            keys.iter().map(|key| ((*key).to_owned(), json!({ "type": "string" }))).collect();
        json!({ "type": "object", "properties": properties, "required": keys })
    };
    let schema = json!({
        "properties": { "from": { "anyOf": [one(&["path"]), one(&["url", "method"]), one(&["id", "branch", "commit"])] } },
    });
    let tool = budao_tools::RawTool::new("open", "", schema, |_, _| async { Ok(json!(null)) });
    let toolbox = Toolbox::builder().add(tool).unwrap().build();
    for (sent, places) in [
        (json!({ "url": "x" }), vec!["/from/method"]),
        (json!({ "url": 5 }), vec!["/from/method", "/from/url"]),
        (json!({ "commit": "c", "branch": "b" }), vec!["/from/id"]),
        (json!({ "path": 5 }), vec!["/from/path"]),
    ] {
        let rendered = english(refused(&toolbox, "open", json!({ "from": sent }).to_string()));
        let mut named: Vec<&str> = rendered["mismatches"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|it| it["pointer"].as_str())
            .collect();
        named.sort_unstable();
        assert_eq!(named, places, "{sent}");
    }
}

#[tokio::test]
async fn repairs_and_cuts_are_listed_in_the_note() {
    let toolbox = Toolbox::builder().add(search()).unwrap().build();
    let sent = r#"{"query": "x", "limit": "5", "sort": "DATE", "tags": "a", "exact": null}"#;
    let mut notes = Vec::new();
    for lang in [Lang::En, Lang::Zh] {
        let ready = toolbox.check(&call("search", sent), &Limits::default()).unwrap();
        let mut context = isolation::context();
        context.lang = lang;
        notes.push(ready.run(context.clone()).await.render_for_model(lang).0);
        let long =
            Toolbox::builder().add(any("long", |_, _| async { Ok(json!("ab".repeat(40_000))) }));
        let outcome = run_in(&long.unwrap().build(), context).await;
        let Outcome::Done(output) = outcome else { panic!("failed") };
        notes.push(output.note.unwrap());
    }
    insta::assert_snapshot!(notes.join("\n"));
}

#[tokio::test]
async fn a_tool_that_refused() {
    let toolbox = Toolbox::builder()
        .add(any("weather", |_, _| async {
            Ok(json!({
                "ok": false, "error": "no such city", "recommendations": ["use its English name"],
                "data": { "known": ["Oslo"] }, "note": "from the cache", "_thrownError": false,
            }))
        }))
        .unwrap()
        .build();
    let outcome = run_in(&toolbox, isolation::context()).await;
    insta::assert_json_snapshot!(crate::call_path::support::read(&outcome));
}

#[test]
fn every_advice_of_the_table_has_words_in_both_languages() {
    for id in advice::texts() {
        assert!(budao_core::fault::text::exists(&format!("advice-{id}")), "{id}");
    }
    for id in [
        "malformed-at",
        "malformed-allowed",
        "duplicate-key",
        "ends-early",
        "output-cut",
        "output-cut-kept",
        "arguments-repaired",
    ] {
        assert!(budao_core::fault::text::exists(&format!("advice-{id}")), "{id}");
    }
}

#[test]
fn advice_of_the_program_comes_before_general_advice() {
    use budao_core::fault::Kind;
    let rule = advice::AdviceRule::for_family("fs_", Kind::InvalidArguments, "ask the style guide");
    let toolbox = Toolbox::builder().advise_model(rule).add(multi_edit()).unwrap().build();
    let rendered = english(refused(&toolbox, "fs_multi_edit", "{}"));
    assert_eq!(rendered["recommendations"][0], "ask the style guide");
}
