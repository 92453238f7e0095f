//! The wheel: the Python package, and the program among its scripts.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::{ArchiveFile, Contents, archive, read_toml};

const HOME: &str = "clients/python";

pub(super) fn make(contents: &Contents) -> Result<(String, Vec<u8>)> {
    let version = &contents.version;
    let info = format!("budao-{version}.dist-info");
    let tag = format!("py3-none-{}", contents.libc.wheel_tag());
    let mut files = sources(&contents.root.join(HOME).join("src/budao"))?;
    let script = format!("budao-{version}.data/scripts/budao");
    files.push(ArchiveFile::program(&script, contents.program.clone()));
    for licence in contents.licences()? {
        files.push(ArchiveFile::plain(&format!("{info}/licenses/{}", licence.path), licence.bytes));
    }
    files.push(ArchiveFile::plain(&format!("{info}/METADATA"), metadata(contents)?.into_bytes()));
    let wheel =
        format!("Wheel-Version: 1.0\nGenerator: budao xtask\nRoot-Is-Purelib: false\nTag: {tag}\n");
    files.push(ArchiveFile::plain(&format!("{info}/WHEEL"), wheel.into_bytes()));
    let record = record(&files, &format!("{info}/RECORD"));
    files.push(record);
    Ok((format!("budao-{version}-{tag}.whl"), archive::zip(&files, contents.compression)?))
}

/// The modules of the package, without what an interpreter left behind.
fn sources(folder: &Path) -> Result<Vec<ArchiveFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("list `{}`", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_file() && (name.ends_with(".py") || name == "py.typed") {
            files.push(ArchiveFile::plain(&format!("budao/{name}"), fs::read(&path)?));
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// The fields of `pyproject.toml` as installers read them.
fn metadata(contents: &Contents) -> Result<String> {
    let home = contents.root.join(HOME);
    let manifest = read_toml(&home.join("pyproject.toml"))?;
    let project = manifest.get("project").and_then(toml::Value::as_table).context("[project]")?;
    let text = |key: &str| project.get(key).and_then(toml::Value::as_str).unwrap_or_default();
    let list = |key: &str| project.get(key).and_then(toml::Value::as_array).into_iter().flatten();
    let mut out = format!("Metadata-Version: 2.4\nName: budao\nVersion: {}\n", contents.version);
    // Writing to a string cannot fail.
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(out, "{key}: {value}");
    };
    line("Summary", text("description"));
    line("License-Expression", text("license"));
    line("License-File", "LICENSE-APACHE");
    line("License-File", "LICENSE-MIT");
    line("Requires-Python", text("requires-python"));
    let keywords: Vec<&str> = list("keywords").filter_map(toml::Value::as_str).collect();
    line("Keywords", &keywords.join(","));
    for (key, name) in [("classifiers", "Classifier"), ("dependencies", "Requires-Dist")] {
        list(key).filter_map(toml::Value::as_str).for_each(|value| line(name, value));
    }
    let urls = project.get("urls").and_then(toml::Value::as_table).into_iter().flatten();
    for (name, url) in urls {
        line("Project-URL", &format!("{name}, {}", url.as_str().unwrap_or_default()));
    }
    line("Description-Content-Type", "text/markdown");
    let readme = fs::read_to_string(home.join("README.md")).context("read the Python readme")?;
    Ok(format!("{out}\n{readme}"))
}

/// The list of all files with their checksums; the list itself has none.
fn record(files: &[ArchiveFile], path: &str) -> ArchiveFile {
    let mut out = String::new();
    for file in files {
        let sum = URL_SAFE_NO_PAD.encode(Sha256::digest(&file.bytes));
        let _ = writeln!(out, "{},sha256={sum},{}", file.path, file.bytes.len());
    }
    let _ = writeln!(out, "{path},,");
    ArchiveFile::plain(path, out.into_bytes())
}
