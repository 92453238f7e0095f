//! Deduplicates one stream of text across attempts of an answer.
//!
//! When an attempt breaks off and the model starts again, most of the new text repeats the shown text. A
//! repeated part is not shown again; a text that differs is shown from its start.

/// A change to the shown text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TextChange {
    /// No change: the text was shown before.
    None,
    /// Append to the shown text.
    Append(String),
    /// Show as a new text, because it differs from the shown one.
    Replace(String),
}

#[derive(Clone, Debug, Default)]
pub(super) struct TextDeduplicator {
    /// The text shown so far.
    shown: String,
    /// The text of the current attempt while it repeats a prefix of `shown`; `None` in the first attempt.
    repeat: Option<String>,
}

impl TextDeduplicator {
    /// Adds a delta of the current attempt and returns the change to the shown text.
    pub(super) fn push(&mut self, text: &str) -> TextChange {
        let Some(repeat) = &mut self.repeat else {
            self.shown.push_str(text);
            return TextChange::Append(text.to_owned());
        };
        repeat.push_str(text);
        if self.shown.starts_with(repeat.as_str()) {
            return TextChange::None;
        }
        let repeat = std::mem::take(repeat);
        self.repeat = None;
        match repeat.strip_prefix(self.shown.as_str()) {
            Some(rest) => {
                let rest = rest.to_owned();
                self.shown = repeat;
                TextChange::Append(rest)
            }
            None => {
                self.shown.clone_from(&repeat);
                TextChange::Replace(repeat)
            }
        }
    }

    /// Marks the attempt as void; the next delta starts another attempt.
    pub(super) fn abandon(&mut self) {
        self.repeat = (!self.shown.is_empty()).then(String::new);
    }

    /// Takes the complete text of the answer, resets the state, and returns the last change.
    pub(super) fn complete(&mut self, text: &str) -> TextChange {
        let shown = std::mem::take(&mut self.shown);
        self.repeat = None;
        if text.is_empty() || text == shown {
            return TextChange::None;
        }
        match text.strip_prefix(shown.as_str()) {
            Some(rest) => TextChange::Append(rest.to_owned()),
            None => TextChange::Replace(text.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn more(text: &str) -> TextChange {
        TextChange::Append(text.to_owned())
    }

    #[test]
    fn repeated_text_is_not_shown_again() {
        // Goal: each character is shown once, however the repeated text is split.
        let answer = "héllo wörld, again";
        for cut in (0..answer.len()).filter(|at| answer.is_char_boundary(*at)) {
            for size in 1..=7 {
                let mut text = TextDeduplicator::default();
                let mut seen = String::new();
                text.push(&answer[..cut]);
                seen.push_str(&answer[..cut]);
                text.abandon();
                let characters: Vec<char> = answer.chars().collect();
                for piece in characters.chunks(size) {
                    match text.push(&piece.iter().collect::<String>()) {
                        TextChange::None => {}
                        TextChange::Append(text) => seen.push_str(&text),
                        TextChange::Replace(text) => panic!("nothing differs, yet {text}"),
                    }
                }
                assert_eq!(text.complete(answer), TextChange::None);
                assert_eq!(seen, answer, "cut at {cut}, pieces of {size}");
            }
        }
    }

    #[test]
    fn different_text_is_shown_from_its_start() {
        let mut text = TextDeduplicator::default();
        text.push("The answer is 4");
        text.abandon();
        assert_eq!(text.push("The ans"), TextChange::None);
        assert_eq!(text.push("wer was 5"), TextChange::Replace("The answer was 5".into()));
        assert_eq!(text.push("."), more("."));
        assert_eq!(text.complete("The answer was 5."), TextChange::None);
    }

    #[test]
    fn an_answer_that_never_streamed_is_shown_whole() {
        assert_eq!(TextDeduplicator::default().complete("all of it"), more("all of it"));
    }

    #[test]
    fn a_shorter_repeat_replaces_what_was_shown() {
        let mut text = TextDeduplicator::default();
        text.push("one two three");
        text.abandon();
        text.push("one");
        assert_eq!(text.complete("one"), TextChange::Replace("one".into()));
    }

    #[test]
    fn two_breaks_in_a_row_show_nothing_twice() {
        let mut text = TextDeduplicator::default();
        text.push("abc");
        text.abandon();
        assert_eq!(text.push("ab"), TextChange::None);
        text.abandon();
        assert_eq!(text.push("abcd"), more("d"));
    }
}
