//! Unified diffs of file changes, for the model.

use std::time::Duration;

use similar::TextDiff;

use super::budget;

/// Time limit for finding a minimal diff; after that, a larger one is used.
const SEARCH_MAX: Duration = Duration::from_millis(200);
/// Maximum size of a diff, in JSON bytes.
const ROOM: usize = 8 * 1024;
/// Maximum size of a text to compare, in bytes.
const TEXT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The diff between two states of a file; `None` if either is too large to compare.
pub(super) fn unified(path: &str, before: &str, after: &str) -> Option<String> {
    if before.len() > TEXT_BYTES_MAX || after.len() > TEXT_BYTES_MAX {
        return None;
    }
    let diff = TextDiff::configure().timeout(SEARCH_MAX).diff_lines(before, after);
    let text = diff
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{path}"), &format!("b/{path}"))
        .to_string();
    let shown = budget::head(&text, ROOM);
    Some(if shown.len() == text.len() {
        text
    } else {
        format!("{shown}\n… {} more bytes of the diff", text.len() - shown.len())
    })
}
