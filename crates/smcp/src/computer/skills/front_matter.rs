//! The front matter of a `SKILL.md`: YAML between two lines of dashes at its beginning.

use serde_json::{Map, Value, json};

/// Splits a text into front matter and body. Without both lines of dashes, all of it is the body.
pub(in crate::computer) fn split(text: &str) -> (&str, &str) {
    let mut lines = text.split_inclusive('\n');
    let Some(first) = lines.next().filter(|line| line.trim() == "---" && text.starts_with("---"))
    else {
        return ("", text);
    };
    let mut end = first.len();
    for line in lines {
        if line.trim() == "---" {
            return (&text[first.len()..end], &text[end + line.len()..]);
        }
        end += line.len();
    }
    ("", text)
}

/// The fields that an agent receives, under their names on the wire. Invalid fields are left out.
pub(in crate::computer) fn parse_fields(text: &str) -> Map<String, Value> {
    let read: Value = serde_saphyr::from_str(split(text).0).unwrap_or_default();
    let mut fields = Map::new();
    for field in ["description", "license", "compatibility", "version"] {
        let field_value = match &read[field] {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        fields.extend(field_value.map(|field_value| (field.to_owned(), field_value.into())));
    }
    if let Some(tools) = parse_tags(&read["allowed-tools"]) {
        fields.insert("allowed_tools".into(), tools);
    }
    if let tags @ Value::Array(_) = &read["tags"]
        && parse_tags(tags).is_some()
    {
        fields.insert("tags".into(), tags.clone());
    }
    if read["metadata"].is_object() {
        fields.insert("skill_metadata".into(), read["metadata"].clone());
    }
    fields
}

/// A list of words, or one text with words separated by spaces or commas.
fn parse_tags(value: &Value) -> Option<Value> {
    match value {
        Value::Array(list) if list.iter().all(Value::is_string) => Some(value.clone()),
        Value::String(text) => {
            let words = text.split([',', ' ']).filter(|word| !word.is_empty());
            Some(json!(words.collect::<Vec<_>>()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_the_dashes_is_apart_from_the_rest() {
        assert_eq!(split("---\na: 1\n---\nbody\n---\n"), ("a: 1\n", "body\n---\n"));
        assert_eq!(split("---\r\na: 1\r\n---\r\nbody"), ("a: 1\r\n", "body"));
        assert_eq!(split("body"), ("", "body"));
        assert_eq!(split("---\nnever closed"), ("", "---\nnever closed"));
        assert_eq!(split(""), ("", ""));
    }

    #[test]
    fn a_skill_has_its_description() {
        let text = "---\nname: x\ndescription: >\n  Two\n  lines\nversion: 2\nallowed-tools: Read, Bash\n\
                    tags: [a, b]\nmetadata:\n  author: me\n---\nbody";
        assert_eq!(
            Value::Object(parse_fields(text)),
            json!({
                "description": "Two lines\n", "version": "2", "allowed_tools": ["Read", "Bash"],
                "tags": ["a", "b"], "skill_metadata": { "author": "me" },
            })
        );
        assert_eq!(parse_fields("---\ntags: [1]\ndescription: {}\n---\n"), Map::new());
        assert_eq!(parse_fields("---\n: : :\n---\n"), Map::new());
        assert_eq!(parse_fields("---\n- a\n---\n"), Map::new());
    }
}
