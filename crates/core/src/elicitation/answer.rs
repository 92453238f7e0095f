//! Checks the answer to a form.

use serde_json::{Map, Value, json};

use super::{Elicitation, FieldKind, FieldOption, FormField, TextFormat};
use crate::fault::Mismatch;

/// The longest text of an answer, in characters.
const ANSWER_CHARS_MAX: usize = 10_000;
/// The longest excerpt of a refused value, in characters.
const EXCERPT_CHARS_MAX: usize = 60;

impl Elicitation {
    /// The values of the form as JSON Schema, for front ends that build their form from one.
    #[must_use]
    pub fn to_schema(&self) -> Value {
        let fields = self.fields.iter();
        let properties: Map<String, Value> =
            fields.clone().map(|field| (field.name.clone(), field.to_schema())).collect();
        let required: Vec<&str> =
            fields.filter(|field| field.required).map(|field| field.name.as_str()).collect();
        json!({ "type": "object", "properties": properties, "required": required })
    }

    /// Checks an answer and adds the defaults of absent values. An address has no content.
    ///
    /// # Errors
    /// Every place that does not fit.
    pub fn complete(&self, content: Option<&Value>) -> Result<Value, Vec<Mismatch>> {
        if self.url.is_some() {
            return Ok(Value::Null);
        }
        let empty = Map::new();
        let given = match content {
            None | Some(Value::Null) => &empty,
            Some(Value::Object(given)) => given,
            Some(other) => return Err(vec![mismatch("", "type", "an object of values", other)]),
        };
        let mut wrong: Vec<Mismatch> = Vec::new();
        for (name, value) in given {
            if !self.fields.iter().any(|field| field.name == *name) {
                wrong.push(mismatch(name, "additionalProperties", "no such value", value));
            }
        }
        let mut complete = Map::new();
        for field in &self.fields {
            match given.get(&field.name).filter(|value| !value.is_null()).or(field.default.as_ref())
            {
                Some(value) => {
                    wrong.extend(field.mismatch(value));
                    complete.insert(field.name.clone(), value.clone());
                }
                None if field.required => {
                    wrong.push(mismatch(&field.name, "required", &field.expected(), &Value::Null));
                }
                None => {}
            }
        }
        if wrong.is_empty() { Ok(Value::Object(complete)) } else { Err(wrong) }
    }
}

impl FormField {
    /// A description of a fitting value.
    #[must_use]
    pub fn expected(&self) -> String {
        let range = |low: Option<String>, high: Option<String>| match (low, high) {
            (Some(low), Some(high)) => format!(" from {low} to {high}"),
            (Some(low), None) => format!(" of at least {low}"),
            (None, Some(high)) => format!(" of at most {high}"),
            (None, None) => String::new(),
        };
        match &self.kind {
            FieldKind::Text { min_length, max_length, format } => {
                let name = match format {
                    Some(TextFormat::Email) => "an e-mail address",
                    Some(TextFormat::Uri) => "an address with a scheme",
                    Some(TextFormat::Date) => "a date as 2026-07-28",
                    Some(TextFormat::DateTime) => "a time as 2026-07-28T09:00:00Z",
                    None => "a text",
                };
                let of = |length: &Option<u64>| length.map(|it| format!("{it} characters"));
                format!("{name}{}", range(of(min_length), of(max_length)))
            }
            FieldKind::Number { integer, minimum, maximum } => {
                let name = if *integer { "a whole number" } else { "a number" };
                let of = |bound: &Option<f64>| bound.map(|it| it.to_string());
                format!("{name}{}", range(of(minimum), of(maximum)))
            }
            FieldKind::Boolean => "true or false".to_owned(),
            FieldKind::Choice { options } => format!("one of {}", listed(options)),
            FieldKind::Choices { options, min_items, max_items } => {
                let of = |count: &Option<u64>| count.map(|it| it.to_string());
                format!("a list{} of {}", range(of(min_items), of(max_items)), listed(options))
            }
        }
    }

    /// The field as JSON Schema.
    fn to_schema(&self) -> Value {
        let titled = |options: &[FieldOption]| {
            let option = |it: &FieldOption| json!({ "const": it.value, "title": it.title });
            options.iter().map(option).collect::<Vec<Value>>()
        };
        let mut schema = match &self.kind {
            FieldKind::Text { min_length, max_length, format } => {
                let format: Option<&'static str> = format.map(Into::into);
                json!({
                    "type": "string", "minLength": min_length, "maxLength": max_length,
                    "format": format,
                })
            }
            FieldKind::Number { integer, minimum, maximum } => {
                let name = if *integer { "integer" } else { "number" };
                json!({ "type": name, "minimum": minimum, "maximum": maximum })
            }
            FieldKind::Boolean => json!({ "type": "boolean" }),
            FieldKind::Choice { options } => json!({ "type": "string", "oneOf": titled(options) }),
            FieldKind::Choices { options, min_items, max_items } => json!({
                "type": "array", "items": { "anyOf": titled(options) },
                "minItems": min_items, "maxItems": max_items,
            }),
        };
        schema["title"] = json!(self.title);
        schema["description"] = json!(self.description);
        schema["default"] = json!(self.default);
        if let Value::Object(map) = &mut schema {
            map.retain(|_, value| !value.is_null());
        }
        schema
    }

    /// What is wrong with a value of this field; `None` if it fits.
    pub(super) fn mismatch(&self, value: &Value) -> Option<Mismatch> {
        let rule = match &self.kind {
            FieldKind::Text { min_length, max_length, format } => {
                text_rule(value, *min_length, *max_length, *format)
            }
            FieldKind::Number { integer, minimum, maximum } => {
                number_rule(value, *integer, *minimum, *maximum)
            }
            FieldKind::Boolean => (!value.is_boolean()).then_some("type"),
            FieldKind::Choice { options } => (!is_option(value, options)).then_some("enum"),
            FieldKind::Choices { options, min_items, max_items } => {
                list_rule(value, options, *min_items, *max_items)
            }
        }?;
        let mut found = mismatch(&self.name, rule, &self.expected(), value);
        if let FieldKind::Choice { options } | FieldKind::Choices { options, .. } = &self.kind {
            found.allowed = options.iter().take(20).map(|option| json!(option.value)).collect();
        }
        Some(found)
    }
}

fn text_rule(
    value: &Value,
    min: Option<u64>,
    max: Option<u64>,
    format: Option<TextFormat>,
) -> Option<&'static str> {
    let Some(text) = value.as_str() else { return Some("type") };
    let length = text.chars().count();
    let length_u64 = u64::try_from(length).unwrap_or(u64::MAX);
    let has_format = match format {
        None => true,
        Some(TextFormat::Email) => {
            let parts = text.split_once('@');
            parts.is_some_and(|(user, host)| !user.is_empty() && is_host(host))
        }
        Some(TextFormat::Uri) => is_address(text),
        Some(TextFormat::Date) => text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10,
        Some(TextFormat::DateTime) => text.parse::<jiff::Timestamp>().is_ok(),
    };
    match () {
        () if min.is_some_and(|min| length_u64 < min) => Some("minLength"),
        () if max.is_some_and(|max| length_u64 > max) || length > ANSWER_CHARS_MAX => {
            Some("maxLength")
        }
        () if !has_format => Some("format"),
        () => None,
    }
}

fn is_host(host: &str) -> bool {
    !host.is_empty() && !host.contains('@') && !host.chars().any(char::is_whitespace)
}

fn is_address(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(is_part)
        && !rest.is_empty()
        && !rest.chars().any(char::is_whitespace)
}

fn number_rule(
    value: &Value,
    integer: bool,
    min: Option<f64>,
    max: Option<f64>,
) -> Option<&'static str> {
    let Some(number) = value.as_f64() else { return Some("type") };
    match () {
        () if integer && number.fract() != 0.0 => Some("type"),
        () if min.is_some_and(|min| number < min) => Some("minimum"),
        () if max.is_some_and(|max| number > max) => Some("maximum"),
        () => None,
    }
}

fn list_rule(
    value: &Value,
    options: &[FieldOption],
    min: Option<u64>,
    max: Option<u64>,
) -> Option<&'static str> {
    let Some(items) = value.as_array() else { return Some("type") };
    let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
    let is_repeated = |(index, item): (usize, &Value)| items[..index].contains(item);
    match () {
        () if items.len() > options.len() || max.is_some_and(|max| count > max) => Some("maxItems"),
        () if min.is_some_and(|min| count < min) => Some("minItems"),
        () if !items.iter().all(|item| is_option(item, options)) => Some("enum"),
        () if items.iter().enumerate().any(is_repeated) => Some("uniqueItems"),
        () => None,
    }
}

fn is_option(value: &Value, options: &[FieldOption]) -> bool {
    value.as_str().is_some_and(|value| options.iter().any(|option| option.value == value))
}

fn listed(options: &[FieldOption]) -> String {
    let names: Vec<&str> = options.iter().take(20).map(|option| option.value.as_str()).collect();
    let more = if options.len() > names.len() { " …" } else { "" };
    format!("{}{more}", names.join(", "))
}

fn mismatch(name: &str, rule: &'static str, expected: &str, received: &Value) -> Mismatch {
    let name = name.replace('~', "~0").replace('/', "~1");
    let received = (!received.is_null())
        .then(|| received.to_string().chars().take(EXCERPT_CHARS_MAX).collect::<String>());
    Mismatch {
        pointer: if name.is_empty() { String::new() } else { format!("/{name}") },
        rule: rule.into(),
        expected: expected.to_owned(),
        received,
        allowed: Vec::new(),
        nearest: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> Elicitation {
        let schema = json!({ "type": "object", "required": ["size", "mail"], "properties": {
            "size": { "type": "string", "enum": ["small", "large"] },
            "mail": { "type": "string", "format": "email" },
            "count": { "type": "integer", "minimum": 1, "maximum": 9, "default": 1 },
            "gift": { "type": "boolean", "default": "yes" },
            "day": { "type": "string", "format": "date" },
            "extras": { "type": "array", "items": { "enum": ["ice", "straw"] }, "maxItems": 1 },
        }});
        Elicitation::form("shop", "What would you like?", &schema).unwrap()
    }

    #[test]
    fn an_answer_that_fits_gets_the_defaults() {
        let answer = json!({ "size": "small", "mail": "a@b.example", "extras": ["ice"] });
        let complete = order().complete(Some(&answer)).unwrap();
        // The default of `gift` is not a yes-or-no, so there is none.
        let expected =
            json!({ "size": "small", "mail": "a@b.example", "count": 1, "extras": ["ice"] });
        assert_eq!(complete, expected);
    }

    #[test]
    fn every_mismatch_is_listed_at_once() {
        let answer = json!({
            "size": "huge", "count": 9.5, "gift": "no", "day": "28.7.2026", "extras": ["ice", "straw"],
            "colour": "red",
        });
        let wrong = order().complete(Some(&answer)).unwrap_err();
        let places: Vec<(&str, &str)> =
            wrong.iter().map(|it| (it.pointer.as_str(), &*it.rule)).collect();
        let expected = [
            ("/colour", "additionalProperties"),
            ("/size", "enum"),
            ("/mail", "required"),
            ("/count", "type"),
            ("/gift", "type"),
            ("/day", "format"),
            ("/extras", "maxItems"),
        ];
        assert_eq!(places, expected);
        assert!(order().complete(Some(&json!("small"))).is_err());
        assert!(order().complete(None).is_err());
    }

    #[test]
    fn a_form_written_as_a_schema_is_the_same_form() {
        let (fields, schema) = (order().fields, order().to_schema());
        assert_eq!(Elicitation::form("shop", "", &schema).unwrap().fields, fields);
    }

    #[test]
    fn a_recorded_question_decodes_to_itself() {
        let question = order();
        assert_eq!(Elicitation::of_arguments(&question.to_arguments()), Some(question));
        let address = Elicitation::address("s", "m", "https://a.example/x", "a.example").unwrap();
        assert_eq!(address.complete(Some(&json!({ "x": 1 }))), Ok(Value::Null));
        assert_eq!(Elicitation::of_arguments(&address.to_arguments()), Some(address));
        assert_eq!(Elicitation::of_arguments(&json!({ "path": "a" })), None);
    }
}
