//! Home directories. Whose home it is says who somebody is; where in it the trouble lies stays.

use super::span::{Marker, Span};
use super::text::{Class, Text};

/// `/home/alice`, `/Users/alice`: the trigger is the parent.
pub(super) fn posix(text: &Text<'_>, start: usize, end: usize) -> Option<Span> {
    let exact = text.starts(start, b"/home/") || text.starts(start, b"/Users/");
    if !exact || !path_starts(text, start) {
        return None;
    }
    let mut stop = text.run_within(Class::Login, end, 64);
    while text.before(stop) == b'.' && stop > end {
        stop -= 1;
    }
    let login = text.slice(end, stop);
    if login.is_empty() || login == b"Shared" || is_route(text, start, stop) {
        return None;
    }
    Some(Span::new(start, stop, Marker::Home))
}

/// `/root`, and nothing that merely begins so.
pub(super) fn root(text: &Text<'_>, start: usize, end: usize) -> Option<Span> {
    let dot = text.at(end) == b'.' && !Class::Login.has(text.at(end + 1));
    let whole = dot || !Class::Login.has(text.at(end));
    let exact = whole && text.starts(start, b"/root") && path_starts(text, start);
    (exact && !is_route(text, start, end)).then(|| Span::new(start, end, Marker::Home))
}

/// `C:\Users\alice`, also with escaped or forward slashes: the trigger begins at the colon.
pub(super) fn windows(text: &Text<'_>, start: usize, end: usize) -> Option<Span> {
    let drive = start.checked_sub(1)?;
    if !text.before(start).is_ascii_alphabetic() || !text.word_starts(drive) {
        return None;
    }
    let stop = windows_login(text, end);
    let login = text.slice(end, stop).to_ascii_lowercase();
    if login.is_empty() || [&b"public"[..], b"default", b"all users"].contains(&&login[..]) {
        return None;
    }
    Some(Span::new(drive, stop, Marker::Home))
}

/// A Windows login may hold blanks; then a backslash must follow to show where it ends.
fn windows_login(text: &Text<'_>, start: usize) -> usize {
    let bare = text.run_within(Class::Login, start, 64);
    let mut end = bare;
    while end < start + 48 && (Class::Login.has(text.at(end)) || text.at(end) == b' ') {
        end += 1;
    }
    if text.at(end) == b'\\' && text.line_break(end).is_none() { end } else { bare }
}

/// Whether a path can start here: not in the middle of a longer one, nor after a host's name.
fn path_starts(text: &Text<'_>, start: usize) -> bool {
    let before = text.before(start);
    let joined =
        Class::Login.has(before) || matches!(before, b'/' | b'~' | b']' | b'}' | b')' | b'%');
    !joined || text.ends(start, b"file://") || text.escape_ends(start)
}

/// Whether this is the path of a web page: `GET /home/news`, `href="/home/news"`.
fn is_route(text: &Text<'_>, start: usize, end: usize) -> bool {
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
