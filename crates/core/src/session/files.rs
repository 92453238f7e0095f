//! The state in which tools last saw each file, for a bounded number of files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The most files remembered. Beyond it the least recently seen file is forgotten; a write to a forgotten file is
/// refused until the file is read again, as for a file that was never seen.
const FILES_KEPT: usize = 2_048;

/// The files that a session's tools have seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SeenFiles {
    by_path: BTreeMap<String, FileVersion>,
    /// Increases with every sighting; orders files by recency.
    count: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FileVersion {
    /// Hash of the content; none if the file did not exist.
    digest: Option<String>,
    at: u64,
}

impl SeenFiles {
    /// Records that a tool saw a file in this state.
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
    pub fn seen_digest(&self, path: &str) -> Option<Option<String>> {
        self.by_path.get(path).map(|seen| seen.digest.clone())
    }

    /// Forgets all files.
    pub fn clear(&mut self) {
        self.by_path.clear();
    }

    /// The number of files remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_path.len()
    }

    /// Whether no file is remembered.
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
        assert_eq!(files.seen_digest("used all the time"), Some(None));
        assert_eq!(files.seen_digest("0"), None, "it was not seen for longest");
        assert_eq!(files.seen_digest("2057"), Some(Some("digest".to_owned())));
    }
}
