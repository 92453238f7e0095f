//! Generates `kind.rs`: the kinds, facts and operations as enums, and the rows as constants.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::rows::{Catalog, Kind};
use super::texts::Texts;
use super::{Source, camel, kebab};

const HEAD: &str = "\
// Generated from catalog/faults.toml and catalog/en.ftl by `cargo xtask codegen`. Do not edit.

//! The kinds of fault, the facts they carry, and the operations they happen in.

use serde::{Deserialize, Serialize};

use super::Shape;
use super::row::{
    Announcement, CatalogRow, Category, EditorOutcome, ErrorType, Next, Remedy, Severity, Strategy,
};
";

const DERIVES: &str = "\
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::Display)]
#[serde(rename_all = \"snake_case\")]
#[strum(serialize_all = \"snake_case\")]
";

/// The generated file before formatting.
pub(super) fn source(source: &Source) -> String {
    let mut out = HEAD.to_owned();
    kinds(&mut out, &source.catalog, &source.english);
    facts(&mut out, &source.catalog);
    operations(&mut out, &source.catalog);
    out
}

fn kinds(out: &mut String, catalog: &Catalog, english: &Texts) {
    let titles: Vec<(String, String)> = catalog
        .kinds
        .iter()
        .map(|kind| {
            let title = english.shown(&kebab(&kind.name), "title");
            (kind.name.clone(), format!("`{}`: {}.", kind.code, lower_first(&title)))
        })
        .collect();
    enumeration(out, "Kind", "A sort of fault: one row of the catalog.", &titles);
    out.push_str(
        "impl Kind {\n/// What the catalog says about it.\n#[must_use]\n\
         pub const fn row(self) -> &'static CatalogRow {\nmatch self {\n",
    );
    for kind in &catalog.kinds {
        row(out, kind);
    }
    out.push_str("}\n}\n}\n");
}

fn row(out: &mut String, kind: &Kind) {
    let facts = |names: &[String]| {
        let paths: Vec<String> =
            names.iter().map(|name| format!("Fact::{}", camel(name))).collect();
        format!("&[{}]", paths.join(", "))
    };
    let event = kind.event.strip_prefix("error.").unwrap_or(&kind.event);
    let cells = [
        ("name", format!("{:?}", kind.name)),
        ("message", format!("{:?}", kebab(&kind.name))),
        ("code", format!("{:?}", kind.code)),
        ("error_type", format!("ErrorType::{}", camel(&kind.error_type))),
        ("type_name", format!("{:?}", kind.type_name)),
        ("category", format!("Category::{}", camel(&kind.category))),
        ("remedy", format!("Remedy::{}", camel(&kind.remedy))),
        ("next", format!("Next::{}", camel(&kind.next))),
        ("retryable", kind.retryable.to_string()),
        ("recoverable", kind.recoverable.to_string()),
        ("auto_retry", kind.auto_retry.to_string()),
        ("severity", format!("Severity::{}", camel(&kind.severity))),
        ("strategy", format!("Strategy::{}", camel(&kind.strategy))),
        ("event", format!("Announcement::{}", camel(event))),
        ("editor", format!("EditorOutcome::{}", camel(&kind.editor))),
        ("context", facts(&kind.context)),
        ("always", facts(&kind.always)),
        ("facts", facts(&kind.facts)),
        ("recommendations", kind.recommendations.to_string()),
        ("model_advice", kind.model_advice.to_string()),
        ("same_advice", kind.same_advice.to_string()),
    ];
    _ = writeln!(out, "Self::{} => &CatalogRow {{", camel(&kind.name));
    for (cell, value) in cells {
        _ = writeln!(out, "{cell}: {value},");
    }
    out.push_str("},\n");
}

fn facts(out: &mut String, catalog: &Catalog) {
    let facts: Vec<(String, String)> = catalog
        .facts
        .iter()
        .map(|fact| {
            let seconds = fact.name.strip_suffix("_ms").map(|stem| {
                format!(" In milliseconds; a text may use it as `${stem}_seconds` too.")
            });
            (fact.name.clone(), format!("{}{}", fact.about, seconds.unwrap_or_default()))
        })
        .collect();
    enumeration(out, "Fact", "Something that can be known about one fault.", &facts);
    out.push_str(
        "impl Fact {\n/// What sort of value it has.\n#[must_use]\n\
         pub const fn shape(self) -> Shape {\nmatch self {\n",
    );
    for shape in ["number", "list", "json"] {
        let names: Vec<String> = catalog
            .facts
            .iter()
            .filter(|fact| fact.shape == shape)
            .map(|fact| format!("Self::{}", camel(&fact.name)))
            .collect();
        if !names.is_empty() {
            _ = writeln!(out, "{} => Shape::{},", names.join(" | "), camel(shape));
        }
    }
    out.push_str("_ => Shape::Text,\n}\n}\n}\n");
}

fn operations(out: &mut String, catalog: &Catalog) {
    let operations: Vec<(String, String)> = catalog
        .operations
        .iter()
        .map(|operation| (operation.name.clone(), operation.about.clone()))
        .collect();
    enumeration(out, "Operation", "What we were doing when a fault happened.", &operations);
    out.push_str(
        "impl Operation {\n/// The id of the phrase people read: `op-tool-call`.\n#[must_use]\n\
         pub const fn message(self) -> &'static str {\nmatch self {\n",
    );
    for operation in &catalog.operations {
        let (variant, id) = (camel(&operation.name), kebab(&operation.name));
        _ = writeln!(out, "Self::{variant} => \"op-{id}\",");
    }
    out.push_str("}\n}\n}\n");
}

fn enumeration(out: &mut String, name: &str, about: &str, variants: &[(String, String)]) {
    _ = writeln!(out, "\n/// {about}\n{DERIVES}pub enum {name} {{");
    for (variant, about) in variants {
        _ = writeln!(out, "/// {about}\n{},", camel(variant));
    }
    out.push_str("}\n\n");
}

fn lower_first(title: &str) -> String {
    let mut letters = title.chars();
    let Some(first) = letters.next() else { return String::new() };
    let rest = letters.as_str();
    // `JSON is nested …` and `MCP server …` keep their capitals.
    if rest.starts_with(|letter: char| letter.is_uppercase()) {
        return title.to_owned();
    }
    first.to_lowercase().chain(rest.chars()).collect()
}

/// Formats the file with rustfmt and the settings of the repository.
pub(crate) fn formatted(source: &str, root: &Path) -> Result<String> {
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path"])
        .arg(root.join("rustfmt.toml"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start `rustfmt`")?;
    let mut input = rustfmt.stdin.take().context("rustfmt has an input")?;
    input.write_all(source.as_bytes()).context("hand the file to `rustfmt`")?;
    drop(input);
    let output = rustfmt.wait_with_output().context("wait for `rustfmt`")?;
    ensure!(
        output.status.success(),
        "`rustfmt` refused the generated file:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).context("rustfmt answers in UTF-8")
}
