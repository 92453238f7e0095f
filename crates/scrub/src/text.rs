//! The scanned text: bytes, byte classes, and how far a rule has read.
//!
//! Every rule reads through [`ScanText`], which notes the furthest byte. A read past the end returns `0`, so a rule's
//! verdict depends on later text exactly when it has read past the end. The stream relies on this: it holds back
//! undecided text and nothing else.

use std::cell::Cell;

use super::replacement::marker_ends;

/// A set of bytes. Runs of a class are measured once and cached, see [`ScanText::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Class {
    Digit,
    Hex,
    Upper,
    Alnum,
    /// Letters, digits, `_` and `-`: identifiers and most tokens.
    Word,
    /// [`Class::Word`] and `.`.
    Dotted,
    /// Both base64 alphabets, without padding.
    Base64,
    /// Both base64 alphabets and `=`.
    Padded,
    /// The bytes of a bearer token (RFC 9110 `token68`).
    Bearer,
    /// The bytes allowed between `://` and the path.
    Authority,
    /// The bytes of a bare, unquoted value.
    Value,
    /// The bytes of a login name.
    Login,
    /// The bytes of a URL, from the authority to its end.
    Url,
}

const CLASSES: usize = 13;

static TABLE: [u16; 256] = table();

const fn table() -> [u16; 256] {
    let mut table = [0u16; 256];
    let mut index = 0;
    while index < 256 {
        let byte = index as u8;
        let alnum = byte.is_ascii_alphanumeric();
        let word = alnum || byte == b'_' || byte == b'-';
        let base64 = word || byte == b'+' || byte == b'/';
        let graphic = byte.is_ascii_graphic();
        let quote = matches!(byte, b'"' | b'\'' | b'`' | b'\\' | b'<' | b'>');
        let mut bits = 0;
        bits |= (byte.is_ascii_digit() as u16) << Class::Digit as u8;
        bits |= (byte.is_ascii_hexdigit() as u16) << Class::Hex as u8;
        bits |= ((byte.is_ascii_uppercase() || byte.is_ascii_digit()) as u16) << Class::Upper as u8;
        bits |= (alnum as u16) << Class::Alnum as u8;
        bits |= (word as u16) << Class::Word as u8;
        bits |= ((word || byte == b'.') as u16) << Class::Dotted as u8;
        bits |= (base64 as u16) << Class::Base64 as u8;
        bits |= ((base64 || byte == b'=') as u16) << Class::Padded as u8;
        bits |= ((base64 || matches!(byte, b'=' | b'.' | b'~')) as u16) << Class::Bearer as u8;
        let authority =
            (graphic && !quote && !matches!(byte, b'/' | b'?' | b'#')) || !byte.is_ascii();
        bits |= (authority as u16) << Class::Authority as u8;
        let value = graphic && !quote && !matches!(byte, b'|' | b'&' | b';');
        bits |= (value as u16) << Class::Value as u8;
        bits |= ((word || byte == b'.' || !byte.is_ascii()) as u16) << Class::Login as u8;
        bits |= ((graphic && !quote && byte != b'|') as u16) << Class::Url as u8;
        table[index] = bits;
        index += 1;
    }
    table
}

impl Class {
    #[inline]
    pub(super) fn has(self, byte: u8) -> bool {
        TABLE[byte as usize] >> self as u8 & 1 == 1
    }
}

/// The bytes of one scan, with the furthest read and the cache.
pub(super) struct ScanText<'a> {
    bytes: &'a [u8],
    /// One more than the furthest index that was read.
    reach: Cell<usize>,
    runs: [Cell<(usize, usize)>; CLASSES],
}

impl<'a> ScanText<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, reach: Cell::new(0), runs: [const { Cell::new((0, 0)) }; CLASSES] }
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// One more than the furthest index that rules read since the last call.
    pub(super) fn take_reach(&self) -> usize {
        self.reach.replace(0)
    }

    /// Whether a rule read past the end since the last call.
    pub(super) fn take_peeked(&self) -> bool {
        self.take_reach() > self.bytes.len()
    }

    /// Marks the verdict as dependent on text past the end.
    pub(super) fn peek(&self) {
        self.reach.set(usize::MAX);
    }

    fn reach(&self, end: usize) {
        self.reach.set(self.reach.get().max(end));
    }

    /// The byte at `index`, or `0` past the end.
    #[inline]
    pub(super) fn at(&self, index: usize) -> u8 {
        match self.bytes.get(index) {
            Some(&byte) => {
                self.reach(index + 1);
                byte
            }
            None => {
                self.peek();
                0
            }
        }
    }

    /// The byte before `index`, or `0` at the start.
    #[inline]
    pub(super) fn before(&self, index: usize) -> u8 {
        index.checked_sub(1).and_then(|index| self.bytes.get(index)).copied().unwrap_or(0)
    }

    /// The bytes of a range that was read already.
    pub(super) fn slice(&self, start: usize, end: usize) -> &'a [u8] {
        let end = end.min(self.bytes.len());
        &self.bytes[start.min(end)..end]
    }

    /// Whether `literal` is at `index`, byte for byte.
    pub(super) fn starts(&self, index: usize, literal: &[u8]) -> bool {
        literal.iter().enumerate().all(|(offset, &byte)| self.at(index + offset) == byte)
    }

    /// Whether `literal` (in lower case) is at `index`, ignoring case.
    pub(super) fn starts_folded(&self, index: usize, literal: &[u8]) -> bool {
        literal
            .iter()
            .enumerate()
            .all(|(offset, &byte)| self.at(index + offset).to_ascii_lowercase() == byte)
    }

    /// Whether `literal` ends right before `index`.
    pub(super) fn ends(&self, index: usize, literal: &[u8]) -> bool {
        self.bytes.get(..index).is_some_and(|head| head.ends_with(literal))
    }

    /// The end of the run of `class` that covers `start`.
    ///
    /// The last run of each class is cached, so many triggers inside one long run cost one walk.
    pub(super) fn run(&self, class: Class, start: usize) -> usize {
        let memo = &self.runs[class as usize];
        let (low, high) = memo.get();
        let mut end = start;
        if !(low <= start && start < high) {
            while end < self.bytes.len() && class.has(self.bytes[end]) {
                end += 1;
                if end == low {
                    end = high.max(end);
                }
            }
            if end > start {
                memo.set((start, end));
            }
        } else {
            end = high;
        }
        self.reach(end + 1);
        end
    }

    /// Like [`ScanText::run`], but walks at most `limit` bytes; for classes whose runs overlap.
    pub(super) fn run_within(&self, class: Class, start: usize, limit: usize) -> usize {
        (start..start + limit).find(|&index| !class.has(self.at(index))).unwrap_or(start + limit)
    }

    /// The start of the run of `class` that ends right before `end`, at most `limit` bytes back.
    pub(super) fn run_back(&self, class: Class, end: usize, limit: usize) -> usize {
        let floor = end.saturating_sub(limit);
        let mut start = end;
        while start > floor && class.has(self.bytes[start - 1]) {
            start -= 1;
        }
        start
    }

    /// Whether a word can start at `index`, that is, the byte before does not belong to a longer word. The `n` of an
    /// escaped line break and the digits of `%3D` or `\u003d` do not count. A marker counts as the word it replaces, so
    /// that a second scrub finds nothing new.
    pub(super) fn word_starts(&self, index: usize) -> bool {
        let before = self.before(index);
        let joined = Class::Alnum.has(before) && !self.escape_ends(index);
        let marker = before == b']' && marker_ends(&self.bytes[..index]);
        !joined && !marker
    }

    /// Whether an escape sequence (`\n`, `%3D`, `\u003d`) ends right before `index`.
    pub(super) fn escape_ends(&self, index: usize) -> bool {
        let back = |count: usize| index.checked_sub(count).map_or(0, |index| self.bytes[index]);
        let hex = |from: usize, to: usize| (from..=to).all(|count| back(count).is_ascii_hexdigit());
        (matches!(back(1), b'n' | b't' | b'r' | b'b' | b'f') && back(2) == b'\\')
            || (back(3) == b'%' && hex(1, 2))
            || (back(6) == b'\\' && back(5) == b'u' && hex(1, 4))
    }

    /// The number of backslashes from `index`, at most 8.
    pub(super) fn backslashes(&self, index: usize) -> usize {
        (0..8).take_while(|&offset| self.at(index + offset) == b'\\').count()
    }

    /// The start of the backslashes that end right before `index`, at most 8 of them.
    pub(super) fn backslashes_before(&self, index: usize) -> usize {
        let floor = index.saturating_sub(8);
        (floor..index).rev().take_while(|&at| self.bytes[at] == b'\\').last().unwrap_or(index)
    }

    /// Whether a full-width comma, colon, bracket or the like starts at `index`.
    pub(super) fn wide_punctuation(&self, index: usize) -> bool {
        matches!((self.at(index), self.at(index + 1)), (0xE3, 0x80) | (0xEF, 0xBC | 0xBD))
    }

    /// The length of the line break at `index`: a real one, or one escaped once or more (`\n`).
    pub(super) fn line_break(&self, index: usize) -> Option<usize> {
        match self.at(index) {
            b'\n' => Some(1),
            b'\r' if self.at(index + 1) == b'\n' => Some(2),
            b'\\' => {
                let slashes = self.backslashes(index);
                match self.at(index + slashes) {
                    b'n' => Some(slashes + 1),
                    b'r' => {
                        let next = index + slashes + 1;
                        let again = self.backslashes(next);
                        (again > 0 && self.at(next + again) == b'n')
                            .then_some(slashes + 1 + again + 1)
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Skips spaces and tabs, at most `limit`.
    pub(super) fn skip_blanks(&self, start: usize, limit: usize) -> usize {
        (start..start + limit)
            .find(|&index| !matches!(self.at(index), b' ' | b'\t'))
            .unwrap_or(start + limit)
    }

    /// Whether only blanks or list dashes are between the start of the line and `index`.
    pub(super) fn line_starts(&self, index: usize) -> bool {
        let mut at = index;
        for _ in 0..48 {
            match self.before(at) {
                b' ' | b'\t' | b'-' => at -= 1,
                0 | b'\n' => return true,
                b'n' | b't' if self.escape_ends(at) => return true,
                _ => return false,
            }
        }
        false
    }
}
