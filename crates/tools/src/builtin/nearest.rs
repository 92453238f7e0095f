//! Finds the existing path nearest to one that does not exist.

use std::path::{Component, Path, PathBuf};

use super::{
    walk::{Walk, WalkEntry},
    workspace::Workspace,
};

/// Minimum similarity (0 to 1) of two names for a suggestion.
const LIKENESS: f64 = 0.72;
/// Maximum number of directory entries examined.
const ENTRIES_MAX: usize = 5_000;

/// The best match: a similar name in the same directory, or the same name elsewhere in the workspace.
pub(super) fn find(workspace: &Workspace, requested: &Path) -> Option<String> {
    let wanted = requested.to_string_lossy().into_owned();
    similar_sibling(workspace, requested).or_else(|| elsewhere(workspace, requested, &wanted))
}

/// Follows the path as far as it exists and replaces the first missing component by a similar name.
fn similar_sibling(workspace: &Workspace, requested: &Path) -> Option<String> {
    let mut known = PathBuf::new();
    let mut mended = false;
    for component in requested.components() {
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

fn elsewhere(workspace: &Workspace, requested: &Path, wanted: &str) -> Option<String> {
    let name = requested.file_name()?;
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
        // Ties go to the name that sorts first, independent of directory order.
        .max_by(|(a, left), (b, right)| a.total_cmp(b).then_with(|| right.cmp(left)))
        .map(|(_, name)| name)
}
