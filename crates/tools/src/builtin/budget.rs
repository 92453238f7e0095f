//! Size budgets for texts in an answer, measured in JSON bytes, as the model reads them.

use budao_core::limits::Limits;

/// Bytes reserved for the parts of an answer other than its long text.
const FRAME_BYTES: usize = 4 * 1024;

/// JSON bytes available for the long text of an answer.
pub(super) fn text_room(limits: &Limits) -> usize {
    limits.output_bytes.saturating_sub(FRAME_BYTES).max(limits.output_bytes / 2)
}

/// The bytes a character takes inside a JSON string.
pub(super) fn json_width(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    }
}

/// The bytes a text takes inside a JSON string.
pub(super) fn json_bytes(text: &str) -> usize {
    text.chars().map(json_width).sum()
}

/// The longest prefix that fits into `room` JSON bytes.
pub(super) fn head(text: &str, room: usize) -> &str {
    let mut used = 0;
    for (index, character) in text.char_indices() {
        used += json_width(character);
        if used > room {
            return &text[..index];
        }
    }
    text
}

/// The longest suffix that fits into `room` JSON bytes.
pub(super) fn tail(text: &str, room: usize) -> &str {
    let mut used = 0;
    for (index, character) in text.char_indices().rev() {
        used += json_width(character);
        if used > room {
            return &text[index + character.len_utf8()..];
        }
    }
    text
}

/// The last lines of a text within `room` JSON bytes, cut at line starts where possible.
pub(super) fn last_lines(text: &str, lines: usize, room: usize) -> &str {
    let text = text.trim_end();
    let end = tail(text, room);
    let start = end.rmatch_indices('\n').nth(lines.saturating_sub(1)).map_or(0, |(at, _)| at + 1);
    &end[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_measured_as_json_measures_it() {
        for text in ["plain", "q\"b\\", "\u{1b}[0m\n\t\r", "不倒", "\u{7f}\u{0}"] {
            assert_eq!(
                json_bytes(text) + 2,
                serde_json::to_string(text).unwrap().len(),
                "{text:?}"
            );
        }
    }

    #[test]
    fn cuts_fall_between_characters() {
        assert_eq!(head("不倒翁", 7), "不倒");
        assert_eq!(tail("不倒翁", 7), "倒翁");
        assert_eq!(head("ab", 9), "ab");
        assert_eq!(last_lines("a\nb\nc\n", 2, 100), "b\nc");
    }
}
