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
pub(in crate::computer) fn about(text: &str) -> Map<String, Value> {
    let read: Value = serde_saphyr::from_str(split(text).0).unwrap_or_default();
    let mut about = Map::new();
    for field in ["description", "license", "compatibility", "version"] {
        let said = match &read[field] {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        about.extend(said.map(|said| (field.to_owned(), said.into())));
    }
    if let Some(tools) = words(&read["allowed-tools"]) {
        about.insert("allowed_tools".into(), tools);
    }
    if let tags @ Value::Array(_) = &read["tags"]
        && words(tags).is_some()
    {
        about.insert("tags".into(), tags.clone());
    }
    if read["metadata"].is_object() {
        about.insert("skill_metadata".into(), read["metadata"].clone());
    }
    about
}

/// A list of words, or one text with words separated by spaces or commas.
fn words(value: &Value) -> Option<Value> {
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
    fn a_skill_says_what_it_is() {
        let text = "---\nname: x\ndescription: >\n  Two\n  lines\nversion: 2\nallowed-tools: Read, Bash\n\
                    tags: [a, b]\nmetadata:\n  author: me\n---\nbody";
        assert_eq!(
            Value::Object(about(text)),
            json!({
                "description": "Two lines\n", "version": "2", "allowed_tools": ["Read", "Bash"],
                "tags": ["a", "b"], "skill_metadata": { "author": "me" },
            })
        );
        assert_eq!(about("---\ntags: [1]\ndescription: {}\n---\n"), Map::new());
        assert_eq!(about("---\n: : :\n---\n"), Map::new());
        assert_eq!(about("---\n- a\n---\n"), Map::new());
    }
}
