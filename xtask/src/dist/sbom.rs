//! The bill of materials: every crate in the program, with version, licence and checksum, as CycloneDX.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Contents, hex};
use crate::process;

pub(super) fn make(contents: &Contents) -> Result<(String, Vec<u8>)> {
    use sha2::Digest as _;
    let sums = checksums(contents)?;
    let components: Vec<Value> = crates(contents)?
        .into_iter()
        .map(|((name, version), licence)| component(&name, &version, &licence, &sums))
        .collect();
    let program = hex(&sha2::Sha256::digest(&contents.program));
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "name": "budao",
            "version": contents.version,
            "hashes": [{ "alg": "SHA-256", "content": program }],
            "licenses": [{ "expression": "Apache-2.0 OR MIT" }],
        } },
        "components": components,
    });
    let text = serde_json::to_string_pretty(&bill).context("write the bill of materials")?;
    Ok((format!("budao-{}.cdx.json", contents.version), text.into_bytes()))
}

fn component(
    name: &str,
    version: &str,
    licence: &str,
    sums: &BTreeMap<(String, String), String>,
) -> Value {
    let mut component = json!({
        "type": "library",
        "name": name,
        "version": version,
        "purl": format!("pkg:cargo/{name}@{version}"),
        // Older crates write `MIT/Apache-2.0`.
        "licenses": [{ "expression": licence.replace('/', " OR ") }],
    });
    if let Some(sum) = sums.get(&(name.to_owned(), version.to_owned())) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    component
}

/// The crates that are linked into the program, with their licences.
fn crates(contents: &Contents) -> Result<BTreeMap<(String, String), String>> {
    let mut cargo = process::cargo(&contents.root);
    cargo.args(["tree", "--locked", "--package", "budao-cli", "--edges", "normal"]);
    cargo.args([
        "--prefix",
        "none",
        "--format",
        "{p}\t{l}",
        "--target",
        "x86_64-unknown-linux-gnu",
    ]);
    let text = process::output_of(&mut cargo, Duration::from_secs(300))?;
    Ok(text.lines().filter_map(parse_line).collect())
}

/// Reads a line such as `serde v1.0.229<TAB>MIT OR Apache-2.0`.
fn parse_line(line: &str) -> Option<((String, String), String)> {
    let (package, licence) = line.split_once('\t')?;
    let mut words = package.split_whitespace();
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    let licence = licence.trim_end_matches(" (*)");
    Some(((name.to_owned(), version.to_owned()), licence.to_owned()))
}

/// The checksum of every crate in the lock file.
fn checksums(contents: &Contents) -> Result<BTreeMap<(String, String), String>> {
    #[derive(Deserialize)]
    struct Lock {
        package: Vec<Locked>,
    }
    #[derive(Deserialize)]
    struct Locked {
        name: String,
        version: String,
        checksum: Option<String>,
    }
    let text =
        fs::read_to_string(contents.root.join("Cargo.lock")).context("read the lock file")?;
    let lock: Lock = toml::from_str(&text).context("understand the lock file")?;
    let all = lock.package.into_iter();
    Ok(all.filter_map(|one| Some(((one.name, one.version), one.checksum?))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_tree_names_crate_version_and_licence() {
        let expected = |name: &str, licence: &str| {
            Some(((name.to_owned(), "1.0.2".to_owned()), licence.to_owned()))
        };
        assert_eq!(
            parse_line("serde v1.0.2\tMIT OR Apache-2.0"),
            expected("serde", "MIT OR Apache-2.0")
        );
        assert_eq!(parse_line("serde v1.0.2 (proc-macro)\tMIT (*)"), expected("serde", "MIT"));
        assert_eq!(parse_line(""), None);
    }
}
