//! The npm packages: the library, and the program of one platform. Neither has scripts that run at installation.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{ArchiveFile, Contents, archive, elf};
use crate::{peers, process};

const HOME: &str = "clients/typescript";

/// Every archive of npm has its files in this folder.
const TOP: &str = "package";

/// The manifest of the library.
pub(super) fn manifest(root: &Path) -> Result<Value> {
    let path = root.join(HOME).join("package.json");
    let text = fs::read_to_string(&path).with_context(|| format!("read `{}`", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("understand `{}`", path.display()))
}

/// Compiles the library into `clients/typescript/dist`.
pub(super) fn build_client(root: &Path) -> Result<()> {
    peers::ensure("web")?;
    let mut node = process::command("node", &root.join(HOME));
    node.arg("scripts/build.mjs").env("BUDAO_PEERS", peers::dir()?);
    process::run(&mut node, None)
}

/// The library. It names the platform packages of exactly its own version as optional dependencies.
pub(super) fn client_package(contents: &Contents) -> Result<(String, Vec<u8>)> {
    let home = contents.root.join(HOME);
    let mut files = Vec::new();
    for name in ["package.json", "README.md"] {
        files.push(ArchiveFile::plain(name, fs::read(home.join(name))?));
    }
    files.push(ArchiveFile::program("bin/budao.js", fs::read(home.join("bin/budao.js"))?));
    collect(&home, "dist", &mut files)?;
    files.extend(contents.licences()?);
    let name = format!("budao-{}.tgz", contents.version);
    Ok((name, archive::tar_gz(TOP, &files, contents.compression)?))
}

/// The program for this platform.
pub(super) fn platform_package(contents: &Contents) -> Result<(String, Vec<u8>)> {
    let library = manifest(&contents.root)?;
    let libc = match contents.libc {
        elf::Libc::Glibc { .. } => json!(["glibc"]),
        elf::Libc::None => json!(["glibc", "musl"]),
    };
    let manifest = json!({
        "name": "@budao/cli-linux-x64",
        "version": contents.version,
        "description": "The program budao for Linux on x86-64",
        "license": library["license"],
        "repository": library["repository"],
        "os": ["linux"],
        "cpu": ["x64"],
        "libc": libc,
        "files": ["bin", "LICENSE-APACHE", "LICENSE-MIT"],
        "preferUnplugged": true,
    });
    let text = serde_json::to_string_pretty(&manifest).context("write the manifest")?;
    let readme = "The program `budao` for Linux on x86-64. The package `budao` depends on it.\n";
    let mut files = vec![
        ArchiveFile::plain("package.json", text.into_bytes()),
        ArchiveFile::plain("README.md", readme.as_bytes().to_vec()),
        ArchiveFile::program("bin/budao", contents.program.clone()),
    ];
    files.extend(contents.licences()?);
    let name = format!("budao-cli-linux-x64-{}.tgz", contents.version);
    Ok((name, archive::tar_gz(TOP, &files, contents.compression)?))
}

/// All files below a folder, in the order of their names.
fn collect(home: &Path, folder: &str, files: &mut Vec<ArchiveFile>) -> Result<()> {
    let place = home.join(folder);
    let entries = fs::read_dir(&place).with_context(|| format!("list `{}`", place.display()))?;
    let mut names: Vec<String> = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.sort();
    for name in names {
        let path = format!("{folder}/{name}");
        if place.join(&name).is_dir() {
            collect(home, &path, files)?;
        } else {
            files.push(ArchiveFile::plain(&path, fs::read(place.join(&name))?));
        }
    }
    Ok(())
}
