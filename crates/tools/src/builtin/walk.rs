//! Walks a directory tree by handles and skips paths that `.gitignore` excludes.
//!
//! Each directory is opened relative to its parent's handle. So a name that is swapped for a link during the walk can
//! lead elsewhere inside the workspace, but never outside. Links are reported, not followed.

use std::{
    ffi::OsString,
    io::{self, Read},
    path::{Path, PathBuf},
    vec,
};

use cap_std::fs::{Dir, DirEntry};
use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

use super::workspace::reading;

/// Maximum depth below the start.
const DEPTH_MAX: usize = 64;
/// Maximum entries examined, over all directories.
const ENTRIES_MAX: usize = 200_000;
/// Names of ignore files; rules of later ones take precedence.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];
/// Maximum bytes read from an ignore file.
const IGNORE_BYTES_MAX: u64 = 256 * 1024;

/// An entry of the tree, with its path from the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WalkEntry {
    /// A regular file.
    File(PathBuf),
    /// A directory; its entries follow.
    Directory(PathBuf),
    /// A link or a special file, which the walk does not enter.
    Other(PathBuf),
}

/// A depth-first walk, with the names of each directory in order.
#[derive(Debug)]
pub(super) struct Walk {
    levels: Vec<Level>,
    rules: Vec<IgnoreRules>,
    hidden: bool,
    left: usize,
    cut: bool,
}

#[derive(Debug)]
struct Level {
    dir: Dir,
    path: PathBuf,
    names: vec::IntoIter<(OsString, EntryType)>,
    /// Number of rules before this directory's own were added.
    rules_above: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EntryType {
    File,
    Directory,
    Other,
}

/// The ignore rules of one directory; they apply to everything below it.
#[derive(Debug)]
struct IgnoreRules {
    base: PathBuf,
    matcher: Gitignore,
}

impl Walk {
    /// Starts a walk at `inside`, a path from `root`. The ignore rules of the directories above it apply too.
    pub(super) fn new(root: &Dir, inside: &Path) -> io::Result<Self> {
        let mut walk = Self {
            levels: Vec::new(),
            rules: Vec::new(),
            hidden: false,
            left: ENTRIES_MAX,
            cut: false,
        };
        let inside = if inside == Path::new(".") { Path::new("") } else { inside };
        let mut above: Vec<_> = inside.ancestors().skip(1).collect();
        above.reverse();
        for directory in above {
            walk.add_rules(&open(root, directory)?, directory);
        }
        walk.enter(open(root, inside)?, inside.to_path_buf());
        Ok(walk)
    }

    /// Includes names that start with a dot, except `.git`.
    pub(super) fn hidden(mut self, hidden: bool) -> Self {
        self.hidden = hidden;
        self
    }

    /// Sets the maximum number of entries to examine.
    pub(super) fn entries_max(mut self, entries: usize) -> Self {
        self.left = entries;
        self
    }

    /// True if a limit cut the walk short.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    fn add_rules(&mut self, dir: &Dir, base: &Path) {
        let mut builder = GitignoreBuilder::new("");
        let mut found = false;
        for name in IGNORE_FILES {
            let Ok(file) = dir.open_with(name, &reading()) else { continue };
            let mut text = Vec::new();
            // If an ignore file cannot be read, the part read so far applies.
            drop(file.take(IGNORE_BYTES_MAX).read_to_end(&mut text));
            for line in String::from_utf8_lossy(&text).lines() {
                drop(builder.add_line(None, line));
                found = true;
            }
        }
        if found && let Ok(matcher) = builder.build() {
            self.rules.push(IgnoreRules { base: base.to_path_buf(), matcher });
        }
    }

    fn enter(&mut self, dir: Dir, path: PathBuf) {
        let rules_above = self.rules.len();
        self.add_rules(&dir, &path);
        let entries = dir.entries().into_iter().flatten().flatten();
        let mut names: Vec<_> = entries
            .take(self.left.saturating_add(1))
            .map(|entry| (entry.file_name(), sort(&entry)))
            .collect();
        names.sort();
        self.levels.push(Level { dir, path, names: names.into_iter(), rules_above });
    }

    /// True if a rule excludes the path. The rule of the deepest directory decides.
    fn is_ignored(&self, path: &Path, is_directory: bool) -> bool {
        for rules in self.rules.iter().rev() {
            let Ok(below) = path.strip_prefix(&rules.base) else { continue };
            match rules.matcher.matched(below, is_directory) {
                Match::None => {}
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
            }
        }
        false
    }
}

impl Iterator for Walk {
    type Item = WalkEntry;

    fn next(&mut self) -> Option<WalkEntry> {
        loop {
            let level = self.levels.last_mut()?;
            let Some((name, sort)) = level.names.next() else {
                let above = level.rules_above;
                self.rules.truncate(above);
                self.levels.pop();
                continue;
            };
            let path = level.path.join(&name);
            let hidden = name.as_encoded_bytes().starts_with(b".");
            if (hidden && !self.hidden) || name == ".git" {
                continue;
            }
            let Some(left) = self.left.checked_sub(1) else {
                self.cut = true;
                return None;
            };
            self.left = left;
            if self.is_ignored(&path, sort == EntryType::Directory) {
                continue;
            }
            match sort {
                EntryType::File => return Some(WalkEntry::File(path)),
                EntryType::Other => return Some(WalkEntry::Other(path)),
                EntryType::Directory => {
                    self.descend(&name, &path);
                    return Some(WalkEntry::Directory(path));
                }
            }
        }
    }
}

impl Walk {
    fn descend(&mut self, name: &OsString, path: &Path) {
        if self.levels.len() > DEPTH_MAX {
            self.cut = true;
            return;
        }
        // A directory that cannot be opened, or was swapped for a link to the outside, is treated as empty.
        if let Some(Ok(dir)) = self.levels.last().map(|level| level.dir.open_dir(name)) {
            self.enter(dir, path.to_path_buf());
        }
    }
}

fn open(root: &Dir, path: &Path) -> io::Result<Dir> {
    if path.as_os_str().is_empty() { root.try_clone() } else { root.open_dir(path) }
}

fn sort(entry: &DirEntry) -> EntryType {
    match entry.file_type() {
        Ok(sort) if sort.is_file() => EntryType::File,
        Ok(sort) if sort.is_dir() => EntryType::Directory,
        _ => EntryType::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use cap_std::ambient_authority;
    use rustix::fs::{CWD, RenameFlags, renameat_with};

    use super::*;

    #[test]
    fn a_directory_swapped_for_a_link_while_walking_shows_nothing_of_the_outside() {
        // Goal and method as for opening a file: one thread swaps the directory, the other walks and reads.
        let parent_folder = tempfile::tempdir().unwrap();
        let (inner_folder, outside) =
            (parent_folder.path().join("room"), parent_folder.path().join("outside"));
        std::fs::create_dir_all(inner_folder.join("door/deep")).unwrap();
        std::fs::create_dir_all(outside.join("deep")).unwrap();
        std::fs::write(inner_folder.join("door/deep/inside.txt"), "").unwrap();
        std::fs::write(outside.join("deep/outside.txt"), "").unwrap();
        std::os::unix::fs::symlink(&outside, inner_folder.join("spare")).unwrap();
        let root = Dir::open_ambient_dir(&inner_folder, ambient_authority()).unwrap();
        let over = AtomicBool::new(false);
        let (mut found, mut missed) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (door, spare) = (inner_folder.join("door"), inner_folder.join("spare"));
                while !over.load(Ordering::Relaxed) {
                    renameat_with(CWD, &door, CWD, &spare, RenameFlags::EXCHANGE).unwrap();
                }
            });
            for _ in 0..10_000 {
                let files: Vec<_> = Walk::new(&root, Path::new(""))
                    .unwrap()
                    .filter(|entry| matches!(entry, WalkEntry::File(_)))
                    .collect();
                for entry in &files {
                    assert!(!format!("{entry:?}").contains("outside"), "{entry:?}");
                }
                found += usize::from(!files.is_empty());
                missed += usize::from(files.is_empty());
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(found > 10, "{found} found, {missed} missed");
    }
}
