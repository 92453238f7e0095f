//! Where a line of text may break: at spaces, after a slash inside a path, and beside a wide character unless punctuation
//! belongs to it. Chinese has no spaces; the rest of the Unicode rules is for scripts that this program does not print.

use textwrap::{WordSeparator, core::Word};
use unicode_width::UnicodeWidthChar as _;

pub(crate) const SEPARATOR: WordSeparator = WordSeparator::Custom(words);

/// Stays with the character before it. Quotation marks stay with both.
const CLOSING: &str = ",.;:!?)]}%/-…—，。、；：？！）」』】》〉〕％“”‘’‹›«»";
/// Stays with the character after it.
const OPENING: &str = "([{（「『【《〈〔“”‘’‹›«»";

fn words(line: &str) -> Box<dyn Iterator<Item = Word<'_>> + '_> {
    let (mut start, mut chars) = (0, line.char_indices().peekable());
    Box::new(std::iter::from_fn(move || {
        let from = start;
        while let Some((_, left)) = chars.next() {
            let end = chars.peek().map_or(line.len(), |(at, _)| *at);
            if chars.peek().is_none_or(|(_, right)| may_break(left, *right)) {
                start = end;
                return Some(Word::from(&line[from..end]));
            }
        }
        None
    }))
}

fn may_break(left: char, right: char) -> bool {
    let is_wide = |c: char| c.width() == Some(2);
    match (left, right) {
        (_, ' ') => false,
        (' ', _) => true,
        ('/', _) => right.is_alphabetic(),
        _ => {
            (is_wide(left) || is_wide(right)) && !CLOSING.contains(right) && !OPENING.contains(left)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(line: &str) -> String {
        words(line)
            .map(|word| format!("{}{}", word.word, word.whitespace))
            .collect::<Vec<_>>()
            .join("|")
    }

    #[test]
    fn words_break_at_spaces_and_chinese_anywhere_but_at_its_punctuation() {
        assert_eq!(broken("one  two"), "one  |two");
        assert_eq!(broken("docs/testing.md, 1/2"), "docs/|testing.md, |1/2");
        assert_eq!(broken("房间（一）已满，请等。"), "房|间|（一）|已|满，|请|等。");
        assert_eq!(broken("见 budao 文档"), "见 |budao |文|档");
        assert_eq!(broken("出错：‹reason›。"), "出|错：‹reason›。");
        assert_eq!(broken(""), "");
    }
}
