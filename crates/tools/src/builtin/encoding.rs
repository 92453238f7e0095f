//! Text formats of files: UTF-8, UTF-16 with a byte order mark, GBK; LF or CR LF line ends.
//!
//! A file keeps its format when it is rewritten. Detection is conservative: without a byte order mark, valid UTF-8 is
//! UTF-8, bytes that are almost certainly GBK are GBK, and everything else is binary.

use encoding_rs::{GBK, UTF_16BE, UTF_16LE};

/// The character set and line ends of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TextFormat {
    charset: Charset,
    /// True if every line ends in CR LF. In memory, text always uses LF.
    pub(super) crlf: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Charset {
    #[default]
    Utf8,
    Utf8Marked,
    Utf16Le,
    Utf16Be,
    Gbk,
}

/// A decoded text and the format it was stored in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DecodedText {
    pub(super) text: String,
    pub(super) form: TextFormat,
}

/// The bytes are not text; `position` is the first offending byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotText {
    pub(super) position: usize,
}

/// A character that the file's character set cannot encode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnencodableChar(pub(super) char);

const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";
const UTF16_LE_MARK: &[u8] = b"\xff\xfe";
const UTF16_BE_MARK: &[u8] = b"\xfe\xff";

impl DecodedText {
    /// Decodes bytes and detects their format.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, NotText> {
        let (text, charset) = decode(bytes)?;
        let ends = text.matches('\n').count();
        let crlf = ends > 0 && text.matches("\r\n").count() == ends;
        let text = if crlf { text.replace("\r\n", "\n") } else { text };
        Ok(Self { text, form: TextFormat { charset, crlf } })
    }
}

impl TextFormat {
    /// The name of the character set; `None` for plain UTF-8.
    pub(super) fn name(self) -> Option<&'static str> {
        match self.charset {
            Charset::Utf8 => None,
            Charset::Utf8Marked => Some("utf-8 with byte order mark"),
            Charset::Utf16Le => Some("utf-16le"),
            Charset::Utf16Be => Some("utf-16be"),
            Charset::Gbk => Some("gbk"),
        }
    }

    /// Converts the line ends of a text from the model to LF if the file uses CR LF.
    pub(super) fn unify(self, text: &str) -> String {
        if self.crlf { text.replace("\r\n", "\n") } else { text.to_owned() }
    }

    /// Encodes a text in this format.
    pub(super) fn encode(self, text: &str) -> Result<Vec<u8>, UnencodableChar> {
        let with_ends;
        let text = if self.crlf {
            with_ends = self.unify(text).replace('\n', "\r\n");
            &with_ends
        } else {
            text
        };
        Ok(match self.charset {
            Charset::Utf8 => text.as_bytes().to_vec(),
            Charset::Utf8Marked => [UTF8_MARK, text.as_bytes()].concat(),
            Charset::Utf16Le => marked_utf16(UTF16_LE_MARK, text, u16::to_le_bytes),
            Charset::Utf16Be => marked_utf16(UTF16_BE_MARK, text, u16::to_be_bytes),
            Charset::Gbk => {
                let (bytes, _, unmappable) = GBK.encode(text);
                if unmappable {
                    return Err(first_unwritable(text));
                }
                bytes.into_owned()
            }
        })
    }
}

fn marked_utf16(mark: &[u8], text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    mark.iter().copied().chain(text.encode_utf16().flat_map(bytes)).collect()
}

fn first_unwritable(text: &str) -> UnencodableChar {
    let mut buffer = [0; 4];
    let found = text.chars().find(|character| GBK.encode(character.encode_utf8(&mut buffer)).2);
    UnencodableChar(found.unwrap_or(char::REPLACEMENT_CHARACTER))
}

fn decode(bytes: &[u8]) -> Result<(String, Charset), NotText> {
    for (mark, encoding, charset) in
        [(UTF16_LE_MARK, UTF_16LE, Charset::Utf16Le), (UTF16_BE_MARK, UTF_16BE, Charset::Utf16Be)]
    {
        if let Some(rest) = bytes.strip_prefix(mark) {
            return encoding
                .decode_without_bom_handling_and_without_replacement(rest)
                .map(|text| (text.into_owned(), charset))
                .ok_or(NotText { position: mark.len() });
        }
    }
    let (rest, charset) = match bytes.strip_prefix(UTF8_MARK) {
        Some(rest) => (rest, Charset::Utf8Marked),
        None => (bytes, Charset::Utf8),
    };
    if let Some(position) = rest.iter().position(|byte| *byte == 0) {
        return Err(NotText { position });
    }
    match std::str::from_utf8(rest) {
        Ok(text) => Ok((text.to_owned(), charset)),
        Err(error) => match gbk(bytes) {
            Some(text) => Ok((text, Charset::Gbk)),
            None => Err(NotText { position: error.valid_up_to() }),
        },
    }
}

/// Decodes GBK if the bytes are almost certainly GBK: decoding has no errors, and nearly all non-ASCII characters are
/// in the block of common characters and punctuation.
fn gbk(bytes: &[u8]) -> Option<String> {
    let (mut pairs, mut common) = (0_usize, 0_usize);
    let mut rest = bytes.iter().copied();
    while let Some(lead) = rest.next() {
        if lead < 0x80 {
            continue;
        }
        let trail = rest.next()?;
        pairs += 1;
        common +=
            usize::from(matches!(lead, 0xb0..=0xf7 | 0xa1..=0xa3) && matches!(trail, 0xa1..=0xfe));
    }
    if pairs < 2 || common * 10 < pairs * 9 {
        return None;
    }
    GBK.decode_without_bom_handling_and_without_replacement(bytes).map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(bytes: &[u8]) -> DecodedText {
        let text = DecodedText::decode(bytes).unwrap();
        assert_eq!(text.form.encode(&text.text).unwrap(), bytes, "{text:?}");
        text
    }

    #[test]
    fn every_form_comes_back_as_the_same_bytes() {
        let gbk = GBK.encode("你好，世界\r\n第二行\r\n").0.into_owned();
        let utf16: Vec<u8> = marked_utf16(UTF16_LE_MARK, "a😀\n", u16::to_le_bytes);
        assert_eq!(round_trip(b"plain\n").form.name(), None);
        assert_eq!(round_trip("不倒\r\n翁\r\n".as_bytes()).text, "不倒\n翁\n");
        assert_eq!(round_trip(b"mixed\r\nends\n").text, "mixed\r\nends\n");
        assert_eq!(round_trip(b"\xef\xbb\xbfmarked").text, "marked");
        assert_eq!(round_trip(&utf16).text, "a😀\n");
        let found = round_trip(&gbk);
        assert_eq!((found.text.as_str(), found.form.name()), ("你好，世界\n第二行\n", Some("gbk")));
    }

    #[test]
    fn what_is_not_surely_text_is_not_guessed_to_be() {
        assert_eq!(DecodedText::decode(b"\x7fELF\x00\x01"), Err(NotText { position: 4 }));
        assert_eq!(DecodedText::decode(b"caf\xe9 au lait"), Err(NotText { position: 3 }));
        assert_eq!(DecodedText::decode(&[0xff, 0xfe, 0x00, 0xd8]), Err(NotText { position: 2 }));
        let noise: Vec<u8> =
            (0_u32..4000).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8 | 1).collect();
        assert!(DecodedText::decode(&noise).is_err());
    }

    #[test]
    fn a_character_the_form_cannot_hold_is_named() {
        let text = DecodedText::decode(&GBK.encode("你好世界").0).unwrap();
        assert_eq!(text.form.encode("好😀"), Err(UnencodableChar('😀')));
    }
}
