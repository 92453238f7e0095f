//! The existing path nearest to one that does not exist.

use std::path::{Component, Path, PathBuf};

use super::{
    walk::{Walk, WalkEntry},
    workspace::Workspace,
};

/// How alike two names must be to be worth a mention.
const LIKENESS: f64 = 0.72;
/// The most entries looked at.
const ENTRIES_MAX: usize = 5_000;

/// The best guess, if there is a good one: a like name where it was looked for, or the same name elsewhere.
pub(super) fn find(workspace: &Workspace, asked: &Path) -> Option<String> {
    let wanted = asked.to_string_lossy().into_owned();
    similar_sibling(workspace, asked).or_else(|| elsewhere(workspace, asked, &wanted))
}

/// Follows the path as far as it exists and mends the first component that does not.
fn similar_sibling(workspace: &Workspace, asked: &Path) -> Option<String> {
    let mut known = PathBuf::new();
    let mut mended = false;
    for component in asked.components() {
        let Component::Normal(name) = component else { continue };
        let next = known.join(name);
        if workspace.dir().symlink_metadata(&next).is_ok() {
            known = next;
            continue;
        }
        let here = if known.as_os_str().is_empty() { Path::new(".") } else { &known };
        known = known.join(like(workspace, here, &name.to_string_lossy())?);
        mended = true;
    }
    mended.then(|| known.to_string_lossy().into_owned())
}

fn like(workspace: &Workspace, directory: &Path, wanted: &str) -> Option<String> {
    let entries = workspace.dir().read_dir(directory).ok()?;
    let names = entries.flatten().take(ENTRIES_MAX).map(|entry| entry.file_name());
    best(wanted, names.filter_map(|name| name.into_string().ok()))
}

fn elsewhere(workspace: &Workspace, asked: &Path, wanted: &str) -> Option<String> {
    let name = asked.file_name()?;
    let walk = Walk::new(workspace.dir(), Path::new("")).ok()?.entries_max(ENTRIES_MAX);
    let same = walk.filter_map(|entry| match entry {
        WalkEntry::File(path) if path.file_name() == Some(name) => {
            path.to_str().map(ToOwned::to_owned)
        }
        _ => None,
    });
    same.max_by(|a, b| strsim::jaro_winkler(wanted, a).total_cmp(&strsim::jaro_winkler(wanted, b)))
}

fn best(wanted: &str, names: impl Iterator<Item = String>) -> Option<String> {
    let lower = wanted.to_lowercase();
    names
        .map(|name| (strsim::jaro_winkler(&lower, &name.to_lowercase()), name))
        .filter(|(likeness, _)| *likeness >= LIKENESS)
        // Equal likeness: the name that sorts first, whatever order the directory has.
        .max_by(|(a, left), (b, right)| a.total_cmp(b).then_with(|| right.cmp(left)))
        .map(|(_, name)| name)
}
