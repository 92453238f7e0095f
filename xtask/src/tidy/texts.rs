//! Rules about user-visible texts: they are Fluent messages in a crate's `words` folder, and each one is used.

use std::collections::BTreeMap;

use crate::figures::product_lines;

/// Beginnings of ids that are put together at run time, from the name of a variant.
const COMPOSED: [&str; 5] = ["anomaly-", "demo-", "doctor-", "state-", "stop-"];

/// Crates whose messages are used in their Rust sources alone.
const CRATES: [&str; 2] = ["acp", "cli"];

/// Lines of a product's source with a text in Chinese: such a text belongs into the `words` of its crate.
pub(super) fn inline_texts(file: &str, text: &str) -> Vec<usize> {
    if !file.starts_with("crates/") {
        return Vec::new();
    }
    let is_chinese = |c: char| ('\u{4e00}'..='\u{9fff}').contains(&c);
    let found = product_lines(text)
        .into_iter()
        .filter(|(_, line)| !line.trim_start().starts_with("//") && line.chars().any(is_chinese));
    found.map(|(index, _)| index + 1).collect()
}

/// Messages that no source of their crate names, for example because a source misspells one.
pub(super) fn unused_messages(texts: &[(&str, String)]) -> Vec<String> {
    let mut unused: BTreeMap<String, &str> = BTreeMap::new();
    for name in CRATES {
        let (words, src) = (format!("crates/{name}/words/en.ftl"), format!("crates/{name}/src/"));
        let sources: Vec<&String> =
            texts.iter().filter(|(file, _)| file.starts_with(&src)).map(|(_, text)| text).collect();
        let Some((file, messages)) = texts.iter().find(|(file, _)| *file == words) else {
            continue;
        };
        for id in messages.lines().filter_map(message_id) {
            let quoted = format!("\"{id}\"");
            let is_composed = COMPOSED.iter().any(|start| id.starts_with(start));
            if !is_composed && !sources.iter().any(|source| source.contains(&quoted)) {
                unused.insert(id.to_owned(), file);
            }
        }
    }
    unused.iter().map(|(id, file)| format!("{file} has `{id}`, which no source names")).collect()
}

fn message_id(line: &str) -> Option<&str> {
    let (id, _) = line.split_once(" =")?;
    let is_id = id.starts_with(|first: char| first.is_ascii_lowercase()) && !id.contains(' ');
    is_id.then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chinese_text_in_a_source_is_found_outside_of_comments_and_tests() {
        let text = "//! 头\nlet a = \"好\";\n    // 好\n#[cfg(test)]\nmod tests {\n\"好\"\n}\nlet b = \"好\";\n";
        assert_eq!(inline_texts("crates/cli/src/a.rs", text), [2, 8]);
        assert_eq!(inline_texts("xtask/src/a.rs", text), [0; 0]);
    }

    #[test]
    fn a_message_that_no_source_names_is_found() {
        let words = "a-b = x\nc-d = y\n    [one] z\ndemo-e = w\n".to_owned();
        let texts = [
            ("crates/cli/words/en.ftl", words),
            ("crates/cli/src/a.rs", "localize(lang, \"a-b\")".to_owned()),
        ];
        assert_eq!(
            unused_messages(&texts),
            ["crates/cli/words/en.ftl has `c-d`, which no source names"]
        );
    }
}
