//! Passwords and tokens in URLs and connection strings.

use super::replacement::{Marker, Replacement, holds_marker, marker_at};
use super::text::{Class, ScanText};
use super::token::looks_random;
use super::value::is_placeholder;

/// The longest password with a raw `/` in it, in bytes.
const SLASHED_MAX: usize = 64;

/// `scheme://user:password@host`: replaces the password, or the user if that is a token by itself.
pub(super) fn userinfo(text: &ScanText<'_>, _start: usize, end: usize) -> Option<Replacement> {
    let stop = text.run(Class::Authority, end);
    let authority = text.slice(end, stop);
    let colon = memchr::memchr(b':', authority).map(|offset| end + offset);
    if colon.is_some_and(|colon| marker_at(text, colon + 1)) {
        return None;
    }
    let at = match memchr::memrchr(b'@', authority) {
        Some(offset) => end + offset,
        None => slashed(text, colon?, stop)?,
    };
    match colon.filter(|&colon| colon < at) {
        Some(colon) => {
            let password = text.slice(colon + 1, at);
            let known = is_placeholder(password) || holds_marker(password);
            let example = is_example(text.slice(end, colon), password, text.slice(at + 1, stop));
            (!known && !example).then(|| Replacement::new(colon + 1, at, Marker::Password))
        }
        None => {
            let user = text.slice(end, at);
            let secret = user.len() >= 16 && user.iter().any(u8::is_ascii_digit);
            let bare = user.iter().all(|&byte| Class::Word.has(byte)) && looks_random(user);
            (secret && bare).then(|| Replacement::new(end, at, Marker::Token))
        }
    }
}

/// Whether the parts of a URL are named and not filled: `user:password@host`.
fn is_example(user: &[u8], password: &[u8], host: &[u8]) -> bool {
    let names =
        |part: &[u8], names: [&[u8]; 2]| names.iter().any(|name| part.eq_ignore_ascii_case(name));
    names(user, [b"user", b"username"])
        && names(password, [b"pass", b"password"])
        && host.get(..4).is_some_and(|host| host.eq_ignore_ascii_case(b"host"))
}

/// Finds the `@` after a password that contains a `/`. A numeric port is not a password.
fn slashed(text: &ScanText<'_>, colon: usize, stop: usize) -> Option<usize> {
    let port = text.slice(colon + 1, stop);
    if text.at(stop) != b'/' || port.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut at = stop;
    while at < stop + SLASHED_MAX {
        match text.at(at) {
            b'@' => return Some(at),
            byte if Class::Authority.has(byte) || matches!(byte, b'/' | b'?' | b'#') => at += 1,
            _ => return None,
        }
    }
    None
}

/// `jdbc:oracle:thin:scott/tiger@host`: replaces the password.
pub(super) fn oracle(text: &ScanText<'_>, _start: usize, end: usize) -> Option<Replacement> {
    let user = text.run_within(Class::Dotted, end, 64);
    if text.at(user) != b'/' || user == end {
        return None;
    }
    let at = (user + 1..user + 129)
        .find(|&index| !Class::Value.has(text.at(index)) || text.at(index) == b'@')?;
    (text.at(at) == b'@' && at > user + 1 && !marker_at(text, user + 1))
        .then(|| Replacement::new(user + 1, at, Marker::Password))
}

/// A completely percent-encoded URL: `postgres%3A%2F%2Fuser%3Apassword%40host`.
pub(super) fn encoded_userinfo(
    text: &ScanText<'_>,
    _start: usize,
    end: usize,
) -> Option<Replacement> {
    let user = text.run_within(Class::Dotted, end, 64);
    if !text.starts_folded(user, b"%3a") {
        return None;
    }
    let start = user + 3;
    let stop = (start..start + 128).find(|&at| {
        text.starts_folded(at, b"%40") || !(Class::Dotted.has(text.at(at)) || text.at(at) == b'%')
    })?;
    (stop > start && text.starts(stop, b"%40"))
        .then(|| Replacement::new(start, stop, Marker::Password))
}

/// Programs that take a password in a short flag: `mysql -psecret`, `redis-cli -a secret`.
pub(super) const CLIENTS: [(&str, &[u8]); 6] = [
    ("mysql", b" -p"),
    ("mysqldump", b" -p"),
    ("sshpass", b" -p "),
    ("redis-cli", b" -a "),
    ("docker login", b" -p "),
    ("ldapsearch", b" -w "),
];

/// How many bytes after the program's name are searched for the flag.
const CLIENT_MAX: usize = 96;

/// The password among the arguments of one of [`CLIENTS`]; the trigger is the program's name.
pub(super) fn client_flag(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let named =
        |(name, _): &&(&str, _)| name.len() == end - start && text.starts(start, name.as_bytes());
    let (_, flag) = CLIENTS.iter().find(named)?;
    let stop = |index: usize| matches!(text.at(index), b'\n' | b'|' | b';' | 0);
    let at = (end..end + CLIENT_MAX).find(|&at| stop(at) || text.starts(at, flag))?;
    let at = at + flag.len();
    let open = at + usize::from(matches!(text.at(at), b'"' | b'\''));
    if !text.starts(at - flag.len(), flag) || marker_at(text, open) {
        return None;
    }
    let end = (open..open + 128).find(|&index| !Class::Value.has(text.at(index)))?;
    let password = text.slice(open, end);
    let known = is_placeholder(password) || holds_marker(password);
    (!known).then(|| Replacement::new(open, end, Marker::Password))
}

/// `curl -u user:password`: replaces the password. The trigger ends before the user.
pub(super) fn user_flag(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    if Class::Word.has(text.before(start)) && text.at(start) != b' ' {
        return None;
    }
    let open = usize::from(matches!(text.at(end), b'"' | b'\''));
    let user = text.run_within(Class::Dotted, end + open, 64);
    if text.at(user) != b':' || user == end + open || marker_at(text, user + 1) {
        return None;
    }
    let stop = (user + 1..user + 129).find(|&index| !Class::Value.has(text.at(index)))?;
    let password = text.slice(user + 1, stop);
    let plain = password.iter().all(u8::is_ascii_digit) || is_placeholder(password);
    (!plain && !holds_marker(password)).then(|| Replacement::new(user + 1, stop, Marker::Password))
}
