//! HTTP headers: `Authorization`, `Bearer`, `Basic`, `Cookie`; and signatures of signed URLs.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::span::{Marker, Span, marker_at};
use super::text::{Class, Text};
use super::value::{self, Case, Says, Tie, is_opaque, is_placeholder};

/// Schemes of `Authorization` that are followed by one secret word.
const SCHEMES: [&[u8]; 14] = [
    b"bearer", b"basic", b"token", b"apikey", b"api-key", b"key", b"bot", b"oauth", b"negotiate", b"ntlm",
    b"splunk", b"sso-key", b"jwt", b"flyv1",
];

/// `Authorization: Bearer …`, quoted or not, with or without a scheme.
pub(super) fn authorization(text: &Text<'_>, _start: usize, end: usize) -> Option<Span> {
    let value = header_value(text, end)?;
    let scheme_end = text.run_within(Class::Word, value, 20);
    let scheme = text.slice(value, scheme_end).to_ascii_lowercase();
    let known = text.at(scheme_end) == b' ' && SCHEMES.contains(&&scheme[..]);
    let start = if known { text.skip_blanks(scheme_end, 4) } else { value };
    if scheme == b"digest" && text.at(scheme_end) == b' ' {
        let stop = rest_of_line(text, scheme_end + 1);
        let mine = memchr::memmem::find(text.slice(scheme_end, stop), b"response=").is_some();
        return mine.then(|| Span::new(scheme_end + 1, stop, Marker::Credentials));
    }
    if marker_at(text, start) {
        return None;
    }
    let stop = text.run(Class::Bearer, start);
    let marker = if scheme == b"basic" { Marker::Credentials } else { Marker::Token };
    let judged = text.slice(start, stop.min(start + value::JUDGED_MAX));
    let case = Case { says: Says::Key, tie: Tie::Tight, quoted: true, next: text.at(stop), alone: false };
    let challenge = judged.starts_with(b"realm=");
    let secret = value::is_secret(judged, case) || (known && !is_placeholder(judged) && is_opaque(judged));
    (secret && !challenge).then(|| Span::new(start, stop, marker))
}

/// A bare `Bearer …` in a sentence or a log line.
pub(super) fn bearer(text: &Text<'_>, start: usize, end: usize) -> Option<Span> {
    let at = text.skip_blanks(end, 2);
    if !text.word_starts(start) || marker_at(text, at) {
        return None;
    }
    let mut stop = text.run(Class::Bearer, at);
    while stop > at && text.before(stop) == b'.' {
        stop -= 1;
    }
    let judged = text.slice(at, stop.min(at + value::JUDGED_MAX));
    let secret = is_opaque(judged) && !is_placeholder(judged) && !judged.starts_with(b"realm=");
    secret.then(|| Span::new(at, stop, Marker::Token))
}

/// A bare `Basic …`: only what decodes to a name, a colon and a password.
pub(super) fn basic(text: &Text<'_>, start: usize, end: usize) -> Option<Span> {
    let at = text.skip_blanks(end, 2);
    if !text.word_starts(start) {
        return None;
    }
    let stop = text.run(Class::Padded, at);
    is_pair(text.slice(at, stop.min(at + 512))).then(|| Span::new(at, stop, Marker::Credentials))
}

/// `"auth": "dXNlcjpwYXNz"`, `_auth=…`: credentials as Docker and npm keep them.
pub(super) fn auth(text: &Text<'_>, _start: usize, end: usize) -> Option<Span> {
    let at = header_value(text, end)?;
    let stop = text.run(Class::Padded, at);
    is_pair(text.slice(at, stop.min(at + 512))).then(|| Span::new(at, stop, Marker::Credentials))
}

/// Whether `encoded` is base64 of `name:password`.
fn is_pair(encoded: &[u8]) -> bool {
    let stem = encoded.trim_ascii_end();
    let padding = stem.iter().rev().take_while(|&&byte| byte == b'=').count();
    let stem = &stem[..stem.len() - padding];
    let decoded = STANDARD_NO_PAD.decode(stem).or_else(|_| URL_SAFE_NO_PAD.decode(stem));
    stem.len() >= 6
        && decoded.is_ok_and(|pair| {
            pair.contains(&b':') && pair.iter().all(|byte| !byte.is_ascii_control())
                && std::str::from_utf8(&pair).is_ok()
        })
}

/// `Cookie: name=value; …` and `Set-Cookie: …`: the whole of it.
pub(super) fn cookie(text: &Text<'_>, _start: usize, end: usize) -> Option<Span> {
    let start = header_value(text, end)?;
    let name = text.run_within(Class::Dotted, start, 64);
    if name == start || text.at(name) != b'=' {
        return None;
    }
    let first = text.run_within(Class::Bearer, name + 1, 4);
    let stop = rest_of_line(text, name);
    (first > name + 1).then(|| Span::new(start, stop, Marker::Cookie))
}

/// `sig=…`, `X-Amz-Signature=…`: what proves a signed URL.
pub(super) fn signature(text: &Text<'_>, start: usize, end: usize) -> Option<Span> {
    let short = text.starts_folded(start, b"sig=");
    let before = text.before(start);
    if short && !matches!(before, b'?' | b'&' | b';') && !text.escape_ends(start) {
        return None;
    }
    let stop = (end..end + 512)
        .find(|&index| !Class::Padded.has(text.at(index)) && text.at(index) != b'%')
        .unwrap_or(end + 512);
    (stop >= end + 16).then(|| Span::new(end, stop, Marker::Signature))
}

/// `?key=…` with a value that looks like a key.
pub(super) fn query_key(text: &Text<'_>, _start: usize, end: usize) -> Option<Span> {
    let stop = text.run(Class::Dotted, end);
    let judged = text.slice(end, stop.min(end + value::JUDGED_MAX));
    let secret = judged.len() >= 16 && is_opaque(judged) && !is_placeholder(judged);
    secret.then(|| Span::new(end, stop, Marker::ApiKey))
}

/// Skips the end of a header's name, its colon and the opening of its value.
fn header_value(text: &Text<'_>, end: usize) -> Option<usize> {
    let quote = |at: usize| {
        let slashes = text.backslashes(at);
        if matches!(text.at(at + slashes), b'"' | b'\'' | b'`') { at + slashes + 1 } else { at }
    };
    let closed = quote(end);
    let bracket = closed + usize::from(closed > end && text.at(closed) == b']');
    let at = text.skip_blanks(bracket, 4);
    let at = match text.at(at) {
        b':' if text.at(at + 1) != b':' => at + 1,
        b'=' if text.at(at + 1) == b'>' => at + 2,
        b'=' if text.at(at + 1) != b'=' => at + 1,
        b',' if closed > end => at + 1,
        _ => return None,
    };
    let at = text.skip_blanks(at, 8);
    let at = at + usize::from(text.at(at) == b'[' && !marker_at(text, at));
    let at = if text.starts(at, b"Some(") { at + 5 } else { at };
    let open = quote(at);
    (!marker_at(text, open)).then_some(open)
}

/// Where the line ends, or the string around it. Consumed by its caller when it goes far.
fn rest_of_line(text: &Text<'_>, start: usize) -> usize {
    let mut at = start;
    loop {
        match text.at(at) {
            b'\n' | b'\r' | b'"' | b'\'' | b'`' => return at,
            b'\\' if text.line_break(at).is_some() || matches!(text.at(at + 1), b'"' | b'\'' | b'\\') => return at,
            0 if at >= text.len() => return at,
            _ => at += 1,
        }
    }
}
