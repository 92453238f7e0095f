//! `cargo xtask dist`: every package with the program inside, made offline into `dist/`.
//!
//! The wheel, the npm packages and the tarball are written by this crate from one built program, so neither maturin nor
//! npm is needed. Times and owners in the archives are constant: the same program gives the same bytes. Nothing is
//! uploaded.

mod archive;
mod crates;
mod elf;
mod npm;
pub(crate) mod registry;
mod sbom;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use self::archive::{ArchiveFile, Compression};
use crate::metadata::Metadata;
use crate::{process, repo, test_programs};

/// Time limit for one run of the built program.
const RUN_LIMIT: Duration = Duration::from_secs(60);

const SHELLS: [(&str, &str); 3] =
    [("bash", "budao.bash"), ("zsh", "_budao"), ("fish", "budao.fish")];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cargo profile of the program; `dev` is for tests of the packages
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Where the packages go
    #[arg(long, default_value = "dist")]
    out: PathBuf,
    /// Pack this program instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// The common input of all packages.
#[derive(Debug)]
struct Contents {
    root: PathBuf,
    version: String,
    /// The bytes of the program.
    program: Vec<u8>,
    /// The libc that the program needs.
    libc: elf::Libc,
    compression: Compression,
}

pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let root = repo::root();
    let program = match &args.program {
        Some(path) => path.clone(),
        None => build(&root, &args.profile)?,
    };
    pack(&root, &program, &args.profile, &root.join(&args.out))?;
    Ok(ExitCode::SUCCESS)
}

/// Builds the program and makes the packages in a folder, which is emptied first.
pub(crate) fn make(profile: &str, out: &Path) -> Result<()> {
    let root = repo::root();
    let program = build(&root, profile)?;
    pack(&root, &program, profile, out)
}

fn pack(root: &Path, program: &Path, profile: &str, out: &Path) -> Result<()> {
    let contents = Contents::read(root, program, profile)?;
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| format!("empty `{}`", out.display()))?;
    }
    fs::create_dir_all(out).with_context(|| format!("make `{}`", out.display()))?;
    npm::build_client(root)?;
    let mut files = vec![
        wheel::make(&contents)?,
        npm::platform_package(&contents)?,
        npm::client_package(&contents)?,
        tarball(&contents, program)?,
        sbom::make(&contents)?,
        ("Dockerfile".to_owned(), container_recipe(&contents)?.into_bytes()),
    ];
    files.extend(crates::pack(&Metadata::load(root)?, root)?);
    write(out, &files)?;
    println!("packages of budao {} are in {}", contents.version, out.display());
    Ok(())
}

fn build(root: &Path, profile: &str) -> Result<PathBuf> {
    if profile == "dev" {
        // The program of the tests, whose dependencies have the features of the whole workspace.
        return Ok(test_programs::bin("budao")?.get_program().into());
    }
    let mut cargo = process::cargo(root);
    cargo.args(["build", "--locked", "-p", "budao-cli", "--profile", profile]);
    process::run(&mut cargo, None)?;
    Ok(Metadata::load(root)?.target_directory.join(profile).join("budao"))
}

impl Contents {
    fn read(root: &Path, program: &Path, profile: &str) -> Result<Self> {
        let bytes = stripped(program)?;
        let libc = elf::Libc::of(&bytes)?;
        // A program for tests is large, and its packages are read once.
        let compression = if profile == "dev" { Compression::fast() } else { Compression::best() };
        Ok(Self {
            root: root.to_owned(),
            version: version(root)?,
            program: bytes,
            libc,
            compression,
        })
    }

    /// The name of the platform as Rust spells it.
    fn target(&self) -> &'static str {
        match self.libc {
            elf::Libc::Glibc { .. } => "x86_64-unknown-linux-gnu",
            elf::Libc::None => "x86_64-unknown-linux-musl",
        }
    }

    /// The licences, for every package.
    fn licences(&self) -> Result<Vec<ArchiveFile>> {
        let read = |name: &&str| {
            let path = self.root.join(name);
            let bytes = fs::read(&path).with_context(|| format!("read `{}`", path.display()))?;
            Ok(ArchiveFile::plain(name, bytes))
        };
        ["LICENSE-APACHE", "LICENSE-MIT"].iter().map(read).collect()
    }
}

/// The program without symbols, if `strip` is installed; a release build has none.
fn stripped(program: &Path) -> Result<Vec<u8>> {
    let copy = std::env::temp_dir().join(format!("budao-dist-{}", std::process::id()));
    let mut strip = process::command("strip", Path::new("."));
    strip.arg("-o").arg(&copy).arg(program);
    let done = which::which("strip").is_ok() && process::output_of(&mut strip, RUN_LIMIT).is_ok();
    let source = if done { &copy } else { program };
    let bytes = fs::read(source).with_context(|| format!("read `{}`", source.display()));
    fs::remove_file(&copy).ok();
    bytes
}

/// The version of the workspace. The Python and npm packages have the same one.
fn version(root: &Path) -> Result<String> {
    let manifest: toml::Table = read_toml(&root.join("Cargo.toml"))?;
    let version = manifest["workspace"]["package"]["version"].as_str().context("the version")?;
    let python: toml::Table = read_toml(&root.join("clients/python/pyproject.toml"))?;
    let python = python["project"]["version"].as_str().unwrap_or_default();
    let npm = npm::manifest(root)?;
    let npm = npm["version"].as_str().unwrap_or_default();
    if python != version || npm != version {
        bail!(
            "the versions differ: Cargo.toml {version}, pyproject.toml {python}, package.json {npm}"
        );
    }
    Ok(version.to_owned())
}

fn read_toml(path: &Path) -> Result<toml::Table> {
    let text = fs::read_to_string(path).with_context(|| format!("read `{}`", path.display()))?;
    toml::from_str(&text).with_context(|| format!("understand `{}`", path.display()))
}

/// The program with completions and manual pages.
fn tarball(contents: &Contents, program: &Path) -> Result<(String, Vec<u8>)> {
    let name = format!("budao-{}-{}", contents.version, contents.target());
    let mut files = vec![ArchiveFile::program("bin/budao", contents.program.clone())];
    for (shell, file) in SHELLS {
        let script = said(program, &["completions", shell])?;
        files.push(ArchiveFile::plain(&format!("completions/{file}"), script.into_bytes()));
    }
    files.extend(manual_pages(program)?);
    files.extend(contents.licences()?);
    for file in ["README.md", "README.zh.md", "deploy/budao.service"] {
        let bytes = fs::read(contents.root.join(file)).with_context(|| format!("read `{file}`"))?;
        files.push(ArchiveFile::plain(file, bytes));
    }
    Ok((format!("{name}.tar.gz"), archive::tar_gz(&name, &files, contents.compression)?))
}

fn manual_pages(program: &Path) -> Result<Vec<ArchiveFile>> {
    let folder = std::env::temp_dir().join(format!("budao-man-{}", std::process::id()));
    said(program, &["man", "--to", &folder.to_string_lossy()])?;
    let mut pages = Vec::new();
    for entry in fs::read_dir(&folder).context("list the manual pages")? {
        let path = entry.context("list the manual pages")?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        pages.push(ArchiveFile::plain(&format!("man/man1/{name}"), fs::read(&path)?));
    }
    fs::remove_dir_all(&folder).ok();
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(pages)
}

/// What the program prints. Its home is empty, so that no configuration of this machine gets into a package.
fn said(program: &Path, args: &[&str]) -> Result<String> {
    let mut command = process::command(&program.to_string_lossy(), Path::new("/"));
    command.args(args).env("HOME", "/nonexistent").env("LANG", "C.UTF-8");
    process::output_of(&mut command, RUN_LIMIT)
}

/// The recipe of an image that contains the program of the tarball: no compiler is needed.
fn container_recipe(contents: &Contents) -> Result<String> {
    let path = contents.root.join("deploy/Dockerfile.dist");
    let recipe = fs::read_to_string(&path).context("read `deploy/Dockerfile.dist`")?;
    let name = format!("budao-{}-{}", contents.version, contents.target());
    Ok(recipe.replace("@NAME@", &name))
}

/// Writes the packages and the list of their checksums, which `sha256sum --check` reads.
fn write(out: &Path, files: &[(String, Vec<u8>)]) -> Result<()> {
    let mut sums = String::new();
    for (name, bytes) in files {
        fs::write(out.join(name), bytes).with_context(|| format!("write `{name}`"))?;
        println!("{:>8.1} MB  {name}", bytes.len() as f64 / 1e6);
        sums.push_str(&format!("{}  {name}\n", hex(&Sha256::digest(bytes))));
    }
    fs::write(out.join("SHA256SUMS"), sums).context("write the checksums")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
