//! Rules about the dependencies of our crates.
//!
//! `cargo tree` provides them, because it resolves features per package as a build does. `cargo metadata` would unify
//! features over the whole workspace and blame core for a feature that another crate enabled.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::{StepContext, StepResult};
use crate::metadata::Metadata;
use crate::process;

/// Crates that no build may contain, each with the reason.
const BANNED: &[(&str, &str)] = &[
    ("aws-lc-sys", "one TLS provider, ring; this one needs cmake"),
    ("openssl-sys", "one TLS provider, ring; this one needs the system's OpenSSL"),
];

/// Crates that core must not depend on: it has no I/O, no clock and no async runtime.
const NOT_IN_CORE: &[&str] = &["tokio", "reqwest", "rusqlite", "axum"];

/// Crates that must exist in one version only, for correctness.
const ONE_VERSION: &[&str] = &["rusqlite", "libsqlite3-sys", "rustls", "serde_json", "tokio"];

/// Crates that only one of ours may use, so that an upgrade changes one place.
const FENCED: &[(&str, &str)] = &[
    ("rmcp", "budao-mcp"),
    ("agent-client-protocol", "budao-acp"),
    ("tokio-postgres", "budao-journal-postgres"),
];

pub(super) fn run(run: &StepContext) -> Result<StepResult> {
    let all = tree(&run.root, &["--workspace", "--target", "all"])?;
    let core = tree(&run.root, &["--package", "budao-core", "--target", "all"])?;
    let mut broken = Vec::new();
    broken.extend(banned(&all));
    broken.extend(impure(&core));
    broken.extend(doubled(&all));
    broken.extend(unfenced(&Metadata::load(&run.root)?));
    if broken.is_empty() {
        return Ok(StepResult::Passed(format!("{} crates", all.len())));
    }
    for (what, _) in BANNED.iter().filter(|(name, _)| all.contains_key(*name)) {
        // For the reader only; a failure here does not change the result.
        run.cargo(&["tree", "--locked", "--workspace", "--target", "all", "--invert", what]).ok();
    }
    bail!("{}", broken.join("\n"))
}

/// All crates in the normal and build dependencies of a selection, with their versions. Fails when the lock file is not
/// up to date.
fn tree(root: &Path, selection: &[&str]) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let mut cargo = process::cargo(root);
    cargo.args(["tree", "--locked", "--edges", "normal,build", "--prefix", "none"]);
    cargo.args(["--format", "{p}"]).args(selection);
    Ok(parse_tree(&process::output_of(&mut cargo, Duration::from_secs(300))?))
}

/// Parses lines such as `serde v1.0.229` or `budao-core v0.1.0 (path) (*)`.
fn parse_tree(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            crates.entry(name.to_owned()).or_default().insert(version.to_owned());
        }
    }
    crates
}

fn banned(all: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let hits = BANNED.iter().filter(|(name, _)| all.contains_key(*name));
    hits.map(|(name, why)| format!("`{name}` is in the build: {why}")).collect()
}

fn impure(core: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let hits = NOT_IN_CORE.iter().filter(|name| core.contains_key(**name));
    hits.map(|name| format!("budao-core reaches `{name}`; core does no I/O")).collect()
}

/// A program that is only used for testing, and may use the dependencies of tests.
const SIMULATOR: &str = "budao-sim";

fn doubled(all: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let versions = ONE_VERSION.iter().filter_map(|name| all.get_key_value(*name));
    versions
        .filter(|(_, versions)| versions.len() > 1)
        .map(|(name, versions)| {
            let versions: Vec<&str> = versions.iter().map(String::as_str).collect();
            format!("`{name}` is there in several versions: {}", versions.join(", "))
        })
        .collect()
}

fn unfenced(metadata: &Metadata) -> Vec<String> {
    let mut broken = Vec::new();
    for package in &metadata.packages {
        for dependency in &package.dependencies {
            let fence = FENCED.iter().find(|(name, _)| *name == dependency.name);
            if let Some((name, owner)) = fence.filter(|(_, owner)| *owner != package.name) {
                broken.push(format!("{} depends on `{name}`; only {owner} may", package.name));
            }
            let in_tests = dependency.kind.as_deref() == Some("dev") || package.name == SIMULATOR;
            if dependency.name == "budao-testkit" && !in_tests {
                broken.push(format!("{} depends on the testkit outside its tests", package.name));
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "\
budao-core v0.1.0 (somewhere/core)
tokio v1.54.1
serde v1.0.229
serde v1.0.229 (*)

budao-journal v0.1.0 (somewhere/journal)
rusqlite v0.41.1
rusqlite v0.38.0
openssl-sys v0.9.0
";

    #[test]
    fn each_rule_names_what_breaks_it() {
        let tree = parse_tree(TREE);
        assert_eq!(tree.len(), 6);
        assert_eq!(
            banned(&tree),
            [
                "`openssl-sys` is in the build: one TLS provider, ring; this one needs the system's OpenSSL"
            ]
        );
        assert_eq!(
            impure(&tree),
            [
                "budao-core reaches `tokio`; core does no I/O",
                "budao-core reaches `rusqlite`; core does no I/O"
            ]
        );
        assert_eq!(doubled(&tree), ["`rusqlite` is there in several versions: v0.38.0, v0.41.1"]);
    }

    #[test]
    fn fences_hold_for_direct_dependencies_of_any_sort() {
        let metadata: Metadata = serde_json::from_str(
            r#"{"target_directory": "t", "packages": [
                {"name": "budao-mcp", "version": "0.1.0", "manifest_path": "a/Cargo.toml", "targets": [],
                 "dependencies": [{"name": "rmcp", "kind": null}]},
                {"name": "budao-serve", "version": "0.1.0", "manifest_path": "b/Cargo.toml", "targets": [],
                 "dependencies": [{"name": "rmcp", "kind": "dev"},
                                  {"name": "budao-testkit", "kind": null}]}]}"#,
        )
        .unwrap();
        assert_eq!(
            unfenced(&metadata),
            [
                "budao-serve depends on `rmcp`; only budao-mcp may",
                "budao-serve depends on the testkit outside its tests"
            ]
        );
    }
}
