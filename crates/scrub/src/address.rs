//! Private addresses, with their ports.

use super::replacement::{Marker, Replacement, marker_at};
use super::text::{Class, ScanText};

/// `10.0.0.7`, `192.168.1.5:8080`; the trigger is the first octets.
pub(super) fn ipv4(text: &ScanText<'_>, start: usize) -> Option<Replacement> {
    let before = text.before(start);
    if !text.word_starts(start) || matches!(before, b'.' | b'_' | b'~') {
        return None;
    }
    let (octets, end) = octets(text, start, b'.')?;
    if !is_private(octets) || continues(text, end) {
        return None;
    }
    let mapped = b"::ffff:";
    let head = if text.ends(start, mapped) { start - mapped.len() } else { start };
    let (head, end) = bracketed(text, head, end);
    Some(Replacement::new(head, port(text, end), Marker::Address))
}

/// `ip-10-0-0-7`: a cloud machine named after its private address.
pub(super) fn dashed(text: &ScanText<'_>, start: usize, literal: &[u8]) -> Option<Replacement> {
    if !text.word_starts(start) {
        return None;
    }
    let (octets, end) = octets(text, start + literal.len(), b'-')?;
    (is_private(octets) && !Class::Word.has(text.at(end)))
        .then(|| Replacement::new(start, port(text, end), Marker::Address))
}

/// `localhost:5432`; the word without a port is harmless and stays.
pub(super) fn localhost(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let before = text.before(start);
    let joined = !text.word_starts(start) || matches!(before, b'.' | b'_' | b'-' | b'~');
    let stop = port(text, end - 1);
    (!joined && stop > end).then(|| Replacement::new(start, stop, Marker::Address))
}

/// `::1`, `fd00::1`, `[fe80::1%eth0]:443`; the trigger is the start of the address.
pub(super) fn ipv6(text: &ScanText<'_>, start: usize) -> Option<Replacement> {
    let before = text.before(start);
    if !text.word_starts(start) || matches!(before, b':' | b'.' | b'_' | b'-' | b'~') {
        return None;
    }
    let end = hextets(text, start)?;
    let zone = if text.at(end) == b'%' { text.run_within(Class::Word, end + 1, 16) } else { end };
    let end = if zone > end + 1 { zone } else { end };
    if continues(text, end) {
        return None;
    }
    let (head, end) = match bracketed(text, start, end) {
        (head, end) if head < start => (head, port(text, end)),
        plain => plain,
    };
    Some(Replacement::new(head, end, Marker::Address))
}

/// Four octets with `separator` between them, and their end.
fn octets(text: &ScanText<'_>, start: usize, separator: u8) -> Option<([u8; 4], usize)> {
    let mut octets = [0; 4];
    let mut at = start;
    for (index, octet) in octets.iter_mut().enumerate() {
        if index > 0 {
            if text.at(at) != separator {
                return None;
            }
            at += 1;
        }
        let end = text.run_within(Class::Digit, at, 4);
        *octet = std::str::from_utf8(text.slice(at, end)).ok()?.parse().ok()?;
        at = end;
    }
    Some((octets, at))
}

fn is_private(octets: [u8; 4]) -> bool {
    matches!(
        octets,
        [10 | 127, ..] | [192, 168, ..] | [169, 254, ..] | [172, 16..=31, ..] | [100, 64..=127, ..]
    )
}

/// The end of the hextets from `start`, if they form one address: eight of them, or fewer around one `::`. A dotted
/// tail (`::ffff:10.0.0.1`) is left to [`ipv4`].
fn hextets(text: &ScanText<'_>, start: usize) -> Option<usize> {
    let mut groups = 0;
    let mut gaps = 0;
    let mut at = start;
    loop {
        let end = text.run_within(Class::Hex, at, 5);
        if end > at + 4 {
            return None;
        }
        groups += usize::from(end > at);
        if text.at(end) != b':' {
            return is_whole(groups, gaps).then_some(end);
        }
        if text.at(end + 1) == b':' {
            gaps += 1;
            at = end + 2;
        } else if Class::Hex.has(text.at(end + 1)) && end > at {
            at = end + 1;
        } else {
            // This colon is punctuation: `fd00::1: connection refused`.
            return is_whole(groups, gaps).then_some(end);
        }
        if gaps > 1 || groups > 8 {
            return None;
        }
    }
}

fn is_whole(groups: usize, gaps: usize) -> bool {
    if gaps == 1 { (1..8).contains(&groups) } else { gaps == 0 && groups == 8 }
}

/// Whether the word continues, so that the match is part of something else.
fn continues(text: &ScanText<'_>, end: usize) -> bool {
    let next = text.at(end);
    Class::Alnum.has(next)
        || next == b'_'
        || (next == b'.' && Class::Digit.has(text.at(end + 1)))
        || marker_at(text, end)
}

/// Extends an address to the brackets around it.
fn bracketed(text: &ScanText<'_>, start: usize, end: usize) -> (usize, usize) {
    let inside = text.before(start) == b'[' && text.at(end) == b']';
    // The brackets belong to the address only in a URL or before a port.
    let owned = inside && (text.at(end + 1) == b':' || text.ends(start - 1, b"//"));
    if owned { (start - 1, end + 1) } else { (start, end) }
}

/// Skips a port at `end`, if there is one.
fn port(text: &ScanText<'_>, end: usize) -> usize {
    if text.at(end) != b':' {
        return end;
    }
    let stop = text.run_within(Class::Digit, end + 1, 6);
    let digits = stop - end - 1;
    if (1..=5).contains(&digits) && !Class::Alnum.has(text.at(stop)) { stop } else { end }
}
