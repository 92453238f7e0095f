//! Configured secrets, found by exact match in each of their common encodings.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::replacement::{self, Marker, Replacement};

/// The shortest secret. Removing every `abc` from a text would destroy it and hide nothing.
pub(super) const SECRET_BYTES_MIN: usize = 6;

/// The automaton over all encodings of all configured secrets.
pub(super) struct KnownSecrets {
    automaton: AhoCorasick,
    /// The longest encoding, in bytes.
    pub(super) longest: usize,
}

impl KnownSecrets {
    /// Builds the automaton; `None` if no secret is long enough.
    pub(super) fn new<S: AsRef<[u8]>>(secrets: impl IntoIterator<Item = S>) -> Option<Self> {
        let mut all = Vec::new();
        for secret in secrets {
            let secret = secret.as_ref().trim_ascii();
            if secret.len() >= SECRET_BYTES_MIN {
                spellings(secret, &mut all);
            }
        }
        all.sort();
        all.dedup();
        let longest = all.iter().map(Vec::len).max()?;
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&all);
        // Building fails only above 2^31 states, more than any set of secrets needs.
        Some(Self { automaton: automaton.ok()?, longest })
    }

    /// `text` with all configured secrets replaced.
    pub(super) fn replace<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let spans: Vec<Replacement> = self.spans(text).collect();
        replacement::replaced(text, &spans)
    }

    /// Whether `text` contains no configured secret.
    pub(super) fn is_clean(&self, text: &str) -> bool {
        self.spans(text).next().is_none()
    }

    /// The ranges of the secrets. A secret may be any bytes, so a range is extended to whole characters.
    pub(super) fn spans<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Replacement> + 'a {
        let mut done = 0;
        self.automaton.find_iter(text).map(move |hit| {
            let start = text.floor_char_boundary(hit.start()).max(done);
            done = text.ceil_char_boundary(hit.end());
            Replacement::new(start, done, Marker::Secret)
        })
    }
}

/// The secret verbatim, in base64 at every alignment, percent-encoded, and escaped as in JSON.
fn spellings(secret: &[u8], all: &mut Vec<Vec<u8>>) {
    all.push(secret.to_vec());
    for offset in 0..3 {
        all.extend(inner_base64(secret, offset));
    }
    all.push(percent(secret, b"-._~", "0123456789ABCDEF"));
    all.push(percent(secret, b"-._~", "0123456789abcdef"));
    all.push(percent(secret, b"-._~!*'()", "0123456789ABCDEF"));
    all.push(
        percent(secret, b"*-._ ", "0123456789ABCDEF")
            .iter()
            .map(|&byte| if byte == b' ' { b'+' } else { byte })
            .collect(),
    );
    if let Ok(text) = std::str::from_utf8(secret) {
        let once = json(text);
        let twice = json(&once);
        all.extend(
            [once.replace('/', "\\/"), ascii_json(text), once, twice].map(String::into_bytes),
        );
    }
}

/// The base64 characters of `secret`, at `offset` bytes into the encoded data, that depend on no neighbouring byte.
fn inner_base64(secret: &[u8], offset: usize) -> [Vec<u8>; 2] {
    let mut shifted = vec![0; offset];
    shifted.extend_from_slice(secret);
    let first = (offset * 8).div_ceil(6);
    let last = shifted.len() * 8 / 6;
    [STANDARD_NO_PAD.encode(&shifted), URL_SAFE_NO_PAD.encode(&shifted)]
        .map(|encoded| encoded.as_bytes()[first..last].to_vec())
}

fn percent(secret: &[u8], kept: &[u8], digits: &str) -> Vec<u8> {
    let digits = digits.as_bytes();
    let mut out = Vec::with_capacity(secret.len() * 3);
    for &byte in secret {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            out.push(byte);
        } else {
            out.extend([b'%', digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]);
        }
    }
    out
}

/// `text` as the inside of a JSON string.
fn json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Like [`json`], with all non-ASCII characters escaped as well.
fn ascii_json(text: &str) -> String {
    let mut out = String::new();
    for char in json(text).chars() {
        if char.is_ascii() {
            out.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}
