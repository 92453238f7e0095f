//! Questions for input at the terminal: how a form is described, and how typed text becomes its values.

use budao_core::{
    Lang,
    elicitation::{Elicitation, FieldKind, FormField},
    event::QuestionPurpose,
    fault::Mismatch,
};
use budao_runtime::Question;
use serde_json::{Map, Value, json};

use crate::texts::{fill, localize};

/// The question for input behind a question; `None` if it is about a permission.
pub(crate) fn elicitation_of(question: &Question) -> Option<Elicitation> {
    match question.purpose {
        QuestionPurpose::Permission => None,
        QuestionPurpose::Elicitation => Elicitation::of_arguments(&question.arguments),
    }
}

/// The question in one line: who asks what, and where an address leads.
pub(crate) fn headline(asked: &Elicitation, lang: Lang) -> String {
    let args = [
        ("server", asked.server.clone().into()),
        ("message", asked.message.clone().into()),
        ("host", asked.host.clone().unwrap_or_default().into()),
        ("url", asked.url.clone().unwrap_or_default().into()),
    ];
    fill(lang, if asked.url.is_some() { "form-address" } else { "form-question" }, &args)
}

/// One line about a field: its name, the values that fit, and its default.
pub(crate) fn describe(field: &FormField) -> String {
    let mark = if field.required { "*" } else { "" };
    let title = match field.title == field.name {
        true => field.name.clone(),
        false => format!("{} ({})", field.name, field.title),
    };
    let about = field.description.as_deref().map(|it| format!(", {it}")).unwrap_or_default();
    let default = field.default.as_ref().map(|it| format!(" [{}]", typed(it))).unwrap_or_default();
    format!("{title}{mark}: {}{about}{default}", field.expected())
}

/// A value as a person would type it.
pub(crate) fn typed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(typed).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// The value of a typed text; `None` for an empty one. Text that does not fit stays text, so that the check says why.
pub(crate) fn value_of(field: &FormField, text: &str) -> Option<Value> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let option = |text: &str| {
        let (FieldKind::Choice { options } | FieldKind::Choices { options, .. }) = &field.kind
        else {
            return json!(text);
        };
        let is_it = |value: &str, title: &str| value == text || title.eq_ignore_ascii_case(text);
        let found = options.iter().find(|it| is_it(&it.value, &it.title));
        json!(found.map_or(text, |it| it.value.as_str()))
    };
    Some(match &field.kind {
        FieldKind::Text { .. } => json!(text),
        FieldKind::Number { .. } => {
            let number = serde_json::from_str::<Value>(text).ok().filter(Value::is_number);
            number.unwrap_or_else(|| json!(text))
        }
        FieldKind::Boolean => {
            let lower = text.to_lowercase();
            let is_word = |id| {
                [Lang::En, Lang::Zh]
                    .iter()
                    .any(|lang| localize(*lang, id).split(' ').any(|word| word == lower))
            };
            match (is_word("form-yes-words"), is_word("form-no-words")) {
                (true, _) => json!(true),
                (_, true) => json!(false),
                _ => json!(text),
            }
        }
        FieldKind::Choice { .. } => option(text),
        FieldKind::Choices { .. } => {
            text.split(',').map(str::trim).filter(|it| !it.is_empty()).map(option).collect()
        }
    })
}

/// A draft with one line for each field, to be filled in.
pub(crate) fn draft(asked: &Elicitation) -> Vec<String> {
    let line = |field: &FormField| {
        let default = field.default.as_ref().map(typed).unwrap_or_default();
        format!("{}: {default}", field.name).trim_end().to_owned()
    };
    asked.fields.iter().map(line).collect()
}

/// The values of a filled-in draft. A form with one field may be answered by the value alone.
pub(crate) fn read_draft(asked: &Elicitation, text: &str) -> Result<Value, String> {
    let mut values = Map::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let named = line.split_once(':').and_then(|(name, value)| {
            Some((asked.fields.iter().find(|field| field.name == name.trim())?, value))
        });
        let (field, value) = match (named, asked.fields.as_slice()) {
            (Some(named), _) => named,
            (None, [only]) => (only, line),
            (None, _) => return Err(line.to_owned()),
        };
        if let Some(value) = value_of(field, value) {
            values.insert(field.name.clone(), value);
        }
    }
    asked.complete(Some(&Value::Object(values))).map_err(|wrong| describe_mismatches(&wrong))
}

/// Every mismatch of an answer, in one line.
pub(crate) fn describe_mismatches(mismatches: &[Mismatch]) -> String {
    let each = |it: &Mismatch| format!("{}: {}", it.dotted(), it.expected);
    mismatches.iter().map(each).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order() -> Elicitation {
        let schema = json!({ "type": "object", "required": ["size"], "properties": {
            "size": { "type": "string", "oneOf": [{ "const": "s", "title": "Small" }] },
            "count": { "type": "integer", "default": 2 },
            "gift": { "type": "boolean" },
            "extras": { "type": "array", "items": { "enum": ["ice", "straw"] } },
        }});
        Elicitation::form("shop", "What?", &schema).unwrap()
    }

    #[test]
    fn a_filled_draft_becomes_typed_values() {
        assert_eq!(draft(&order()), ["size:", "count: 2", "gift:", "extras:"]);
        let text = "size: small\ncount: 3\ngift: yes\nextras: ice, straw\n";
        let values = json!({ "size": "s", "count": 3, "gift": true, "extras": ["ice", "straw"] });
        assert_eq!(read_draft(&order(), text), Ok(values));
    }

    #[test]
    fn a_draft_with_mistakes_lists_the_place_of_each() {
        let wrong = read_draft(&order(), "count: many\nextras: sugar").unwrap_err();
        for place in ["size", "count", "extras"] {
            assert!(wrong.contains(place), "{wrong}");
        }
        assert!(read_draft(&order(), "colour: red").is_err());
    }

    #[test]
    fn one_field_needs_no_name() {
        let schema = json!({ "type": "object", "properties": { "at": { "type": "string" } } });
        let one = Elicitation::form("s", "When?", &schema).unwrap();
        assert_eq!(read_draft(&one, "at: 10:30"), Ok(json!({ "at": "10:30" })));
        assert_eq!(read_draft(&one, "10:30"), Ok(json!({ "at": "10:30" })));
    }
}
