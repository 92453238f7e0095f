//! Finds the command lines in the documents.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::Table;
use crate::repo;

/// Command lines in documents without a row, and rows whose line is in no document.
pub(super) fn unlisted(root: &Path, table: &Table) -> Result<Vec<String>> {
    let mut shown: Vec<(String, String)> = Vec::new();
    for name in repo::tracked_files(root)?.into_iter().filter(|name| is_read(name)) {
        let text =
            fs::read_to_string(root.join(&name)).with_context(|| format!("read `{name}`"))?;
        shown.extend(lines_in(&text).into_iter().map(|line| (name.clone(), line)));
    }
    Ok(compare(&shown, table))
}

/// Returns whether a file is a document for readers. The fault pages are generated and have no commands of their own.
fn is_read(name: &str) -> bool {
    name.ends_with(".md") && !name.starts_with("docs/faults/")
}

fn compare(shown: &[(String, String)], table: &Table) -> Vec<String> {
    let printed: Vec<String> = table.runs.iter().map(super::Smoke::printed).collect();
    let untried = |line: &String| !printed.iter().any(|known| is_same(known, line));
    let mut wrong: Vec<String> = shown
        .iter()
        .filter(|(_, line)| untried(line))
        .map(|(name, line)| {
            format!("{name} shows `{line}`, but xtask/smoke.toml has no run for it")
        })
        .collect();
    let named = table.runs.iter().filter(|row| row.line.is_some() || row.untried.is_some());
    for row in named.map(super::Smoke::printed) {
        if !shown.iter().any(|(_, line)| is_same(&row, line)) {
            wrong.push(format!("xtask/smoke.toml has `{row}`, but no document shows it"));
        }
    }
    wrong
}

/// Compares two lines word by word, ignoring quotes.
fn is_same(one: &str, other: &str) -> bool {
    one == other
        || matches!((shell_words::split(one), shell_words::split(other)), (Ok(a), Ok(b)) if a == b)
}

/// All lines of shell blocks, and all lines after a prompt in other blocks.
fn lines_in(markdown: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block: Option<bool> = None;
    for line in markdown.lines() {
        let line = line.trim();
        if let Some(language) = line.strip_prefix("```") {
            let is_shell = matches!(language, "sh" | "bash" | "shell");
            block = if block.is_some() { None } else { Some(is_shell) };
            continue;
        }
        let typed = match block {
            Some(true) => Some(line.strip_prefix("$ ").unwrap_or(line)),
            Some(false) => line.strip_prefix("$ "),
            None => None,
        };
        let typed = typed.map(|line| line.split_once(" # ").map_or(line, |(line, _)| line).trim());
        found
            .extend(typed.filter(|line| !line.is_empty() && !line.starts_with('#')).map(installed));
    }
    found
}

/// A command line for a clone, converted to the one for an installed binary.
fn installed(line: &str) -> String {
    let starts = ["cargo run --release -- ", "cargo run -- "];
    match starts.iter().find_map(|start| line.strip_prefix(start)) {
        Some(args) => format!("budao {args}"),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "\
Type `budao never` or see\n\n```sh\n$ budao explain 4101 --lang zh   # in Chinese\n\
cargo run --release -- explain --list | head\n# a remark\n```\n\n```console\n$ budao man\n.TH …\n```\n";

    #[test]
    fn finds_the_lines_a_reader_would_type() {
        assert_eq!(
            lines_in(DOCUMENT),
            ["budao explain 4101 --lang zh", "budao explain --list | head", "budao man"]
        );
    }

    #[test]
    fn untested_lines_and_unshown_rows_are_named() {
        let table = "[[run]]\nargs = [\"man\"]\n[[run]]\nargs = [\"old\"]\nuntried = \"no\"\n";
        let table: Table = toml::from_str(table).unwrap();
        let shown = [("a.md", "budao man"), ("a.md", "budao 'new'")];
        let shown = shown.map(|(name, line)| (name.to_owned(), line.to_owned()));
        assert_eq!(
            compare(&shown, &table),
            [
                "a.md shows `budao 'new'`, but xtask/smoke.toml has no run for it",
                "xtask/smoke.toml has `budao old`, but no document shows it"
            ]
        );
    }
}
