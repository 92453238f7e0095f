//! Fetches one peer: takes a lock, fills its store folder, probes it, writes the stamp, and then publishes the link.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{self as std_process, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use indicatif::ProgressBar;

use super::{Kind, Peer, Presence, STAMP, Stamp, presence, wanted};
use crate::{process, repo, table};

/// Time limit for one download or build.
const INSTALL_LIMIT: Duration = Duration::from_secs(30 * 60);
const PROBE_LIMIT: Duration = Duration::from_secs(60);

/// Environment for compiled packages: two build jobs, and llama.cpp without image support.
const BUILD: [(&str, &str); 2] =
    [("CMAKE_BUILD_PARALLEL_LEVEL", "2"), ("CMAKE_ARGS", "-DLLAVA_BUILD=OFF")];

/// Interval of progress lines during a long installation.
const PULSE: Duration = Duration::from_secs(5);
/// Interval of the spinner on a terminal.
const TURN: Duration = Duration::from_millis(100);

/// Returns the folder of a peer, and fetches it first if necessary.
pub(super) fn ensure(peer: &Peer, dir: &Path, again: bool) -> Result<PathBuf> {
    let place = dir.join(peer.name);
    let is_ready = || !again && presence(peer, &place) == Presence::Present;
    if is_ready() {
        println!("{}: present", peer.name);
        return Ok(place);
    }
    let store = dir.join(".store");
    fs::create_dir_all(&store).with_context(|| format!("make `{}`", store.display()))?;
    let _lock = lock(&store.join(format!("{}.lock", peer.name)), peer.name)?;
    if is_ready() {
        println!("{}: present; another process has just fetched it", peer.name);
        return Ok(place);
    }
    sweep(&store, peer.name, &place)?;
    let started = Instant::now();
    let home = store.join(format!("{}.{}", peer.name, unique()));
    fs::create_dir(&home).with_context(|| format!("make `{}`", home.display()))?;
    let done = complete(peer, &home).and_then(|packages| {
        publish(&home, &place)?;
        Ok(packages)
    });
    // Removes the previous version, and the rest of a failed attempt.
    sweep(&store, peer.name, &place)?;
    let packages = done?;
    let took = table::duration(started.elapsed());
    println!("{}: ready in {took} ({packages} packages)", peer.name);
    Ok(place)
}

/// Installs a peer into its folder: files, probe, stamp. Returns the number of its packages.
fn complete(peer: &Peer, home: &Path) -> Result<usize> {
    let resolved = fill(peer, home)?;
    probe(peer, home)?;
    let stamp = Stamp {
        wanted: wanted(peer)?,
        resolved,
        installed_at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    };
    let text = serde_json::to_string_pretty(&stamp).context("write the stamp")?;
    fs::write(home.join(STAMP), text + "\n").context("write the stamp")?;
    Ok(stamp.resolved.len())
}

/// Waits until no other process fetches this peer. The lock is held as long as the returned file.
fn lock(path: &Path, name: &str) -> Result<File> {
    let file = File::create(path).with_context(|| format!("make `{}`", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            println!("{name}: another process is fetching it; waiting");
            file.lock().with_context(|| format!("wait for `{}`", path.display()))?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("lock `{}`", path.display()));
        }
    }
    Ok(file)
}

/// Removes this peer's folders that the link does not point to: old versions and interrupted attempts.
fn sweep(store: &Path, name: &str, place: &Path) -> Result<()> {
    let current = fs::read_link(place).ok();
    let current = current.as_deref().and_then(Path::file_name);
    for entry in fs::read_dir(store).with_context(|| format!("read `{}`", store.display()))? {
        let entry = entry?;
        let file_name = entry.file_name();
        let belongs = file_name.to_str().is_some_and(|entry| {
            entry.strip_prefix(name).is_some_and(|rest| rest.starts_with('.') && rest != ".lock")
        });
        if belongs && Some(file_name.as_os_str()) != current {
            let path = entry.path();
            fs::remove_dir_all(&path).with_context(|| format!("remove `{}`", path.display()))?;
        }
    }
    Ok(())
}

/// Points the peer's link at its new folder, atomically.
fn publish(home: &Path, place: &Path) -> Result<()> {
    let folder = home.file_name().context("a store folder has a name")?;
    let link = home.with_extension("link");
    symlink(Path::new(".store").join(folder), &link).context("make the peer's link")?;
    if place.is_dir() && !place.is_symlink() {
        bail!("`{}` is a folder; remove it, peers are links", place.display());
    }
    fs::rename(&link, place).with_context(|| format!("put `{}` in place", place.display()))
}

fn unique() -> String {
    format!("{}-{}", jiff::Timestamp::now().as_millisecond(), std_process::id())
}

/// Installs the peer's files into its folder; returns all resolved packages.
fn fill(peer: &Peer, home: &Path) -> Result<Vec<String>> {
    match peer.kind {
        Kind::Npm(packages) => npm(peer.name, packages, home),
        Kind::Python(requirements) => python(peer.name, requirements, home),
        Kind::PythonSource(requirements) => {
            let resolved = python(peer.name, requirements, home)?;
            source(peer.name, requirements, home)?;
            Ok(resolved)
        }
        Kind::Cargo => cargo(peer.name, home),
        Kind::Debian(package) => debian(peer.name, package, home),
    }
}

fn debian(name: &str, package: &str, home: &Path) -> Result<Vec<String>> {
    work(name, process::command("apt-get", home).args(["download", package]))?;
    let files = fs::read_dir(home).context("read the peer's folder")?;
    let found = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let archive = found.into_iter().find(|file| file.ends_with(".deb"));
    let archive = archive.with_context(|| format!("apt-get left no package of `{package}`"))?;
    work(name, process::command("dpkg-deb", home).args(["-x", &archive, "."]))?;
    fs::remove_file(home.join(&archive)).context("remove the archive")?;
    Ok(vec![archive])
}

fn npm(name: &str, packages: &[&str], home: &Path) -> Result<Vec<String>> {
    let mut npm = process::command("npm", home);
    npm.args(["install", "--prefix"]).arg(home);
    npm.args(["--save-exact", "--no-audit", "--no-fund", "--loglevel=error"]).args(packages);
    work(name, &mut npm)?;
    let lock =
        fs::read_to_string(home.join("package-lock.json")).context("read npm's lock file")?;
    npm_versions(&lock)
}

/// Every package in npm's lock file as `name@version`.
fn npm_versions(lock: &str) -> Result<Vec<String>> {
    let lock: serde_json::Value =
        serde_json::from_str(lock).context("understand npm's lock file")?;
    let packages = lock["packages"].as_object().context("npm's lock file lists no packages")?;
    let mut versions: Vec<String> = packages
        .iter()
        .filter_map(|(path, package)| {
            let (_, name) = path.rsplit_once("node_modules/")?;
            Some(format!("{name}@{}", package["version"].as_str()?))
        })
        .collect();
    versions.sort();
    versions.dedup();
    Ok(versions)
}

fn python(name: &str, requirements: &[&str], home: &Path) -> Result<Vec<String>> {
    work(name, process::command("python3", home).args(["-m", "venv", "."]))?;
    let python = home.join("bin/python");
    let python = python.to_string_lossy();
    let mut pip = process::command(&python, home);
    pip.args(["-m", "pip", "install", "--no-input", "--disable-pip-version-check"]);
    pip.args(["--progress-bar", "off"]).args(requirements).envs(BUILD);
    work(name, &mut pip)?;
    let mut freeze = process::command(&python, home);
    freeze.args(["-m", "pip", "freeze", "--disable-pip-version-check"]);
    let listed = process::output_of(&mut freeze, PROBE_LIMIT)?;
    Ok(listed.lines().filter(|line| line.contains("==")).map(str::to_owned).collect())
}

/// Unpacks the source of the first requirement into the folder `source`.
fn source(name: &str, requirements: &[&str], home: &Path) -> Result<()> {
    let first = requirements.first().context("a source has a requirement")?;
    let (package, version) = first.split_once("==").context("a requirement has a version")?;
    let package = package.split('[').next().unwrap_or(package);
    let python = home.join("bin/python");
    let python = python.to_string_lossy();
    let mut pip = process::command(&python, home);
    pip.args(["-m", "pip", "download", "--no-deps", "--no-input", "--progress-bar", "off"]);
    pip.args(["--no-binary", package]).arg(format!("{package}=={version}"));
    work(name, &mut pip)?;
    let folder = format!("{}-{version}", package.replace('-', "_"));
    let archive = format!("{folder}.tar.gz");
    let mut unpack = process::command(&python, home);
    work(name, unpack.args(["-m", "tarfile", "--filter", "data", "-e", &archive, "."]))?;
    fs::rename(home.join(&folder), home.join("source")).context("name the source's folder")?;
    fs::remove_file(home.join(&archive)).context("remove the archive")
}

/// Builds the project of `xtask/peers/<name>` in a copy, with a target folder of its own.
fn cargo(name: &str, home: &Path) -> Result<Vec<String>> {
    let source = repo::root().join("xtask/peers").join(name);
    for file in ["Cargo.toml", "main.rs"] {
        fs::copy(source.join(file), home.join(file))
            .with_context(|| format!("copy `{file}` of the peer `{name}`"))?;
    }
    let mut cargo = process::cargo(home);
    cargo.args(["build", "--release", "--target-dir"]).arg(home.join("target"));
    work(name, &mut cargo)?;
    let lock = fs::read_to_string(home.join("Cargo.lock")).context("read the peer's lock file")?;
    cargo_versions(&lock)
}

/// Every package in a `Cargo.lock` as `name@version`.
fn cargo_versions(lock: &str) -> Result<Vec<String>> {
    #[derive(serde::Deserialize)]
    struct Lock {
        package: Vec<Package>,
    }
    #[derive(serde::Deserialize)]
    struct Package {
        name: String,
        version: String,
    }
    let lock: Lock = toml::from_str(lock).context("understand the peer's lock file")?;
    Ok(lock.package.iter().map(|package| format!("{}@{}", package.name, package.version)).collect())
}

/// Runs one command of an installation. Its output is printed only on failure. Progress shows as a spinner on a
/// terminal, and as a line every [`PULSE`] elsewhere.
fn work(name: &str, command: &mut Command) -> Result<()> {
    println!("{name}: {}", short(command));
    let started = Instant::now();
    let mut heard: Vec<String> = Vec::new();
    let mut pulse = Instant::now();
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(TURN);
    let status = process::follow(command, Some(started + INSTALL_LIMIT), |_, line| {
        let said: String = line.trim().chars().take(60).collect();
        if !said.is_empty() && !bar.is_hidden() {
            bar.set_message(format!("{name}: {} … {said}", table::duration(started.elapsed())));
        } else if !said.is_empty() && pulse.elapsed() > PULSE {
            println!("{name}:   {} … {said}", table::duration(started.elapsed()));
            pulse = Instant::now();
        }
        heard.push(line.to_owned());
    });
    bar.finish_and_clear();
    let status = status?;
    if !status.success() {
        let tail = heard.len().saturating_sub(30);
        bail!("`{}` failed ({status}):\n{}", short(command), heard[tail..].join("\n"));
    }
    Ok(())
}

/// The command line without the long path of its folder.
fn short(command: &Command) -> String {
    let shown = process::shown(command);
    match command.get_current_dir().and_then(Path::to_str) {
        Some(dir) => shown.replace(dir, "."),
        None => shown,
    }
}

/// Runs the peer's probe, before the peer is published.
fn probe(peer: &Peer, home: &Path) -> Result<()> {
    let probe = &peer.probe;
    let program = if probe.program.contains('/') {
        home.join(probe.program).to_string_lossy().into_owned()
    } else {
        probe.program.to_owned()
    };
    let mut command = process::command(&program, home);
    command.args(probe.args);
    let deadline = Instant::now() + PROBE_LIMIT;
    let (said, is_heard) = process::converse(&mut command, probe.stdin, probe.prints, deadline)?;
    if !is_heard {
        bail!(
            "it was installed, but `{}` did not print {:?}:\n{said}",
            short(&command),
            probe.prints
        );
    }
    println!("{}: probe succeeded", peer.name);
    Ok(())
}
