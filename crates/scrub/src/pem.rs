//! Private keys in PEM and PuTTY blocks.

use super::replacement::{Marker, Replacement};
use super::text::{Class, ScanText};

const DASHES: &[u8] = b"-----";

/// `-----BEGIN … PRIVATE KEY-----` with its body and, if present, its end line.
pub(super) fn block(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let label_end = (end..end + 48).find(|&index| text.at(index) == b'-')?;
    let label = text.slice(end, label_end);
    let private = label.windows(11).any(|window| window == b"PRIVATE KEY");
    if !private || !text.starts(label_end, DASHES) {
        return None;
    }
    let head = label_end + DASHES.len();
    let stop = body(text, head);
    (stop > head).then(|| Replacement::new(start, stop, Marker::PrivateKey))
}

/// The private half of a PuTTY key file: `Private-Lines: 14`, then base64.
pub(super) fn putty(text: &ScanText<'_>, _start: usize, end: usize) -> Option<Replacement> {
    let count = text.run_within(Class::Digit, text.skip_blanks(end, 4), 4);
    let first = gap(text, count);
    let stop = body(text, count);
    (stop > first).then(|| Replacement::new(first, stop, Marker::PrivateKey))
}

/// Walks the words of a key's body; returns the end of the key.
fn body(text: &ScanText<'_>, start: usize) -> usize {
    let mut end = start;
    loop {
        let word = gap(text, end);
        if let Some(stop) = closing(text, word) {
            return stop;
        }
        let stop = text.run(Class::Padded, word);
        let header = if text.at(stop) == b':' { header(text, stop) } else { None };
        end = match header {
            Some(stop) => stop,
            None if stop >= word + 16 => stop,
            // The last line may be short, but then the end line must follow.
            None if stop > word => match closing(text, gap(text, stop)) {
                Some(stop) => return stop,
                None => return end,
            },
            None => return end,
        };
    }
}

/// Skips what separates the lines of a key: blanks, line breaks (real or escaped), and the quotes and operators of a
/// concatenated string.
fn gap(text: &ScanText<'_>, start: usize) -> usize {
    let mut at = start;
    loop {
        at += match text.at(at) {
            b' ' | b'\t' | b'\n' | b'\r' => 1,
            b'\\' if text.at(at + 1) == b'\n' => 2,
            b'\\' => match text.line_break(at) {
                Some(length) => length,
                None => return at,
            },
            b'"' | b'\'' => match seam(text, at) {
                Some(length) => length,
                None => return at,
            },
            _ => return at,
        };
    }
}

/// The length of `" + "`, or of `"` at the end of a line and `"` at the start of the next.
fn seam(text: &ScanText<'_>, quote: usize) -> Option<usize> {
    let next = (quote + 1..quote + 64)
        .find(|&index| !matches!(text.at(index), b' ' | b'\t' | b'\n' | b'\r' | b'+' | b','))?;
    (next > quote + 1 && text.at(next) == text.at(quote)).then(|| next + 1 - quote)
}

/// The end of `-----END … -----`.
fn closing(text: &ScanText<'_>, start: usize) -> Option<usize> {
    if !text.starts(start, b"-----END") {
        return None;
    }
    let label = start + 8;
    let dashes = (label..label + 48).find(|&index| text.at(index) == b'-')?;
    Some(text.run_within(Class::Word, dashes, DASHES.len()).min(dashes + DASHES.len()))
}

/// The end of a header line inside the block (`Proc-Type: 4,ENCRYPTED`).
fn header(text: &ScanText<'_>, colon: usize) -> Option<usize> {
    if text.at(colon + 1) != b' ' {
        return None;
    }
    (colon..colon + 100).find(|&index| text.line_break(index).is_some())
}
