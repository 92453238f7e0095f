//! Home directories. The login name identifies a person and is replaced; the rest of the path stays.

use super::replacement::{Marker, Replacement, marker_at};
use super::text::{Class, ScanText};

/// `/home/alice`, `/Users/alice`; the trigger is the parent directory.
pub(super) fn posix(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let exact = text.starts(start, b"/home/") || text.starts(start, b"/Users/");
    let start = parent(text, start);
    if !exact || !path_starts(text, start) {
        return None;
    }
    let mut stop = login_end(text, end);
    while text.before(stop) == b'.' && stop > end {
        stop -= 1;
    }
    let login = text.slice(end, stop);
    if login.is_empty() || login == b"Shared" || is_route(text, start, stop) {
        return None;
    }
    Some(Replacement::new(start, stop, Marker::Home))
}

/// The start of a home directory below other directories: `/mnt/c/Users/…`, `/export/home/…`.
fn parent(text: &ScanText<'_>, start: usize) -> usize {
    let drive = start.saturating_sub(2);
    if text.ends(drive, b"/mnt")
        && text.at(drive) == b'/'
        && text.at(drive + 1).is_ascii_alphabetic()
    {
        return drive - 4;
    }
    let parents: [&[u8]; 5] = [b"/export", b"/var", b"/usr", b"/data", b"/System/Volumes/Data"];
    let parent = parents.iter().find(|parent| text.ends(start, parent));
    parent.map_or(start, |parent| start - parent.len())
}

/// `%2Fhome%2Falice`: a percent-encoded path.
pub(super) fn encoded(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let exact = text.starts(start + 3, b"home") || text.starts(start + 3, b"Users");
    let stop = text.run_within(Class::Word, end, 64);
    let joined = Class::Dotted.has(text.before(start)) && !text.escape_ends(start);
    (exact && !joined && stop > end).then(|| Replacement::new(start, stop, Marker::Home))
}

/// `/root`, but not a longer name that starts with it.
pub(super) fn root(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let goes_on = |at: usize| Class::Login.has(text.at(at)) || marker_at(text, at);
    let dot = text.at(end) == b'.' && !goes_on(end + 1);
    let whole = dot || !goes_on(end);
    let exact = whole && text.starts(start, b"/root") && path_starts(text, start);
    (exact && !is_route(text, start, end)).then(|| Replacement::new(start, end, Marker::Home))
}

/// `C:\Users\alice`, with backslashes escaped any number of times; the trigger is `\Users\`.
pub(super) fn windows(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let colon = text.backslashes_before(start);
    let login = end + text.backslashes(end);
    drive(text, colon, login)
}

/// `C:/Users/alice`; the trigger starts at the colon.
pub(super) fn windows_slashed(
    text: &ScanText<'_>,
    start: usize,
    end: usize,
) -> Option<Replacement> {
    drive(text, start + 1, end)
}

/// The drive whose colon ends at `colon_end`, with the login that starts at `login`.
fn drive(text: &ScanText<'_>, colon_end: usize, login: usize) -> Option<Replacement> {
    let drive = colon_end.checked_sub(2)?;
    let lettered = text.at(drive).is_ascii_alphabetic() && text.at(drive + 1) == b':';
    if !lettered || !text.word_starts(drive) {
        return None;
    }
    let stop = windows_login(text, login);
    let name = text.slice(login, stop).to_ascii_lowercase();
    let shared: [&[u8]; 4] = [b"", b"public", b"default", b"all users"];
    (!shared.contains(&&name[..])).then(|| Replacement::new(drive, stop, Marker::Home))
}

/// The end of a login: letters, digits and a few symbols, or a non-ASCII name up to its punctuation.
fn login_end(text: &ScanText<'_>, start: usize) -> usize {
    let mut at = text.run_within(Class::Dotted, start, 64);
    if at == start {
        while Class::Login.has(text.at(at)) && !text.wide_punctuation(at) && at < start + 64 {
            at += 1;
        }
    }
    at
}

/// The end of a Windows login. It may contain blanks if a backslash follows.
fn windows_login(text: &ScanText<'_>, start: usize) -> usize {
    let bare = login_end(text, start);
    let mut end = bare;
    while end < start + 48 && (Class::Login.has(text.at(end)) || text.at(end) == b' ') {
        end += 1;
    }
    if text.at(end) == b'\\' && text.line_break(end).is_none() { end } else { bare }
}

/// Whether a path can start here: not inside a longer path, nor after a host name.
fn path_starts(text: &ScanText<'_>, start: usize) -> bool {
    let before = text.before(start);
    let joined =
        Class::Dotted.has(before) || matches!(before, b'/' | b'~' | b']' | b'}' | b')' | b'%');
    !joined || text.ends(start, b"file://") || text.escape_ends(start)
}

/// Whether this is the path of a web page: `GET /home/news`, `href="/home/news"`.
fn is_route(text: &ScanText<'_>, start: usize, end: usize) -> bool {
    let verbs: [&[u8]; 9] = [
        b"GET ",
        b"POST ",
        b"PUT ",
        b"PATCH ",
        b"DELETE ",
        b"HEAD ",
        b"OPTIONS ",
        b"href=\"",
        b"src=\"",
    ];
    verbs.iter().any(|verb| text.ends(start, verb)) || text.starts(end, b" HTTP/")
}
