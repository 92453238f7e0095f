//! Suggests known names for an unknown one.

/// Maximum number of names compared.
const NAMES_MAX: usize = 4096;

/// Maximum characters compared of a name.
const CHARS_MAX: usize = 64;

/// The known name closest to an unknown one; `None` if no name is close enough.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    ranked(name, known).into_iter().next()
}

/// Known names that are close enough, closest first.
pub fn ranked<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = plain(name);
    let mut close: Vec<(usize, &str)> = known
        .take(NAMES_MAX)
        .filter_map(|candidate| {
            distance(&wanted, &plain(candidate)).map(|distance_to| (distance_to, candidate))
        })
        .collect();
    close.sort();
    close.into_iter().map(|(_, candidate)| candidate).collect()
}

/// The distance of two names, smaller is closer; `None` if they are too different.
fn distance(wanted: &str, candidate: &str) -> Option<usize> {
    if wanted == candidate {
        return Some(0);
    }
    if wanted.is_empty() || candidate.is_empty() {
        return None;
    }
    let longer = wanted.chars().count().max(candidate.chars().count());
    let edits = strsim::osa_distance(wanted, candidate);
    if edits <= (longer / 3).max(1) {
        return Some(edits);
    }
    // Matches `file_path` with `path`, and `read` with `fs_read`.
    let (short, long) =
        if wanted.len() < candidate.len() { (wanted, candidate) } else { (candidate, wanted) };
    (short.len() >= 3 && (long.starts_with(short) || long.ends_with(short))).then_some(longer)
}

/// Removes case and separators, which vary between spellings of the same name.
fn plain(name: &str) -> String {
    name.chars()
        .take(CHARS_MAX)
        .filter(|c| !matches!(c, '_' | '-' | ' ' | '.'))
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_names_are_recognised_and_unrelated_ones_are_not() {
        let known = ["path", "old_string", "new_string", "replace_all"];
        let nearest_known = |name| nearest(name, known.into_iter());
        assert_eq!(nearest_known("pth"), Some("path"));
        assert_eq!(nearest_known("oldString"), Some("old_string"));
        assert_eq!(nearest_known("replaceAll"), Some("replace_all"));
        assert_eq!(nearest_known("file_path"), Some("path"));
        assert_eq!(nearest_known("Path"), Some("path"));
        assert_eq!(nearest_known("timeout"), None);
        assert_eq!(nearest_known(""), None);
    }

    #[test]
    fn tools_are_found_by_the_end_of_their_name() {
        let known = ["fs_read", "fs_write", "bash_run"];
        assert_eq!(ranked("read", known.into_iter()), ["fs_read"]);
        assert_eq!(ranked("fs_raed", known.into_iter())[0], "fs_read");
    }
}
