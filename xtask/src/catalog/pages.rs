//! `docs/faults`: one page per kind, and the index.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::rows::Kind;
use super::texts::Texts;
use super::{PAGES, Source, kebab};

const HEAD: &str =
    "<!-- Generated from the files in catalog/ by `cargo xtask codegen`. Do not edit. -->\n\n";

/// Width of a paragraph in columns.
const WIDTH: usize = 100;

/// All pages, by path.
pub(super) fn all(source: &Source) -> BTreeMap<String, String> {
    let mut pages: BTreeMap<String, String> = source
        .catalog
        .kinds
        .iter()
        .map(|kind| (format!("{PAGES}/{}.md", kind.code), page(source, kind)))
        .collect();
    pages.insert(format!("{PAGES}/README.md"), index(source));
    pages
}

fn page(source: &Source, kind: &Kind) -> String {
    let (english, chinese) = (&source.english, &source.chinese);
    let id = kebab(&kind.name);
    let mut out = HEAD.to_owned();
    _ = writeln!(out, "# {}\n", english.shown(&id, "title"));
    _ = writeln!(out, "`{}` · `{}` · [all faults](README.md)\n", kind.code, kind.name);
    out.push_str(&wrapped(&english.shown(&id, "about"), ""));
    out.push('\n');
    columns(&mut out, kind, english);

    heading(&mut out, english, "model");
    out.push_str(&quoted(&english.shown(&id, "model")));
    advice(&mut out, kind, "next", english);

    heading(&mut out, english, "user");
    out.push_str(&quoted(&english.shown(&id, "user")));
    out.push_str(">\n");
    out.push_str(&quoted(&chinese.shown(&id, "user")));
    advice(&mut out, kind, "rec", english);

    heading(&mut out, english, "operator");
    out.push_str(&wrapped(&english.shown(&id, "check"), ""));

    heading(&mut out, english, "numbers");
    out.push_str("| A2C-SMCP | HTTP | JSON-RPC |\n| --- | --- | --- |\n");
    _ = writeln!(out, "| {} | {} | {} |", kind.smcp, kind.http, kind.json_rpc);
    facts(&mut out, source, kind);
    in_chinese(&mut out, kind, chinese);
    out
}

fn heading(out: &mut String, texts: &Texts, label: &str) {
    _ = writeln!(out, "\n## {}\n", texts.line(&format!("label-{label}")));
}

/// The row in words. The word from the file comes first, so that readers can search for it.
fn columns(out: &mut String, kind: &Kind, texts: &Texts) {
    let phrase = |column: &str, word: &str| texts.line(&kebab(&format!("word-{column}-{word}")));
    let word = |column: &str, word: &str| format!("`{word}`: {}", phrase(column, word));
    let flag = |flag: bool| texts.line(if flag { "label-yes" } else { "label-no" });
    let rows = [
        ("remedy", phrase("remedy", &kind.remedy)),
        ("severity", word("severity", &kind.severity)),
        ("category", word("category", &kind.category)),
        ("error-type", word("error_type", &kind.error_type)),
        ("next", word("next", &kind.next)),
        ("retryable", flag(kind.retryable)),
        ("recoverable", flag(kind.recoverable)),
        ("auto-retry", flag(kind.auto_retry)),
        ("strategy", word("strategy", &kind.strategy)),
        ("event", format!("`{}` with `{}`", kind.event, kind.type_name)),
        ("editor", phrase("editor", &kind.editor)),
    ];
    let (first, rest) = rows.split_first().expect("there are rows");
    let label = |name: &str| texts.line(&format!("label-{name}"));
    _ = writeln!(out, "| {} | {} |\n| --- | --- |", label(first.0), first.1);
    for (name, value) in rest {
        _ = writeln!(out, "| {} | {value} |", label(name));
    }
}

/// One list of advice: `rec` for people, `next` for the model.
fn advice(out: &mut String, kind: &Kind, list: &str, texts: &Texts) {
    let count = if list == "rec" { kind.recommendations } else { kind.model_advice };
    if count > 0 {
        out.push('\n');
    }
    for number in 1..=count {
        let text = texts.shown(&kebab(&kind.name), &format!("{list}-{number}"));
        _ = writeln!(out, "{number}. {text}");
    }
}

fn facts(out: &mut String, source: &Source, kind: &Kind) {
    let mut names: Vec<&String> = kind.facts.iter().collect();
    names.extend(kind.context.iter().filter(|name| !kind.facts.contains(name)));
    if names.is_empty() {
        return;
    }
    heading(out, &source.english, "facts");
    for name in names {
        let about = source.catalog.fact(name).map_or("", |fact| fact.about.as_str());
        let always = if kind.always.contains(name) { " Always there." } else { "" };
        _ = writeln!(out, "- `{name}`: {about}{always}");
    }
}

fn in_chinese(out: &mut String, kind: &Kind, texts: &Texts) {
    let id = kebab(&kind.name);
    _ = writeln!(out, "\n## 中文：{}\n\n{}", texts.shown(&id, "title"), texts.shown(&id, "about"));
    _ = writeln!(out, "\n{}：\n", texts.line("label-model"));
    out.push_str(&quoted(&texts.shown(&id, "model")));
    for (label, list, count) in [
        ("label-model-advice", "next", kind.model_advice),
        ("label-recommendations", "rec", kind.recommendations),
    ] {
        if count > 0 {
            _ = writeln!(out, "\n{}：", texts.line(label));
            advice(out, kind, list, texts);
        }
    }
    _ = writeln!(out, "\n{}：{}", texts.line("label-operator"), texts.shown(&id, "check"));
}

fn index(source: &Source) -> String {
    let (catalog, english) = (&source.catalog, &source.english);
    let mut out = HEAD.to_owned();
    _ = write!(
        out,
        "# Faults\n\nEverything that can go wrong, {} kinds in all. A code is permanent; \
         `budao explain CODE` shows\nthe same page in the terminal.\n",
        catalog.kinds.len()
    );
    for area in &catalog.areas {
        _ = writeln!(out, "\n## {}\n", english.line(&format!("area-{}", area.to_lowercase())));
        out.push_str("| code | what | next move |\n| --- | --- | --- |\n");
        for kind in catalog.kinds.iter().filter(|kind| kind.area() == area) {
            let title = english.shown(&kebab(&kind.name), "title");
            _ = writeln!(out, "| [{0}]({0}.md) | {title} | {1} |", kind.code, kind.remedy);
        }
    }
    out.push_str("\n## By A2C-SMCP number\n\n| number | code | what |\n| --- | --- | --- |\n");
    let mut homes: Vec<&Kind> = catalog.kinds.iter().filter(|kind| kind.smcp_home).collect();
    homes.sort_by_key(|kind| kind.smcp);
    for kind in homes {
        let title = english.shown(&kebab(&kind.name), "title");
        _ = writeln!(out, "| {1} | [{0}]({0}.md) | {title} |", kind.code, kind.smcp);
    }
    out
}

fn quoted(text: &str) -> String {
    text.lines().map(|line| wrapped(line, "> ")).collect()
}

/// A paragraph wrapped between words. Chinese has no spaces and stays on one line.
fn wrapped(text: &str, prefix: &str) -> String {
    let mut out = String::new();
    let mut line = prefix.to_owned();
    for word in text.split(' ') {
        let is_begun = line.len() > prefix.len();
        if is_begun && line.chars().count() + 1 + word.chars().count() > WIDTH {
            _ = writeln!(out, "{line}");
            line = prefix.to_owned();
        } else if is_begun {
            line.push(' ');
        }
        line.push_str(word);
    }
    _ = writeln!(out, "{line}");
    out
}
