//! Decides whether a value beside a name such as `password` is a secret, or a word, a type or code.

use super::replacement::holds_marker;
use super::text::{Class, ScanText};
use super::token::{is_jumpy, is_mixed, looks_random};

/// The most bytes of a value that are examined. A longer value without a break is a secret.
pub(super) const JUDGED_MAX: usize = 128;

/// How strongly a name indicates a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameEvidence {
    /// `password`: any value that follows is a secret.
    Password,
    /// `api_key`, `client_secret`: the value is a key, unless it is clearly a word or code.
    Key,
    /// `token`, `secret`: these names have many harmless uses, so the value itself must look like a secret.
    Weak,
}

/// How firmly a name and its value belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Binding {
    /// `the password is …`
    Phrase,
    /// `password: …`, `password = …`
    Spaced,
    /// `password=…`, `--password …`, and any quoted value.
    Tight,
    /// `PASSWORD=…`, `?password=…`: never code.
    Sealed,
}

/// The range of a value in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueSpan {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) quoted: bool,
}

/// Reads the quoted value whose quote (with its backslashes) starts at `open`.
///
/// A closing quote has as many backslashes as the opening one, so JSON inside JSON works. At most `limit` bytes are
/// read, which bounds the cost of values that turn out to be harmless.
pub(super) fn quoted(text: &ScanText<'_>, open: usize, limit: usize) -> ValueSpan {
    let depth = text.backslashes(open);
    let quote = text.at(open + depth);
    let start = open + depth + 1;
    let mut at = start;
    while at - start < limit {
        match text.at(at) {
            b'\\' => {
                let slashes = text.backslashes(at);
                if text.at(at + slashes) != quote {
                    at += slashes;
                } else if slashes > depth {
                    at += slashes + 1;
                } else {
                    break;
                }
                continue;
            }
            byte if byte == quote => break,
            b'\n' => break,
            0 if at >= text.len() => break,
            _ => {}
        }
        at += 1;
    }
    ValueSpan { start, end: at, quoted: true }
}

/// Reads a bare value up to a blank, a quote or ending punctuation, at most `limit` bytes.
pub(super) fn bare(text: &ScanText<'_>, start: usize, limit: usize) -> ValueSpan {
    let mut open = 0usize;
    let mut at = start;
    while at - start < limit {
        match text.at(at) {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' if open == 0 => break,
            b')' | b']' | b'}' => open -= 1,
            b',' if comma_ends(text, at) => break,
            b'%' if encoded_end(text, at) => break,
            b'\\' if escapes(text.at(at + 1)) => break,
            b'\\' => {}
            byte if !Class::Value.has(byte) => break,
            _ => {}
        }
        at += 1;
    }
    while at > start && matches!(text.before(at), b'.' | b',' | b':' | b'?') {
        at -= 1;
    }
    ValueSpan { start, end: at, quoted: false }
}

/// Whether a backslash before `next` is an escape and not part of a password.
fn escapes(next: u8) -> bool {
    matches!(next, b'n' | b't' | b'r' | b'u' | b'"' | b'\'' | b'\\' | 0)
}

/// Whether the comma at `at` is a separator: a blank or the next name follows.
fn comma_ends(text: &ScanText<'_>, at: usize) -> bool {
    if !Class::Value.has(text.at(at + 1)) {
        return true;
    }
    let name = text.run_within(Class::Word, at + 1, 24);
    name > at + 1 && matches!(text.at(name), b'=' | b':')
}

/// Whether a percent-encoded `"`, `&`, `,` or `}` is at `at`.
fn encoded_end(text: &ScanText<'_>, at: usize) -> bool {
    [&b"%22"[..], b"%26", b"%2c", b"%7d"].iter().any(|end| text.starts_folded(at, end))
}

/// Evidence besides the value itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueContext {
    pub(super) says: NameEvidence,
    pub(super) tie: Binding,
    pub(super) quoted: bool,
    /// The byte after the value.
    pub(super) next: u8,
    /// Whether name and value fill the whole line, as in a settings file.
    pub(super) alone: bool,
}

/// Whether `value` is a secret.
pub(super) fn is_secret(value: &[u8], case: ValueContext) -> bool {
    if is_placeholder(value) || holds_marker(value) {
        return false;
    }
    let blank = value.iter().any(|byte| matches!(byte, b' ' | b'\t'));
    if value.len() > JUDGED_MAX {
        return !blank;
    }
    if blank {
        return case.says == NameEvidence::Password && !is_sentence(value);
    }
    if !value[0].is_ascii() && !case.quoted || is_word(value) || is_place(value) {
        return false;
    }
    let firm = case.tie >= Binding::Tight || (case.quoted && case.tie == Binding::Spaced);
    if !case.quoted
        && case.tie != Binding::Sealed
        && (is_code(value, case.next) || is_number(value))
    {
        return case.says == NameEvidence::Password && is_digits(value, case);
    }
    match case.says {
        NameEvidence::Password => is_password(value, case, firm),
        NameEvidence::Key if firm => is_key(value),
        NameEvidence::Key => is_opaque(value),
        NameEvidence::Weak => {
            let sealed = case.tie == Binding::Sealed && value.len() >= 8 && is_key(value);
            let said = case.tie > Binding::Phrase || value.iter().any(u8::is_ascii_digit);
            (is_opaque(value) && said) || sealed
        }
    }
}

/// Whether a bare number is a password: long enough, and not the value of a constant.
fn is_digits(value: &[u8], case: ValueContext) -> bool {
    let least = if case.alone || case.tie >= Binding::Tight { 4 } else { 6 };
    value.len() >= least && value.iter().all(u8::is_ascii_digit) && case.next != b';'
}

/// Whether a bare value is a number in code notation (`277`, `0x1f`, `16777216u32`) or its type (`u32`).
fn is_number(value: &[u8]) -> bool {
    let value = value.strip_prefix(b"-").unwrap_or(value);
    let stem = value.strip_prefix(b"0x").unwrap_or(value);
    let hexes = stem.iter().take_while(|&&byte| byte.is_ascii_hexdigit() || byte == b'_').count();
    let hex = stem.len() < value.len() && hexes <= 17 && stem.len() - hexes <= 4;
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = &value[digits..];
    let typed = |bytes: &[u8]| {
        let bare = bytes.iter().position(|&byte| byte != b'_').map_or(bytes, |at| &bytes[at..]);
        let bare = bare.strip_suffix(b"_t").unwrap_or(bare);
        let name = bare.iter().take_while(|byte| byte.is_ascii_lowercase()).count();
        let names: [&[u8]; 7] = [b"u", b"i", b"f", b"s", b"int", b"uint", b"float"];
        let sizes: [&[u8]; 6] = [b"8", b"16", b"32", b"64", b"128", b""];
        names.contains(&&bare[..name]) && sizes.contains(&&bare[name..])
    };
    hex || (digits > 0 && (rest.is_empty() || typed(rest))) || typed(value)
}

fn is_password(value: &[u8], case: ValueContext, firm: bool) -> bool {
    let letters = value.iter().all(|&byte| byte.is_ascii_alphabetic() || b"_-.".contains(&byte));
    if !letters {
        let host = value.contains(&b'.') && value.contains(&b':');
        return case.tie != Binding::Phrase || (value.len() >= 6 && looks_random(value) && !host);
    }
    let variable = mentions_secret(value);
    let type_name = value[0].is_ascii_uppercase();
    let settled = case.tie == Binding::Spaced && case.alone && !type_name;
    value.len() >= 3 && !variable && (firm || settled)
}

/// The shortest password that a blank alone ties to its name, and the most bytes of it that are examined.
const TOLD_MIN: usize = 6;
const TOLD_MAX: usize = 64;

/// Whether the word at `start` is a password by its looks: letters and digits, and a sign, a digit before a letter, or a
/// digit at the end of a `terse` name's word. `passwd utf8`, `password RFC2898` and names of files are none.
pub(super) fn is_told(text: &ScanText<'_>, start: usize, terse: bool) -> bool {
    let value = bare(text, start, TOLD_MAX);
    let word = text.slice(value.start, value.end);
    if word.len() < TOLD_MIN || word.len() >= TOLD_MAX || is_placeholder(word) || is_place(word) {
        return false;
    }
    let plain = |byte: &u8| Class::Dotted.has(*byte) || matches!(byte, b'/' | b':' | b'(' | b'=');
    let sign = word.iter().any(|byte| !plain(byte));
    let name = word.iter().any(|byte| b"/:(=".contains(byte)) && !sign;
    let letters = word.iter().any(u8::is_ascii_alphabetic);
    let digits = word.iter().any(u8::is_ascii_digit);
    let ended = terse && word.iter().all(u8::is_ascii_alphanumeric) && !is_known(word);
    letters && digits && !name && (sign || is_jumbled(word) || ended)
}

fn is_key(value: &[u8]) -> bool {
    let number = value.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    let random = value.len() >= 6 && looks_random(value);
    let short_number = number && value.len() < 16;
    !short_number && !mentions_secret(value) && (random || value.len() >= 8)
}

/// Whether a value is unlike a word: letters and digits interleaved, many changes of case, or symbols.
pub(super) fn is_opaque(value: &[u8]) -> bool {
    let number = value.iter().all(|byte| byte.is_ascii_digit() || b".,-:/%".contains(byte));
    if value.len() < 8 || (number && value.len() < 16) {
        return false;
    }
    let mut parts = value.split(|byte| b"_-./:".contains(byte));
    let wordy = |part: &[u8]| {
        let letters = part.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        let digits = part[letters..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let rest = part[letters + digits..].iter().all(u8::is_ascii_alphabetic);
        let few = digits <= 3 || (letters == 0 && digits <= 4);
        let long = is_jumpy(part)
            || (part.len() >= 32 && digits > 0)
            || (part.len() >= 16 && is_jumbled(part));
        part.len() <= 4 || (rest && few && !long && is_camel(part))
    };
    !parts.all(wordy)
}

/// Whether the humps of a part are as long as in words joined by camel case.
fn is_camel(part: &[u8]) -> bool {
    let rises = |pair: &&[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
    let humps = part.windows(2).filter(rises).count() + 1;
    humps == 1 || part.len() >= humps * 3
}

/// Whether the value stands in for a secret: masked, cut short, a template, or a reference to look up.
pub(super) fn is_placeholder(value: &[u8]) -> bool {
    let Some(&first) = value.first() else { return true };
    let same = value.iter().all(|&byte| byte == first) && !first.is_ascii_digit();
    let masked = is_masked(value);
    let second = value.get(1).copied().unwrap_or(0);
    let filled = match first {
        b'$' => {
            matches!(second, b'{' | b'(' | b'[')
                || (second.is_ascii_digit() && !value.get(2).is_some_and(u8::is_ascii_alphanumeric))
                || value[1..]
                    .iter()
                    .all(|&byte| b"_:.".contains(&byte) || byte.is_ascii_alphanumeric())
                    && !value.iter().any(u8::is_ascii_digit)
        }
        b'{' | b'<' | b'(' => true,
        b'%' => value.len() < 4 || second == b'(' || second == b'{' || value.ends_with(b"%"),
        b'#' => second == b'{',
        // A home directory: the scrubber's marker, or shell notation.
        b'~' => !second.is_ascii_alphanumeric(),
        b'[' => true,
        b'@' | b':' | b'?' => {
            value[1..].iter().all(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
        }
        _ => false,
    };
    let looked_up: [&[u8]; 8] =
        [b"your", b"op://", b"vault:", b"env:", b"env.", b"file:", b"ref+", b"arn:aws:"];
    let lookup = looked_up.iter().any(|start| {
        value.len() >= start.len() && value[..start.len()].eq_ignore_ascii_case(start)
    });
    value.len() < 3 || same || masked || filled || lookup || is_template(value)
}

/// Whether a value is masked or cut short: `sk-***`, `abc...`, `xxxx`, `…`.
fn is_masked(value: &[u8]) -> bool {
    let mut run = 0;
    let mut last = 0;
    for (at, &byte) in value.iter().enumerate() {
        run = if byte == last { run + 1 } else { 1 };
        last = byte;
        let blot = match byte {
            b'*' | b'.' => run == 3,
            b'x' | b'X' => run == 4,
            0xE2 => matches!(value.get(at + 1..at + 3), Some([0x80, 0xA6 | 0xA2])),
            _ => false,
        };
        if blot {
            return true;
        }
    }
    false
}

/// Whether a value is a template with fields to fill: `share-{id}`.
fn is_template(value: &[u8]) -> bool {
    memchr::memchr_iter(b'{', value).any(|open| {
        let name = value[open + 1..].iter().take_while(|&&byte| Class::Dotted.has(byte)).count();
        value.get(open + 1 + name) == Some(&b'}')
    })
}

/// Words that appear in place of a value: types, states, and continuations of sentences.
///
/// Sorted, for a binary search.
#[rustfmt::skip]
const WORDS: [&str; 245] = [
    "accepted", "after", "again", "all", "already", "also", "always", "an", "and", "any", "apikey",
    "argument", "arguments", "array", "asterisk", "asterisks", "async", "authentication",
    "authorization", "auto", "await", "basic", "bearer", "because", "before", "bool", "boolean",
    "both", "bytes", "can", "cannot", "changed", "char", "confidential", "config", "const",
    "correct", "could", "count", "default", "denied", "did", "digest", "disabled", "does", "each",
    "either", "email", "empty", "enabled", "encrypted", "env", "environment", "error", "every",
    "example", "expired", "external", "failed", "failure", "false", "field", "file", "filtered",
    "final", "flag", "flags", "for", "found", "from", "function", "generated", "given", "had",
    "has", "hashed", "have", "header", "here", "hidden", "how", "incorrect", "input", "int",
    "integer", "internal", "into", "invalid", "is", "key", "keychain", "keyring", "kind", "lambda",
    "length", "let", "limit", "login", "long", "managed", "masked", "maximum", "may", "message",
    "might", "minimum", "mismatch", "mismatched", "missing", "must", "mut", "name", "needed",
    "negotiate", "neither", "never", "new", "nil", "no", "none", "not", "now", "null", "number",
    "oauth", "object", "off", "ok", "omitted", "on", "only", "onto", "option", "optional",
    "options", "other", "our", "out", "output", "over", "param", "parameter", "parameters",
    "passphrase", "passwd", "password", "path", "plain", "plaintext", "private", "prompt",
    "protected", "provided", "public", "raise", "random", "received", "redacted", "ref", "refused",
    "rejected", "removed", "require", "required", "requires", "reset", "return", "returned",
    "reused", "revoked", "same", "sample", "secret", "see", "self", "sensitive", "sent", "set",
    "setting", "settings", "shall", "short", "should", "since", "size", "static", "stdin", "stdout",
    "str", "string", "strong", "such", "supplied", "tbd", "test", "text", "than", "that", "the",
    "their", "then", "there", "these", "this", "those", "throw", "todo", "token", "true", "type",
    "undefined", "under", "unknown", "unless", "unset", "until", "use", "used", "user", "username",
    "using", "valid", "value", "values", "var", "varchar", "variable", "verified", "void", "was",
    "weak", "what", "when", "where", "which", "while", "who", "why", "will", "with", "without",
    "would", "wrong", "yes", "your",
];

/// The length of the longest word in the list.
const WORD_MAX: usize = 16;

fn is_word(value: &[u8]) -> bool {
    let stem = value.trim_ascii_end();
    let end = stem.iter().rposition(|byte| !b".,:;!?".contains(byte)).map_or(0, |at| at + 1);
    stem[..end].split(|byte| matches!(byte, b'/' | b'|')).all(|word| {
        let mut lower = [0; WORD_MAX];
        let Some(lower) = lower.get_mut(..word.len()) else { return false };
        lower.copy_from_slice(word);
        lower.make_ascii_lowercase();
        WORDS.binary_search_by(|known| known.as_bytes().cmp(lower)).is_ok()
    })
}

/// Whether a quoted text with blanks reads like a message, not like a passphrase.
fn is_sentence(value: &[u8]) -> bool {
    let mut words = value.split(u8::is_ascii_whitespace);
    let mixed = |word: &[u8]| {
        word.iter().any(u8::is_ascii_digit) && word.iter().any(u8::is_ascii_alphabetic)
    };
    if words.clone().any(mixed) {
        return false;
    }
    words.any(|word| word.len() > 1 && is_word(word))
        || value.ends_with(b".")
        || value.ends_with(b"?")
        || !value[0].is_ascii()
}

/// Whether the value is the location of a secret: a file or a URL.
fn is_place(value: &[u8]) -> bool {
    let starts = [&b"./"[..], b"../", b"~/", b"http://", b"https://", b"file://", b"s3://"];
    if starts.iter().any(|start| value.starts_with(start)) {
        return true;
    }
    let Some(rest) = value.strip_prefix(b"/") else { return false };
    let part = rest.iter().take_while(|byte| byte.is_ascii_lowercase()).count();
    part >= 2 && rest.get(part).is_none_or(|&byte| byte == b'/')
}

/// Whether a bare value is an expression: a call, a path, a variable, a type.
fn is_code(value: &[u8], next: u8) -> bool {
    let scoped = memchr::memmem::find(value, b"::").is_some();
    let name = |part: &[u8]| {
        let digits = part.iter().filter(|byte| byte.is_ascii_digit()).count();
        let groups =
            part.split(|byte| !byte.is_ascii_digit()).filter(|group| !group.is_empty()).count();
        let jumbled = groups > 1 && !scoped && !is_known(part);
        let digits = if jumbled { usize::MAX } else { digits };
        let plain = part.iter().all(|&byte| byte == b'_' || byte.is_ascii_alphanumeric());
        plain && digits <= 2 && !part.first().is_none_or(u8::is_ascii_digit) && !is_jumbled(part)
    };
    // `pkqlZD1.a4hemrn2`: no path has a digit in every part.
    let numbered = |path: &[u8]| {
        path.split(|byte| b".:".contains(byte)).all(|part| part.iter().any(u8::is_ascii_digit))
    };
    let head = value.iter().take_while(|&&byte| Class::Alnum.has(byte) || b"_.:".contains(&byte));
    let head = &value[..head.count()];
    let tail = value[head.len()..].strip_prefix(b"!").unwrap_or(&value[head.len()..]);
    let called = tail.first().is_some_and(|byte| matches!(byte, b'(' | b'[' | b'{'));
    let path = head.len() == value.len()
        && head.iter().any(|byte| b".:".contains(byte))
        && head.split(|byte| b".:".contains(byte)).all(|part| part.is_empty() || name(part))
        && !(is_jumbled(value) && (numbered(head) || is_odd(head)));
    let typed = matches!(value[0], b'&' | b'*' | b'!' | b'?' | b'~')
        && value.get(1).is_some_and(u8::is_ascii_alphabetic)
        && !value.iter().any(u8::is_ascii_digit);
    let variable = name(value) && mentions_secret(value);
    (called && !head.is_empty())
        || path
        || typed
        || variable
        || (name(value) && matches!(next, b'(' | b'[' | b'<'))
}

/// Whether a part of a path without digits changes its case as no name does: `zZsZlzo`, `OqFtxyI`. The other parts of
/// such a value have a digit before a letter.
fn is_odd(path: &[u8]) -> bool {
    path.split(|byte| b".:".contains(byte)).any(|part| {
        let humps = part
            .windows(2)
            .filter(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase());
        // `userID` and `getURL` have a hump before several capitals; a single one at the end has no meaning.
        let [.., before, last] = part else { return false };
        let ends_high = before.is_ascii_lowercase() && last.is_ascii_uppercase();
        let is_short = part.len() < 12;
        is_short && (ends_high || humps.count() >= 2)
    })
}

/// Names in which a digit stands before a letter, at the start of a part or after another name.
const DIGIT_NAMES: [&[u8]; 11] = [
    b"utf8", b"base64", b"sha1", b"sha2", b"sha5", b"i18n", b"k8s", b"oauth2", b"md5", b"x86",
    b"ipv",
];

/// Whether a part of a path is a password: both cases, and a digit before a letter that no known name explains.
fn is_jumbled(part: &[u8]) -> bool {
    let inner =
        part.windows(2).any(|pair| pair[0].is_ascii_digit() && pair[1].is_ascii_alphabetic());
    if !inner || !is_mixed(part) {
        return false;
    }
    !is_known(part) && !part.starts_with(b"s3") && !part.starts_with(b"v1")
}

/// Whether a part contains one of [`DIGIT_NAMES`].
fn is_known(part: &[u8]) -> bool {
    let lower = part.to_ascii_lowercase();
    DIGIT_NAMES.iter().any(|name| memchr::memmem::find(&lower, name).is_some())
}

/// Whether a value is the name of a secret and not the secret itself.
fn mentions_secret(value: &[u8]) -> bool {
    let letters = value.iter().all(|&byte| byte.is_ascii_alphabetic() || b"_-.".contains(&byte));
    let words = value.iter().filter(|&&byte| byte == b'-').count() + 1;
    let lower = value.to_ascii_lowercase();
    letters
        && words <= 3
        && ["pass", "pwd", "secret", "token", "key", "cred", "auth"]
            .iter()
            .any(|word| memchr::memmem::find(&lower, word.as_bytes()).is_some())
}
