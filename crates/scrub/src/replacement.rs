//! Replaced ranges and the markers that replace them.

use std::borrow::Cow;

use super::text::ScanText;

/// The marker that replaces a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    ApiKey,
    Token,
    Password,
    Secret,
    Credentials,
    PrivateKey,
    Cookie,
    Signature,
    Webhook,
    Base64,
    Address,
    Connection,
    Home,
    /// A stack trace with this number of lines.
    Trace(usize),
}

/// Every marker with a fixed text.
const FIXED: [(Marker, &str); 13] = [
    (Marker::ApiKey, "[redacted api key]"),
    (Marker::Token, "[redacted token]"),
    (Marker::Password, "[redacted password]"),
    (Marker::Secret, "[redacted secret]"),
    (Marker::Credentials, "[redacted credentials]"),
    (Marker::PrivateKey, "[redacted private key]"),
    (Marker::Cookie, "[redacted cookie]"),
    (Marker::Signature, "[redacted signature]"),
    (Marker::Webhook, "[redacted webhook]"),
    (Marker::Base64, "[redacted base64]"),
    (Marker::Address, "[private address]"),
    (Marker::Connection, "[redacted connection]"),
    (Marker::Home, "~"),
];

/// How markers begin. A value that contains one is not examined again.
const OPENINGS: [&[u8]; 3] = [b"[redacted ", b"[private address]", b"[stack trace, "];

impl Marker {
    pub(super) fn write(self, out: &mut String) {
        match self {
            Self::Trace(1) => out.push_str("[stack trace, 1 line]"),
            Self::Trace(lines) => {
                out.push_str("[stack trace, ");
                out.push_str(&lines.to_string());
                out.push_str(" lines]");
            }
            fixed => out.push_str(fixed.words()),
        }
    }

    /// The marker for a secret whose end has not arrived yet.
    pub(super) fn first(self) -> Self {
        match self {
            Self::Trace(_) => Self::Trace(1),
            other => other,
        }
    }

    /// The marker's text; empty for the one that counts lines.
    pub(super) fn words(self) -> &'static str {
        FIXED.iter().find(|(marker, _)| *marker == self).map_or("", |(_, words)| words)
    }
}

/// Whether a marker starts at `index`.
pub(super) fn marker_at(text: &ScanText<'_>, index: usize) -> bool {
    text.at(index) == b'[' && OPENINGS.iter().any(|opening| text.starts(index, opening))
}

/// Whether a marker ends where `head` ends.
pub(super) fn marker_ends(head: &[u8]) -> bool {
    let fixed = FIXED.iter().any(|(_, words)| head.ends_with(words.as_bytes()));
    fixed || head.ends_with(b" lines]") || head.ends_with(b" line]")
}

/// Whether a value (cut at its first blank, as bare values are) contains the start of a marker.
pub(super) fn holds_marker(value: &[u8]) -> bool {
    memchr::memchr_iter(b'[', value).any(|at| {
        OPENINGS.iter().any(|opening| {
            let stem = opening.split(|&byte| byte == b' ').next().unwrap_or(opening);
            value[at..].starts_with(stem)
        })
    })
}

/// A range of the text and its marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replacement {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) marker: Marker,
    /// Where the evidence for the secret starts: a name, a scheme. The secret is not found without it.
    pub(super) cause: usize,
}

impl Replacement {
    pub(super) fn new(start: usize, end: usize, marker: Marker) -> Self {
        Self { start, end, marker, cause: start }
    }
}

/// Sorts spans and joins overlapping ones; the marker of the earlier one stays.
pub(super) fn join(spans: &mut Vec<Replacement>) {
    spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    spans.dedup_by(|next, last| {
        let overlap = next.start < last.end;
        if overlap {
            last.end = last.end.max(next.end);
            last.cause = last.cause.min(next.cause);
        }
        overlap
    });
}

/// `text` with its spans replaced.
pub(super) fn replaced<'a>(text: &'a str, spans: &[Replacement]) -> Cow<'a, str> {
    if spans.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    replace(text, 0, text.len(), spans, &mut out);
    Cow::Owned(out)
}

/// Writes `text[from..to]` with its spans replaced. The spans must be sorted, disjoint and inside the range.
pub(super) fn replace(text: &str, from: usize, to: usize, spans: &[Replacement], out: &mut String) {
    let mut at = from;
    for span in spans {
        out.push_str(&text[at..span.start]);
        span.marker.write(out);
        at = span.end;
    }
    out.push_str(&text[at..to]);
}
