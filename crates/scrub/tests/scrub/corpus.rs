//! The corpus of made-up secrets, and the settings they are planted in.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// One made-up secret and what belongs around it.
pub(crate) struct SampleSecret {
    pub(crate) format: String,
    /// What must not appear anywhere.
    pub(crate) hidden: String,
    /// The secret with what its format needs around it.
    pub(crate) text: String,
    /// It spans lines, so some settings cannot hold it.
    lines: bool,
}

/// A text with a secret planted in it.
pub(crate) struct PlantedSecret {
    pub(crate) setting: &'static str,
    pub(crate) text: String,
}

pub(crate) fn secrets() -> Vec<SampleSecret> {
    let file: toml::Table = include_str!("../corpus/secrets.toml").parse().unwrap();
    let formats = file["format"].as_array().unwrap();
    formats
        .iter()
        .flat_map(|format| {
            let side = |name: &str| format.get(name).map_or_else(String::new, joined);
            let (before, after) = (side("before"), side("after"));
            let examples = format["examples"].as_array().unwrap();
            assert!(examples.len() >= 2, "{format} needs two examples");
            examples.iter().map(move |example| {
                let hidden = joined(example);
                SampleSecret {
                    format: format["name"].as_str().unwrap().to_owned(),
                    text: format!("{before}{hidden}{after}"),
                    hidden,
                    lines: format.get("lines").is_some(),
                }
            })
        })
        .collect()
}

/// Text that is kept in parts, so that nothing in the repository looks like a secret.
fn joined(parts: &toml::Value) -> String {
    match parts {
        toml::Value::Array(parts) => parts.iter().map(|part| part.as_str().unwrap()).collect(),
        whole => whole.as_str().unwrap().to_owned(),
    }
}

impl SampleSecret {
    /// The secret in every setting that can hold it; at least ten.
    pub(crate) fn planted(&self) -> Vec<PlantedSecret> {
        let text = &self.text;
        let inner = json!({ "detail": text, "code": 7 }).to_string();
        let mut all = vec![
            ("alone", text.clone()),
            ("JSON", json!({ "detail": text, "code": 7 }).to_string()),
            ("JSON in JSON", json!({ "message": inner }).to_string()),
            ("JSON in JSON in JSON", json!([json!({ "message": inner }).to_string()]).to_string()),
            ("pretty JSON", format!("{:#}", json!({ "a": 1, "detail": text, "z": [text] }))),
            ("debug output", format!("Error {{ detail: {text:?}, code: 7 }}")),
            ("after a line", format!("the call failed:\n{text}\n")),
            ("base64", STANDARD.encode(format!("failed: {text}\n"))),
            (
                "base64 in a sentence",
                format!("body {} ignored", URL_SAFE_NO_PAD.encode(format!("{text} {text}"))),
            ),
            (
                "base64 off by one",
                format!("body={}, ignored", STANDARD.encode(format!("x {text} y"))),
            ),
            (
                "base64 in lines",
                wrapped(&STANDARD.encode(format!("the whole of it: {text}, and more of it"))),
            ),
        ];
        if !self.lines {
            all.extend([
                ("sentence", format!("The call failed with {text} and was retried.")),
                ("end of a sentence", format!("The call failed with {text}.")),
                ("environment", format!("MODE=fast\nSETTING={text}\nNEXT=1")),
                ("header", format!("Accept: */*\r\nX-Note: {text}\r\nHost: example.com\r\n")),
                ("URL", format!("GET https://api.example.com/v1/items?page=2&note={text} failed")),
                (
                    "log line",
                    format!(
                        "2026-03-01T10:11:12.123Z ERROR models: failed detail={text} attempt=2"
                    ),
                ),
                ("Chinese sentence", format!("请求失败，原因：{text}，请联系管理员。")),
                ("Chinese words", format!("使用{text}失败")),
                ("YAML", format!("settings:\n  mode: fast\n  value: {text}\n  next: true\n")),
                ("quotes", format!("expected 'x', got '{text}' instead")),
                ("brackets", format!("retry ({text}) [{text}] <{text}>")),
                ("markdown", format!("see `{text}` or **{text}**, then go on")),
                ("shell", format!("$ tool --note '{text}' --fast")),
                ("TOML", format!("mode = \"fast\"\nvalue = \"{text}\"\n")),
            ]);
        }
        let raw = ["quotes", "shell", "TOML", "brackets", "markdown"];
        let quoted = text.contains(['"', '\'', '`', '<']);
        all.retain(|(setting, _)| !(quoted && raw.contains(setting)));
        assert!(all.len() >= 10, "{} in {} settings", self.format, all.len());
        all.into_iter().map(|(setting, text)| PlantedSecret { setting, text }).collect()
    }

    /// The stretches of the secret that must not appear, as they are or in base64.
    pub(crate) fn stretches(&self) -> Vec<String> {
        let chars: Vec<char> = self.hidden.chars().collect();
        let mut all: Vec<String> =
            chars.windows(12).map(|window| window.iter().collect()).collect();
        all.push(self.hidden.clone());
        // Characters of base64 that the secret alone decides, wherever in the encoded text it stands.
        for offset in 0..3 {
            let shifted = format!("{}{}", &"   "[..offset], self.hidden);
            let encoded = STANDARD.encode(shifted);
            let sure: Vec<char> =
                encoded.chars().skip(4).take(encoded.len().saturating_sub(8)).collect();
            all.extend(sure.windows(16).map(|window| window.iter().collect::<String>()));
        }
        all
    }
}

/// Lines of 76 characters, as `base64` writes them.
fn wrapped(encoded: &str) -> String {
    let lines: Vec<&str> =
        encoded.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
    lines.join("\n")
}

/// Every string in a JSON value.
pub(crate) fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(strings).collect(),
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| [vec![name.as_str()], strings(value)].concat())
            .collect(),
        _ => Vec::new(),
    }
}
