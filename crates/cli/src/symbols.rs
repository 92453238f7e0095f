//! Makes untrusted text safe for a terminal and breaks it into lines that fit.

use std::borrow::Cow;

use textwrap::{Options, WrapAlgorithm};
use unicode_width::UnicodeWidthChar as _;

use crate::line_breaks;

/// Spaces shown for a tab.
const TAB: &str = "    ";
/// Replaces control and direction characters.
const HARMLESS: char = '\u{fffd}';

/// Replaces characters that move the cursor or change the text direction; tabs become spaces.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    match text.contains('\t') {
        true => Cow::Owned(harmless(&text.replace('\t', TAB), &[]).into_owned()),
        false => harmless(text, &[]),
    }
}

/// Like [`clean`], for line-by-line output: tabs stay, and so do the escape sequences in `ours`.
pub(crate) fn harmless<'a>(text: &'a str, ours: &[&str]) -> Cow<'a, str> {
    if !text.chars().any(|c| c == '\r' || controls_terminal(c)) {
        return Cow::Borrowed(text);
    }
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let style = ours.iter().find(|style| c == '\u{1b}' && rest.starts_with(**style));
        let taken = style.map_or(c.len_utf8(), |style| style.len());
        match style {
            Some(style) => cleaned.push_str(style),
            None if c == '\r' => {}
            None if controls_terminal(c) => cleaned.push(HARMLESS),
            None => cleaned.push(c),
        }
        rest = &rest[taken..];
    }
    Cow::Owned(cleaned)
}

/// True for control characters and characters that change the text direction.
fn controls_terminal(c: char) -> bool {
    let turns = matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}');
    turns || (c.is_control() && c != '\n' && c != '\t' && c != '\r')
}

/// Like [`clean`], with all whitespace reduced to single spaces.
pub(crate) fn one_line(text: &str) -> String {
    let spaced = text.split_whitespace().collect::<Vec<_>>().join(" ");
    clean(&spaced).into_owned()
}

/// Lines of at most `columns` columns; a Chinese character takes two.
pub(crate) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let options = Options::new(columns.max(1))
        .wrap_algorithm(WrapAlgorithm::FirstFit)
        .word_separator(line_breaks::SEPARATOR);
    textwrap::wrap(&clean(text), options).into_iter().map(Cow::into_owned).collect()
}

/// The beginning of the text that fits, with `…` if something was cut.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    let width = |c: char| c.width().unwrap_or(0);
    if text.chars().map(width).sum::<usize>() <= columns {
        return text.to_owned();
    }
    let mut taken = 0;
    let fits = |c: &char| {
        taken += width(*c);
        taken < columns
    };
    let mut short: String = text.chars().take_while(fits).collect();
    if columns > 0 {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;

    #[test]
    fn no_foreign_text_moves_the_cursor_or_reverses_the_line() {
        let wrote = "a\u{1b}[2J\u{7}b\u{202e}c\u{9b}\td\r\ne";
        assert_eq!(clean(wrote), "a\u{fffd}[2J\u{fffd}b\u{fffd}c\u{fffd}    d\ne");
        assert!(
            matches!(clean("שלום 你好 👩‍👩‍👧"), Cow::Borrowed(_)),
            "what is harmless stays as it is"
        );
    }

    #[test]
    fn a_line_for_a_terminal_keeps_our_styles_and_nothing_else_that_acts() {
        let ours = ["\u{1b}[1m", "\u{1b}[0m"];
        let wrote =
            "\u{1b}[1m✗\u{1b}[0m \u{1b}[2J\u{1b}]0;title\u{7}\u{1b}[10mx\ty\r\n\u{9b}31m\u{202e}z";
        assert_eq!(
            harmless(wrote, &ours),
            "\u{1b}[1m✗\u{1b}[0m \u{fffd}[2J\u{fffd}]0;title\u{fffd}\u{fffd}[10mx\ty\n\u{fffd}31m\u{fffd}z"
        );
        assert!(!harmless(wrote, &[]).contains('\u{1b}'));
        assert!(matches!(harmless("שלום\t你好\n", &ours), Cow::Borrowed(_)));
    }

    #[test]
    fn wide_characters_are_broken_where_the_line_is_full() {
        let lines = wrap("你好世界 hello 再见", 6);
        assert!(lines.iter().all(|line| line.width() <= 6), "{lines:?}");
        assert_eq!(lines.concat().replace(' ', ""), "你好世界hello再见");
        assert_eq!(wrap("aaaaaaaaaa", 4), ["aaaa", "aaaa", "aa"]);
        assert_eq!(wrap("a\n\nb", 4), ["a", "", "b"]);
        assert!(!wrap("你", 1).is_empty());
    }

    #[test]
    fn text_that_does_not_fit_is_cut_with_a_mark() {
        assert_eq!(cut("hello", 5), "hello");
        assert_eq!(cut("hello!", 5), "hell…");
        assert_eq!(cut("你好世界", 5), "你好…");
        assert_eq!(cut("你好", 1), "…");
        assert_eq!(cut("x", 0), "");
    }
}
