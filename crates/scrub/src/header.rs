//! HTTP headers: `Authorization`, `Bearer`, `Basic`, `Cookie`; and signatures of signed URLs.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::replacement::{Marker, Replacement, marker_at};
use super::text::{Class, ScanText};
use super::value::{self, Binding, NameEvidence, ValueContext, is_opaque, is_placeholder};

/// Schemes of `Authorization` that a single secret word follows.
const SCHEMES: [&[u8]; 16] = [
    b"bearer",
    b"basic",
    b"token",
    b"apikey",
    b"api-key",
    b"key",
    b"bot",
    b"oauth",
    b"negotiate",
    b"ntlm",
    b"splunk",
    b"sso-key",
    b"jwt",
    b"flyv1",
    b"geniekey",
    b"ssws",
];

/// `Authorization: Bearer …`, quoted or not, with or without a scheme.
pub(super) fn authorization(text: &ScanText<'_>, _start: usize, end: usize) -> Option<Replacement> {
    let value = header_value(text, end)?;
    let scheme_end = text.run_within(Class::Word, value, 20);
    let scheme = text.slice(value, scheme_end).to_ascii_lowercase();
    let known = text.at(scheme_end) == b' ' && SCHEMES.contains(&&scheme[..]);
    let start = if known { text.skip_blanks(scheme_end, 4) } else { value };
    if scheme == b"digest" && text.at(scheme_end) == b' ' {
        let stop = digest_end(text, scheme_end + 1);
        return (stop > scheme_end + 9)
            .then(|| Replacement::new(scheme_end + 1, stop, Marker::Credentials));
    }
    // `AWS4-HMAC-SHA256 Credential=…, Signature=…`: other rules match these by name.
    let named = !known && text.at(scheme_end) == b' ' && {
        let name = text.run_within(Class::Word, scheme_end + 1, 20);
        text.at(name) == b'='
    };
    if marker_at(text, start) || text.at(start) == b'~' || named {
        return None;
    }
    let stop = text.run(Class::Bearer, start);
    let marker = if scheme == b"basic" { Marker::Credentials } else { Marker::Token };
    let judged = text.slice(start, stop.min(start + value::JUDGED_MAX));
    let says = if known { NameEvidence::Key } else { NameEvidence::Weak };
    let case =
        ValueContext { says, tie: Binding::Tight, quoted: true, next: text.at(stop), alone: false };
    let secret = value::is_secret(judged, case) && !judged.starts_with(b"realm=");
    secret.then(|| Replacement::new(start, stop, marker))
}

/// A bare `Bearer …` in a sentence or a log line.
pub(super) fn bearer(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let at = text.skip_blanks(end, 2);
    if !text.word_starts(start) || marker_at(text, at) || text.at(at) == b'~' {
        return None;
    }
    let mut stop = text.run(Class::Bearer, at);
    while stop > at && text.before(stop) == b'.' {
        stop -= 1;
    }
    let judged = text.slice(at, stop.min(at + value::JUDGED_MAX));
    let challenge = judged.ends_with(b"=") && matches!(text.at(stop), b'"' | b'\'' | b'\\');
    let secret = is_opaque(judged) && !is_placeholder(judged) && !challenge;
    secret.then(|| Replacement::new(at, stop, Marker::Token))
}

/// A bare `Basic …`; matches only what decodes to a name, a colon and a password.
pub(super) fn basic(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let at = text.skip_blanks(end, 2);
    if !text.word_starts(start) {
        return None;
    }
    let stop = text.run(Class::Padded, at);
    is_pair(text.slice(at, stop.min(at + 512)))
        .then(|| Replacement::new(at, stop, Marker::Credentials))
}

/// `AUTH PLAIN …`, the login of mail clients.
pub(super) fn auth_plain(text: &ScanText<'_>, _start: usize, end: usize) -> Option<Replacement> {
    let stop = text.run(Class::Padded, end);
    (stop >= end + 8).then(|| Replacement::new(end, stop, Marker::Credentials))
}

/// `"auth": "dXNlcjpwYXNz"`, `_auth=…`: credentials in Docker and npm files.
pub(super) fn auth(text: &ScanText<'_>, _start: usize, end: usize) -> Option<Replacement> {
    let at = header_value(text, end)?;
    let stop = text.run(Class::Padded, at);
    is_pair(text.slice(at, stop.min(at + 512)))
        .then(|| Replacement::new(at, stop, Marker::Credentials))
}

/// Whether `encoded` is base64 of `name:password`.
fn is_pair(encoded: &[u8]) -> bool {
    let stem = encoded.trim_ascii_end();
    let padding = stem.iter().rev().take_while(|&&byte| byte == b'=').count();
    let stem = &stem[..stem.len() - padding];
    let decoded = STANDARD_NO_PAD.decode(stem).or_else(|_| URL_SAFE_NO_PAD.decode(stem));
    stem.len() >= 6
        && decoded.is_ok_and(|pair| {
            pair.contains(&b':')
                && pair.iter().all(|byte| !byte.is_ascii_control())
                && std::str::from_utf8(&pair).is_ok()
        })
}

/// `Cookie: name=value; …` and `Set-Cookie: …`: replaces the complete value.
pub(super) fn cookie(text: &ScanText<'_>, _start: usize, end: usize) -> Option<Replacement> {
    let start = header_value(text, end)?;
    let name = text.run_within(Class::Dotted, start, 64);
    if name == start || text.at(name) != b'=' {
        return None;
    }
    let first = text.run_within(Class::Bearer, name + 1, 4);
    (first > name + 1).then(|| Replacement::new(start, pairs_end(text, name), Marker::Cookie))
}

/// `sig=…`, `X-Amz-Signature=…`: the signature of a signed URL.
pub(super) fn signature(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let short = text.starts_folded(start, b"sig=");
    let before = text.before(start);
    if short && !matches!(before, b'?' | b'&' | b';') && !text.escape_ends(start) {
        return None;
    }
    let walk = |limit: usize| {
        let mut at = end;
        while at < limit && (Class::Padded.has(text.at(at)) || text.at(at) == b'%') {
            at += 1;
        }
        at
    };
    let judged = text.slice(end, walk(end + 64));
    (judged.len() >= 16 && is_opaque(judged))
        .then(|| Replacement::new(end, walk(usize::MAX), Marker::Signature))
}

/// `?key=…` with a value that looks like a key.
pub(super) fn query_key(text: &ScanText<'_>, _start: usize, end: usize) -> Option<Replacement> {
    let stop = text.run(Class::Dotted, end);
    let judged = text.slice(end, stop.min(end + value::JUDGED_MAX));
    let secret = judged.len() >= 16 && is_opaque(judged) && !is_placeholder(judged);
    secret.then(|| Replacement::new(end, stop, Marker::ApiKey))
}

/// Skips the rest of a header's name, its colon and the opening of its value.
fn header_value(text: &ScanText<'_>, end: usize) -> Option<usize> {
    let quote = |at: usize| {
        let slashes = text.backslashes(at);
        if matches!(text.at(at + slashes), b'"' | b'\'') { at + slashes + 1 } else { at }
    };
    let closed = quote(end);
    let bracket = closed + usize::from(closed > end && text.at(closed) == b']');
    let at = text.skip_blanks(bracket, 4);
    let at = match text.at(at) {
        b':' if text.at(at + 1) != b':' => at + 1,
        b'=' if text.at(at + 1) == b'>' => at + 2,
        b'=' if text.at(at + 1) != b'=' => at + 1,
        b',' if closed > end => {
            let next = text.skip_blanks(at + 1, 4);
            if quote(next) == next {
                return None;
            }
            next
        }
        _ => return None,
    };
    let at = text.skip_blanks(at, 8);
    let at = at + usize::from(text.at(at) == b'[' && !marker_at(text, at));
    let at = if text.starts(at, b"Some(") { at + 5 } else { at };
    let open = quote(at);
    (!marker_at(text, open)).then_some(open)
}

/// The end of a digest's parameters: a line break, not the quotes inside.
fn digest_end(text: &ScanText<'_>, start: usize) -> usize {
    if !text.starts_folded(start, b"username") || marker_at(text, start) {
        return start;
    }
    let mut at = start;
    while !matches!(text.at(at), b'\n' | b'\r') && at < text.len() && text.line_break(at).is_none()
    {
        at += 1;
    }
    at
}

/// The end of a cookie's pairs: the first blank without a `;` before it.
fn pairs_end(text: &ScanText<'_>, start: usize) -> usize {
    let mut at = start;
    loop {
        match text.at(at) {
            b' ' if text.before(at) == b';' => {}
            b'\\' | b'"' | b'\'' | b'`' => break,
            byte if !byte.is_ascii_graphic() => break,
            _ => {}
        }
        at += 1;
    }
    while matches!(text.before(at), b';' | b' ' | b',' | b'.') {
        at -= 1;
    }
    at
}
