//! Names of private hosts with their ports: by what a message says about them, by their domain, or by their port.
//!
//! A public name on a web port stays, because an error must name the service that failed.

use super::replacement::{Marker, Replacement, marker_at};
use super::rules::TAKEN_BEFORE_MAX;
use super::text::{Class, ScanText};

/// What precedes the name of a host in messages about connections.
#[rustfmt::skip]
pub(super) const PHRASES: [&str; 22] = [
    "dial tcp ", "dial tcp4 ", "dial udp ", "connect to ", "connecting to ", "connected to ",
    "connection to ", "econnrefused ", "enotfound ", "etimedout ", "ehostunreach ", "econnreset ",
    "eai_again ", "server on ", "host name ", "unknown host ", "lookup ", "reach ",
    "连接到", "连接", "主机", "访问",
];

/// Domains that exist in private networks only.
#[rustfmt::skip]
pub(super) const DOMAINS: [&str; 10] = [
    ".internal", ".local", ".lan", ".corp", ".intranet", ".svc", ".consul", ".localdomain",
    ".home.arpa", ".private",
];

/// Ports of databases and brokers, as they follow a name.
#[rustfmt::skip]
pub(super) const PORTS: [&str; 22] = [
    ":1433", ":1521", ":2181", ":2379", ":3306", ":3307", ":4222", ":5432", ":5433", ":5671",
    ":5672", ":6379", ":6380", ":6432", ":7687", ":8123", ":9042", ":9092", ":9200", ":11211",
    ":26257", ":27017",
];

/// Parts of a name without dots that show it to be a host.
const HOST_WORDS: [&[u8]; 18] = [
    b"db",
    b"sql",
    b"pg",
    b"postgres",
    b"redis",
    b"mongo",
    b"rabbit",
    b"kafka",
    b"cache",
    b"elastic",
    b"queue",
    b"broker",
    b"primary",
    b"replica",
    b"maria",
    b"etcd",
    b"node",
    b"mq",
];

/// Ends of file names, after which a number is a line.
#[rustfmt::skip]
const FILES: [&[u8]; 40] = [
    b"rs", b"go", b"py", b"js", b"ts", b"tsx", b"jsx", b"java", b"c", b"h", b"cc", b"cpp", b"hpp",
    b"rb", b"php", b"cs", b"kt", b"swift", b"md", b"txt", b"json", b"yaml", b"yml", b"toml",
    b"log", b"html", b"css", b"sql", b"sh", b"lua", b"ex", b"scala", b"vue", b"proto", b"mjs",
    b"xml", b"ini", b"conf", b"zig", b"ml",
];

/// Words between a phrase and the name.
#[rustfmt::skip]
const BETWEEN: [&[u8]; 22] = [
    b"tcp", b"host", b"server", b"at", b"on", b"the", b"database", b"mysql", b"redis", b"postgres",
    b"postgresql", b"mongodb", b"broker", b"address", b"peer", b"node", b"port", b"upstream",
    b"backend", b"proxy", b"service", b"cluster",
];

/// The longest name of a host, in bytes.
const NAME_MAX: usize = 128;

/// A host after one of [`PHRASES`].
pub(super) fn after_phrase(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    if text.at(start).is_ascii() && !text.word_starts(start) {
        return None;
    }
    let mut at = text.skip_blanks(end, 2);
    for _ in 0..4 {
        let word = text.run_within(Class::Alnum, at, 12);
        let known = BETWEEN.iter().any(|known| text.slice(at, word).eq_ignore_ascii_case(known));
        if !known || text.at(word) != b' ' {
            break;
        }
        at = word + 1;
    }
    let slashes = text.backslashes(at);
    let quoted = matches!(text.at(at + slashes), b'"' | b'\'' | b'`');
    let name = if quoted { at + slashes + 1 } else { at };
    named(text, name, quoted)
}

/// The host at `start`, if it has a port or is private by its domain.
fn named(text: &ScanText<'_>, start: usize, quoted: bool) -> Option<Replacement> {
    if marker_at(text, start) || !Class::Alnum.has(text.at(start)) {
        return None;
    }
    let mut end = text.run_within(Class::Dotted, start, NAME_MAX);
    while text.before(end) == b'.' {
        end -= 1;
    }
    let name = text.slice(start, end);
    if name.len() >= NAME_MAX || !is_name(name) {
        return None;
    }
    let stop = port(text, end).or_else(|| port_in_words(text, end, quoted));
    match stop {
        Some((stop, port)) => (!is_service(name, port) && !is_file(name))
            .then(|| Replacement::new(start, stop, Marker::Address)),
        None => is_private(name).then(|| Replacement::new(start, end, Marker::Address)),
    }
}

/// A name with one of [`DOMAINS`] and a port, or in a URL; the trigger is the domain.
pub(super) fn domain(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let head = name_start(text, start)?;
    let rest = text.run_within(Class::Dotted, end, 64);
    let rest = rest - usize::from(rest > end && text.before(rest) == b'.');
    if rest > end && text.at(end) != b'.' || !is_private(text.slice(head, rest)) {
        return None;
    }
    let in_url = text.ends(head, b"//") || text.before(head) == b'@';
    let (stop, number) = port(text, rest).unwrap_or((rest, b""));
    (in_url || number.len() >= 4 || SMALL_PORTS.contains(&number))
        .then(|| Replacement::new(head, stop, Marker::Address))
}

/// Ports below 1000 that are more likely a port than the number of a line.
const SMALL_PORTS: [&[u8]; 9] =
    [b"22", b"25", b"53", b"80", b"389", b"443", b"465", b"587", b"636"];

/// A name before one of [`PORTS`]; the trigger is the port.
pub(super) fn before_port(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let next = text.at(end);
    if Class::Alnum.has(next) || matches!(next, b':' | b'_' | b'-') && text.at(end + 1) != b' ' {
        return None;
    }
    let head = name_start(text, start)?;
    let name = text.slice(head, start);
    // In the URL of a web service, a public name stays on any port.
    let dotted = memchr::memchr(b'.', name).is_some() && !text.ends(head, b"//");
    let lower = name.to_ascii_lowercase();
    let known = || HOST_WORDS.iter().any(|word| memchr::memmem::find(&lower, word).is_some());
    let host = is_name(name) && !is_file(name) && (dotted || known());
    host.then(|| Replacement::new(head, end, Marker::Address))
}

/// The start of the name that ends at `end`; `None` for a path, a marker or an empty name.
fn name_start(text: &ScanText<'_>, end: usize) -> Option<usize> {
    let mut head = text.run_back(Class::Dotted, end, TAKEN_BEFORE_MAX);
    if text.escape_ends(head + 1) && text.before(head) == b'\\' {
        head += 1;
    }
    let path = matches!(text.before(head), b'/' | b'\\' | b':' | b'~')
        && !text.ends(head, b"//")
        && !text.escape_ends(head);
    (head < end && !path && Class::Alnum.has(text.at(head))).then_some(head)
}

/// The port at `end`: where it stops, and its digits.
fn port<'a>(text: &ScanText<'a>, end: usize) -> Option<(usize, &'a [u8])> {
    let digits = end + 1;
    if text.at(end) != b':' {
        return None;
    }
    let stop = text.run_within(Class::Digit, digits, 6);
    let fits = (2..=5).contains(&(stop - digits)) && !Class::Alnum.has(text.at(stop));
    fits.then(|| (stop, text.slice(digits, stop)))
}

/// `host port 22`, `"host" (10.0.0.7), port 5432`; the name alone stops before the words.
fn port_in_words<'a>(text: &ScanText<'a>, end: usize, quoted: bool) -> Option<(usize, &'a [u8])> {
    let closed = if quoted { end + text.backslashes(end) + 1 } else { end };
    let words: [&[u8]; 4] = [b" port ", b", port ", b":", b" ("];
    let word = words.iter().find(|word| text.starts(closed, word))?;
    let at = closed + word.len();
    let digits = text.run_within(Class::Digit, at, 6);
    let listed = if *word == b" (" { quoted } else { digits > at };
    listed.then(|| (end, text.slice(at, digits)))
}

/// Whether the bytes may name a host: a letter, and no empty label.
fn is_name(name: &[u8]) -> bool {
    name.iter().any(u8::is_ascii_alphabetic) && memchr::memmem::find(name, b"..").is_none()
}

/// Whether a name with dots ends like the name of a file.
fn is_file(name: &[u8]) -> bool {
    let Some(dot) = memchr::memrchr(b'.', name) else { return false };
    FILES.iter().any(|end| name[dot + 1..].eq_ignore_ascii_case(end))
}

/// Whether a public name on a web port is meant, which a reader needs.
fn is_service(name: &[u8], port: &[u8]) -> bool {
    let web: [&[u8]; 4] = [b"443", b"80", b"8443", b""];
    let dotted = memchr::memchr(b'.', name).is_some();
    web.contains(&port) && dotted && !is_private(name)
}

/// Whether the domain of a name exists in private networks only.
fn is_private(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    let inside = memchr::memmem::find(&lower, b".svc.").is_some();
    inside || DOMAINS.iter().any(|domain| lower.ends_with(domain.as_bytes()))
}
