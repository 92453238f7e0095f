//! Connection strings of databases and message brokers: URLs, Go's MySQL form, and lists of `key=value`.
//!
//! User, password, host, port and database are replaced together, because each of them describes a private system.
//! The scheme of a URL stays, so that a message still says which sort of service failed.

use super::replacement::{Marker, Replacement, marker_at};
use super::rules::TAKEN_BEFORE_MAX;
use super::text::{Class, ScanText};
use super::value;

/// Schemes of services that only a program of the operator connects to. Sorted, for a binary search.
#[rustfmt::skip]
const SCHEMES: [&str; 50] = [
    "amqp", "amqps", "bolt", "cassandra", "clickhouse", "clickhouses", "cockroach", "cockroachdb",
    "couchbase", "couchbases", "db2", "etcd", "hive2", "influxdb", "kafka", "ldap", "ldaps",
    "mariadb", "memcache", "memcached", "mongodb", "mqtt", "mqtts", "mssql", "mysql", "mysqlx",
    "nats", "neo4j", "neo4js", "oracle", "pgsql", "postgis", "postgres", "postgresql", "presto",
    "pulsar", "rabbitmq", "redis", "rediss", "redshift", "scylla", "smtp", "smtps", "snowflake",
    "sqlserver", "stomp", "tcp", "trino", "vertica", "zookeeper",
];

/// The longest scheme, in bytes.
const SCHEME_MAX: usize = 24;
/// The longest marker, in bytes.
const MARKER_MAX: usize = 40;
/// How many markers one connection string may contain.
const MARKERS: usize = 6;

/// Whether a scheme of [`SCHEMES`] ends at `end`; `postgresql+asyncpg` and `mongodb+srv` count.
fn is_service(text: &ScanText<'_>, end: usize) -> bool {
    let last = text.run_back(Class::Alnum, end, SCHEME_MAX);
    let driver = text.before(last) == b'+' && Class::Alnum.has(text.before(last - 1));
    let (start, stop) = if driver {
        (text.run_back(Class::Alnum, last - 1, SCHEME_MAX), last - 1)
    } else {
        (last, end)
    };
    let scheme = text.slice(start, stop).to_ascii_lowercase();
    SCHEMES.binary_search_by(|known| known.as_bytes().cmp(&scheme)).is_ok()
}

/// `postgres://user:password@host:5432/database?…`; the trigger is `://`.
pub(super) fn url(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    if !is_service(text, start) {
        return None;
    }
    let first = text.at(end);
    if !(Class::Alnum.has(first) || matches!(first, b'[' | b':' | b'%' | b'@' | b'_'))
        || marker_at(text, end)
    {
        return None;
    }
    let stop = url_end(text, end);
    (stop > end && !is_template(text.slice(end, stop)))
        .then(|| Replacement::new(end, stop, Marker::Connection))
}

/// The end of a URL that may contain markers, without the punctuation of the sentence around it.
fn url_end(text: &ScanText<'_>, start: usize) -> usize {
    let authority = text.run(Class::Authority, start);
    let user = memchr::memrchr(b'@', text.slice(start, authority));
    let mut stop = text.run(Class::Url, start + user.unwrap_or(0));
    for _ in 0..MARKERS {
        let Some(next) = marker_end(text, start, stop) else { break };
        stop = text.run(Class::Url, next);
    }
    trimmed(text, start, stop)
}

/// The end of the marker that the blank at `stop` is part of.
fn marker_end(text: &ScanText<'_>, start: usize, stop: usize) -> Option<usize> {
    let floor = stop.saturating_sub(MARKER_MAX).max(start);
    let open = floor + memchr::memrchr(b'[', text.slice(floor, stop))?;
    if text.at(stop) != b' ' || !marker_at(text, open) {
        return None;
    }
    (stop..stop + MARKER_MAX).find(|&at| text.at(at) == b']').map(|close| close + 1)
}

/// `end` without the punctuation before it that belongs to the sentence.
fn trimmed(text: &ScanText<'_>, start: usize, end: usize) -> usize {
    let ends = |byte: u8| b".,:;!?*)]}".contains(&byte);
    let mut at = end;
    // A closing bracket belongs to the address if it has been opened in it.
    let open = memchr::memchr(b'[', text.slice(start, end.min(start + 256))).is_some();
    while at > start && ends(text.before(at)) && !(open && text.before(at) == b']') {
        at -= 1;
    }
    at
}

/// Whether the host of an address is a field to fill (`${HOST}`, `{host}`, `%s`) or the word itself (`user@host`).
fn is_template(address: &[u8]) -> bool {
    let host = memchr::memrchr(b'@', address).map_or(address, |at| &address[at + 1..]);
    let name = host.iter().take_while(|&&byte| Class::Word.has(byte)).count();
    let named: [&[u8]; 4] = [b"host", b"hostname", b"your-host", b"server"];
    is_field(host) || named.iter().any(|known| host[..name].eq_ignore_ascii_case(known))
}

/// Whether a template's field is at the start of `host`, or a braced one anywhere in it.
fn is_field(host: &[u8]) -> bool {
    let first = host.first().is_some_and(|byte| matches!(byte, b'$' | b'%'));
    first || memchr::memchr2(b'{', b'<', host).is_some()
}

/// A completely percent-encoded URL; the trigger is `%3A%2F%2F`.
pub(super) fn encoded_url(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    if !is_service(text, start) {
        return None;
    }
    let part = |at: usize| Class::Dotted.has(text.at(at)) || matches!(text.at(at), b'%' | b'+');
    let mut stop = end;
    while part(stop) {
        stop += 1;
    }
    while text.before(stop) == b'.' {
        stop -= 1;
    }
    (stop > end).then(|| Replacement::new(end, stop, Marker::Connection))
}

/// An Oracle address after `jdbc:oracle:thin:`, with a login (`scott/tiger@host:1521:orcl`) or without (`@//host/service`).
pub(super) fn oracle(text: &ScanText<'_>, _start: usize, end: usize) -> Option<Replacement> {
    if marker_at(text, end) {
        return None;
    }
    let stop = url_end(text, end);
    let address = text.slice(end, stop);
    (memchr::memchr(b'@', address).is_some() && !is_template(address))
        .then(|| Replacement::new(end, stop, Marker::Connection))
}

/// `user:password@tcp(host:3306)/database?…`; the trigger is `@tcp(` or `@unix(`.
pub(super) fn go_mysql(text: &ScanText<'_>, start: usize, end: usize) -> Option<Replacement> {
    let close =
        (end..end + 256).find(|&at| !(Class::Url.has(text.at(at)) && text.at(at) != b')'))?;
    if text.at(close) != b')' || close == end {
        return None;
    }
    let head = login_start(text, start);
    let login = text.slice(head, start);
    let colon = memchr::memchr(b':', login).unwrap_or(login.len());
    let lead = login[..colon].iter().rposition(|byte| b"=([{,>".contains(byte));
    let head = head + lead.map_or(0, |at| at + 1);
    let stop = if text.at(close + 1) == b'/' { text.run(Class::Url, close + 1) } else { close + 1 };
    let stop = trimmed(text, close + 1, stop).max(close + 1);
    (head < start && !is_field(text.slice(end, close)))
        .then(|| Replacement::new(head, stop, Marker::Connection))
}

/// The start of the login that ends at `end`, across the marker of a password that has been removed already.
fn login_start(text: &ScanText<'_>, end: usize) -> usize {
    let floor = end.saturating_sub(MARKER_MAX);
    let open = memchr::memrchr(b'[', text.slice(floor, end)).map(|at| floor + at);
    match open.filter(|&open| text.before(end) == b']' && marker_at(text, open)) {
        Some(open) => text.run_back(Class::Value, open, TAKEN_BEFORE_MAX - MARKER_MAX),
        None => text.run_back(Class::Value, end, TAKEN_BEFORE_MAX),
    }
}

/// What a key of a connection string describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Host,
    Port,
    User,
    Password,
    Database,
    /// An option such as `sslmode`.
    Option,
}

/// The keys of connection strings, in lower case.
#[rustfmt::skip]
const KEYS: &[(&str, Field)] = &[
    ("host", Field::Host), ("hostaddr", Field::Host), ("server", Field::Host),
    ("data source", Field::Host), ("addr", Field::Host), ("address", Field::Host),
    ("datasource", Field::Host), ("hostname", Field::Host), ("db_host", Field::Host),
    ("user", Field::User), ("username", Field::User), ("user id", Field::User),
    ("uid", Field::User), ("userid", Field::User),
    ("dbname", Field::Database), ("database", Field::Database), ("db", Field::Database),
    ("initial catalog", Field::Database), ("databasename", Field::Database),
    ("password", Field::Password), ("pwd", Field::Password), ("passwd", Field::Password),
    ("port", Field::Port),
    ("sslmode", Field::Option), ("connect_timeout", Field::Option), ("timezone", Field::Option),
    ("application_name", Field::Option), ("sslrootcert", Field::Option), ("charset", Field::Option),
    ("options", Field::Option), ("target_session_attrs", Field::Option), ("driver", Field::Option),
    ("search_path", Field::Option), ("client_encoding", Field::Option),
];

/// The keys that may start a connection string, with their `=`.
#[rustfmt::skip]
pub(super) const TRIGGERS: [&str; 16] = [
    "host=", "hostaddr=", "server=", "data source=", "addr=", "address=", "hostname=", "user=",
    "username=", "user id=", "uid=", "dbname=", "database=", "initial catalog=", "password=",
    "pwd=",
];

/// The most pairs that one connection string has.
const PAIRS_MAX: usize = 16;
/// The longest key of an option, in bytes.
const KEY_MAX: usize = 32;
/// The longest value that is read as part of a connection string, in bytes.
const VALUE_MAX: usize = 128;

/// How the pairs of a connection string are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separator {
    Blank,
    Comma,
    Semicolon,
}

/// A pair of key and value.
struct Pair {
    field: Field,
    start: usize,
    end: usize,
    quoted: bool,
}

/// The fields found so far.
#[derive(Default)]
struct FieldSet {
    host: bool,
    port: bool,
    user: bool,
    password: bool,
    database: bool,
}

impl FieldSet {
    fn add(&mut self, field: Field) {
        match field {
            Field::Host => self.host = true,
            Field::Port => self.port = true,
            Field::User => self.user = true,
            Field::Password => self.password = true,
            Field::Database => self.database = true,
            Field::Option => {}
        }
    }

    /// Whether the fields describe a connection to a database.
    fn is_connection(&self) -> bool {
        (self.host && (self.database || self.password))
            || (self.database && (self.user || self.password))
            || (self.host && self.port && self.user)
    }
}

/// `host=… port=… user=… password=… dbname=…` and `Server=…;Database=…;Uid=…;Pwd=…`.
pub(super) fn pairs(text: &ScanText<'_>, start: usize, _end: usize) -> Option<Replacement> {
    if !text.word_starts(start) || matches!(text.before(start), b'_' | b'-' | b'.' | b'?' | b'&') {
        return None;
    }
    let first = pair(text, start, None)?;
    let (from, mut stop) = (first.start, first.end);
    let (mut found, mut separator) = (FieldSet::default(), None);
    let mut next = Some(first);
    for _ in 0..PAIRS_MAX {
        let Some(pair) = next.take() else { break };
        if !is_variable(text, &pair) {
            found.add(pair.field);
        }
        stop = pair.end;
        let Some((between, at)) = separated(text, pair.end) else { break };
        if *separator.get_or_insert(between) != between {
            break;
        }
        next = self::pair(text, at, Some(between))
            .filter(|next| between != Separator::Comma || next.quoted || next.field == Field::Port);
    }
    if found.is_connection() {
        return Some(Replacement::new(start, stop, Marker::Connection));
    }
    let address = found.host && found.port && !is_public(text, from);
    (address && stop > from).then(|| Replacement::new(from, stop, Marker::Address))
}

/// Whether a value is a template's field, a variable of code, or the key itself.
fn is_variable(text: &ScanText<'_>, pair: &Pair) -> bool {
    let value = text.slice(pair.start, pair.end);
    let Some(&first) = value.first() else { return true };
    let template = matches!(first, b'$' | b'{' | b'<' | b'(') || value.starts_with(b"%s");
    let known = KEYS.iter().any(|(key, _)| value.eq_ignore_ascii_case(key.as_bytes()));
    template || (known && !pair.quoted) || value.starts_with(b"%d")
}

/// Whether a host at `start` is reachable for everybody, or none at all.
fn is_public(text: &ScanText<'_>, start: usize) -> bool {
    text.starts(start, b"0.0.0.0") || text.starts(start, b"[::]") || text.starts(start, b"example")
}

/// The pair at `start`. After a semicolon, any key counts as an option.
fn pair(text: &ScanText<'_>, start: usize, before: Option<Separator>) -> Option<Pair> {
    let semicolon = before == Some(Separator::Semicolon);
    let blank = |byte: u8| byte == b' ' && (semicolon || before.is_none());
    let end = (start..start + KEY_MAX).find(|&at| {
        let byte = text.at(at);
        !(Class::Word.has(byte) || blank(byte))
    })?;
    let key = text.slice(start, end).to_ascii_lowercase();
    let known = KEYS.iter().find(|(name, _)| name.as_bytes() == key.trim_ascii());
    let field = known.map(|(_, field)| *field).or(semicolon.then_some(Field::Option))?;
    if text.at(end) != b'=' || text.at(end + 1) == b'=' || key.is_empty() {
        return None;
    }
    read(text, end + 1, field, semicolon || before.is_none())
}

/// The value at `start`, with its quotes' ends.
fn read(text: &ScanText<'_>, start: usize, field: Field, semicolons: bool) -> Option<Pair> {
    if marker_at(text, start) {
        let close = (start..start + MARKER_MAX).find(|&at| text.at(at) == b']')?;
        return Some(Pair { field, start, end: close + 1, quoted: true });
    }
    let slashes = text.backslashes(start);
    if matches!(text.at(start + slashes), b'"' | b'\'') {
        let value = value::quoted(text, start, VALUE_MAX);
        let close = value.end + slashes + 1;
        return (value.end < value.start + VALUE_MAX).then_some(Pair {
            field,
            start: value.start,
            end: close.min(text.len()),
            quoted: true,
        });
    }
    let value = value::bare(text, start, VALUE_MAX);
    let end = semicolons.then(|| before_semicolon(text, start)).flatten().unwrap_or(value.end);
    (end > start && end < start + VALUE_MAX).then_some(Pair { field, start, end, quoted: false })
}

/// The semicolon after a value that may contain blanks: `Data Source=tcp:host,1433;`.
fn before_semicolon(text: &ScanText<'_>, start: usize) -> Option<usize> {
    let end = (start..start + VALUE_MAX).find(|&at| {
        let byte = text.at(at);
        !(Class::Value.has(byte) || byte == b' ') || byte == b'='
    })?;
    (text.at(end) == b';').then_some(end)
}

/// The separator at `at`, and the start of the next key.
fn separated(text: &ScanText<'_>, at: usize) -> Option<(Separator, usize)> {
    let blanks = text.skip_blanks(at, 4);
    match text.at(blanks) {
        b';' => Some((Separator::Semicolon, text.skip_blanks(blanks + 1, 4))),
        b',' => Some((Separator::Comma, text.skip_blanks(blanks + 1, 4))),
        _ => (blanks > at).then_some((Separator::Blank, blanks)),
    }
}
