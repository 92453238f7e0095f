//! The prompt that a played CLI answers: its words, and what they select.

use serde_json::Value;

/// Pieces of the answer to `@many`.
const MANY: u32 = 20_000;

/// A prompt and when its turn began.
pub(super) struct Turn {
    pub(super) uuid: String,
    pub(super) text: String,
    pub(super) began: tokio::time::Instant,
}

impl Turn {
    pub(super) fn of(line: &Value) -> Self {
        let content = &line["message"]["content"];
        let blocks = content.as_array().into_iter().flatten();
        let texts: Vec<&str> = blocks.filter_map(|block| block["text"].as_str()).collect();
        Self {
            uuid: line["uuid"].as_str().unwrap_or_default().to_owned(),
            text: texts.join(" "),
            began: tokio::time::Instant::now(),
        }
    }

    pub(super) fn is(&self, word: &str) -> bool {
        self.text.split_whitespace().any(|it| it == word)
    }

    pub(super) fn status(&self) -> Option<u16> {
        self.text.split_whitespace().find_map(|word| word.strip_prefix("@api-")?.parse().ok())
    }

    pub(super) fn answer(&self) -> String {
        answer(&self.text)
    }
}

/// The answer of the played CLI to a prompt.
#[must_use]
pub fn answer(prompt: &str) -> String {
    let says = |wanted: &str| prompt.split_whitespace().any(|word| word == wanted);
    let pieces = match (says("@many"), says("@flood")) {
        (_, true) => MANY * 10,
        (true, _) => MANY,
        _ => 0,
    };
    let pieces = (0..pieces).map(|index| format!(" {index}"));
    format!("the answer to {}{}", about(prompt), pieces.collect::<String>())
}

/// The subject of a prompt: its words without the `@` words.
pub(super) fn about(prompt: &str) -> String {
    let words: Vec<&str> = prompt.split_whitespace().filter(|it| !it.starts_with('@')).collect();
    words.join(" ")
}
