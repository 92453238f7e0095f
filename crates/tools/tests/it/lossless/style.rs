//! Ways to spell a value: JSON, and what is almost JSON.

use serde_json::Value;

/// How a text is spelled.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    pub(crate) open: &'static str,
    pub(crate) close: &'static str,
    pub(crate) bare_keys: bool,
    pub(crate) python: bool,
    pub(crate) trailing: bool,
    pub(crate) comma: &'static str,
    pub(crate) colon: &'static str,
}

pub(crate) const JSON: Style = Style {
    open: "\"",
    close: "\"",
    bare_keys: false,
    python: false,
    trailing: false,
    comma: ", ",
    colon: ": ",
};

impl Style {
    pub(crate) fn value(self, value: &Value) -> String {
        let trail = if self.trailing { "," } else { "" };
        match value {
            Value::Object(map) if map.is_empty() => "{}".into(),
            Value::Array(items) if items.is_empty() => "[]".into(),
            Value::Object(map) => {
                let pair = |(key, value): (&String, &Value)| {
                    format!("{}{}{}", self.key(key), self.colon, self.value(value))
                };
                format!("{{{}{trail}}}", map.iter().map(pair).collect::<Vec<_>>().join(self.comma))
            }
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(|it| self.value(it)).collect();
                format!("[{}{trail}]", items.join(self.comma))
            }
            Value::String(text) => self.text(text),
            Value::Bool(true) if self.python => "True".into(),
            Value::Bool(false) if self.python => "False".into(),
            Value::Null if self.python => "None".into(),
            other => other.to_string(),
        }
    }

    pub(crate) fn key(self, key: &str) -> String {
        let is_name = key.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
            && key.starts_with(|it: char| it.is_ascii_alphabetic());
        if self.bare_keys && is_name { key.to_owned() } else { self.text(key) }
    }

    /// As a language with these quotes writes it.
    fn text(self, text: &str) -> String {
        let inside = Value::from(text).to_string();
        let inside = inside[1..inside.len() - 1].to_owned();
        let inside = match self.close {
            "\"" => inside,
            close => inside.replace("\\\"", "\"").replace(close, &format!("\\{close}")),
        };
        format!("{}{inside}{}", self.open, self.close)
    }
}
