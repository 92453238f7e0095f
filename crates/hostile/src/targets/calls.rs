//! Targets for tool calls: arbitrary schemas and arbitrary arguments.

use std::sync::OnceLock;

use budao_core::{Lang, fault::Fact, fault::FactValue, limits::Limits, tool::Outcome};
use budao_tools::{RawTool, ToolOptions, Toolbox};
use serde_json::{Value, json};

/// A schema, an empty line, arguments. The schema is compiled or refused; the arguments are accepted or refused with a
/// reason.
pub(super) fn schema(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (schema, arguments) = text.split_once("\n\n").unwrap_or((text, "{}"));
    let Ok(schema) = serde_json::from_str::<Value>(schema) else { return };
    let Ok(toolbox) = offering(&schema) else { return };
    for tool in ["plain", "mended"] {
        check_call(&toolbox, tool, arguments.as_bytes());
        check_call(&toolbox, tool, b"{}");
    }
}

/// Arguments for a tool that uses most schema features.
pub(super) fn arguments(bytes: &[u8]) {
    static TOOLBOX: OnceLock<Toolbox> = OnceLock::new();
    let toolbox = TOOLBOX.get_or_init(|| offering(&everything()).expect("a schema of ours"));
    for tool in ["plain", "mended"] {
        check_call(toolbox, tool, bytes);
    }
}

/// A toolbox with two tools of this schema: `plain`, and `mended`, which repairs its arguments.
fn offering(schema: &Value) -> Result<Toolbox, budao_core::Fault> {
    let tool = |name: &str, repair: bool| {
        RawTool::new(name, "", schema.clone(), |arguments, _| async move { Ok(arguments) })
            .options(ToolOptions::read_only().repair(repair))
    };
    Ok(Toolbox::builder().add(tool("plain", false))?.add(tool("mended", true))?.build())
}

fn check_call(toolbox: &Toolbox, tool: &str, text: &[u8]) {
    let limits = Limits { frame_bytes: 32 * 1024, ..Limits::default() };
    match toolbox.check_text(tool, text, &limits) {
        Ok(ready) => {
            assert!(toolbox.fits(tool, ready.arguments()), "what is ready fits");
            assert!(
                tool == "mended" || ready.repairs().iter().all(is_default),
                "{:?}",
                ready.repairs()
            );
        }
        Err(fault) => {
            if let Some(FactValue::Json(example)) = fault.detail().get(Fact::Example) {
                assert!(toolbox.fits(tool, example), "an example fits: {example}");
            }
            let outcome = Outcome::from(fault);
            for lang in [Lang::En, Lang::Zh] {
                let (told, is_error) = outcome.render_for_model(lang);
                assert!(is_error && told.len() < 256 * 1024, "{} bytes are told", told.len());
            }
        }
    }
}

/// Filling in a default of the schema does not count as the repair of a mistake.
fn is_default(repair: &budao_core::tool::Repair) -> bool {
    matches!(repair.kind, budao_core::tool::RepairKind::DefaultFilled)
}

fn everything() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1, "maxLength": 200},
            "line": {"type": "integer", "minimum": 1, "default": 1},
            "share": {"type": "number", "exclusiveMinimum": 0},
            "mode": {"enum": ["fast", "slow"]},
            "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}, "maxItems": 4},
            "deep": {"$ref": "#/$defs/node"},
            "either": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["a"]}]},
            "maybe": {"type": ["boolean", "null"]},
        },
        "required": ["path"],
        "additionalProperties": false,
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    })
}
