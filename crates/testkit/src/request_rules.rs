//! The rules by which model services accept or refuse the history in a request.
//!
//! Each function answers as the real service does, or more strictly: `Err` has the status and the body of the refusal.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::provider::Reply;

/// The status and body with which a service refuses a request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestRefusal {
    /// The HTTP status.
    pub status: u16,
    /// The error as JSON.
    pub body: Value,
}

impl RequestRefusal {
    fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        let error = json!({"message": message.into(), "type": "invalid_request_error", "param": null, "code": code});
        Self { status, body: json!({"error": error}) }
    }

    /// The refusal as a response.
    #[must_use]
    pub fn reply(&self) -> Reply {
        Reply::refuse(self.status, &self.body)
    }
}

fn bad(message: impl Into<String>) -> RequestRefusal {
    RequestRefusal::new(400, "invalid_value", message)
}

/// Checks a request to the Responses API. `is_sealed` says whether the service made this encrypted content.
///
/// # Errors
/// The refusal.
pub fn responses(body: &Value, is_sealed: impl Fn(&str) -> bool) -> Result<(), RequestRefusal> {
    if body["store"] != false {
        return Err(bad("store must be false here"));
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        if !tool["strict"].is_boolean() || !tool["name"].is_string() || tool["type"] != "function" {
            return Err(bad(format!("Invalid schema for function: {tool}")));
        }
    }
    let items: Vec<&Value> = body["input"].as_array().into_iter().flatten().collect();
    for (at, item) in items.iter().enumerate() {
        responses_item(item, items.get(at + 1).copied(), &is_sealed)?;
    }
    let id = |item: &&Value| item["call_id"].as_str().unwrap_or_default().to_owned();
    let of = |kind: &'static str| items.iter().copied().filter(move |item| item["type"] == kind);
    pairs(of("function_call").map(|it| id(&it)), of("function_call_output").map(|it| id(&it)))
}

fn responses_item(
    item: &Value,
    next: Option<&Value>,
    is_sealed: impl Fn(&str) -> bool,
) -> Result<(), RequestRefusal> {
    if item["type"] != "reasoning" {
        return match item.get("id") {
            Some(id) => Err(bad(format!("item ids are not accepted here: {id}"))),
            None => Ok(()),
        };
    }
    let id = item["id"].as_str().unwrap_or_default();
    let Some(seal) = item["encrypted_content"].as_str().filter(|seal| !seal.is_empty()) else {
        let message = format!(
            "Item with id '{id}' not found. Items are not persisted when `store` is set to false."
        );
        return Err(RequestRefusal { status: 404, ..RequestRefusal::new(404, "", message) });
    };
    if !is_sealed(seal) {
        let message = "The encrypted content could not be verified.";
        return Err(RequestRefusal::new(400, "invalid_encrypted_content", message));
    }
    let follows = next.is_some_and(|next| {
        next["type"] == "reasoning"
            || next["type"] == "function_call"
            || next["role"] == "assistant"
    });
    if !follows {
        let message = format!(
            "Item '{id}' of type 'reasoning' was provided without its required following item."
        );
        return Err(bad(message));
    }
    Ok(())
}

/// Every call has exactly one output, and every output has its call.
fn pairs(
    calls: impl Iterator<Item = String>,
    outputs: impl Iterator<Item = String>,
) -> Result<(), RequestRefusal> {
    let mut open = BTreeSet::new();
    for id in calls {
        if !open.insert(id.clone()) {
            return Err(bad(format!("Duplicate function call {id}.")));
        }
    }
    for id in outputs {
        if !open.remove(&id) {
            return Err(bad(format!(
                "No tool call found for function call output with call_id {id}."
            )));
        }
    }
    match open.first() {
        Some(id) => Err(bad(format!("No tool output found for function call {id}."))),
        None => Ok(()),
    }
}
