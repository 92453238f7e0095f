//! Dependencies that a manifest names and no source of its crate uses.

use std::collections::BTreeSet;

/// One line for each unused dependency of a crate, and for each entry of the workspace that no crate takes.
pub(crate) fn unused(texts: &[(&str, String)]) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut unused = Vec::new();
    // Those of the peers are there for their programs alone.
    let manifests = texts
        .iter()
        .filter(|(file, _)| file.ends_with("/Cargo.toml") && !file.starts_with("xtask/peers/"));
    for (file, manifest) in manifests {
        let folder = file.trim_end_matches("Cargo.toml");
        for name in names(manifest) {
            if !is_used(folder, &name, texts) {
                unused.push(format!("{file}: nothing uses `{name}`"));
            }
            taken.insert(name);
        }
    }
    let root = texts.iter().find(|(file, _)| *file == "Cargo.toml");
    let offered = root.map(|(_, manifest)| names(manifest)).unwrap_or_default();
    unused.extend(
        offered
            .into_iter()
            .filter(|name| !taken.contains(name))
            .map(|name| format!("Cargo.toml: no crate takes `{name}`")),
    );
    unused
}

/// The names in all tables of a manifest whose own name ends in `dependencies`.
fn names(manifest: &str) -> Vec<String> {
    let mut is_inside = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if let Some(table) = line.strip_prefix('[') {
            is_inside = table.trim_end().trim_end_matches(']').ends_with("dependencies");
        } else if is_inside && let Some((name, _)) = line.split_once('=') {
            let name = name.trim().trim_end_matches(".workspace");
            if !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_".contains(c)) {
                names.push(name.to_owned());
            }
        }
    }
    names
}

fn is_used(folder: &str, name: &str, texts: &[(&str, String)]) -> bool {
    let name = name.replace('-', "_");
    let is_word = |word: &str| word == name;
    let sources =
        texts.iter().filter(|(file, _)| file.starts_with(folder) && file.ends_with(".rs"));
    sources
        .into_iter()
        .any(|(_, text)| text.split(|c: char| !c.is_alphanumeric() && c != '_').any(is_word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_nothing_uses_is_named() {
        let texts = [
            ("Cargo.toml", "[workspace.dependencies]\na = \"1\"\nb-c = \"1\"\nd = \"1\"\n".into()),
            ("crates/x/Cargo.toml", "[dependencies]\na = \"1\"\nb-c.workspace = true\n".into()),
            ("crates/x/src/lib.rs", "use b_c::Thing;".to_owned()),
        ];
        let texts: Vec<(&str, String)> = texts.to_vec();
        let wrong = ["crates/x/Cargo.toml: nothing uses `a`", "Cargo.toml: no crate takes `d`"];
        assert_eq!(unused(&texts), wrong);
    }
}
