//! What a file's content proves about an interrupted edit.
//!
//! The edit is undone on the content: each text that leads to this content is a state from which the edit may have
//! started. If one of them is the state in which the session last saw the file, the edit was made. If there is none, it was
//! not made. What fits both, such as a new text that contains the old one in a file that the session saw like this,
//! proves nothing.

use super::edit::TextReplacement;

/// Upper bound of the text built while an edit is undone, in bytes. Beyond it nothing is proved.
const TEXT_BYTES_MAX: usize = 32 << 20;

/// What the content of one file shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The edit was made to this text.
    Made {
        before: String,
    },
    NotMade,
    /// The content fits both, or neither.
    Ambiguous,
}

impl Evidence {
    /// The text to which the edit was made.
    pub(super) fn into_before(self) -> Option<String> {
        match self {
            Self::Made { before } => Some(before),
            Self::NotMade | Self::Ambiguous => None,
        }
    }
}

/// The state in which the session last saw a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeenState<'a> {
    /// The session never saw it.
    Never,
    /// It has this digest, which is not the one of the present content.
    Other(&'a str),
    /// It is the present content. The interrupted edit may have left it and recorded that.
    Same,
}

/// Compares a content with what the edits, made in this order, would leave. `digest` is that of a text, as the file
/// would hold it.
pub(super) fn examine(
    content: &str,
    changes: &[TextReplacement],
    seen: SeenState<'_>,
    digest: impl Fn(&str) -> Option<String>,
) -> Evidence {
    let starts = Starts::of(content, changes);
    if let SeenState::Other(known) = seen {
        let proved = starts.texts.iter().find(|text| digest(text).as_deref() == Some(known));
        if let Some(before) = proved {
            return Evidence::Made { before: before.clone() };
        }
    }
    let can_be_made = make_all(content, changes).is_some();
    if starts.is_empty() {
        let is_untouched = can_be_made || seen == SeenState::Same;
        return if is_untouched { Evidence::NotMade } else { Evidence::Ambiguous };
    }
    // A file that the session never saw: its texts must leave no other reading.
    let is_clear = |it: &TextReplacement| {
        !it.all && !content.contains(&it.find) && !it.find.contains(&it.replace)
    };
    match starts.texts.as_slice() {
        [before] if starts.complete && !can_be_made && changes.iter().all(is_clear) => match seen {
            SeenState::Never => Evidence::Made { before: before.clone() },
            SeenState::Other(_) | SeenState::Same => Evidence::Ambiguous,
        },
        _ => Evidence::Ambiguous,
    }
}

/// The text after all changes; `None` if one of them cannot be made.
pub(super) fn make_all(text: &str, changes: &[TextReplacement]) -> Option<String> {
    changes.iter().try_fold(text.to_owned(), |text, change| change.make(&text))
}

/// The texts from which edits may have started.
#[derive(Debug)]
struct Starts {
    texts: Vec<String>,
    /// False if there may be others.
    complete: bool,
}

impl Starts {
    fn of(content: &str, changes: &[TextReplacement]) -> Self {
        let mut starts = Self { texts: vec![content.to_owned()], complete: true };
        let mut room = TEXT_BYTES_MAX;
        for change in changes.iter().rev() {
            let mut texts = Vec::new();
            for text in &starts.texts {
                starts.complete &= undo(text, change, &mut texts, &mut room);
            }
            starts.texts = texts;
        }
        starts
    }

    /// True if the edits cannot have led to the content.
    fn is_empty(&self) -> bool {
        self.complete && self.texts.is_empty()
    }
}

/// Adds the texts which this change makes this text of. False if there may be others.
fn undo(text: &str, change: &TextReplacement, texts: &mut Vec<String>, room: &mut usize) -> bool {
    let TextReplacement { find, replace, all } = change;
    if *all {
        // Which of the places were new nobody knows; that all of them were is one possibility.
        if !replace.is_empty() && text.contains(replace.as_str()) {
            let before = text.replace(replace.as_str(), find);
            texts.extend((change.make(&before).as_deref() == Some(text)).then_some(before));
        }
        return !text.contains(replace.as_str());
    }
    for (at, _) in text.char_indices().chain([(text.len(), ' ')]) {
        let Some(rest) = text[at..].strip_prefix(replace.as_str()) else { continue };
        let Some(left) = room.checked_sub(text.len() + find.len()) else { return false };
        *room = left;
        let before = [&text[..at], find, rest].concat();
        if before.find(find.as_str()) == Some(at) && change.make(&before).is_some() {
            texts.push(before);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(find: &str, replace: &str) -> TextReplacement {
        TextReplacement { find: find.to_owned(), replace: replace.to_owned(), all: false }
    }

    fn everywhere(find: &str, replace: &str) -> TextReplacement {
        TextReplacement { all: true, ..change(find, replace) }
    }

    /// The text itself stands for its digest.
    fn examine_by_text(content: &str, changes: &[TextReplacement], seen: Option<&str>) -> Evidence {
        let seen = match seen {
            None => SeenState::Never,
            Some(seen) if seen == content => SeenState::Same,
            Some(seen) => SeenState::Other(seen),
        };
        examine(content, changes, seen, |text| Some(text.to_owned()))
    }

    fn made(before: &str) -> Evidence {
        Evidence::Made { before: before.to_owned() }
    }

    #[test]
    fn an_edit_of_a_state_that_the_session_saw_is_recognised_whatever_its_texts_are() {
        for (before, edit, after) in [
            ("a one b", change("one", "two"), "a two b"),
            ("import a\n", change("import a", "import a\nimport b"), "import a\nimport b\n"),
            ("import a\nimport b\n", change("\nimport b", ""), "import a\n"),
            ("two one two", change("one", "two"), "two two two"),
            ("1 1 1", everywhere("1", "2"), "2 2 2"),
            ("aXb", change("X", "aXb"), "aaXbb"),
        ] {
            let edit = [edit];
            assert_eq!(make_all(before, &edit).as_deref(), Some(after));
            assert_eq!(examine_by_text(after, &edit, Some(before)), made(before), "{after}");
        }
    }

    #[test]
    fn a_content_that_the_edit_cannot_have_left_shows_that_it_was_not_made() {
        for seen in [None, Some("a one b"), Some("something else")] {
            let found = examine_by_text("a one b", &[change("one", "two")], seen);
            assert_eq!(found, Evidence::NotMade);
            let found = examine_by_text("a one b one", &[everywhere("one", "two")], seen);
            assert_eq!(found, Evidence::NotMade);
        }
        let grows = [change("import a", "import a\nimport b")];
        assert_eq!(examine_by_text("import a\n", &grows, None), Evidence::NotMade);
        // The session saw it without the text: the edit was refused, or will be.
        let seen = Some("neither");
        assert_eq!(examine_by_text("neither", &[change("one", "two")], seen), Evidence::NotMade);
    }

    #[test]
    fn what_fits_an_edit_and_its_absence_is_ambiguous() {
        let grows = [change("import a", "import a\nimport b")];
        let content = "import a\nimport b\n";
        // It may be the state before the edit, or the one after it: recorded, or never seen.
        assert_eq!(examine_by_text(content, &grows, Some(content)), Evidence::Ambiguous);
        assert_eq!(examine_by_text(content, &grows, None), Evidence::Ambiguous);
        // A removed text leaves no trace.
        let removes = [change("one", "")];
        assert_eq!(examine_by_text("a b", &removes, None), Evidence::Ambiguous);
        assert_eq!(examine_by_text("a one b", &removes, Some("a one b")), Evidence::Ambiguous);
        // Some of the places may have been there before.
        let all = [everywhere("1", "2")];
        assert_eq!(examine_by_text("2 2 2", &all, None), Evidence::Ambiguous);
        assert_eq!(examine_by_text("2 2 2", &all, Some("1 2 1")), Evidence::Ambiguous);
        // Another program changed the file after the session saw it.
        let plain = [change("one", "two")];
        assert_eq!(examine_by_text("a two b", &plain, Some("c one b")), Evidence::Ambiguous);
        assert_eq!(examine_by_text("neither", &plain, Some("c one b")), Evidence::Ambiguous);
        assert_eq!(examine_by_text("neither", &plain, None), Evidence::Ambiguous);
        // Two places of the new text, and nothing says which of them is new.
        assert_eq!(examine_by_text("two two", &plain, None), Evidence::Ambiguous);
    }

    #[test]
    fn a_file_that_the_session_never_saw_convinces_by_texts_that_leave_one_reading() {
        let edit = [change("one", "two")];
        assert_eq!(examine_by_text("a two b", &edit, None), made("a one b"));
        let shrinks = [change("one, two", "one")];
        assert_eq!(examine_by_text("a one b", &shrinks, None), Evidence::Ambiguous);
    }

    #[test]
    fn edits_of_one_file_are_undone_from_the_last_to_the_first() {
        let edits = [change("one", "two"), change("two three", "four"), change("x", "y")];
        let before = "one three x";
        let after = make_all(before, &edits).unwrap();
        assert_eq!(after, "four y");
        assert_eq!(examine_by_text(&after, &edits, Some(before)), made(before));
        assert_eq!(examine_by_text(before, &edits, Some(before)), Evidence::NotMade);
        assert_eq!(examine_by_text("two three x", &edits, Some(before)), Evidence::Ambiguous);
    }

    #[test]
    fn an_edit_with_too_many_possible_beginnings_proves_nothing() {
        let content = "a".repeat(20_000);
        let found = examine_by_text(&content, &[change("b", "a")], Some("long ago"));
        assert_eq!(found, Evidence::Ambiguous);
    }
}
