//! Reads the schema of a form: a flat object of primitive values, within bounds.

use serde_json::{Map, Value};

use super::{FieldKind, FieldOption, FormField, TextFormat, shorten};

/// The largest schema, in bytes of JSON.
const SCHEMA_BYTES_MAX: usize = 32 * 1024;
/// The most fields of one form.
const FIELDS_MAX: usize = 32;
/// The most values of one choice.
const OPTIONS_MAX: usize = 100;
/// The longest name of a field, in characters.
const NAME_CHARS_MAX: usize = 64;
/// The longest label or explanation, in characters.
const TEXT_CHARS_MAX: usize = 500;

/// Words in a name or a label that ask for a secret. A form must not ask for one.
const SECRET_WORDS: [&str; 14] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "credential",
    "credentials",
    "apikey",
    "privatekey",
    "accesstoken",
    "creditcard",
    "cvv",
    "ssn",
    "pin",
];

/// Pairs of neighbouring words that ask for a secret together.
const SECRET_PAIRS: [(&str, &str); 8] = [
    ("api", "key"),
    ("access", "key"),
    ("private", "key"),
    ("secret", "key"),
    ("access", "token"),
    ("auth", "token"),
    ("credit", "card"),
    ("card", "number"),
];

/// The fields of a form's schema.
pub(super) fn fields(schema: &Value) -> Result<Vec<FormField>, String> {
    let Value::Object(schema) = schema else { return Err("its schema is not an object".into()) };
    if serde_json::to_string(schema).map_or(usize::MAX, |text| text.len()) > SCHEMA_BYTES_MAX {
        return Err(format!("its schema is larger than {SCHEMA_BYTES_MAX} bytes"));
    }
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err("its schema does not describe an object".into());
    }
    let empty = Map::new();
    let properties = match schema.get("properties") {
        None => &empty,
        Some(Value::Object(properties)) => properties,
        Some(_) => return Err("its schema has no usable properties".into()),
    };
    if properties.len() > FIELDS_MAX {
        return Err(format!("it asks for more than {FIELDS_MAX} values"));
    }
    let required = names(schema.get("required"));
    if let Some(unknown) = required.iter().find(|name| !properties.contains_key(**name)) {
        return Err(format!("it requires `{}`, which it does not describe", shorten(unknown, 64)));
    }
    let field =
        |(name, schema): (&String, &Value)| field(name, schema, required.contains(&name.as_str()));
    properties.iter().map(field).collect()
}

fn names(list: Option<&Value>) -> Vec<&str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn field(name: &str, schema: &Value, required: bool) -> Result<FormField, String> {
    let shown = shorten(name, NAME_CHARS_MAX);
    if name.is_empty() || name.chars().count() > NAME_CHARS_MAX {
        return Err(format!("the name `{shown}` is empty or too long"));
    }
    let text = |key: &str| schema.get(key).and_then(Value::as_str);
    let title = text("title").unwrap_or(name);
    if [name, title].into_iter().any(asks_for_secret) || text("format") == Some("password") {
        return Err(format!("`{shown}` asks for a secret, which a form must not do"));
    }
    let kind = kind(schema).map_err(|reason| format!("`{shown}` {reason}"))?;
    let mut field = FormField {
        name: name.to_owned(),
        title: shorten(title, TEXT_CHARS_MAX),
        description: text("description").map(|text| shorten(text, TEXT_CHARS_MAX)),
        required,
        default: None,
        kind,
    };
    // A default that the field itself refuses is no default.
    let default = schema.get("default").filter(|value| field.mismatch(value).is_none());
    field.default = default.cloned();
    Ok(field)
}

fn kind(schema: &Value) -> Result<FieldKind, String> {
    let number = |key: &str| schema.get(key).and_then(Value::as_f64);
    let count = |key: &str| schema.get(key).and_then(Value::as_u64);
    match schema.get("type").and_then(Value::as_str) {
        Some("string") => match options(schema)? {
            Some(options) => Ok(FieldKind::Choice { options }),
            None => Ok(FieldKind::Text {
                min_length: count("minLength"),
                max_length: count("maxLength"),
                format: schema
                    .get("format")
                    .and_then(Value::as_str)
                    .and_then(|it| it.parse::<TextFormat>().ok()),
            }),
        },
        Some(numeric @ ("number" | "integer")) => Ok(FieldKind::Number {
            integer: numeric == "integer",
            minimum: number("minimum"),
            maximum: number("maximum"),
        }),
        Some("boolean") => Ok(FieldKind::Boolean),
        Some("array") => {
            let items = schema.get("items").unwrap_or(&Value::Null);
            let options = options(items)?.ok_or("is a list of free values")?;
            let (min_items, max_items) = (count("minItems"), count("maxItems"));
            Ok(FieldKind::Choices { options, min_items, max_items })
        }
        _ => Err("is not a text, a number, a yes-or-no or a choice".into()),
    }
}

/// The values of a choice; `None` if the schema has none. Old servers name the labels in `enumNames`.
fn options(schema: &Value) -> Result<Option<Vec<FieldOption>>, String> {
    let titled = schema.get("oneOf").or_else(|| schema.get("anyOf"));
    let option = |value: &str, title: &str| FieldOption {
        value: value.to_owned(),
        title: shorten(title, TEXT_CHARS_MAX),
    };
    let options: Vec<FieldOption> = match (titled, schema.get("enum")) {
        (Some(Value::Array(titled)), _) => titled
            .iter()
            .map(|it| {
                let value = it.get("const").and_then(Value::as_str)?;
                Some(option(value, it.get("title").and_then(Value::as_str).unwrap_or(value)))
            })
            .collect::<Option<_>>()
            .ok_or("has a value that is not a text")?,
        (None, Some(Value::Array(values))) => {
            let titles = names(schema.get("enumNames"));
            let titled = |(index, value): (usize, &Value)| {
                let value = value.as_str()?;
                Some(option(value, titles.get(index).copied().unwrap_or(value)))
            };
            let options: Option<_> = values.iter().enumerate().map(titled).collect();
            options.ok_or("has a value that is not a text")?
        }
        (None, None) => return Ok(None),
        _ => return Err("has no usable values".into()),
    };
    match options.len() {
        1..=OPTIONS_MAX => Ok(Some(options)),
        _ => Err(format!("has no values, or more than {OPTIONS_MAX}")),
    }
}

/// Whether a name or a label asks for a secret.
fn asks_for_secret(text: &str) -> bool {
    let words = words(text);
    let is_secret = |word: &String| SECRET_WORDS.contains(&word.as_str());
    let is_pair = |pair: &[String]| {
        SECRET_PAIRS.iter().any(|(first, second)| pair[0] == *first && pair[1] == *second)
    };
    words.iter().any(is_secret) || words.windows(2).any(is_pair)
}

/// The lower-case words of a name such as `apiKey`, `api_key` or `API key`.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in text.chars().take(TEXT_CHARS_MAX) {
        if !c.is_alphanumeric() || (was_lower && c.is_uppercase()) {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(properties: &Value) -> Result<Vec<FormField>, String> {
        fields(&json!({ "type": "object", "properties": properties }))
    }

    #[test]
    fn a_form_asks_for_no_secret_under_any_name() {
        for name in [
            "password",
            "Password",
            "userPassword",
            "api_key",
            "apiKey",
            "API-Key",
            "pin",
            "client secret",
        ] {
            let refused = of(&json!({ name: { "type": "string" } })).unwrap_err();
            assert!(refused.contains("secret"), "{name}: {refused}");
        }
        let titled = json!({ "x": { "type": "string", "title": "Your passphrase" } });
        assert!(of(&titled).is_err());
        assert!(of(&json!({ "x": { "type": "string", "format": "password" } })).is_err());
        for name in ["token_count", "shipping", "keyboard", "pinned", "passenger", "secretary"] {
            assert!(of(&json!({ name: { "type": "string" } })).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_schema_that_is_not_flat_or_too_large_is_refused() {
        let nested =
            json!({ "a": { "type": "object", "properties": { "b": { "type": "string" } } } });
        assert!(of(&nested).is_err());
        assert!(of(&json!({ "a": { "$ref": "#" } })).is_err());
        assert!(of(&json!({ "a": { "type": "array", "items": { "type": "array" } } })).is_err());
        assert!(of(&json!({ "a": { "type": "string", "enum": [] } })).is_err());
        let many: Map<String, Value> =
            (0..FIELDS_MAX + 1).map(|n| (format!("f{n}"), json!({ "type": "string" }))).collect();
        assert!(of(&Value::Object(many)).is_err());
        let long =
            json!({ "a": { "type": "string", "description": "x".repeat(SCHEMA_BYTES_MAX) } });
        assert!(of(&long).is_err());
        let values: Vec<String> = (0..=OPTIONS_MAX).map(|n| n.to_string()).collect();
        assert!(of(&json!({ "a": { "type": "string", "enum": values } })).is_err());
        assert!(fields(&json!({ "type": "object", "required": ["a"] })).is_err());
        assert!(fields(&json!(7)).is_err());
        assert!(fields(&json!({ "type": "object" })).unwrap().is_empty());
    }

    #[test]
    fn every_spelling_of_a_choice_is_read() {
        let read = of(&json!({
            "plain": { "type": "string", "enum": ["a", "b"] },
            "named": { "type": "string", "enum": ["a"], "enumNames": ["First"] },
            "titled": { "type": "string", "oneOf": [{ "const": "a", "title": "First" }] },
            "several": { "type": "array", "items": { "anyOf": [{ "const": "a", "title": "First" }] } },
            "list": { "type": "array", "items": { "type": "string", "enum": ["a", "b"] }, "maxItems": 1 },
        }))
        .unwrap();
        let titles: Vec<&str> = read
            .iter()
            .map(|field| match &field.kind {
                FieldKind::Choice { options } | FieldKind::Choices { options, .. } => {
                    options[0].title.as_str()
                }
                _ => "",
            })
            .collect();
        assert_eq!(titles, ["a", "First", "First", "First", "a"]);
    }
}
