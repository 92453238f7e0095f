//! The protocol as JSON Schema: all frames in both directions, from one table.
//!
//! `docs/protocol.schema.json` is the checked-in output. A test fails if it is outdated, and all frames made by tests
//! are validated against it. Types for clients in other languages are generated from it.

mod inbound;
mod outbound;

use serde_json::{Map, Value, json};

pub use inbound::{CommandSchema, commands};
pub use outbound::{FrameSchema, frame_schemas};

/// The complete schema document.
#[must_use]
pub fn document() -> Value {
    let mut defs = Map::new();
    let refs = |names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| json!({ "$ref": format!("#/$defs/{}", title(name)) })).collect()
    };
    for schema in frame_schemas() {
        defs.insert(title(schema.event), schema.schema());
    }
    for command in commands() {
        defs.insert(format!("{}Command", title(command.event)), command.schema());
    }
    let outbound: Vec<&str> = frame_schemas().iter().map(|schema| schema.event).collect();
    let inbound: Vec<Value> = commands()
        .iter()
        .map(|command| json!({ "$ref": format!("#/$defs/{}Command", title(command.event)) }))
        .collect();
    defs.insert("Outbound".to_owned(), json!({ "oneOf": refs(&outbound) }));
    defs.insert("Inbound".to_owned(), json!({ "oneOf": inbound }));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Budao event protocol",
        "description": "One JSON text per frame. Outbound is what a client receives, Inbound what it may send. Unknown fields and unknown events must be tolerated.",
        "version": crate::frame::connection::PROTOCOL_VERSION,
        "anyOf": [{ "$ref": "#/$defs/Outbound" }, { "$ref": "#/$defs/Inbound" }],
        "$defs": defs,
    })
}

/// The type name of an event: `agent.final_answer` becomes `AgentFinalAnswer`.
#[must_use]
pub fn title(event: &str) -> String {
    event
        .split(['.', '_'])
        .map(|word| {
            let mut chars = word.chars();
            let first = chars.next().map(|first| first.to_ascii_uppercase());
            first.into_iter().chain(chars).collect::<String>()
        })
        .collect()
}

/// An object schema from fields written as `name:type`; `name!:type` marks a required field.
fn object(fields: &[&str]) -> Value {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for field in fields.iter().flat_map(|fields| fields.split_whitespace()) {
        let (name, schema) = field.split_once(':').unwrap_or((field, "any"));
        let always = name.strip_suffix('!');
        required.extend(always.map(Value::from));
        properties.insert(always.unwrap_or(name).to_owned(), type_schema(schema));
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

fn type_schema(name: &str) -> Value {
    match name {
        "str" => json!({ "type": "string" }),
        "int" => json!({ "type": "integer", "minimum": 0 }),
        "num" => json!({ "type": "number" }),
        "bool" => json!({ "type": "boolean" }),
        "obj" => json!({ "type": "object" }),
        "list" => json!({ "type": "array" }),
        "objs" => json!({ "type": "array", "items": { "type": "object" } }),
        "strs" => json!({ "type": "array", "items": { "type": "string" } }),
        "ints" => json!({ "type": "array", "items": { "type": "integer", "minimum": 0 } }),
        "time" => json!({ "type": "string", "pattern": TIME }),
        "stage" => json!({ "enum": ["planning", "solving", "aggregation"] }),
        "epoch" => json!({ "type": "string", "pattern": "^[0-9a-f]{8}$" }),
        "uuid" => json!({ "type": "string", "pattern": UUID }),
        _ => json!({}),
    }
}

/// RFC 3339 in UTC with milliseconds.
const TIME: &str = r"^\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$";
const UUID: &str = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$";
