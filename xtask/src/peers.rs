//! Peers: third-party programs that our tests and benchmarks talk to, in pinned versions.
//!
//! They live outside the repository, in `BUDAO_PEERS` or else the user's cache folder, so that a fresh clone finds them
//! again. `PEERS/<name>` is a link to a folder under `PEERS/.store`. A peer is built in its final folder, because a
//! Python environment stores its own path, and one rename of the link publishes it: a partial peer is never visible.

mod frameworks;
mod install;
mod list;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::table::{self, Align};
use crate::{repo, test};

/// A third-party program.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) kind: Kind,
    pub(crate) use_in: UseIn,
    pub(crate) probe: Probe,
}

/// The source of a peer.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Packages as `name@version`; items that begin with dashes are options for npm.
    Npm(&'static [&'static str]),
    /// Requirements as `name==version`, in a virtual environment of their own.
    Python(&'static [&'static str]),
    /// The same, and the source of the first one beside it, unpacked: its tests are not in the package.
    PythonSource(&'static [&'static str]),
    /// A small project of ours in `xtask/peers/<name>`, built with `--release`; its binary has the
    /// peer's name.
    Cargo,
    /// A package of this machine's Debian, downloaded and unpacked without installation; its services are not started.
    Debian(&'static str),
}

/// The commands that need a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UseIn {
    Tests,
    /// Fetched by the step of `cargo xtask test` that uses it, or by name.
    Full,
    /// Fetched by `cargo xtask bench --peers`, or by name.
    Benches,
    /// Fetched by `cargo xtask bench recovery --peers`, or by name.
    Recovery,
}

/// A command that shows that the peer works, and a text its output must contain.
#[derive(Debug)]
pub(crate) struct Probe {
    /// Relative to the peer's folder if it contains a slash, otherwise looked up on the path.
    pub(crate) program: &'static str,
    pub(crate) args: &'static [&'static str],
    pub(crate) stdin: &'static str,
    pub(crate) prints: &'static str,
}

/// Written into a peer's folder when the installation is complete.
#[derive(Debug, Serialize, Deserialize)]
struct Stamp {
    /// The requested versions; a different list causes a new installation.
    wanted: Vec<String>,
    /// All resolved packages, dependencies included.
    resolved: Vec<String>,
    installed_at: String,
}

const STAMP: &str = "peer.json";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which ones; all that tests use unless told
    names: Vec<String>,
    /// Say which peers there are and which are present, and fetch nothing
    #[arg(long)]
    list: bool,
    /// Fetch those that a run of `cargo xtask test` needs
    #[arg(long, conflicts_with = "names")]
    needed: bool,
    /// Fetch again even what is present
    #[arg(long)]
    again: bool,
}

pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let dir = dir()?;
    if args.list {
        println!("peers are in {}\n", dir.display());
        print!("{}", listing(&dir));
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = choose(args)?;
    if chosen.is_empty() {
        println!("peers: none needed");
        return Ok(ExitCode::SUCCESS);
    }
    let mut failed = 0;
    for peer in &chosen {
        if let Err(error) = install::ensure(peer, &dir, args.again) {
            eprintln!("{}: FAILED: {error:#}", peer.name);
            failed += 1;
        }
    }
    println!("peers: {} ready, {failed} failed, in {}", chosen.len() - failed, dir.display());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The peers of the tests, then those that benchmarks measure.
pub(crate) fn all() -> impl Iterator<Item = &'static Peer> + Clone {
    list::PEERS.iter().chain(frameworks::FRAMEWORKS)
}

fn choose(args: &Args) -> Result<Vec<&'static Peer>> {
    let needed = test::needed_peers(false);
    if let Some(unknown) = args.names.iter().find(|name| all().all(|p| p.name != **name)) {
        let names: Vec<&str> = all().map(|peer| peer.name).collect();
        bail!("there is no peer `{unknown}`; the peers are: {}", names.join(", "));
    }
    let wanted = |peer: &&Peer| {
        if args.needed {
            needed.contains(&peer.name)
        } else if args.names.is_empty() {
            peer.use_in == UseIn::Tests
        } else {
            args.names.iter().any(|name| name == peer.name)
        }
    };
    Ok(all().filter(wanted).collect())
}

/// Fetches every peer that tests use, and returns their folders.
pub(crate) fn ensure_for_tests() -> Result<Vec<(&'static Peer, PathBuf)>> {
    let dir = dir()?;
    let wanted = all().filter(|peer| peer.use_in == UseIn::Tests);
    wanted.map(|peer| Ok((peer, install::ensure(peer, &dir, false)?))).collect()
}

/// Fetches one peer and returns its folder.
pub(crate) fn ensure(name: &str) -> Result<PathBuf> {
    let peer = all().find(|peer| peer.name == name).context("there is no such peer")?;
    install::ensure(peer, &dir()?, false)
}

/// Fetches every peer that benchmarks compare with, and returns their folders.
pub(crate) fn ensure_for_benches() -> Result<Vec<(&'static Peer, PathBuf)>> {
    let dir = dir()?;
    let wanted = all().filter(|peer| peer.use_in == UseIn::Benches);
    wanted.map(|peer| Ok((peer, install::ensure(peer, &dir, false)?))).collect()
}

/// The command that starts a peer's bench: program and first arguments. A Python peer is measured by
/// `xtask/peers/<name>/bench.py`; a Rust peer is its own bench. `None` for npm peers and for Python peers with a
/// `server.py`, which our own bench measures.
pub(crate) fn bench(peer: &Peer, dir: &Path) -> Option<(PathBuf, Vec<String>)> {
    let program = dir.join(peer.probe.program);
    match peer.kind {
        Kind::Cargo => Some((program, Vec::new())),
        Kind::Python(_) => {
            let folder = repo::root().join("xtask/peers").join(peer.name);
            if folder.join("server.py").is_file() {
                return None;
            }
            let script = folder.join("bench.py");
            Some((program, vec!["-B".to_owned(), script.to_string_lossy().into_owned()]))
        }
        Kind::Npm(_) | Kind::Debian(_) | Kind::PythonSource(_) => None,
    }
}

/// The folder of all peers, which may not exist yet.
pub(crate) fn dir() -> Result<PathBuf> {
    let from = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let dir = from("BUDAO_PEERS")
        .or_else(|| Some(from("XDG_CACHE_HOME")?.join("budao/peers")))
        .or_else(|| Some(from("HOME")?.join(".cache/budao/peers")))
        .context("nowhere to keep peers: set `BUDAO_PEERS`, or `HOME`")?;
    // Not canonicalised, so that messages show the path the user configured.
    std::path::absolute(&dir).with_context(|| format!("find `{}`", dir.display()))
}

/// The folder of a peer; `None` if it is absent or outdated.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let peer = all().find(|peer| peer.name == name)?;
    let place = dir().ok()?.join(name);
    (presence(peer, &place) == Presence::Present).then_some(place)
}

#[derive(Debug, PartialEq, Eq)]
enum Presence {
    Present,
    /// Present in another version than the wanted one.
    Outdated,
    Absent,
}

fn presence(peer: &Peer, place: &Path) -> Presence {
    let Ok(text) = fs::read_to_string(place.join(STAMP)) else { return Presence::Absent };
    let Ok(stamp) = serde_json::from_str::<Stamp>(&text) else { return Presence::Outdated };
    // An upgrade may have removed the interpreter of a Python environment.
    let is_alive = !peer.probe.program.contains('/') || place.join(peer.probe.program).exists();
    match wanted(peer) {
        Ok(wanted) if stamp.wanted == wanted && is_alive => Presence::Present,
        _ => Presence::Outdated,
    }
}

/// The exact inputs of a peer. Two equal lists mean the same peer.
fn wanted(peer: &Peer) -> Result<Vec<String>> {
    let packages = |sort: &str, list: &[&str]| {
        let all = list.iter().map(|package| format!("{sort} {package}"));
        Ok(all.collect())
    };
    match peer.kind {
        Kind::Npm(list) => packages("npm", list),
        Kind::Python(list) => packages("python", list),
        Kind::PythonSource(list) => packages("python source", list),
        Kind::Debian(package) => packages("debian", &[package]),
        Kind::Cargo => {
            let source = repo::root().join("xtask/peers").join(peer.name);
            ["Cargo.toml", "main.rs"]
                .map(|name| {
                    let path = source.join(name);
                    fs::read_to_string(&path).with_context(|| format!("read `{}`", path.display()))
                })
                .into_iter()
                .collect()
        }
    }
}

/// The main package of a peer and its version: `langgraph 1.2.20`, `socket.io 4.8.4`.
pub(crate) fn version(peer: &Peer) -> String {
    let packages = match peer.kind {
        Kind::Npm(list) => list.iter().find_map(|package| package.rsplit_once('@')),
        Kind::Python(list) | Kind::PythonSource(list) => {
            list.iter().find_map(|package| package.split_once("=="))
        }
        // The output of the probe contains the version.
        Kind::Cargo | Kind::Debian(_) => return peer.probe.prints.to_owned(),
    };
    packages.map_or_else(|| peer.name.to_owned(), |(name, version)| format!("{name} {version}"))
}

fn listing(dir: &Path) -> String {
    let needed = test::needed_peers(true);
    let rows: Vec<Vec<String>> = all()
        .map(|peer| {
            let versions = match peer.kind {
                Kind::Npm(list) => format!("npm {}", list.join(" ")),
                Kind::Python(list) => format!("python {}", list.join(" ")),
                Kind::PythonSource(list) => format!("python source {}", list.join(" ")),
                Kind::Cargo => format!("cargo xtask/peers/{}", peer.name),
                Kind::Debian(package) => format!("debian {package}"),
            };
            let state = match presence(peer, &dir.join(peer.name)) {
                Presence::Present => "present",
                Presence::Outdated => "outdated",
                Presence::Absent => "absent",
            };
            let use_in = match peer.use_in {
                UseIn::Benches => "bench --peers",
                UseIn::Recovery => "bench recovery --peers",
                UseIn::Full => "test --full",
                UseIn::Tests if needed.contains(&peer.name) => "test",
                UseIn::Tests => "not yet",
            };
            [peer.name, state, use_in, &versions, peer.about].map(str::to_owned).to_vec()
        })
        .collect();
    let head = ["peer", "state", "needed by", "made of", "what"].map(|title| (title, Align::Left));
    table::render(&head, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_pinned_to_one_version() {
        for peer in all() {
            match peer.kind {
                Kind::Npm(list) => {
                    for package in list.iter().filter(|package| !package.starts_with("--")) {
                        let (_, version) = package.rsplit_once('@').expect("a version");
                        assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{package}");
                    }
                }
                Kind::Python(list) | Kind::PythonSource(list) => {
                    assert!(list.iter().all(|package| package.contains("==")), "{}", peer.name);
                }
                Kind::Cargo => assert_eq!(wanted(peer).unwrap().len(), 2),
                // The Debian release determines the version.
                Kind::Debian(_) => assert_ne!(peer.use_in, UseIn::Tests, "{}", peer.name),
            }
        }
    }

    #[test]
    fn every_peer_in_python_that_is_measured_has_its_script() {
        for peer in all().filter(|peer| peer.use_in == UseIn::Benches) {
            let Some((_, args)) = bench(peer, Path::new("peers")) else { continue };
            let script = args.last().filter(|_| matches!(peer.kind, Kind::Python(_)));
            assert!(script.is_none_or(|script| Path::new(script).is_file()), "{}", peer.name);
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = all().map(|peer| peer.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
    }
}
