//! What is refused when a toolbox is put together, and what a snapshot promises.

use budao_core::fault::{Fact, Kind};
use budao_tools::{RawTool, Toolbox};
use serde_json::{Value, json};

use crate::call_path::support::{any, call, multi_edit, search, toolbox};

fn named(name: &str) -> Result<budao_tools::Builder, budao_core::Fault> {
    Toolbox::builder().add(any(name, |_, _| async { Ok(json!(null)) }))
}

fn with_schema(schema: Value) -> Result<budao_tools::Builder, budao_core::Fault> {
    Toolbox::builder().add(RawTool::new("t", "", schema, |_, _| async { Ok(json!(null)) }))
}

#[test]
fn bad_names_are_refused() {
    for bad in ["", "a b", "a.b", "工具", "a/b", &"x".repeat(65), "a\n"] {
        assert_eq!(named(bad).unwrap_err().kind(), Kind::ToolNameRefused, "{bad}");
    }
    for good in ["a", "mcp__server__tool", "A-1", &"x".repeat(64)] {
        assert!(named(good).is_ok(), "{good}");
    }
}

#[test]
fn a_name_is_given_once() {
    let builder = Toolbox::builder().add(search()).unwrap();
    let fault = builder.add(search()).unwrap_err();
    assert_eq!(fault.kind(), Kind::ToolNameRefused);
}

#[test]
fn a_schema_that_cannot_be_used_is_refused_with_a_reason() {
    for schema in [
        json!({ "type": "object", "properties": { "a": { "type": "undefined" } } }),
        json!({ "type": "object", "properties": { "a": { "$ref": "http://127.0.0.1:1/x" } } }),
        json!({ "type": "object", "properties": { "a": { "$ref": "file:///etc/passwd" } } }),
        json!({ "type": "string" }),
        json!([]),
    ] {
        let fault = with_schema(schema.clone()).unwrap_err();
        assert_eq!(fault.kind(), Kind::SchemaRefused, "{schema}");
        assert!(fault.detail().text(Fact::Reason).is_some());
    }
}

#[test]
fn a_snapshot_does_not_change_when_another_is_made_from_it() {
    let before = toolbox();
    let more = before.with(any("new", |_, _| async { Ok(json!(1)) })).unwrap();
    let less = more.without(|spec| spec.name.starts_with("fs_"));
    let names = |toolbox: &Toolbox| -> Vec<String> {
        toolbox.specs().iter().map(|spec| spec.name.to_string()).collect()
    };
    assert_eq!(names(&before), ["fs_multi_edit", "search"]);
    assert_eq!(names(&more), ["fs_multi_edit", "search", "new"]);
    assert_eq!(names(&less), ["search", "new"]);
    assert!(before.check(&call("new", "{}"), &budao_core::limits::Limits::default()).is_err());
}

#[test]
fn a_replaced_tool_keeps_its_place() {
    let changed = RawTool::new("fs_multi_edit", "Other.", json!({}), |_, _| async { Ok(json!(1)) });
    let toolbox = toolbox().with(changed).unwrap();
    assert_eq!(&*toolbox.specs()[0].description, "Other.");
    assert_eq!(toolbox.specs().len(), 2);
}

#[test]
fn the_schema_sent_is_the_schema_enforced() {
    // A pattern that cannot be run is in neither; a part that is referred to is in place in both.
    let toolbox = with_schema(json!({
        "type": "object",
        "properties": {
            "a": { "type": "string", "pattern": "^(?!x)" },
            "b": { "$ref": "#/$defs/b" },
        },
        "$defs": { "b": { "type": "integer" } },
    }))
    .unwrap()
    .build();
    let sent = toolbox.specs()[0].schema.clone();
    assert_eq!(
        *sent,
        json!({
            "type": "object",
            "properties": { "a": { "type": "string" }, "b": { "type": "integer" } },
        })
    );
    assert!(toolbox.fits("t", &json!({ "a": "xx" })));
    assert!(!toolbox.fits("t", &json!({ "b": "1" })));
    let warnings: Vec<_> = toolbox.warnings().collect();
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].0, "t");
}

#[test]
fn a_thousand_tools_are_looked_up_by_name() {
    let mut builder = Toolbox::builder();
    for number in 0..1_000 {
        builder =
            builder.add(any(&format!("tool_{number}"), |_, _| async { Ok(json!(1)) })).unwrap();
    }
    let toolbox = builder.add(multi_edit()).unwrap().build();
    assert!(toolbox.fits("tool_999", &json!({})));
    assert_eq!(&*toolbox.specs()[1_000].name, "fs_multi_edit");
}
