//! The fault catalog: reads `catalog/faults.toml` and the texts beside it, checks them against each other, and
//! generates the enums of `core` and its copy of the texts, the numbers of protocols, the table of the Python package and
//! the pages in `docs/faults`.
//!
//! All mistakes are reported at once, by row and cell, and then no file is written: a partial catalog would compile and
//! be wrong.

mod check;
mod codes;
mod pages;
mod python;
mod rows;
mod rust;
#[cfg(test)]
mod tests;
mod texts;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

pub(crate) use rust::formatted;

use rows::Catalog;
use texts::Texts;

use crate::repo;

const ROWS: &str = "catalog/faults.toml";
const ENGLISH: &str = "catalog/en.ftl";
const CHINESE: &str = "catalog/zh.ftl";
const RUST: &str = "crates/core/src/fault/kind.rs";
const PYTHON: &str = "clients/python/src/budao/_catalog.py";
const PAGES: &str = "docs/faults";
/// Copies of the texts, which the packed crate `budao-core` must contain. Symbolic links do not survive every transport.
const PACKED: [(&str, &str); 2] =
    [(ENGLISH, "crates/core/catalog/en.ftl"), (CHINESE, "crates/core/catalog/zh.ftl")];

/// Generates all files of the catalog. With `check` it only compares; the error then lists every file that differs.
pub(crate) fn generate(check: bool) -> Result<()> {
    let root = repo::root();
    let read =
        |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("read `{path}`"));
    let source = Source::read(&read(ROWS)?, &read(ENGLISH)?, &read(CHINESE)?)?;
    let mut files = pages::all(&source);
    files.insert(RUST.to_owned(), rust::formatted(&rust::source(&source), &root)?);
    for (path, text) in codes::sources(&source.catalog) {
        files.insert(path.to_owned(), rust::formatted(&text, &root)?);
    }
    files.insert(PYTHON.to_owned(), python::source(&source.catalog));
    for (path, copy) in PACKED {
        files.insert(copy.to_owned(), read(path)?);
    }
    let leftover = leftover_pages(&root, &files)?;
    if check { compare(&root, &files, &leftover) } else { write(&root, &files, &leftover) }
}

/// A valid catalog with its texts.
#[derive(Debug)]
struct Source {
    catalog: Catalog,
    english: Texts,
    chinese: Texts,
}

impl Source {
    fn read(rows: &str, english: &str, chinese: &str) -> Result<Self> {
        let mut problems = Vec::new();
        let catalog = Catalog::read(rows, &mut problems)?;
        let english = Texts::read(ENGLISH, english, &mut problems);
        let chinese = Texts::read(CHINESE, chinese, &mut problems);
        check::rows(&catalog, &mut problems);
        check::texts(&catalog, &english, &mut problems);
        check::texts(&catalog, &chinese, &mut problems);
        check::both_languages(&catalog, &english, &chinese, &mut problems);
        if !problems.is_empty() {
            bail!("the catalog has {} to mend:\n{}", things(problems.len()), problems.join("\n"));
        }
        Ok(Self { catalog, english, chinese })
    }
}

fn things(count: usize) -> String {
    if count == 1 { "one thing".to_owned() } else { format!("{count} things") }
}

/// Pages of codes that are no longer in the catalog.
fn leftover_pages(root: &Path, files: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let Ok(entries) = fs::read_dir(root.join(PAGES)) else { return Ok(Vec::new()) };
    let mut leftover = Vec::new();
    for entry in entries {
        let name = entry.context("list the fault pages")?.file_name();
        let path = format!("{PAGES}/{}", name.to_string_lossy());
        if path.ends_with(".md") && !files.contains_key(&path) {
            leftover.push(path);
        }
    }
    leftover.sort();
    Ok(leftover)
}

fn write(root: &Path, files: &BTreeMap<String, String>, leftover: &[String]) -> Result<()> {
    for (path, text) in files {
        repo::write_changed(&root.join(path), text.as_bytes())?;
    }
    for path in leftover {
        fs::remove_file(root.join(path)).with_context(|| format!("remove `{path}`"))?;
    }
    Ok(())
}

fn compare(root: &Path, files: &BTreeMap<String, String>, leftover: &[String]) -> Result<()> {
    let mut stale: Vec<String> =
        leftover.iter().map(|path| format!("{path}: no such kind")).collect();
    for (path, text) in files {
        match fs::read_to_string(root.join(path)) {
            Ok(old) if old == *text => {}
            Ok(_) => stale.push(format!("{path}: differs from the catalog")),
            Err(_) => stale.push(format!("{path}: missing")),
        }
    }
    if !stale.is_empty() {
        stale.sort();
        bail!("run `cargo xtask codegen`; not up to date:\n{}", stale.join("\n"));
    }
    Ok(())
}

/// `invalid_arguments` as a message id: `invalid-arguments`.
fn kebab(snake: &str) -> String {
    snake.replace('_', "-")
}

/// `invalid_arguments` as a Rust variant: `InvalidArguments`.
fn camel(snake: &str) -> String {
    snake
        .split('_')
        .flat_map(|word| {
            let mut letters = word.chars();
            letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters)
        })
        .collect()
}
