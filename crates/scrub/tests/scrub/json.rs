//! JSON: every string, and what stands under a secret's name.

use budao_scrub::Scrubber;
use serde_json::{Value, json};

use super::corpus::{secrets, strings};

#[test]
fn replaces_what_stands_under_a_secret_name() {
    let mut value = json!({
        "user": "bob",
        "password": "hunter2",
        "PIN_password": 12345678,
        "api_key": ["one-key-9", "another-key-8"],
        "headers": { "Authorization": "Bearer abcdef123456", "Cookie": "sid=1234; a=b", "accept": "*/*" },
        "token": "4fa9c2d81e",
        "max_tokens": 4096,
        "tokens": 17,
        "password_hint": "the usual",
        "schema": { "password": { "type": "string", "minLength": 8 } },
        "empty": { "password": "", "token": null },
        "at": "10.0.0.7:5432",
        "inner": "{\"client_secret\":\"aB3dE6gH9\"}",
    });
    Scrubber::new().scrub_json(&mut value);
    assert_eq!(
        value,
        json!({
            "user": "bob",
            "password": "[redacted password]",
            "PIN_password": "[redacted password]",
            "api_key": ["[redacted api key]", "[redacted api key]"],
            "headers": {
                "Authorization": "Bearer [redacted token]",
                "Cookie": "[redacted cookie]",
                "accept": "*/*",
            },
            "token": "[redacted token]",
            "max_tokens": 4096,
            "tokens": 17,
            "password_hint": "the usual",
            "schema": { "password": { "type": "string", "minLength": 8 } },
            "empty": { "password": "", "token": null },
            "at": "[private address]",
            "inner": "{\"client_secret\":\"[redacted secret]\"}",
        })
    );
}

#[test]
fn no_secret_survives_as_a_value_or_as_a_key() {
    let scrubber = Scrubber::new();
    for secret in secrets() {
        let text = &secret.text;
        let mut value =
            json!({ "a": [text, { "b": text }], text: 1, "c": json!({ "d": text }).to_string() });
        scrubber.scrub_json(&mut value);
        for stretch in secret.stretches() {
            let leak = strings(&value).into_iter().find(|text| text.contains(&stretch));
            assert_eq!(leak, None, "{}: {stretch}", secret.format);
        }
        let once = value.clone();
        scrubber.scrub_json(&mut value);
        assert_eq!(value, once, "{}: scrubbed twice", secret.format);
    }
}

#[test]
fn a_configured_secret_goes_under_any_name() {
    let mut value =
        json!({ "authorization": "our own correct horse", "correct horse": ["correct horse"] });
    Scrubber::with_secrets(["correct horse"]).scrub_json(&mut value);
    let expected = json!({ "authorization": "our own [redacted secret]", "[redacted secret]": ["[redacted secret]"] });
    assert_eq!(value, expected);
}

/// Depth is the sender's choice; ours must not be the stack's.
#[test]
fn survives_any_depth() {
    let mut value = Value::from("10.0.0.7");
    for _ in 0..200_000 {
        value = Value::Array(vec![value]);
    }
    Scrubber::new().scrub_json(&mut value);
    // Taken apart by hand: dropping it is recursive.
    while let Value::Array(mut items) = value {
        value = items.pop().unwrap();
    }
    assert_eq!(value, "[private address]");
}

#[test]
fn a_known_secret_is_removed_from_a_payload_even_where_it_is_a_name() {
    let scrubber = Scrubber::with_secrets(["hunter22hunter22"]);
    let mut value =
        json!({"hunter22hunter22": [1, "hunter22hunter22", {"x": "password: 12345678"}]});
    scrubber.clean_json(&mut value);
    let text = value.to_string();
    assert!(!text.contains("hunter22"), "{text}");
    assert!(text.contains("password: 12345678"), "a payload stays as it is otherwise: {text}");
}
