//! The digest that identifies equal calls.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Above this, canonical JSON writes different integers as the same number.
const EXACT_MAX: u64 = 1 << 53;

/// SHA-256 over the canonical JSON (RFC 8785) of a tool's name and its arguments, in hex.
#[must_use]
pub fn of_call(tool: &str, arguments: &Value) -> String {
    let call = json!([tool, exact(arguments)]);
    let bytes = serde_json_canonicalizer::to_vec(&call).unwrap_or_else(|_| call.to_string().into());
    Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Replaces large integers by text, because canonical JSON would round them.
fn exact(value: &Value) -> Value {
    match value {
        Value::Number(number) => {
            let large = number.as_i64().map(i64::unsigned_abs).or_else(|| number.as_u64());
            match large {
                Some(large) if large > EXACT_MAX => json!({ "integer": number.to_string() }),
                _ => value.clone(),
            }
        }
        Value::Array(items) => items.iter().map(exact).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), exact(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_keys_and_the_spelling_of_numbers_do_not_matter() {
        let a: Value = serde_json::from_str(r#"{"a":1,"b":[1.0,"x"]}"#).unwrap();
        let b: Value = serde_json::from_str(r#"{"b":[1,"x"],"a":1e0}"#).unwrap();
        assert_eq!(of_call("t", &a), of_call("t", &b));
        assert_ne!(of_call("t", &a), of_call("u", &a));
    }

    #[test]
    fn large_integers_that_differ_are_different() {
        let call = |id: u64| of_call("t", &json!({ "id": id }));
        assert_ne!(call(9_007_199_254_740_993), call(9_007_199_254_740_992));
        assert_ne!(call(u64::MAX), call(u64::MAX - 1));
        assert_eq!(call(7), of_call("t", &json!({ "id": 7.0 })));
    }
}
