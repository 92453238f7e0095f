//! In which state tools last saw which file: a memory with a bound.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Files remembered; beyond, the one that was not seen for longest is forgotten. Whoever writes it then is
/// told to read it first, as for a file that was never seen.
const FILES_KEPT: usize = 2_048;

/// The files a session's tools have seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeenFiles {
    by_path: BTreeMap<String, FileVersion>,
    /// Counts what was seen, so that the longest ago is known.
    count: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FileVersion {
    /// Hash of its content; none if it did not exist.
    digest: Option<String>,
    at: u64,
}

impl SeenFiles {
    /// A tool saw a file in this state.
    pub fn record(&mut self, path: &str, digest: Option<&String>) {
        self.count = self.count.saturating_add(1);
        let seen = FileVersion { digest: digest.cloned(), at: self.count };
        self.by_path.insert(path.to_owned(), seen);
        if self.by_path.len() > FILES_KEPT
            && let Some((oldest, _)) = self.by_path.iter().min_by_key(|(_, seen)| seen.at)
        {
            let oldest = oldest.clone();
            self.by_path.remove(&oldest);
        }
    }

    /// The state in which a file was last seen: none if never, `Some(None)` if it did not exist.
    #[must_use]
    pub fn seen(&self, path: &str) -> Option<Option<String>> {
        self.by_path.get(path).map(|seen| seen.digest.clone())
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.by_path.clear();
    }

    /// How many are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_path.len()
    }

    /// Was nothing seen?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_path.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_sees_files_for_ever_remembers_the_latest() {
        let mut files = SeenFiles::default();
        for number in 0..FILES_KEPT + 10 {
            files.record("used all the time", None);
            files.record(&number.to_string(), Some(&"digest".to_owned()));
        }
        assert_eq!(files.len(), FILES_KEPT);
        assert_eq!(files.seen("used all the time"), Some(None));
        assert_eq!(files.seen("0"), None, "it was not seen for longest");
        assert_eq!(files.seen("2057"), Some(Some("digest".to_owned())));
    }
}
